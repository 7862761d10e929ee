package lakehouse

import (
	"context"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// BenchmarkKeyedScan compares a scan of a file of which a tenth of the rows is
// deleted with one of which none is, in the same run.
func BenchmarkKeyedScan(b *testing.B) {
	const n = 1_000_000
	x, _, key := wideKeyed(b, objstore.NewMem(), tenColumns(), n)
	rng := segtest.NewRand(1)
	tenth := roaring.New()
	for tenth.GetCardinality() < n/10 {
		tenth.Add(rng.Uint32N(n))
	}
	s := x.load()
	for name, hidden := range map[string]map[string]*roaring.Bitmap{"none deleted": nil, "a tenth deleted": {key: tenth}} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var rows int64
				for batch, err := range s.Scan(context.Background(), ScanOptions{Hidden: hidden}) {
					if err != nil {
						b.Fatal(err)
					}
					rows += batch.Rows.NumRows()
				}
				if want := int64(n - n/10*len(hidden)); rows != want {
					b.Fatalf("%d rows of %d", rows, want)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

// BenchmarkKeyedFold compares the fold of the same rows to a log table and to a
// primary-key table, whose files are made for lookups.
func BenchmarkKeyedFold(b *testing.B) {
	const n = 500_000
	s := tenColumns()
	rows := batchOf(s, n, 3)
	size := float64(segments.SizeOf(rows)) / 1e6
	for _, keyed := range []bool{false, true} {
		name := map[bool]string{false: "log", true: "keyed"}[keyed]
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				x := newFoldTable(b, objstore.NewMem(), quickOptions(), s, nil)
				in := x.input(0, 1000, rows)
				if keyed {
					in = keyedInput(in)
				}
				if _, err := x.lake.Fold(context.Background(), x.def, in); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds()/1e3, "krows/s")
			b.ReportMetric(size*float64(b.N)/b.Elapsed().Seconds(), "arrowMB/s")
		})
	}
}
