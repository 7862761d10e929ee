package wal

import (
	"context"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

// testSchema is a long and a string.
func testSchema() *segments.Schema {
	return &segments.Schema{ID: 1, Fields: []segments.Field{
		{ID: 1, Name: "id", Type: segments.Type{Kind: segments.Long}, Required: true},
		{ID: 2, Name: "note", Type: segments.Type{Kind: segments.String}},
	}}
}

// rowsOf makes a batch of testSchema with the given ids.
func rowsOf(ids ...int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, testSchema().Arrow())
	defer b.Release()
	for _, id := range ids {
		b.Field(0).(*array.Int64Builder).Append(id)
		if id%7 == 0 {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append("note of a row")
		}
	}
	return b.NewRecordBatch()
}

// idsOf is the inverse of rowsOf.
func idsOf(recs ...arrow.RecordBatch) []int64 {
	var ids []int64
	for _, rec := range recs {
		ids = append(ids, rec.Column(0).(*array.Int64).Int64Values()...)
	}
	return ids
}

func seqIDs(first, n int64) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = first + int64(i)
	}
	return ids
}

var bucketA, bucketB = BucketID{Table: 7, Bucket: 0}, BucketID{Table: 9, Bucket: 3}

func entry(b BucketID, base int64, ids ...int64) Entry {
	return Entry{Bucket: b, Schema: testSchema(), Rows: rowsOf(ids...), Bytes: int64(32 * len(ids)), BaseOffset: base}
}

// outcomes collects Done calls in order.
type outcomes struct {
	mu   sync.Mutex
	list []outcome
}

type outcome struct {
	name string
	Result
}

func (o *outcomes) done(name string) func(Result) {
	return func(r Result) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.list = append(o.list, outcome{name, r})
	}
}

func (o *outcomes) all() []outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]outcome(nil), o.list...)
}

func (o *outcomes) names() []string {
	var names []string
	for _, x := range o.all() {
		names = append(names, x.name)
	}
	return names
}

func openLog(t testing.TB, o Options) *Log {
	t.Helper()
	if o.Incarnation == "" {
		o.Incarnation = "inc-1"
	}
	if o.Store == nil {
		o.Store = objstore.NewMem()
	}
	l, err := New(o)
	require.NoError(t, err)
	require.NoError(t, l.Open(context.Background()))
	return l
}

// writeObject writes one WAL object with the entries through a log and returns its bytes.
func writeObject(t testing.TB, o Options, entries ...Entry) []byte {
	t.Helper()
	l := openLog(t, o)
	require.NoError(t, l.Append(context.Background(), entries))
	require.NoError(t, l.Flush(context.Background()))
	require.NoError(t, l.Close(context.Background()))
	object, _, err := l.opts.Store.Get(context.Background(), ObjectID{l.opts.Incarnation, o.NextSeq}.Key())
	require.NoError(t, err)
	return object
}

// longColumns makes a batch for a schema of long columns; column i of row r holds r+i.
func longColumns(s *segments.Schema, rows int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	for i := range s.Fields {
		col := b.Field(i).(*array.Int64Builder)
		for r := range rows {
			col.Append(r + int64(i))
		}
	}
	return b.NewRecordBatch()
}
