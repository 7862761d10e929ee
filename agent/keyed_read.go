package agent

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
)

// keyedView is what a plan captured of a primary-key table's bucket.
type keyedView struct {
	index.View
	lake *index.Index
}

// captureKeyed captures the index of a bucket. The caller holds publishMu. It is
// nil when the bucket is at another generation than the snapshot of the plan.
func (b *bucket) captureKeyed(gen uint64) *keyedView {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gen != gen || b.keyed.state == nil {
		return nil
	}
	return &keyedView{b.keyed.state.View(), b.keyed.lake}
}

// hidden returns the positions of the lake that live changes hide, by data file.
func (p *readPlan) hidden() (map[string]*roaring.Bitmap, error) {
	out := map[string]*roaring.Bitmap{}
	for _, r := range p.buckets {
		if r.keyed == nil {
			continue
		}
		for number, rows := range r.keyed.Hidden {
			f, ok := r.keyed.lake.Manifest.File(number)
			if !ok {
				return nil, errs.New(errs.Corrupt, "the key index of table %s, bucket %d, points to data file %d, which it does not list", p.def, r.bucket, number)
			}
			out[f.Key] = rows
		}
	}
	return out, nil
}

// keyedRows returns how many rows a plan has in all.
func (p *readPlan) keyedRows() int64 {
	rows := p.snap.Rows
	for _, r := range p.buckets {
		rows += int64(r.keyed.Current.GetCardinality()) //nolint:gosec // far below 2^63
		for _, hidden := range r.keyed.Hidden {
			rows -= int64(hidden.GetCardinality()) //nolint:gosec // far below 2^63
		}
	}
	return rows
}

// currentBatches yields the live rows that are their keys' newest.
func (n *incarnation) currentBatches(ctx context.Context, def *metastore.Table, p *readPlan, proj projection, yield func(arrow.RecordBatch, error) bool) {
	for _, r := range p.buckets {
		for got, err := range n.prefetch(ctx, def, r.reads(), proj) {
			if err != nil {
				yield(nil, err)
				return
			}
			rec, err := r.keyed.current(got, r.from)
			if err == nil && rec != nil {
				rec, err = proj.finish(ctx, rec)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if rec != nil && rec.NumRows() > 0 && !yield(rec, nil) {
				return
			}
		}
	}
}

// current returns those rows of a segment, read from an offset on, that are current.
func (v *keyedView) current(got segmentRows, from int64) (arrow.RecordBatch, error) {
	if got.rows == nil || got.rows.NumRows() == 0 {
		return nil, nil
	}
	base := max(got.seg.ref.BaseOffset, from)
	var rows []int32
	it := v.Current.Iterator()
	it.AdvanceIfNeeded(uint64(base)) //nolint:gosec // an offset is not negative
	for it.HasNext() {
		at := int64(it.Next()) - base //nolint:gosec // an offset
		if at >= got.rows.NumRows() {
			break
		}
		rows = append(rows, int32(at)) //nolint:gosec // a segment has far fewer rows
	}
	if len(rows) == 0 {
		return nil, nil
	}
	return segments.Take(got.rows, rows)
}
