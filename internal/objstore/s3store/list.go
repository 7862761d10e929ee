package s3store

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// List pages through ListObjectsV2. A bucket that lists in no order is read
// whole and sorted when Options.Unordered says so, and refused otherwise.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	if err := objstore.CheckPrefix(prefix); err != nil {
		return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, err) }
	}
	if s.options.Unordered {
		return s.listSorted(ctx, prefix, startAfter)
	}
	return func(yield func(objstore.Info, error) bool) {
		last := startAfter
		for info, err := range s.pages(ctx, prefix, startAfter) {
			if err == nil && info.Key <= last {
				err = errs.New(errs.Unsupported, "list %q: the store lists %q after %q, out of order; add ?unordered_list=true to its URL", prefix, info.Key, last)
				yield(objstore.Info{}, err)
				return
			}
			last = info.Key
			if !yield(info, err) || err != nil {
				return
			}
		}
	}
}

// pages yields objects in the store's own order.
func (s *Store) pages(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		in := &s3.ListObjectsV2Input{Bucket: &s.options.Bucket, Prefix: aws.String(s.prefix + prefix)}
		if startAfter != "" {
			in.StartAfter = aws.String(s.prefix + startAfter)
		}
		for {
			page, err := s.page(ctx, prefix, in)
			if err != nil {
				yield(objstore.Info{}, err)
				return
			}
			for _, o := range page.Contents {
				info := s.listed(aws.ToString(o.Key), aws.ToInt64(o.Size), o.LastModified)
				if objstore.CheckKey(info.Key) != nil {
					continue // a folder marker or the like: not ours
				}
				if !yield(info, nil) {
					return
				}
			}
			if !aws.ToBool(page.IsTruncated) || aws.ToString(page.NextContinuationToken) == "" {
				return
			}
			in.ContinuationToken = page.NextContinuationToken
		}
	}
}

func (s *Store) page(ctx context.Context, prefix string, in *s3.ListObjectsV2Input) (out *s3.ListObjectsV2Output, err error) {
	if err := ctx.Err(); err != nil {
		return nil, errs.Wrap(errs.Canceled, "list "+prefix, err)
	}
	err = s.do(ctx, 0, func(a *attempt) error {
		var err error
		out, err = s.client.ListObjectsV2(a.ctx, in)
		return classify(a.ctx, "list "+prefix, err, false)
	})
	return out, err
}

// listSorted reads everything below the prefix's last slash, which is all that
// a directory bucket can list, and sorts it.
func (s *Store) listSorted(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		var all []objstore.Info
		for info, err := range s.pages(ctx, prefix[:strings.LastIndexByte(prefix, '/')+1], "") {
			if err != nil {
				yield(objstore.Info{}, err)
				return
			}
			if strings.HasPrefix(info.Key, prefix) && info.Key > startAfter {
				all = append(all, info)
			}
		}
		slices.SortFunc(all, func(a, b objstore.Info) int { return cmp.Compare(a.Key, b.Key) })
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}
