package s3store

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Options are the knobs of one store. ParseURL fills the first group; the rest
// has defaults that suit a bucket in the same region.
type Options struct {
	Bucket    string
	Prefix    string // no slashes at its ends; may be empty
	Endpoint  string // empty: the AWS environment's, or AWS itself
	Region    string // empty: the AWS environment's; off AWS us-east-1
	Profile   string // of the shared AWS configuration files
	PathStyle *bool  // nil: only off AWS
	Unordered bool   // the bucket lists in no order (S3 Express); sort here

	// Static credentials; empty means the usual AWS chain.
	AccessKeyID, SecretAccessKey, SessionToken string

	MaxAttempts    int           // of an idempotent request; zero is 5
	RequestTimeout time.Duration // of one attempt, plus the time that its bytes take; zero is 15 s
	MinRate        int64         // bytes per second that a slow attempt must reach; zero is 1 MiB
	MinBackoff     time.Duration // before the second attempt, doubling; zero is 50 ms
	MaxBackoff     time.Duration // zero is 3 s
	DisableHedging bool
	MaxConnections int // idle connections kept; zero is 128
}

func (o Options) withDefaults() Options {
	if o.MaxAttempts <= 0 {
		o.MaxAttempts = 5
	}
	if o.RequestTimeout <= 0 {
		o.RequestTimeout = 15 * time.Second
	}
	if o.MinRate <= 0 {
		o.MinRate = 1 << 20
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = 50 * time.Millisecond
	}
	if o.MaxBackoff < o.MinBackoff {
		o.MaxBackoff = max(3*time.Second, o.MinBackoff)
	}
	if o.MaxConnections <= 0 {
		o.MaxConnections = 128
	}
	// Directory buckets (S3 Express) list in no order; their names say so.
	o.Unordered = o.Unordered || strings.HasSuffix(o.Bucket, "--x-s3")
	return o
}

var parameters = []string{"endpoint", "region", "path_style", "profile", "unordered_list"}

// ParseURL reads s3://bucket/prefix?endpoint=URL&region=R&path_style=true
// &profile=P&unordered_list=true into base. Credentials do not belong in a URL,
// which is logged, and are refused.
func ParseURL(raw string, base Options) (Options, error) {
	bad := func(format string, args ...any) (Options, error) {
		return Options{}, errs.In("read the s3 URL", errs.New(errs.Invalid, format, args...))
	}
	u, err := url.Parse(raw)
	if err != nil {
		return bad("it is not a URL")
	}
	if u.User != nil {
		return bad("it holds credentials; put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile")
	}
	if u.Scheme != "s3" || u.Host == "" || u.Fragment != "" {
		return bad("%q is not of the form s3://bucket/prefix?endpoint=…&region=…&path_style=true", u.Redacted())
	}
	o := base
	o.Bucket, o.Prefix = u.Host, strings.Trim(u.Path, "/")
	if o.Prefix != "" {
		if err := objstore.CheckKey(o.Prefix); err != nil {
			return bad("prefix: %v", err)
		}
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return bad("its parameters: %v", err)
	}
	for name, values := range query {
		if !slices.Contains(parameters, name) {
			return bad("it has no parameter %q; known are %s", name, strings.Join(parameters, ", "))
		}
		if err := o.set(name, values[len(values)-1]); err != nil {
			return Options{}, errs.In("read the s3 URL", err)
		}
	}
	return o, nil
}

func (o *Options) set(name, value string) error {
	switch name {
	case "endpoint":
		u, err := url.Parse(value)
		if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil {
			return errs.New(errs.Invalid, "its endpoint is not of the form http://host:port (credentials do not belong there)")
		}
		o.Endpoint = value
	case "region":
		o.Region = value
	case "profile":
		o.Profile = value
	default:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return errs.New(errs.Invalid, "%s=%q is neither true nor false", name, value)
		}
		if name == "path_style" {
			o.PathStyle = &b
		} else {
			o.Unordered = b
		}
	}
	return nil
}
