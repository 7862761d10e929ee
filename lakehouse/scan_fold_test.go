package lakehouse

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
	"github.com/firn-data/firn/segments/segtest"
)

// scanned is what Scan returns of a table's newest snapshot.
func (x *foldTable) scanned(opts ScanOptions) []arrow.RecordBatch {
	x.t.Helper()
	return recordsOf(collect(x.t, x.load(), opts))
}

// checkScan compares Scan, StreamBucket and Count with what was folded.
func (x *foldTable) checkScan() {
	x.t.Helper()
	want, err := segments.Concat(x.rows)
	if err != nil {
		x.t.Fatal(err)
	}
	wantKeys := rowKeys(want)
	if got := rowKeys(x.scanned(ScanOptions{})...); fmt.Sprint(got) != fmt.Sprint(wantKeys) {
		x.t.Fatalf("a scan has %d rows, folded were %d, or they differ", len(got), len(wantKeys))
	}
	var recs []arrow.RecordBatch
	next := int64(0)
	for b, err := range x.load().StreamBucket(context.Background(), StreamOptions{BatchBytes: 3000}) {
		if err != nil {
			x.t.Fatal(err)
		}
		for _, offset := range b.Offsets {
			if offset != next {
				x.t.Fatalf("offset %d where %d was due", offset, next)
			}
			next++
		}
		if b.ConsumedTo != next {
			x.t.Fatalf("consumed to %d after offset %d", b.ConsumedTo, next-1)
		}
		recs = append(recs, b.Rows)
	}
	got, err := segments.Concat(recs)
	if err != nil {
		x.t.Fatal(err)
	}
	if diff := segtest.Equal(want, got); diff != "" {
		x.t.Fatalf("the stream differs from what was folded: %s", diff)
	}
	if n, err := x.load().Count(context.Background(), nil); err != nil || n != want.NumRows() {
		x.t.Fatalf("count %d %v, want %d", n, err, want.NumRows())
	}
}

func TestFoldedRowsOfEveryTypeAreScannedAndStreamedBack(t *testing.T) {
	for seed := range uint64(rounds(3)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			r := segtest.NewRand(seed)
			s := segtest.AllTypes()
			if seed%2 == 1 {
				s = segtest.RandomSchema(r)
			}
			x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
			for range 3 {
				x.fold(0, segtest.RandomBatch(r, s, 1+r.IntN(200)), segtest.RandomBatch(r, s, 1+r.IntN(50)))
			}
			x.checkScan()
		})
	}
}

func TestPartitionedRowsAreScannedAndStreamedBackInOffsetOrder(t *testing.T) {
	for seed, by := range []string{"k", "bucket(5,k)", "day(ts)", "hour(ts)", "truncate(1,name)"} {
		t.Run(by, func(t *testing.T) {
			r := segtest.NewRand(uint64(seed))
			s := segtest.Schema("id long required", "k int", "ts timestamp", "name string")
			x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) {
				var err error
				if d.Partition, _, err = segments.ParsePartitionSpec([]string{by}, s, 0); err != nil {
					t.Fatal(err)
				}
			})
			for range 2 {
				x.fold(0, segtest.RandomBatch(r, s, 30), segtest.RandomBatch(r, s, 20))
			}
			x.checkScan()
		})
	}
}

// predicates has one for each way that a filter prunes.
var predicates = []string{
	"k = 7", "k IN (3, -2, 99)", "k > 5 AND k < 9", "k IS NULL", "k IS NOT NULL", "NOT (k = 3)", "k <> 4 OR name = 'a'",
	"ts >= TIMESTAMP '2024-01-05 00:00:00' AND ts < TIMESTAMP '2024-01-07 00:00:00'", "name LIKE 'n1%'", "name IS NULL",
	"x > 0.5", "NOT (x <= 0.5)", "x = 'NaN'", "k = 100000", "k < 1 AND name = 'n0'", "added = 'old'", "added IS NULL", "added = 'new'",
}

