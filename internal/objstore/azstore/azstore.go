package azstore

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/url"
	"strings"
	"time"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // azblob://

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	requestTimeout = 30 * time.Second // of one call, plus the time that its bytes take
	minRate        = 1 << 20          // bytes per second that a slow call must reach
)

// Store is a container's prefix. Make one with Open or Wrap.
type Store struct {
	bucket *blob.Bucket
	url    string
	prefix string // empty, or ends in a slash
}

var _ objstore.Store = (*Store)(nil)

// Open opens azblob://container/prefix with Azure's usual credentials.
// Parameters are passed on to gocloud.dev.
func Open(ctx context.Context, raw string) (*Store, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "azblob" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, errs.New(errs.Invalid, "the store URL is not of the form azblob://container/prefix")
	}
	prefix := strings.Trim(u.Path, "/")
	bare := url.URL{Scheme: u.Scheme, Host: u.Host, RawQuery: u.RawQuery}
	bucket, err := blob.OpenBucket(ctx, bare.String())
	if err != nil {
		return nil, &errs.Error{Class: errs.Unauthenticated, Op: "open " + u.Scheme + "://" + u.Host, Cause: err, Msg: openHint}
	}
	s, err := Wrap(bucket, u.Scheme+"://"+u.Host, prefix)
	if err != nil {
		_ = bucket.Close()
		return nil, err
	}
	return s, nil
}

const openHint = "check the parameters and the credentials (AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY, a SAS token, or a managed identity)"

// Wrap makes a store of an open bucket, which it takes over. url names the
// bucket without the prefix.
func Wrap(bucket *blob.Bucket, url, prefix string) (*Store, error) {
	s := &Store{bucket: bucket, url: url}
	if prefix != "" {
		if err := objstore.CheckKey(prefix); err != nil {
			return nil, errs.In("open prefix", err)
		}
		s.prefix, s.url = prefix+"/", url+"/"+prefix
	}
	return s, nil
}

// begin checks a key and limits the time of a call that moves size bytes.
func (s *Store) begin(ctx context.Context, op, key string, size int64) (context.Context, context.CancelFunc, error) {
	if err := objstore.CheckKey(key); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, errs.Wrap(errs.Canceled, op+" "+key, err)
	}
	limit := requestTimeout + time.Duration(float64(size)/minRate*float64(time.Second))
	limited, cancel := context.WithTimeout(ctx, limit)
	return limited, cancel, nil
}

// Get reads a whole object.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	return s.read(ctx, key, 0, -1)
}

// GetRange reads a part of an object.
func (s *Store) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	if start < 0 || n <= 0 {
		info, err := s.Head(ctx, key)
		if err != nil {
			return nil, objstore.Info{}, err
		}
		from, to := objstore.Window(info.Size, start, n)
		if from == to {
			return nil, info, nil
		}
		start, n = from, to-from
	}
	body, info, err := s.read(ctx, key, start, n)
	if err == nil || errs.Is(err, errs.NotFound) || errs.Is(err, errs.Canceled) {
		return body, info, err
	}
	// A start at or past the end is an error of many kinds: ask for the size.
	if info, headErr := s.Head(ctx, key); headErr == nil && start >= info.Size {
		return nil, info, nil
	}
	return nil, objstore.Info{}, err
}

// read reads length bytes from start; a negative length means to the end.
func (s *Store) read(ctx context.Context, key string, start, length int64) ([]byte, objstore.Info, error) {
	// The size of a whole object is unknown here, so its reading is bounded by
	// the caller's context alone once it has begun.
	limited, cancel, err := s.begin(ctx, "read", key, max(length, 64<<20))
	if err != nil {
		return nil, objstore.Info{}, err
	}
	defer cancel()
	r, err := s.bucket.NewRangeReader(limited, s.prefix+key, start, length, nil)
	if err != nil {
		return nil, objstore.Info{}, classify(ctx, "read "+key, err, false)
	}
	defer func() { _ = r.Close() }()
	info := objstore.Info{Key: key, Size: r.Size(), ModTime: r.ModTime()}
	from, to := start, info.Size
	if length >= 0 {
		from, to = objstore.Window(info.Size, start, length)
	}
	body := make([]byte, max(0, to-from))
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, objstore.Info{}, classify(ctx, "read "+key, err, false)
	}
	return body, info, nil
}

// Head returns an object's Info.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	limited, cancel, err := s.begin(ctx, "head", key, 0)
	if err != nil {
		return objstore.Info{}, err
	}
	defer cancel()
	attributes, err := s.bucket.Attributes(limited, s.prefix+key)
	if err != nil {
		return objstore.Info{}, classify(ctx, "head "+key, err, false)
	}
	return objstore.Info{Key: key, Size: attributes.Size, ModTime: attributes.ModTime}, nil
}

// Put writes an object.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	return s.write(ctx, key, body, false)
}

// PutIfAbsent writes an object unless the key is taken.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	switch err := s.write(ctx, key, body, true); {
	case err == nil:
		return objstore.Created, nil
	case errors.Is(err, errTaken):
		return objstore.Exists, nil
	default:
		return objstore.Unknown, err
	}
}

var errTaken = errors.New("the key is taken")

func (s *Store) write(ctx context.Context, key string, body []byte, ifAbsent bool) error {
	limited, cancel, err := s.begin(ctx, "put", key, int64(len(body)))
	if err != nil {
		return err
	}
	defer cancel()
	err = s.bucket.WriteAll(limited, s.prefix+key, body, &blob.WriterOptions{
		ContentType: "application/octet-stream",
		IfNotExist:  ifAbsent,
	})
	if ifAbsent && isTaken(err) {
		return errTaken
	}
	return classify(ctx, "put "+key, err, true)
}

// Delete removes an object; a missing one is fine.
func (s *Store) Delete(ctx context.Context, key string) error {
	limited, cancel, err := s.begin(ctx, "delete", key, 0)
	if err != nil {
		return err
	}
	defer cancel()
	err = classify(ctx, "delete "+key, s.bucket.Delete(limited, s.prefix+key), true)
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// List pages through the provider's listing.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := objstore.CheckPrefix(prefix); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		if err := ctx.Err(); err != nil {
			yield(objstore.Info{}, errs.Wrap(errs.Canceled, "list "+prefix, err))
			return
		}
		objects := s.bucket.List(&blob.ListOptions{Prefix: s.prefix + prefix})
		for {
			o, err := objects.Next(ctx)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(objstore.Info{}, classify(ctx, "list "+prefix, err, false))
				return
			}
			key := strings.TrimPrefix(o.Key, s.prefix)
			if key <= startAfter || objstore.CheckKey(key) != nil {
				continue
			}
			if !yield(objstore.Info{Key: key, Size: o.Size, ModTime: o.ModTime}, nil) {
				return
			}
		}
	}
}

// URL names the bucket and prefix.
func (s *Store) URL() string { return s.url }

// Close closes the bucket's client.
func (s *Store) Close() error {
	return errs.Wrap(errs.Internal, "close "+s.url, s.bucket.Close())
}
