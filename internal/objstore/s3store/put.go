package s3store

import (
	"bytes"
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Put writes an object in one request, whatever its size.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	if err := s.check(ctx, "put", key, body); err != nil {
		return err
	}
	maybe := false // an earlier attempt may have been applied
	err := s.do(ctx, int64(len(body)), func(a *attempt) error {
		_, err := s.client.PutObject(a.ctx, s.putInput(key, body))
		err = classify(a.ctx, "put "+key, err, true)
		maybe = maybe || errs.Is(err, errs.Unknown)
		return err
	})
	return unsettled("put "+key, err, maybe)
}

// PutIfAbsent sends one conditional put.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	if err := s.check(ctx, "put", key, body); err != nil {
		return objstore.Unknown, err
	}
	a := s.begin(ctx, int64(len(body)))
	defer a.end()
	in := s.putInput(key, body)
	in.IfNoneMatch = aws.String("*")
	_, err := s.client.PutObject(a.ctx, in)
	if err == nil {
		return objstore.Created, nil
	}
	if status, _ := statusOf(err); status == 412 {
		return objstore.Exists, nil
	}
	return objstore.Unknown, classify(a.ctx, "put "+key, err, true)
}

// Delete removes an object.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := s.check(ctx, "delete", key, nil); err != nil {
		return err
	}
	maybe := false
	err := s.do(ctx, 0, func(a *attempt) error {
		_, err := s.client.DeleteObject(a.ctx, &s3.DeleteObjectInput{Bucket: &s.options.Bucket, Key: s.key(key)})
		if err = classify(a.ctx, "delete "+key, err, true); errs.Is(err, errs.NotFound) {
			return nil
		}
		maybe = maybe || errs.Is(err, errs.Unknown)
		return err
	})
	return unsettled("delete "+key, err, maybe)
}

// unsettled keeps a write's error Unknown when any of its attempts was.
func unsettled(op string, err error, maybe bool) error {
	if err != nil && maybe && !errs.Is(err, errs.Unknown) {
		return errs.Wrap(errs.Unknown, op, err)
	}
	return err
}

func (s *Store) putInput(key string, body []byte) *s3.PutObjectInput {
	return &s3.PutObjectInput{
		Bucket:        &s.options.Bucket,
		Key:           s.key(key),
		Body:          bytes.NewReader(body),
		ContentLength: aws.Int64(int64(len(body))),
	}
}

// check refuses what must not be sent.
func (s *Store) check(ctx context.Context, op, key string, body []byte) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return errs.Wrap(errs.Canceled, op+" "+key, err)
	}
	if int64(len(body)) > singlePutMax {
		return errs.New(errs.TooLarge, "%s %s: %d bytes are more than the %d that one S3 put takes", op, key, len(body), int64(singlePutMax))
	}
	return nil
}