// filterTable folds rows, then adds a column with a default, and folds more.
func filterTable(t *testing.T, by ...string) *foldTable {
	r := segtest.NewRand(1)
	s := segtest.Schema("id long required", "k int", "ts timestamp", "name string", "x double")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) {
		var err error
		if d.Partition, _, err = segments.ParsePartitionSpec(by, s, 0); err != nil {
			t.Fatal(err)
		}
	})
	var id int64
	rows := func(s *segments.Schema, n int) arrow.RecordBatch {
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		for range n {
			b.Field(0).(*array.Int64Builder).Append(id)
			appendOrNull(b.Field(1), id%9 == 0, func(b *array.Int32Builder) { b.Append(int32(r.IntN(14) - 3)) })
			appendOrNull(b.Field(2), id%11 == 0, func(b *array.TimestampBuilder) { b.Append(arrow.Timestamp(1704067200e6 + int64(r.IntN(10))*86400e6)) })
			appendOrNull(b.Field(3), id%13 == 0, func(b *array.StringBuilder) { b.Append(fmt.Sprint("n", r.IntN(15))) })
			appendOrNull(b.Field(4), id%7 == 0, func(b *array.Float64Builder) { b.Append([]float64{0, 1, math.NaN(), -1}[r.IntN(4)]) })
			if len(s.Fields) > 5 {
				appendOrNull(b.Field(5), id%5 == 0, func(b *array.StringBuilder) { b.Append("new") })
			}
			id++
		}
		return b.NewRecordBatch()
	}
	x.fold(0, rows(s, 60))
	x.fold(0, rows(s, 1), rows(s, 40))
	next, last, err := segments.AddColumn(s, s.MaxFieldID(), segments.Field{Name: "added", Type: segtest.MustType("string"), Default: []byte(`"old"`)}, "")
	if err != nil {
		t.Fatal(err)
	}
	for i, old := range x.rows {
		if x.rows[i], err = segments.Project(old, s, next); err != nil {
			t.Fatal(err)
		}
	}
	x.def.Schemas, x.def.CurrentSchema, x.def.LastFieldID, x.def.Version = append(x.def.Schemas, next), next.ID, last, x.def.Version+1
	if err := x.lake.SyncSchema(context.Background(), x.def); err != nil {
		t.Fatal(err)
	}
	x.fold(0, rows(next, 50))
	return x
}

func appendOrNull[B array.Builder](b array.Builder, null bool, fn func(B)) {
	if null {
		b.AppendNull()
		return
	}
	fn(b.(B))
}

func TestFilteredReadsEqualAFilterOverAllRows(t *testing.T) {
	for _, by := range [][]string{nil, {"bucket(4,k)"}, {"day(ts)", "bucket(3,name)"}} {
		x := filterTable(t, by...)
		x.checkScan()
		s, err := x.def.Current()
		if err != nil {
			t.Fatal(err)
		}
		all, err := segments.Concat(x.rows)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := s.Select([]string{"added", "id"})
		if err != nil {
			t.Fatal(err)
		}
		for _, where := range predicates {
			f, err := filter.Parse(where, s)
			if err != nil {
				t.Fatal(err)
			}
			kept, err := f.Apply(context.Background(), all)
			if err != nil {
				t.Fatal(err)
			}
			kept, err = segments.Project(kept, s, ids)
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprint(rowKeys(kept))
			if got := fmt.Sprint(rowKeys(x.scanned(ScanOptions{Filter: f, Columns: ids})...)); got != want {
				t.Errorf("by %v, where %s: scan gave\n%s\nwant\n%s", by, where, got, want)
			}
			if n, err := x.load().Count(context.Background(), f); err != nil || n != kept.NumRows() {
				t.Errorf("by %v, where %s: count %d %v, want %d", by, where, n, err, kept.NumRows())
			}
			x.checkFilteredStream(f, ids, want)
		}
	}
}

func (x *foldTable) checkFilteredStream(f *filter.Expr, columns *segments.Schema, want string) {
	x.t.Helper()
	var recs []arrow.RecordBatch
	end := x.load().Offset(0)
	consumed := int64(0)
	for b, err := range x.load().StreamBucket(context.Background(), StreamOptions{Filter: f, Columns: columns}) {
		if err != nil {
			x.t.Fatal(err)
		}
		for i, id := range b.Rows.Column(1).(*array.Int64).Int64Values() {
			if b.Offsets[i] != id { // ids are offsets in this table
				x.t.Fatalf("where %s: row %d at offset %d", f, id, b.Offsets[i])
			}
		}
		consumed = b.ConsumedTo
		recs = append(recs, b.Rows)
	}
	if got := fmt.Sprint(rowKeys(recs...)); got != want || consumed != end {
		x.t.Errorf("where %s: stream gave\n%s\nwant\n%s\nconsumed %d of %d", f, got, want, consumed, end)
	}
}

func TestPruningReadsOnlyFilesThatMayMatch(t *testing.T) {
	for by, where := range map[string]string{"bucket(16,k)": "k = 7", "day(ts)": "ts < TIMESTAMP '2024-01-02 00:00:00'", "name": "name IN ('n3', 'n4')"} {
		x := filterTable(t, by)
		s, err := x.def.Current()
		if err != nil {
			t.Fatal(err)
		}
		f, err := filter.Parse(where, s)
		if err != nil {
			t.Fatal(err)
		}
		files, err := x.load().Files(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		left, err := x.load().PruneFiles(files, f)
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 || len(left)*3 > len(files) {
			t.Errorf("by %s, where %s: %d of %d files are left", by, where, len(left), len(files))
		}
	}
}
