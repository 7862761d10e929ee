package wal

import (
	"context"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

func benchSchema() *segments.Schema {
	return &segments.Schema{ID: 1, Fields: []segments.Field{
		{ID: 1, Name: "id", Type: segments.Type{Kind: segments.Long}},
		{ID: 2, Name: "ts", Type: segments.Type{Kind: segments.Long}},
		{ID: 3, Name: "amount", Type: segments.Type{Kind: segments.Double}},
		{ID: 4, Name: "name", Type: segments.Type{Kind: segments.String}},
	}}
}

func benchRows(n int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, benchSchema().Arrow())
	defer b.Release()
	for i := range n {
		h := uint64(i) * 0x9E3779B97F4A7C15
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.Int64Builder).Append(1_700_000_000_000_000 + int64(i)*1000 + int64(h%1000))
		b.Field(2).(*array.Float64Builder).Append(float64(h%100_000) / 100)
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprintf("customer-%d", h%5000))
	}
	return b.NewRecordBatch()
}

// ceiling is the least that a program must do with the same rows: compress every
// column buffer with ZSTD, checksum it, and put objects of the same size, on all
// processors.
func ceiling(b *testing.B, store objstore.Store, batches []arrow.RecordBatch, perObject int) time.Duration {
	begin := time.Now()
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		b.Fatal(err)
	}
	slots := make(chan struct{}, DefaultInFlight)
	var wg sync.WaitGroup
	n := 0
	for group := range slices.Chunk(batches, perObject) {
		n++
		key := fmt.Sprintf("ceiling/%020d", n)
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			object := make([]byte, 0, segments.SizeOf(group[0])*int64(len(group)))
			for _, rec := range group {
				for _, col := range rec.Columns() {
					for _, buf := range col.Data().Buffers() {
						if buf != nil {
							at := len(object)
							object = enc.EncodeAll(buf.Bytes(), object)
							_ = crc32.Checksum(object[at:], castagnoli)
						}
					}
				}
			}
			if _, err := store.PutIfAbsent(context.Background(), key, object); err != nil {
				b.Error(err)
			}
		})
	}
	wg.Wait()
	return time.Since(begin)
}

// BenchmarkThroughputAgainstCeiling reports the log's speed as a share of the
// ceiling's, measured in the same run over the same rows.
func BenchmarkThroughputAgainstCeiling(b *testing.B) {
	const rows, perObject = 10_000, 8
	rec := benchRows(rows)
	size := segments.SizeOf(rec)
	var batches []arrow.RecordBatch
	for range 64 {
		batches = append(batches, rec)
	}
	b.SetBytes(size * int64(len(batches)))
	var ours, best time.Duration
	for b.Loop() {
		store := &hookStore{Store: objstore.NewMem(), put: slowly(10 * time.Millisecond)}
		best += ceiling(b, store, batches, perObject)

		l := openLog(b, Options{Store: store, Codec: segments.CodecZSTD, FlushBytes: size * perObject})
		begin := time.Now()
		for i, rec := range batches {
			bucket := i % 4
			e := Entry{Bucket: BucketID{1, int32(bucket)}, Schema: benchSchema(), Rows: rec, Bytes: size, BaseOffset: int64(i/4) * rows}
			if err := l.Append(context.Background(), []Entry{e}); err != nil {
				b.Fatal(err)
			}
		}
		if err := l.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(begin)
		if err := l.Close(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(best)/float64(ours), "of-ceiling")
	b.ReportMetric(float64(rows*len(batches)*b.N)/ours.Seconds(), "rows/s")
}

// ackLatency appends one small batch for each of many tables every 20
// milliseconds and returns the median time to the acknowledgement.
func ackLatency(tb testing.TB, tables, appends int, put time.Duration) (p50, p99 time.Duration) {
	store := &hookStore{Store: objstore.NewMem(), put: slowly(put)}
	l := openLog(tb, Options{Store: store, Codec: segments.CodecZSTD})
	const rows = 1000 // shared out over the tables
	rec := benchRows(max(1, rows/tables))
	var mu sync.Mutex
	var took []time.Duration
	for i := range appends {
		begin := time.Now()
		entries := make([]Entry, tables)
		for t := range entries {
			entries[t] = Entry{Bucket: BucketID{uint64(t), 0}, Schema: benchSchema(), Rows: rec,
				Bytes: segments.SizeOf(rec), BaseOffset: int64(i) * rec.NumRows()}
		}
		entries[tables-1].Done = func(r Result) {
			mu.Lock()
			defer mu.Unlock()
			if r.Err != nil {
				tb.Error(r.Err)
			}
			took = append(took, time.Since(begin))
		}
		if err := l.Append(context.Background(), entries); err != nil {
			tb.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := l.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
	slices.Sort(took)
	return took[len(took)/2], took[len(took)*99/100]
}

// BenchmarkAckLatency shows the acknowledgement of the same number of rows spread
// over ever more tables, beside the put's own 30 ms.
func BenchmarkAckLatency(b *testing.B) {
	const put = 30 * time.Millisecond
	for _, tables := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint("tables=", tables), func(b *testing.B) {
			for b.Loop() {
				p50, p99 := ackLatency(b, tables, 100, put)
				b.ReportMetric(float64(p50.Microseconds())/1000, "p50-ms")
				b.ReportMetric(float64(p99.Microseconds())/1000, "p99-ms")
				b.ReportMetric(float64(p50)/float64(DefaultFlushAge/2+put*12/10), "of-goal")
			}
		})
	}
}
