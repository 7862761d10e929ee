package agent

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/semaphore"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
)

// liveRead is what a read wants of one live segment: offsets [from, to), cut to the segment's.
type liveRead struct {
	seg      *liveSegment
	from, to int64
}

// segmentRows is one live segment's rows in a read schema; rows is nil when statistics ruled all of them out.
type segmentRows struct {
	seg  *liveSegment
	rows arrow.RecordBatch
	err  error
}

const (
	// liveReadahead bounds the segments that are read ahead of their reader: as
	// many as hide a store's round trip behind small segments.
	liveReadahead = 16
	// liveReadaheadBytes bounds their stored bytes; a larger segment is read alone.
	liveReadaheadBytes = 12 << 20
)

// reads lists what a range takes out of its segments.
func (r bucketRange) reads() []liveRead {
	out := make([]liveRead, len(r.segs))
	for i, s := range r.segs {
		out[i] = liveRead{s, r.from, r.to}
	}
	return out
}

// liveReads lists what a plan takes out of live segments, object by object, oldest
// first: each footer is needed once then, however many buckets there are.
func (p *readPlan) liveReads() []liveRead {
	var out []liveRead
	for _, r := range p.buckets {
		out = append(out, r.reads()...)
	}
	if len(p.buckets) > 1 {
		slices.SortStableFunc(out, func(a, b liveRead) int {
			x, y := &a.seg.ref, &b.seg.ref
			return cmp.Or(cmp.Compare(x.Timestamp, y.Timestamp), cmp.Compare(x.Object.Incarnation, y.Object.Incarnation), cmp.Compare(x.Object.Seq, y.Object.Seq))
		})
	}
	return out
}

// prefetch reads segments in order, some ahead of the reader.
func (n *incarnation) prefetch(ctx context.Context, def *metastore.Table, reads []liveRead, proj projection) iter.Seq2[segmentRows, error] {
	return func(yield func(segmentRows, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		type ahead struct {
			done   chan segmentRows
			weight int64
		}
		budget := semaphore.NewWeighted(liveReadaheadBytes)
		slots := make(chan ahead, liveReadahead)
		go func() {
			defer close(slots)
			for _, r := range reads {
				slot := ahead{make(chan segmentRows, 1), min(r.seg.ref.Bytes, liveReadaheadBytes)}
				if budget.Acquire(ctx, slot.weight) != nil {
					return
				}
				select {
				case slots <- slot:
				case <-ctx.Done():
					return
				}
				go func() {
					rec, err := n.readLive(ctx, def, r.seg, proj, r.from, r.to)
					slot.done <- segmentRows{r.seg, rec, err}
				}()
			}
		}()
		for slot := range slots {
			got := <-slot.done
			budget.Release(slot.weight)
			if !yield(got, got.err) || got.err != nil {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(segmentRows{}, errs.Wrap(errs.Canceled, "read live rows", err))
		}
	}
}
