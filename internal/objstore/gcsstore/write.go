package gcsstore

import (
	"bytes"
	"context"

	"google.golang.org/api/googleapi"
	"google.golang.org/api/storage/v1"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Put writes an object.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	_, err := s.put(ctx, key, body, false)
	return err
}

// PutIfAbsent writes an object unless the key is taken.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	taken, err := s.put(ctx, key, body, true)
	switch {
	case err != nil:
		return objstore.Unknown, err
	case taken:
		return objstore.Exists, nil
	}
	return objstore.Created, nil
}

// put sends the object in one request; taken says that ifAbsent did not hold.
func (s *Store) put(ctx context.Context, key string, body []byte, ifAbsent bool) (taken bool, err error) {
	err = s.do(ctx, "put", key, int64(len(body)), true, func(ctx context.Context) error {
		call := s.objects.Insert(s.bucket, &storage.Object{Name: s.prefix + key}).
			Media(bytes.NewReader(body), googleapi.ChunkSize(0), googleapi.ContentType("application/octet-stream")).
			WithRetry(nil, func(error) bool { return false }). // do retries
			Fields("name").Context(ctx)
		if ifAbsent {
			call.IfGenerationMatch(0)
		}
		_, err := call.Do()
		if taken = ifAbsent && isTaken(err); taken {
			return nil
		}
		return err
	})
	return taken, err
}

// Delete removes an object; a missing one is fine.
func (s *Store) Delete(ctx context.Context, key string) error {
	err := s.do(ctx, "delete", key, 0, true, func(ctx context.Context) error {
		return s.objects.Delete(s.bucket, s.prefix+key).Context(ctx).Do()
	})
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}
