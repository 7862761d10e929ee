package s3store

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	dialTimeout      = 5 * time.Second
	idleTimeout      = 50 * time.Second // under the minute at which servers and balancers hang up
	socketBuffer     = 64 << 10
	continueAbove    = 32 << 20 // bodies from here on ask first (Expect: 100-continue)
	credentialsLimit = 10 * time.Second
	singlePutMax     = 5 << 30 // S3's own limit on one PUT
)

// Store is a bucket's prefix. Make one with Open.
type Store struct {
	options   Options
	client    *s3.Client
	transport *http.Transport
	prefix    string // empty, or ends in a slash
	hedger    hedger
	sleep     func(context.Context, time.Duration) error
	rand      func() float64
}

var _ objstore.Store = (*Store)(nil)

// Open makes the client. It asks the credentials' source, so that a missing
// one is told now, but sends nothing to the bucket.
func Open(ctx context.Context, o Options) (*Store, error) {
	o = o.withDefaults()
	s := &Store{options: o, sleep: sleepFor, rand: rand.Float64}
	if o.Prefix != "" {
		s.prefix = o.Prefix + "/"
	}
	cfg, err := loadConfig(ctx, o)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, "read the AWS configuration", err)
	}
	cfg.HTTPClient = s.httpClient(cfg.HTTPClient)
	if cfg.Credentials == nil {
		return nil, noCredentials(nil)
	}
	credCtx, cancel := context.WithTimeout(ctx, credentialsLimit)
	defer cancel()
	if _, err := cfg.Credentials.Retrieve(credCtx); err != nil {
		return nil, noCredentials(err)
	}
	s.client = s3.NewFromConfig(cfg, func(so *s3.Options) { tune(so, o) })
	if s.client.Options().Region == "" {
		return nil, errs.New(errs.Invalid, "no region is known for bucket %s; add ?region=… to the store URL or set AWS_REGION", o.Bucket)
	}
	return s, nil
}

func loadConfig(ctx context.Context, o Options) (aws.Config, error) {
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(sdkTransport(o)),
		config.WithLogger(logging.Nop{}),                                   // what matters is in the errors
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), // retries are ours
	}
	if o.Region != "" {
		load = append(load, config.WithRegion(o.Region))
	}
	if o.Profile != "" {
		load = append(load, config.WithSharedConfigProfile(o.Profile))
	}
	if o.AccessKeyID != "" {
		load = append(load, config.WithCredentialsProvider(
			credentials.NewStaticCredentialsProvider(o.AccessKeyID, o.SecretAccessKey, o.SessionToken)))
	}
	return config.LoadDefaultConfig(ctx, load...)
}

// tune fits the client to the endpoint, which by now is known from the URL or
// from the environment.
func tune(so *s3.Options, o Options) {
	if o.Endpoint != "" {
		so.BaseEndpoint = aws.String(o.Endpoint)
	}
	own := so.BaseEndpoint == nil || isAWS(*so.BaseEndpoint)
	so.UsePathStyle = !own
	if o.PathStyle != nil {
		so.UsePathStyle = *o.PathStyle
	}
	if !own {
		if so.Region == "" {
			so.Region = "us-east-1"
		}
		so.DisableS3ExpressSessionAuth = aws.Bool(true)
		// Many stores do not know checksum trailers and aws-chunked bodies. The
		// body is signed by its SHA-256 either way.
		if os.Getenv("AWS_REQUEST_CHECKSUM_CALCULATION") == "" {
			so.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		}
		if os.Getenv("AWS_RESPONSE_CHECKSUM_VALIDATION") == "" {
			so.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		}
	}
	so.DisableLogOutputChecksumValidationSkipped = true
	so.ContinueHeaderThresholdBytes = continueAbove
}

func isAWS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	for _, suffix := range []string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return false
}

// sdkTransport is what the AWS configuration may still add a CA bundle to.
func sdkTransport(o Options) *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = dialTimeout }).
		WithTransportOptions(func(t *http.Transport) {
			t.MaxIdleConns = 2 * o.MaxConnections
			t.MaxIdleConnsPerHost = o.MaxConnections
			t.IdleConnTimeout = idleTimeout
			t.TLSHandshakeTimeout = dialTimeout
			t.ExpectContinueTimeout = time.Second
			t.ReadBufferSize = socketBuffer
			t.WriteBufferSize = socketBuffer
			t.DisableCompression = true
			t.ForceAttemptHTTP2 = false // many connections carry more than one
		})
}

// httpClient takes the finished transport. Redirects are answers, not detours: a
// signature is for one host.
func (s *Store) httpClient(from aws.HTTPClient) aws.HTTPClient {
	buildable, ok := from.(*awshttp.BuildableClient)
	if !ok {
		return from
	}
	s.transport = buildable.GetTransport()
	return &http.Client{Transport: s.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
}

func (s *Store) key(key string) *string { return aws.String(s.prefix + key) }

// URL returns s3://bucket/prefix.
func (s *Store) URL() string {
	return strings.TrimSuffix("s3://"+s.options.Bucket+"/"+s.options.Prefix, "/")
}

// Close drops idle connections.
func (s *Store) Close() error {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
	return nil
}
