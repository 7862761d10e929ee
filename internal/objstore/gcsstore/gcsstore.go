package gcsstore

import (
	"context"
	"net/url"
	"os"
	"slices"
	"strings"

	"google.golang.org/api/option"
	"google.golang.org/api/storage/v1"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Store is a bucket's prefix. Make one with Open.
type Store struct {
	objects *storage.ObjectsService
	bucket  string
	prefix  string // empty, or ends in a slash
}

var _ objstore.Store = (*Store)(nil)

var parameters = []string{"anonymous", "endpoint", "universe_domain"}

// Open opens gs://bucket/prefix?anonymous=true&endpoint=URL&universe_domain=D
// with Google's application default credentials, which it finds but does not
// try. STORAGE_EMULATOR_HOST names an emulator, as for Google's own clients.
func Open(ctx context.Context, raw string) (*Store, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "gs" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errs.New(errs.Invalid, "the store URL is not of the form gs://bucket/prefix")
	}
	s := &Store{bucket: u.Host}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		if err := objstore.CheckKey(prefix); err != nil {
			return nil, errs.In("open prefix", err)
		}
		s.prefix = prefix + "/"
	}
	options, err := clientOptions(u.Query())
	if err != nil {
		return nil, err
	}
	service, err := storage.NewService(ctx, options...)
	if err != nil {
		return nil, &errs.Error{Class: errs.Unauthenticated, Op: "open gs://" + u.Host, Cause: err,
			Msg: "check the credentials (gcloud auth application-default login, or GOOGLE_APPLICATION_CREDENTIALS)"}
	}
	s.objects = service.Objects
	return s, nil
}

func clientOptions(query url.Values) ([]option.ClientOption, error) {
	for name := range query {
		if !slices.Contains(parameters, name) {
			return nil, errs.New(errs.Invalid, "the gs:// URL has no parameter %q; known are %s", name, strings.Join(parameters, ", "))
		}
	}
	out := []option.ClientOption{option.WithScopes(storage.DevstorageReadWriteScope)}
	endpoint := query.Get("endpoint")
	anonymous := query.Get("anonymous") == "true"
	if host := os.Getenv("STORAGE_EMULATOR_HOST"); endpoint == "" && host != "" {
		endpoint, anonymous = host, true
		if !strings.Contains(host, "://") {
			endpoint = "http://" + host
		}
	}
	if endpoint != "" {
		e, err := url.Parse(endpoint)
		if err != nil || (e.Scheme != "http" && e.Scheme != "https") || e.Host == "" || e.User != nil {
			return nil, errs.New(errs.Invalid, "the endpoint is not of the form http://host:port (credentials do not belong there)")
		}
		out = append(out, option.WithEndpoint(strings.TrimSuffix(endpoint, "/")+"/storage/v1/"))
	}
	if d := query.Get("universe_domain"); d != "" {
		out = append(out, option.WithUniverseDomain(d))
	}
	if anonymous {
		out = append(out, option.WithoutAuthentication())
	}
	return out, nil
}

// URL names the bucket and prefix.
func (s *Store) URL() string {
	return strings.TrimSuffix("gs://"+s.bucket+"/"+s.prefix, "/")
}

// Close has nothing to release: the client's connections are shared and time out.
func (s *Store) Close() error { return nil }
