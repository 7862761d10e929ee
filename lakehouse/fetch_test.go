package lakehouse

import (
	"context"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// wideKeyed folds n rows of ten columns as a keyed table, and returns its one file.
func wideKeyed(t testing.TB, store objstore.Store, s *segments.Schema, n int) (*foldTable, arrow.RecordBatch, string) {
	t.Helper()
	x := newFoldTable(t, store, quickOptions(), s, nil)
	rows := batchOf(s, n, 3)
	in := x.input(0, 1000, rows)
	in = keyedInput(in)
	if _, err := x.lake.Fold(context.Background(), x.def, in); err != nil {
		t.Fatal(err)
	}
	files, err := x.load().Files(context.Background())
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return x, rows, files[0].Key
}

// keyedInput makes the fold of a log table one of a primary-key table.
func keyedInput(in FoldInput) FoldInput {
	next := in.Buckets[0].Next
	in.Buckets[0].Next = func(ctx context.Context) (FoldBatch, error) {
		b, err := next(ctx)
		if err == nil {
			for i := range b.Rows.NumRows() {
				b.Offsets, b.Timestamps = append(b.Offsets, b.BaseOffset+i), append(b.Timestamps, b.Timestamp)
			}
		}
		return b, err
	}
	in.Buckets[0].Keyed = &KeyedFold{Written: func(context.Context, uint64, []FoldedFile) (string, error) { return "m-1", nil }}
	return in
}

func tenColumns() *segments.Schema {
	return segtest.Schema("id long required", "a string", "b double", "c timestamptz", "d int", "e boolean", "f decimal(12,2)", "g date", "h uuid", "i string")
}

func TestFetchRowsReturnsRowsInTheOrderAsked(t *testing.T) {
	for name, s := range map[string]*segments.Schema{"narrow": tenColumns(), "every type": segtest.AllTypes()} {
		t.Run(name, func(t *testing.T) {
			const n = 3000
			x, rows, key := wideKeyed(t, objstore.NewMem(), s, n)
			rng := segtest.NewRand(4)
			for _, count := range []int{1, 2, 100, 5000} {
				refs, take := make([]RowRef, count), make([]int32, count)
				for i := range refs {
					take[i] = rng.Int32N(n)
					refs[i] = RowRef{key, uint32(take[i])}
				}
				got, err := x.lake.FetchRows(context.Background(), x.def, s, refs, nil)
				if err != nil {
					t.Fatal(err)
				}
				want, err := segments.Take(rows, take)
				if err != nil {
					t.Fatal(err)
				}
				if diff := segtest.Equal(want, got); diff != "" {
					t.Fatalf("%d rows: %s", count, diff)
				}
			}
		})
	}
}

func TestFetchRowsProjectsFilesOfOlderSchemas(t *testing.T) {
	s := segtest.Schema("id long required", "a string", "b int")
	x, rows, key := wideKeyed(t, objstore.NewMem(), s, 100)
	newer := &segments.Schema{ID: 1, Fields: slices.Clone(s.Fields)}
	newer.Fields[2].Type = segtest.MustType("long")
	newer.Fields = append(newer.Fields, segments.Field{ID: 9, Name: "added", Type: segtest.MustType("int"), Default: []byte("7")})
	got, err := x.lake.FetchRows(context.Background(), x.def, newer, []RowRef{{key, 5}, {key, 3}}, []int32{9, newer.Fields[2].ID})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range []int{5, 3} {
		if d, b := valueKey(got.Column(0), i), valueKey(got.Column(1), i); d != "7" || b != valueKey(rows.Column(2), row) {
			t.Errorf("row %d has default %s and value %s, not %s", row, d, b, valueKey(rows.Column(2), row))
		}
	}
	only, err := x.lake.FetchRows(context.Background(), x.def, newer, []RowRef{{key, 5}}, []int32{9})
	if err != nil || only.NumRows() != 1 || valueKey(only.Column(0), 0) != "7" {
		t.Errorf("a column that the file lacks: %v, %v", only, err)
	}
	if _, err := x.lake.FetchRows(context.Background(), x.def, s, []RowRef{{key, 100}}, nil); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a row past the file's end is %v", err)
	}
}

func TestFetchRowsCostsOneRequestAKeyAndNeighboursShareIt(t *testing.T) {
	const n = 100_000
	store := objstore.NewLedger(objstore.NewMem(), nil)
	x, _, key := wideKeyed(t, store, tenColumns(), n)
	fetch := func(rows ...uint32) int {
		refs := make([]RowRef, len(rows))
		for i, r := range rows {
			refs[i] = RowRef{key, r}
		}
		before := gets(store)
		if _, err := x.lake.FetchRows(context.Background(), x.def, x.def.Schemas[0], refs, nil); err != nil {
			t.Fatal(err)
		}
		return gets(store) - before
	}
	if _, err := x.lake.openParquet(context.Background(), key, sizeUnknown); err != nil {
		t.Fatal(err)
	}
	if got := fetch(n / 2); got != 1 {
		t.Errorf("a cold row costs %d requests with the footer known", got)
	}
	if got := fetch(n / 2); got != 0 {
		t.Errorf("a row that was read before costs %d requests", got)
	}
	neighbours := make([]uint32, 1000)
	for i := range neighbours {
		neighbours[i] = uint32(1000 + i)
	}
	if got := fetch(neighbours...); got != 1 {
		t.Errorf("1,000 neighbours cost %d requests", got)
	}
}

func gets(store *objstore.Ledger) (n int) {
	for _, r := range store.Snapshot() {
		if r.Op == objstore.OpGet || r.Op == objstore.OpGetRange {
			n += int(r.Calls)
		}
	}
	return n
}

func BenchmarkFetchRows(b *testing.B) {
	const n = 1_000_000
	x, _, key := wideKeyed(b, objstore.NewMem(), tenColumns(), n)
	rng := segtest.NewRand(1)
	for _, bc := range []struct {
		name  string
		span  int32
		count int
		cold  bool
	}{{"cold/1", n, 1, true}, {"warm/1", 50_000, 1, false}, {"warm/1000", 50_000, 1000, false}} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				refs := make([]RowRef, bc.count)
				for i := range refs {
					refs[i] = RowRef{key, uint32(rng.Int32N(bc.span))}
				}
				if bc.cold {
					x.lake.chunks = newLRU[chunkKey, arrow.Array](128 << 20)
				}
				if _, err := x.lake.FetchRows(context.Background(), x.def, x.def.Schemas[0], refs, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N*bc.count)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
