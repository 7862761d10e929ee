package lakehouse

import (
	"context"
	"slices"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
)

func bothFormats(t *testing.T, f func(t *testing.T, format string)) {
	for _, format := range []string{"2", "3"} {
		t.Run("v"+format, func(t *testing.T) { f(t, format) })
	}
}

func byPlace(d *TableDef) {
	d.Partition = []segments.PartitionField{{SourceID: 2, Name: "place", Transform: "identity"}}
}

func TestKeyedFoldReplacesAndDeletesRowsByPosition(t *testing.T) {
	bothFormats(t, func(t *testing.T, format string) {
		for _, shape := range []func(*TableDef){nil, byPlace} {
			k := newKeyedTable(t, objstore.NewMem(), quickOptions(), format, shape)
			for range testScale(8, 100) {
				k.churn(60, 100)
				k.foldKeyed()
				k.check()
			}
		}
	})
}

func TestKeyedFoldOfDeletionsAloneCommitsWithoutFiles(t *testing.T) {
	bothFormats(t, func(t *testing.T, format string) {
		k := newKeyedTable(t, objstore.NewMem(), quickOptions(), format, nil)
		for id := range int64(10) {
			k.put(id)
		}
		k.foldKeyed()
		k.del(3)
		k.foldKeyed()
		k.check()
		for id := range int64(10) {
			k.del(id)
		}
		k.foldKeyed()
		k.check()
		if files, err := k.load().Files(context.Background()); err != nil || len(files) != 0 {
			t.Fatalf("a data file without rows stays: %v, %v", files, err)
		}
	})
}

