package lakehouse

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

var keyedSchema = &segments.Schema{Fields: []segments.Field{
	{ID: 1, Name: "id", Type: segments.Type{Kind: segments.Long}, Required: true},
	{ID: 2, Name: "place", Type: segments.Type{Kind: segments.String}},
	{ID: 3, Name: "version", Type: segments.Type{Kind: segments.Long}},
}}

type keyedRow struct {
	place   string
	version int64
}

// keyedTable is a primary-key table with one bucket, a model of its rows, and the
// place of each in the lake, as an owner's index knows it.
type keyedTable struct {
	*foldTable
	rng    *rand.Rand
	model  map[int64]keyedRow
	places map[int64]RowRef
	next   int64 // offset
	fresh  map[int64]int64
	gone   map[int64]bool
	names  int
	last   string // index name
	// writeIndex puts the objects of the index, when a test looks at them.
	writeIndex func(name string, generation uint64) error
}

func newKeyedTable(t testing.TB, store objstore.Store, o Options, format string, shape func(*TableDef)) *keyedTable {
	k := &keyedTable{rng: rand.New(rand.NewPCG(1, 2)), model: map[int64]keyedRow{}, places: map[int64]RowRef{}}
	k.foldTable = newFoldTable(t, store, o, keyedSchema, func(d *TableDef) {
		d.Properties[PropFormatVersion] = format
		if shape != nil {
			shape(d)
		}
	})
	k.begin()
	return k
}

func (k *keyedTable) begin() { k.fresh, k.gone = map[int64]int64{}, map[int64]bool{} }

// put changes a key's row; del removes it. Both take offsets, as a changelog does.
func (k *keyedTable) put(id int64) {
	k.model[id] = keyedRow{"p" + strconv.FormatInt(k.rng.Int64N(3), 10), k.next}
	k.fresh[id] = k.next
	k.next += 2
	delete(k.gone, id)
}

func (k *keyedTable) del(id int64) {
	if _, ok := k.model[id]; !ok {
		return
	}
	delete(k.model, id)
	delete(k.fresh, id)
	k.gone[id] = true
	k.next++
}

// keyedInput makes the fold of what changed since the last one.
func (k *keyedTable) keyedInput(s *Snapshot, adopt *map[int64]RowRef) FoldInput {
	byOffset := map[int64]int64{}
	for id, offset := range k.fresh {
		byOffset[offset] = id
	}
	offsets := slices.Sorted(maps.Keys(byOffset))
	deletes := map[string]*roaring.Bitmap{}
	hide := func(id int64) {
		if at, ok := k.places[id]; ok {
			if deletes[at.Key] == nil {
				deletes[at.Key] = roaring.New()
			}
			deletes[at.Key].Add(at.Row)
		}
	}
	places := maps.Clone(k.places)
	for id := range k.fresh {
		hide(id)
	}
	for id := range k.gone {
		hide(id)
		delete(places, id)
	}
	done := false
	return FoldInput{Buckets: []BucketFold{{
		From: s.Offset(0), To: k.next, Generation: s.Generation(0),
		Next: func(context.Context) (FoldBatch, error) {
			if done || len(offsets) == 0 {
				return FoldBatch{}, io.EOF
			}
			done = true
			b := FoldBatch{Rows: k.rowsOf(offsets, byOffset), Offsets: offsets, Timestamps: make([]int64, len(offsets))}
			return b, nil
		},
		Keyed: &KeyedFold{Deletes: deletes, Written: func(_ context.Context, generation uint64, files []FoldedFile) (string, error) {
			if generation != s.Generation(0)+1 {
				return "", errs.New(errs.Internal, "generation %d after %d", generation, s.Generation(0))
			}
			for _, f := range files {
				for _, r := range f.Runs {
					for i := range r.Count {
						places[byOffset[r.FirstOffset+i]] = RowRef{f.Key, uint32(r.FirstRow + i)}
					}
				}
			}
			*adopt = places
			k.names++
			k.last = fmt.Sprintf("m-%020d-%d", generation, k.names)
			if k.writeIndex != nil {
				return k.last, k.writeIndex(k.last, generation)
			}
			return k.last, nil
		}},
	}}}
}

