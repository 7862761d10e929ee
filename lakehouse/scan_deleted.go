package lakehouse

import (
	"context"

	"github.com/RoaringBitmap/roaring/v2"
)

// skipped returns the positions of a file that the scan leaves out: those that the
// snapshot deletes and those that the caller hides. Nil is none.
func (p *scanPlan) skipped(ctx context.Context, data *DataFile) (*roaring.Bitmap, error) {
	deleted, err := p.lake.deletedRows(ctx, data)
	if err != nil {
		return nil, err
	}
	hidden := p.hidden[data.Key]
	switch {
	case hidden == nil || hidden.IsEmpty():
		return deleted, nil
	case deleted == nil:
		return hidden, nil
	}
	return roaring.Or(deleted, hidden), nil
}

// groupSkipped reports whether no row of a row group is left.
func (f *fileScan) groupSkipped(group int) bool {
	if f.skip == nil {
		return false
	}
	g := f.pq.groups[group]
	return f.skipsIn(g.firstRow, g.rows) == g.rows
}

// skipsIn counts the rows in [row, row+n) that are left out.
func (f *fileScan) skipsIn(row, n int64) int64 {
	count := f.skip.Rank(uint32(row + n - 1)) //nolint:gosec // positions are below 2^32 where there is a bitmap
	if row > 0 {
		count -= f.skip.Rank(uint32(row - 1)) //nolint:gosec // as above
	}
	return int64(count) //nolint:gosec // at most n
}

// liveRows returns which of the n rows from row on are not left out, as positions
// from 0; nil is all of them.
func (f *fileScan) liveRows(row, n int64) []int32 {
	if f.skip == nil || n == 0 {
		return nil
	}
	gone := f.skipsIn(row, n)
	if gone == 0 {
		return nil
	}
	live := make([]int32, 0, n-gone)
	next := row
	it := f.skip.Iterator()
	it.AdvanceIfNeeded(uint32(row)) //nolint:gosec // as above
	for it.HasNext() {
		at := min(int64(it.Next()), row+n)
		for ; next < at; next++ {
			live = append(live, int32(next-row)) //nolint:gosec // rows of one batch
		}
		if next = at + 1; at == row+n {
			return live
		}
	}
	for ; next < row+n; next++ {
		live = append(live, int32(next-row)) //nolint:gosec // rows of one batch
	}
	return live
}

// intersect keeps the values of a that are in b, in place. Both ascend.
func intersect(a, b []int32) []int32 {
	out := a[:0]
	j := 0
	for _, v := range a {
		for j < len(b) && b[j] < v {
			j++
		}
		if j < len(b) && b[j] == v {
			out = append(out, v)
		}
	}
	return out
}