func TestScanLeavesOutDeletedAndHiddenRows(t *testing.T) {
	bothFormats(t, func(t *testing.T, format string) {
		o := quickOptions()
		o.RowGroupRows, o.RowGroupBytes = 16, 400
		k := newKeyedTable(t, objstore.NewMem(), o, format, nil)
		for id := range int64(400) {
			k.put(id)
		}
		k.foldKeyed()
		for id := int64(100); id < 200; id++ { // whole row groups
			k.del(id)
		}
		k.churn(40, 400)
		k.foldKeyed()
		k.check()
		s := k.load()
		hidden := map[string]*roaring.Bitmap{}
		for id := int64(0); id < 400; id += 3 {
			if at, ok := k.places[id]; ok {
				if hidden[at.Key] == nil {
					hidden[at.Key] = roaring.New()
				}
				hidden[at.Key].Add(at.Row)
				delete(k.model, id)
			}
		}
		want := k.want()
		for _, ordered := range []bool{false, true} {
			for _, offsets := range []bool{false, true} {
				got := rowKeys(scanAll(t, s, ScanOptions{Hidden: hidden, Ordered: ordered, WithOffsets: offsets, BatchBytes: 200})...)
				if !slices.Equal(got, want) {
					t.Fatalf("ordered %v, offsets %v: %d rows of %d", ordered, offsets, len(got), len(want))
				}
			}
		}
		var n int64
		for b, err := range s.Scan(context.Background(), ScanOptions{Hidden: hidden, Columns: &segments.Schema{}}) {
			if err != nil {
				t.Fatal(err)
			}
			n += b.Rows.NumRows()
		}
		if n != int64(len(want)) {
			t.Fatalf("%d rows are counted of %d", n, len(want))
		}
		expr, err := filter.Parse("version >= 300 AND id < 350", keyedSchema)
		if err != nil {
			t.Fatal(err)
		}
		want = want[:0]
		for id, row := range k.model {
			if row.version >= 300 && id < 350 {
				want = append(want, itoa(id))
			}
		}
		slices.Sort(want)
		id := &segments.Schema{Fields: keyedSchema.Fields[:1]}
		var got []string
		for b, err := range s.Scan(context.Background(), ScanOptions{Hidden: hidden, Filter: expr, Columns: id, WithOffsets: true}) {
			if err != nil {
				t.Fatal(err)
			}
			if len(b.Offsets) != int(b.Rows.NumRows()) {
				t.Fatalf("%d offsets for %d rows", len(b.Offsets), b.Rows.NumRows())
			}
			for i := range int(b.Rows.NumRows()) {
				got = append(got, valueKey(b.Rows.Column(0), i))
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Fatalf("the filter keeps %d rows of %d", len(got), len(want))
		}
	})
}

func TestKeyedFoldThatMeetsANewerGenerationChangesNothing(t *testing.T) {
	k := newKeyedTable(t, objstore.NewMem(), quickOptions(), "2", nil)
	k.churn(50, 30)
	k.foldKeyed()
	k.churn(20, 30)
	var places map[int64]RowRef
	in := k.keyedInput(k.load(), &places)
	written := in.Buckets[0].Keyed.Written
	in.Buckets[0].Keyed.Written = func(ctx context.Context, g uint64, files []FoldedFile) (string, error) {
		name, err := written(ctx, g, files)
		// Meanwhile a sweep refuses what was prepared before it.
		_, cerr := k.lake.commit(ctx, &k.def, change{id: k.lake.opts.NewID(), operation: "replace", moves: standing(k.load(), map[int32]bool{0: true})})
		if cerr != nil {
			t.Error(cerr)
		}
		return name, err
	}
	before := k.load().IndexName(0)
	_, err := k.lake.Fold(context.Background(), k.def, in)
	if !errs.Is(err, errs.Conflict) {
		t.Fatalf("a fold from a stale generation says %v", err)
	}
	if s := k.load(); s.IndexName(0) != before {
		t.Fatalf("the index name was not carried on: %q", s.IndexName(0))
	}
	refs, err := k.lake.References(context.Background(), k.def)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range k.keysUnder(k.def.dataPrefix()) {
		if !refs[key] {
			t.Errorf("%s was left behind", key)
		}
	}
	k.foldKeyed()
	k.check()
}

func TestTwoDeleteFilesOfOneDataFileAreCorrupt(t *testing.T) {
	files := []DataFile{{URI: "mem://x/a", Rows: 10}}
	err := attach(files, []DeleteFile{{URI: "mem://x/d1", DataURI: "mem://x/a", Rows: 1}, {URI: "mem://x/d2", DataURI: "mem://x/a", Rows: 1}})
	if !errs.Is(err, errs.Corrupt) {
		t.Fatalf("two delete files of one data file are %v", err)
	}
}

func TestScanDoesNotReadARowGroupThatIsWhollyDeleted(t *testing.T) {
	store := objstore.NewLedger(objstore.NewMem(), nil)
	x, _, key := wideKeyed(t, store, tenColumns(), 100_000)
	pq, err := x.lake.openParquet(context.Background(), key, sizeUnknown)
	if err != nil || len(pq.groups) < 3 {
		t.Fatalf("%v", err)
	}
	scan := func(hidden map[string]*roaring.Bitmap) (calls int) {
		before := gets(store)
		scanAll(t, x.load(), ScanOptions{Hidden: hidden})
		return gets(store) - before
	}
	scan(nil) // footers and manifests are known now
	all := scan(nil)
	gone := roaring.New()
	gone.AddRange(0, uint64(pq.groups[len(pq.groups)-1].firstRow))
	if left := scan(map[string]*roaring.Bitmap{key: gone}); left >= all {
		t.Errorf("%d requests with one row group left, %d with all %d", left, all, len(pq.groups))
	}
}

func TestRowsAreFetchedByManyCallersAtOnce(t *testing.T) {
	x, rows, key := wideKeyed(t, objstore.NewMem(), tenColumns(), 60_000)
	var g errgroup.Group
	for c := range 8 {
		g.Go(func() error {
			for i := range 10 {
				at := uint32((c*7919 + i*6007) % 60_000)
				got, err := x.lake.FetchRows(context.Background(), x.def, x.def.Schemas[0], []RowRef{{key, at}}, []int32{1})
				if err != nil {
					return err
				}
				if want := valueKey(rows.Column(0), int(at)); valueKey(got.Column(0), 0) != want {
					return errs.New(errs.Internal, "row %d is not %s", at, want)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
