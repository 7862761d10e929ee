package agent

import (
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/wal"
)

type segmentKey struct {
	object wal.ObjectID
	index  int32
}

// rowBuffer keeps the newest live segments decoded, up to a number of bytes:
// tail readers and folds usually find their rows here. It is a hint; the store
// has everything. The oldest segment leaves first, as it is the next to be folded.
type rowBuffer struct {
	mu       sync.Mutex
	maxBytes int64
	bytes    int64
	rows     map[segmentKey]bufferedRows
	order    []segmentKey // oldest first; keys may be gone already
}

const (
	// What Go and Arrow take beside the values of a batch and of each of its
	// columns: most of the memory of segments with a row or two.
	batchMemory  = 512
	columnMemory = 512
)

// bufferedRows is a segment's rows as they came in, joined at first use.
type bufferedRows struct {
	batches []arrow.RecordBatch
	bytes   int64
}

func newRowBuffer(maxBytes int64) *rowBuffer {
	return &rowBuffer{maxBytes: maxBytes, rows: map[segmentKey]bufferedRows{}}
}

func (r *rowBuffer) put(key segmentKey, batches []arrow.RecordBatch, bytes int64) {
	for _, b := range batches {
		bytes += batchMemory + columnMemory*b.NumCols()
	}
	if bytes > r.maxBytes/4 {
		return
	}
	for _, b := range batches {
		countNulls(b.Columns())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.rows[key]; ok {
		return
	}
	r.rows[key] = bufferedRows{batches, bytes}
	r.order = append(r.order, key)
	r.bytes += bytes
	for r.bytes > r.maxBytes && len(r.order) > 0 {
		r.remove(r.order[0])
		r.order = r.order[1:]
	}
}

// get returns a segment's rows with the columns at some positions; nil wants all.
// Only what is wanted is copied when batches are joined, and only whole rows are kept joined.
func (r *rowBuffer) get(key segmentKey, columns []int) (arrow.RecordBatch, bool) {
	r.mu.Lock()
	b, ok := r.rows[key]
	r.mu.Unlock()
	if !ok || len(b.batches) == 0 {
		return nil, false
	}
	if columns != nil {
		parts := make([]arrow.RecordBatch, len(b.batches))
		for i, rec := range b.batches {
			parts[i] = pick(rec, columns)
		}
		joined, err := segments.Concat(parts)
		return joined, err == nil
	}
	if len(b.batches) == 1 {
		return b.batches[0], true
	}
	joined, err := segments.Concat(b.batches)
	if err != nil {
		return nil, false // the store has the rows too
	}
	countNulls(joined.Columns())
	r.mu.Lock()
	if _, still := r.rows[key]; still {
		r.rows[key] = bufferedRows{[]arrow.RecordBatch{joined}, b.bytes}
	}
	r.mu.Unlock()
	return joined, true
}

// has reports whether a segment's rows are in memory.
func (r *rowBuffer) has(key segmentKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.rows[key]
	return ok
}

// pick returns the columns of a batch at some positions.
func pick(rec arrow.RecordBatch, columns []int) arrow.RecordBatch {
	fields, arrays := make([]arrow.Field, len(columns)), make([]arrow.Array, len(columns))
	for i, at := range columns {
		fields[i], arrays[i] = rec.Schema().Field(at), rec.Column(at)
	}
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, rec.NumRows())
}

// drop forgets segments that are not live any more.
func (r *rowBuffer) drop(segs []*liveSegment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range segs {
		r.remove(segmentKey{s.ref.Object, s.ref.Index})
	}
	// Keys of dropped segments are at the front as a rule; trim them so that order stays short.
	for len(r.order) > 0 {
		if _, ok := r.rows[r.order[0]]; ok {
			break
		}
		r.order = r.order[1:]
	}
}

func (r *rowBuffer) remove(key segmentKey) {
	if b, ok := r.rows[key]; ok {
		r.bytes -= b.bytes
		delete(r.rows, key)
	}
}

// countNulls makes arrays safe to share: Arrow counts NULLs at first use and
// keeps the number in the array, which would be a race between readers.
func countNulls(arrays []arrow.Array) {
	for _, a := range arrays {
		a.NullN()
		switch a := a.(type) {
		case *array.Struct:
			for i := range a.NumField() {
				countNulls([]arrow.Array{a.Field(i)})
			}
		case *array.Map:
			countNulls([]arrow.Array{a.Keys(), a.Items(), a.ListValues()})
		case *array.List:
			countNulls([]arrow.Array{a.ListValues()})
		}
	}
}
