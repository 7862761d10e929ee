package agent

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/segments/merge"
)

// changeNames are the change types as readers see them.
var changeNames = [...]string{merge.Insert: "INSERT", merge.UpdateBefore: "UPDATE_BEFORE", merge.UpdateAfter: "UPDATE_AFTER", merge.Delete: "DELETE"}

// changeName returns the type of a batch's row i.
func changeName(b ChangeBatch, i int) string {
	if b.Types == nil {
		return changeNames[merge.Insert]
	}
	if kind := b.Types[i]; kind >= 0 && int(kind) < len(changeNames) {
		return changeNames[kind]
	}
	return ""
}

// snapshotOffset is the offset of the rows that a stream from a snapshot begins
// with: they are a state and not changes. A stream that broke among them begins
// anew.
const snapshotOffset = -1

// positionSnapshot begins a stream at the rows of a plan, which the stream keeps
// until it delivered them.
func (r *streamReader) positionSnapshot(p *readPlan) error {
	if !r.def.Keyed() {
		return errs.New(errs.Invalid, "start=snapshot needs a primary key; on a log table use earliest")
	}
	for _, b := range r.order {
		r.stop[b], r.pos[b] = p.buckets[b].to, snapshotOffset
	}
	r.first = p
	return nil
}

// snapshotRows delivers the rows of the plan that the stream begins with.
func (r *streamReader) snapshotRows(ctx context.Context, deliver func(ChangeBatch, error) bool) bool {
	if r.first == nil {
		return true
	}
	p := r.first
	r.first = nil
	defer p.close()
	hidden, err := p.hidden()
	if err != nil {
		return deliver(ChangeBatch{}, err)
	}
	var files []lakehouse.DataFile
	if p.snap.ID != 0 {
		if files, err = p.snap.Files(ctx); err != nil {
			return deliver(ChangeBatch{}, err)
		}
	}
	for _, b := range r.order {
		mine := slices.DeleteFunc(slices.Clone(files), func(f lakehouse.DataFile) bool { return f.Bucket != b })
		rows := func(rec arrow.RecordBatch) bool { return deliver(snapshotBatch(b, rec), nil) }
		if len(mine) > 0 {
			for got, err := range p.snap.Scan(ctx, lakehouse.ScanOptions{Columns: r.proj.out, Filter: r.proj.filter, Files: mine, Hidden: hidden}) {
				if err != nil {
					return deliver(ChangeBatch{}, err)
				}
				if got.Rows.NumRows() > 0 && !rows(got.Rows) {
					return false
				}
			}
		}
		whole := true
		one := &readPlan{def: r.def, buckets: p.buckets[b : b+1]}
		r.n.currentBatches(ctx, r.def, one, r.proj, func(rec arrow.RecordBatch, err error) bool {
			if err != nil {
				whole = deliver(ChangeBatch{}, err)
			} else {
				whole = rows(rec)
			}
			return whole
		})
		if !whole {
			return false
		}
	}
	for _, b := range r.order { // readers are told, also when no change follows
		if !deliver(ChangeBatch{Bucket: b, Next: p.buckets[b].to}, nil) {
			return false
		}
	}
	return true
}

// snapshotBatch is rows of a bucket's state.
func snapshotBatch(bucket int32, rec arrow.RecordBatch) ChangeBatch {
	b := ChangeBatch{Bucket: bucket, Rows: rec, Offsets: make([]int64, rec.NumRows()), Timestamps: make([]int64, rec.NumRows()), Next: snapshotOffset}
	for i := range b.Offsets {
		b.Offsets[i] = snapshotOffset
	}
	return b
}
