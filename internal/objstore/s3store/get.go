package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Get reads a whole object.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	return s.read(ctx, key, "", true, func(size int64) (int64, int64) { return 0, size })
}

// GetRange reads a part of an object.
func (s *Store) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	window := func(size int64) (int64, int64) { return objstore.Window(size, start, n) }
	if n <= 0 {
		info, err := s.Head(ctx, key)
		return nil, info, err
	}
	spec := fmt.Sprintf("bytes=%d-%d", start, lastByte(start, n))
	if start < 0 {
		spec = fmt.Sprintf("bytes=-%d", n)
	}
	body, info, err := s.read(ctx, key, spec, n <= hedgeMaxBytes, window)
	if errs.Is(err, errs.OutOfRange) {
		info, err = s.Head(ctx, key)
		if err != nil || start >= 0 || info.Size == 0 {
			return nil, info, err
		}
		// Some stores refuse a suffix longer than the object.
		return s.read(ctx, key, "", true, window)
	}
	return body, info, err
}

// lastByte is start+n-1 without overflow.
func lastByte(start, n int64) int64 {
	if last := start + n - 1; last >= start {
		return last
	}
	return 1<<63 - 1
}

// read sends a GET with an optional range and returns the window's bytes.
func (s *Store) read(ctx context.Context, key, spec string, hedge bool, window func(size int64) (from, to int64)) ([]byte, objstore.Info, error) {
	if err := s.check(ctx, "read", key, nil); err != nil {
		return nil, objstore.Info{}, err
	}
	in := &s3.GetObjectInput{Bucket: &s.options.Bucket, Key: s.key(key)}
	if spec != "" {
		in.Range = &spec
	}
	var body []byte
	var info objstore.Info
	err := s.do(ctx, 0, func(a *attempt) error {
		out, cancel, err := s.open(a.ctx, in, hedge)
		defer cancel()
		if err != nil {
			return classify(a.ctx, "read "+key, err, false)
		}
		defer out.Body.Close()
		s.extend(a, aws.ToInt64(out.ContentLength))
		body, info, err = receive(key, out, window)
		return classify(a.ctx, "read "+key, err, false)
	})
	if err != nil {
		return nil, objstore.Info{}, err
	}
	return body, info, nil
}

var errShort = errors.New("the answer's length is not what was asked for")

// receive reads the bytes of a window from an answer, which holds exactly them,
// or the whole object when the server knows no ranges.
func receive(key string, out *s3.GetObjectOutput, window func(size int64) (from, to int64)) ([]byte, objstore.Info, error) {
	info := objstore.Info{Key: key, Size: aws.ToInt64(out.ContentLength), ModTime: aws.ToTime(out.LastModified)}
	if out.ContentLength == nil { // a chunked answer says nothing of its size
		body, err := io.ReadAll(out.Body)
		if err != nil {
			return nil, info, err
		}
		info.Size = int64(len(body))
		from, to := window(info.Size)
		return body[from:to], info, nil
	}
	begins := int64(0)
	if out.ContentRange != nil {
		var err error
		if begins, info.Size, err = parseContentRange(*out.ContentRange); err != nil {
			return nil, info, err
		}
	}
	from, to := window(info.Size)
	if from < begins || to > begins+*out.ContentLength {
		return nil, info, errShort
	}
	if _, err := io.CopyN(io.Discard, out.Body, from-begins); err != nil {
		return nil, info, err
	}
	body := make([]byte, to-from)
	if _, err := io.ReadFull(out.Body, body); err != nil {
		return nil, info, err
	}
	// The end of the body must be seen: its checksum, if any, is judged there.
	if to == begins+*out.ContentLength {
		if n, err := out.Body.Read(make([]byte, 1)); n != 0 || (err != nil && !errors.Is(err, io.EOF)) {
			return nil, info, errors.Join(errShort, err)
		}
	}
	return body, info, nil
}

// parseContentRange reads "bytes 0-9/100".
func parseContentRange(v string) (begins, size int64, err error) {
	span, total, ok := strings.Cut(strings.TrimPrefix(v, "bytes "), "/")
	first, _, ok2 := strings.Cut(span, "-")
	if ok && ok2 {
		begins, err = strconv.ParseInt(first, 10, 64)
		if err == nil {
			size, err = strconv.ParseInt(total, 10, 64)
		}
	}
	if !ok || !ok2 || err != nil || begins < 0 || size < 0 {
		return 0, 0, fmt.Errorf("Content-Range %q is not of the form bytes 0-9/100", v)
	}
	return begins, size, nil
}

// Head returns an object's Info.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.check(ctx, "head", key, nil); err != nil {
		return objstore.Info{}, err
	}
	info := objstore.Info{Key: key}
	err := s.do(ctx, 0, func(a *attempt) error {
		out, err := s.client.HeadObject(a.ctx, &s3.HeadObjectInput{Bucket: &s.options.Bucket, Key: s.key(key)})
		if err != nil {
			return classify(a.ctx, "head "+key, err, false)
		}
		info.Size, info.ModTime = aws.ToInt64(out.ContentLength), aws.ToTime(out.LastModified)
		return nil
	})
	if err != nil {
		return objstore.Info{}, err
	}
	return info, nil
}

// listed is one object of a listing page.
func (s *Store) listed(key string, size int64, modified *time.Time) objstore.Info {
	return objstore.Info{Key: strings.TrimPrefix(key, s.prefix), Size: size, ModTime: aws.ToTime(modified)}
}