func (k *keyedTable) rowsOf(offsets []int64, byOffset map[int64]int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, keyedSchema.Arrow())
	defer b.Release()
	for _, offset := range offsets {
		id := byOffset[offset]
		row := k.model[id]
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.StringBuilder).Append(row.place)
		b.Field(2).(*array.Int64Builder).Append(row.version)
	}
	return b.NewRecordBatch()
}

// foldKeyed folds what changed.
func (k *keyedTable) foldKeyed() {
	k.t.Helper()
	var places map[int64]RowRef
	if _, err := k.lake.Fold(context.Background(), k.def, k.keyedInput(k.load(), &places)); err != nil {
		k.t.Fatal(err)
	}
	k.places = places
	k.begin()
}

func (k *keyedTable) want() []string {
	var out []string
	for id, row := range k.model {
		out = append(out, fmt.Sprintf("id=%d; place=%s; version=%d; ", id, row.place, row.version))
	}
	slices.Sort(out)
	return out
}

// check compares the model with Firn's scan, iceberg-go's, the totals and the places.
func (k *keyedTable) check() {
	k.t.Helper()
	s := k.load()
	want := k.want()
	for name, got := range map[string][]string{"firn": rowKeys(scanAll(k.t, s, ScanOptions{})...), "iceberg-go": rowKeys(k.scan(s)...)} {
		if !slices.Equal(got, want) {
			k.t.Fatalf("%s reads %d rows, the model has %d\n%v\n%v", name, len(got), len(want), got[:min(3, len(got))], want[:min(3, len(want))])
		}
	}
	if s.Rows != int64(len(want)) || s.IndexName(0) != k.last {
		k.t.Fatalf("the summary counts %d rows of %d and names index %q, not %q", s.Rows, len(want), s.IndexName(0), k.last)
	}
	k.checkDeletes(s)
}

// checkDeletes recounts the summary's totals from the files, and finds every row
// where it was said to be.
func (k *keyedTable) checkDeletes(s *Snapshot) {
	k.t.Helper()
	ctx := context.Background()
	files, err := s.Files(ctx)
	if err != nil {
		k.t.Fatal(err)
	}
	alive := map[string]int64{}
	var rows, deleted, deleteFiles, size int64
	gone := map[string]*roaring.Bitmap{}
	for _, f := range files {
		rows, size, alive[f.Key] = rows+f.Rows, size+f.Size, f.Rows
		if f.Deletes != nil {
			deleteFiles, deleted, size = deleteFiles+1, deleted+f.Deletes.Rows, size+f.Deletes.Size
			if gone[f.Key], err = s.DeletedRows(ctx, f); err != nil {
				k.t.Fatal(err)
			}
		}
	}
	snap := s.Metadata.CurrentSnapshot()
	for key, want := range map[string]int64{
		"total-records": rows, "total-position-deletes": deleted, "total-delete-files": deleteFiles,
		"total-data-files": int64(len(files)), "total-files-size": size, "total-equality-deletes": 0,
	} {
		if got := summaryInt(snap, key); got != want {
			k.t.Fatalf("%s is %d, the files say %d", key, got, want)
		}
	}
	for id, at := range k.places {
		if alive[at.Key] <= int64(at.Row) || gone[at.Key] != nil && gone[at.Key].Contains(at.Row) {
			k.t.Fatalf("key %d should be at row %d of %s, which is not there or deleted", id, at.Row, at.Key)
		}
	}
}

func scanAll(t testing.TB, s *Snapshot, o ScanOptions) []arrow.RecordBatch {
	t.Helper()
	var out []arrow.RecordBatch
	for b, err := range s.Scan(context.Background(), o) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b.Rows)
	}
	return out
}

// churn changes n random keys of 0 to keys.
func (k *keyedTable) churn(n int, keys int64) {
	for range n {
		if id := k.rng.Int64N(keys); k.rng.IntN(4) == 0 {
			k.del(id)
		} else {
			k.put(id)
		}
	}
}
