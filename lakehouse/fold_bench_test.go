package lakehouse

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

func flightSchema() *segments.Schema {
	return segtest.Schema("ts timestamptz", "flight long", "carrier string", "origin string", "dest string", "tail string",
		"delay int", "distance double", "fare decimal(9,2)", "cancelled boolean")
}

// flights makes rows like those of a flight log: rising times, few carriers and
// airports, many tails, skewed delays.
func flights(s *segments.Schema, n int, seed uint64) arrow.RecordBatch {
	r := rand.New(rand.NewPCG(seed, 1))
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	carriers := []string{"AA", "DL", "UA", "WN", "B6", "AS", "NK", "F9"}
	at := int64(1_700_000_000_000_000) + int64(seed)*int64(n)*50_000
	for i := range n {
		at += r.Int64N(100_000)
		b.Field(0).(*array.TimestampBuilder).Append(arrow.Timestamp(at))
		b.Field(1).(*array.Int64Builder).Append(int64(seed)*int64(n) + int64(i))
		b.Field(2).(*array.StringBuilder).Append(carriers[r.IntN(len(carriers))])
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprintf("A%03d", r.IntN(350)))
		b.Field(4).(*array.StringBuilder).Append(fmt.Sprintf("A%03d", r.IntN(350)))
		b.Field(5).(*array.StringBuilder).Append(fmt.Sprintf("N%05d", r.IntN(6000)))
		if r.IntN(50) == 0 {
			b.Field(6).AppendNull()
		} else {
			b.Field(6).(*array.Int32Builder).Append(int32(r.ExpFloat64()*12) - 5)
		}
		b.Field(7).(*array.Float64Builder).Append(float64(r.IntN(2500)) + 0.5)
		_ = b.Field(8).(*array.Decimal128Builder).AppendValueFromString(fmt.Sprintf("%d.%02d", r.IntN(900), r.IntN(100)))
		b.Field(9).(*array.BooleanBuilder).Append(r.IntN(60) == 0)
	}
	return b.NewRecordBatch()
}

// BenchmarkFold folds 1 Mi flights in batches like those of the write-ahead log;
// BenchmarkFoldCeiling writes the same batches to Parquet with arrow-go alone,
// with the same codec. rows/s are to be compared within one run.
func BenchmarkFold(b *testing.B) {
	for _, c := range []struct {
		name    string
		buckets int
		parts   []string
	}{{"plain", 1, nil}, {"two-buckets", 2, nil}, {"day", 1, []string{"day(ts)"}}, {"carrier", 1, []string{"identity(carrier)"}}} {
		b.Run(c.name, func(b *testing.B) {
			s := flightSchema()
			batches := flightBatches(s, 16, 64<<10)
			b.ResetTimer()
			cpu := cpuTime(b)
			var rows int64
			for range b.N {
				x := newFoldTable(b, objstore.NewMem(), quickOptions(), s, func(d *TableDef) {
					d.Buckets = int32(c.buckets)
					partitionBy(b, c.parts...)(d)
				})
				var in FoldInput
				for k := range c.buckets {
					n := len(batches) / c.buckets
					in.Buckets = append(in.Buckets, bucketFold(int32(k), 0, 0, 1, batches[k*n:(k+1)*n]...))
				}
				r, err := x.lake.Fold(context.Background(), x.def, in)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(r.Bytes)/float64(r.Rows), "B/row")
				rows += r.Rows
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(cpuTime(b)-cpu)/float64(rows), "cpu-ns/row")
		})
	}
}

// cpuTime is the processor time of this process: what a busy machine does not blur.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func flightBatches(s *segments.Schema, n, rows int) []arrow.RecordBatch {
	out := make([]arrow.RecordBatch, n)
	for i := range out {
		out[i] = flights(s, rows, uint64(i))
	}
	return out
}

func BenchmarkFoldCeiling(b *testing.B) {
	s := flightSchema()
	batches := flightBatches(s, 16, 64<<10)
	for _, level := range []int{1, 3} {
		b.Run(fmt.Sprintf("zstd%d", level), func(b *testing.B) {
			cpu := cpuTime(b)
			rows := 0
			for range b.N {
				var out bytes.Buffer
				props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(level))
				w, err := pqarrow.NewFileWriter(s.Arrow(), &out, props, pqarrow.DefaultWriterProps())
				if err != nil {
					b.Fatal(err)
				}
				for _, rec := range batches {
					if err := w.WriteBuffered(rec); err != nil {
						b.Fatal(err)
					}
					rows += int(rec.NumRows())
				}
				if err := w.Close(); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(out.Len()*b.N)/float64(rows), "B/row")
			}
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
			b.ReportMetric(float64(cpuTime(b)-cpu)/float64(rows), "cpu-ns/row")
		})
	}
}
