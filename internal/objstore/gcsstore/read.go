package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"google.golang.org/api/storage/v1"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Get reads a whole object.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	return s.read(ctx, key, "", unknownSize)
}

// GetRange reads a part of an object.
func (s *Store) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	if n <= 0 {
		info, err := s.Head(ctx, key)
		return nil, info, err
	}
	spec := fmt.Sprintf("bytes=-%d", n)
	if start >= 0 {
		last := start + n - 1
		if last < start {
			last = 1<<63 - 1
		}
		spec = fmt.Sprintf("bytes=%d-%d", start, last)
	}
	body, info, err := s.read(ctx, key, spec, n)
	if errs.Is(err, errs.OutOfRange) { // a start past the end, or a suffix of nothing
		info, err = s.Head(ctx, key)
		return nil, info, err
	}
	return body, info, err
}

// read sends one media request, of a range if spec is not empty.
func (s *Store) read(ctx context.Context, key, spec string, size int64) (body []byte, info objstore.Info, err error) {
	err = s.do(ctx, "read", key, size, false, func(ctx context.Context) error {
		call := s.objects.Get(s.bucket, s.prefix+key).Context(ctx)
		if spec != "" {
			call.Header().Set("Range", spec)
		}
		answer, err := call.Download()
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, info, err = receive(key, answer)
		return err
	})
	if err != nil {
		return nil, objstore.Info{}, err
	}
	return body, info, nil
}

var errShort = errors.New("the answer's length is not what its header says")

func receive(key string, answer *http.Response) ([]byte, objstore.Info, error) {
	info := objstore.Info{Key: key, Size: answer.ContentLength}
	if _, total, ok := strings.Cut(answer.Header.Get("Content-Range"), "/"); ok {
		size, err := strconv.ParseInt(total, 10, 64)
		if err != nil || size < 0 {
			return nil, info, fmt.Errorf("Content-Range %q names no size", answer.Header.Get("Content-Range"))
		}
		info.Size = size
	}
	info.ModTime, _ = http.ParseTime(answer.Header.Get("Last-Modified"))
	if answer.ContentLength < 0 { // a chunked answer says nothing of its size
		body, err := io.ReadAll(answer.Body)
		if answer.Header.Get("Content-Range") == "" {
			info.Size = int64(len(body))
		}
		return body, info, err
	}
	body := make([]byte, answer.ContentLength)
	if _, err := io.ReadFull(answer.Body, body); err != nil {
		return nil, info, errors.Join(errShort, err)
	}
	return body, info, nil
}

const infoFields = "name,size,updated"

// Head returns an object's Info.
func (s *Store) Head(ctx context.Context, key string) (info objstore.Info, err error) {
	err = s.do(ctx, "head", key, 0, false, func(ctx context.Context) error {
		o, err := s.objects.Get(s.bucket, s.prefix+key).Fields(infoFields).Context(ctx).Do()
		if err != nil {
			return err
		}
		info, err = s.info(o)
		return err
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

func (s *Store) info(o *storage.Object) (objstore.Info, error) {
	updated, err := time.Parse(time.RFC3339Nano, o.Updated)
	if err != nil {
		return objstore.Info{}, fmt.Errorf("object %s: its time %q is no RFC 3339 time", o.Name, o.Updated)
	}
	return objstore.Info{Key: strings.TrimPrefix(o.Name, s.prefix), Size: int64(o.Size), ModTime: updated}, nil //nolint:gosec // no object has 2^63 bytes
}

// List pages through the bucket's listing.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := objstore.CheckPrefix(prefix); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		for token := ""; ; {
			page, err := s.page(ctx, prefix, startAfter, token)
			if err != nil {
				yield(objstore.Info{}, err)
				return
			}
			for _, o := range page.Items {
				info, err := s.info(o)
				// The provider's offset includes its own key.
				if err == nil && (info.Key <= startAfter || objstore.CheckKey(info.Key) != nil) {
					continue
				}
				if !yield(info, errs.Wrap(errs.Unavailable, "list "+prefix, err)) || err != nil {
					return
				}
			}
			if token = page.NextPageToken; token == "" {
				return
			}
		}
	}
}

func (s *Store) page(ctx context.Context, prefix, startAfter, token string) (page *storage.Objects, err error) {
	err = s.try(ctx, "list "+prefix, 0, false, func(ctx context.Context) error {
		call := s.objects.List(s.bucket).Prefix(s.prefix+prefix).PageToken(token).
			Fields("nextPageToken", "items("+infoFields+")").Context(ctx)
		if startAfter != "" {
			call.StartOffset(s.prefix + startAfter)
		}
		var err error
		page, err = call.Do()
		return err
	})
	return page, err
}
