package lakehouse

import (
	"bytes"
	"context"
	"fmt"
	"math/rand"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/segments"
)

// benchRows is the row count of each file of the benchmark.
const benchRows = 250_000

func benchFixture(b *testing.B, files int) *scanFixture {
	b.Helper()
	s := &segments.Schema{}
	for i, text := range []string{"long", "timestamptz", "int", "double", "decimal(10,2)", "string", "string", "boolean"} {
		s.Fields = append(s.Fields, segments.Field{Name: fmt.Sprint("c", i), Type: mustType(b, text)})
	}
	s, _ = segments.AssignFieldIDs(s, 0)
	x := newScanFixture(b, s)
	rng := rand.New(rand.NewSource(1))
	for f := range files {
		rec := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		for range benchRows {
			for i := range s.Fields {
				if sb, ok := rec.Field(i).(*array.StringBuilder); ok {
					if i == 5 {
						sb.Append([]string{"LHR", "JFK", "SFO", "ZRH"}[rng.Intn(4)])
					} else {
						sb.Append(fmt.Sprintf("user-%09d", rng.Intn(1e9)))
					}
					continue
				}
				appendRandom(rec.Field(i), rng, i > 2)
			}
		}
		from := int64(f * benchRows)
		x.write(0, s, rec.NewRecordBatch(), runsOf(span(from, from+benchRows)), benchRows)
	}
	return x
}

// BenchmarkScan compares a scan with its ceiling, in the same run: arrow-go
// reading the same files from memory, one goroutine a CPU.
func BenchmarkScan(b *testing.B) {
	x := benchFixture(b, 4)
	rows := float64(4 * benchRows)
	b.Run("ceiling", func(b *testing.B) {
		bodies := make([][]byte, len(x.files))
		for i, f := range x.files {
			bodies[i], _, _ = x.store.Get(context.Background(), f.Key)
		}
		for b.Loop() {
			var g errgroup.Group
			g.SetLimit(runtime.GOMAXPROCS(0))
			for _, body := range bodies {
				g.Go(func() error { return readRaw(body) })
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
	})
	for _, c := range []struct {
		name string
		opts ScanOptions
	}{{"scan", ScanOptions{}}, {"ordered", ScanOptions{Ordered: true, WithOffsets: true}}, {"one column", ScanOptions{Columns: &segments.Schema{Fields: x.def.Schemas[0].Fields[:1]}}}} {
		b.Run(c.name, func(b *testing.B) {
			c.opts.Files = x.files
			for b.Loop() {
				var n int64
				for batch, err := range x.snapshot().Scan(context.Background(), c.opts) {
					if err != nil {
						b.Fatal(err)
					}
					n += batch.Rows.NumRows()
				}
				if n != 4*benchRows {
					b.Fatal(n)
				}
			}
			b.ReportMetric(rows*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func readRaw(body []byte) error {
	r, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	a, err := pqarrow.NewFileReader(r, pqarrow.ArrowReadProperties{BatchSize: maxBatchRows}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	rr, err := a.GetRecordReader(context.Background(), nil, nil)
	if err != nil {
		return err
	}
	defer rr.Release()
	for rr.Next() {
		_ = rr.RecordBatch()
	}
	return nil
}
