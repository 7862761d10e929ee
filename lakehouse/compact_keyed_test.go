package lakehouse

import (
	"context"
	"fmt"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// compactKeyed compacts, and moves the places that the model knows.
func (k *keyedTable) compactKeyed(o CompactOptions, meanwhile func()) (CompactResult, error) {
	places := map[int64]RowRef{}
	name := ""
	r, err := k.lake.CompactKeyed(context.Background(), k.def, o, func(_ context.Context, _ int32, generation uint64, files []MovedFile) (string, error) {
		to := map[RowRef]RowRef{}
		for _, f := range files {
			if int64(len(f.From)) != f.Rows {
				return "", errs.New(errs.Internal, "%d rows and %d places", f.Rows, len(f.From))
			}
			for i, ref := range f.From {
				to[ref] = RowRef{f.Key, uint32(i)}
			}
		}
		for id, at := range k.places {
			if moved, ok := to[at]; ok {
				at = moved
			}
			places[id] = at
		}
		k.names++
		name = fmt.Sprintf("m-%020d-%d", generation, k.names)
		meanwhile()
		return name, nil
	})
	if err == nil && r.SnapshotID != 0 {
		k.places, k.last = places, name
	}
	return r, err
}

func TestKeyedCompactionKeepsEveryRowAndMovesItsPlace(t *testing.T) {
	bothFormats(t, func(t *testing.T, format string) {
		for _, shape := range []func(*TableDef){nil, byPlace} {
			k := newKeyedTable(t, objstore.NewMem(), quickOptions(), format, shape)
			most, compacted := 0, 0
			for range testScale(15, 300) {
				k.churn(40, 200)
				k.foldKeyed()
				r, err := k.compactKeyed(CompactOptions{}, func() {})
				if err != nil {
					t.Fatal(err)
				}
				if r.SnapshotID != 0 {
					compacted++
				}
				k.check()
				files, err := k.load().Files(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, len(files))
			}
			if compacted < 2 || most > 12 {
				t.Errorf("%d compactions, up to %d files", compacted, most)
			}
		}
	})
}

func TestKeyedCompactionRewritesAFileWithManyDeletedRows(t *testing.T) {
	k := newKeyedTable(t, objstore.NewMem(), quickOptions(), "2", nil)
	for id := range int64(100) {
		k.put(id)
	}
	k.foldKeyed()
	for id := range int64(25) {
		k.del(id)
	}
	k.foldKeyed()
	if r, err := k.compactKeyed(CompactOptions{}, func() {}); err != nil || r.SnapshotID != 0 {
		t.Fatalf("a file with a quarter of its rows deleted: %+v, %v", r, err)
	}
	for id := int64(25); id < 35; id++ {
		k.del(id)
	}
	k.foldKeyed()
	r, err := k.compactKeyed(CompactOptions{}, func() {})
	if err != nil || r.FilesBefore != 1 || r.Rows != 65 {
		t.Fatalf("a file with a third of its rows deleted: %+v, %v", r, err)
	}
	k.check()
	files, err := k.load().Files(context.Background())
	if err != nil || len(files) != 1 || files[0].Deletes != nil || files[0].Rows != 65 {
		t.Fatalf("%+v, %v", files, err)
	}
}

func TestKeyedCompactionLosesAgainstADeleteThatArrivesMeanwhile(t *testing.T) {
	k := newKeyedTable(t, objstore.NewMem(), quickOptions(), "2", nil)
	for range 6 {
		k.churn(30, 60)
		k.foldKeyed()
	}
	_, err := k.compactKeyed(CompactOptions{All: true}, func() {
		k.churn(30, 60)
		k.foldKeyed()
	})
	if !errs.Is(err, errs.Conflict) {
		t.Fatalf("the compaction says %v", err)
	}
	k.check()
	if _, err := k.compactKeyed(CompactOptions{All: true}, func() {}); err != nil {
		t.Fatal(err)
	}
	k.check()
}
