package lakehouse

import (
	"context"
	"slices"
	"strconv"
	"testing"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// withIndex lets each fold write a run and a manifest that lists it and the one before.
func withIndex(k *keyedTable) {
	owner := index.Owner{Table: k.def.ID}
	var runs []index.RunRef
	k.writeIndex = func(name string, generation uint64) error {
		run := index.RunName(strconv.FormatUint(generation, 10) + "-" + strconv.Itoa(k.names))
		runs = append([]index.RunRef{{Name: run, Entries: 1, Size: 1}}, runs...)
		runs = runs[:min(len(runs), 2)]
		m := index.Manifest{Owner: owner, Generation: generation, Runs: runs}
		body, err := m.Encode([16]byte{1})
		if err != nil {
			return err
		}
		if err := k.store.Put(context.Background(), owner.Key(run), []byte("x")); err != nil {
			return err
		}
		return k.store.Put(context.Background(), owner.Key(name), body)
	}
}

func TestSweepKeepsTheIndexObjectsThatKeptSnapshotsName(t *testing.T) {
	o := sweepAtOnce()
	o.KeepVersions = 2
	k := newKeyedTable(t, objstore.NewMem(), o, "2", nil)
	withIndex(k)
	for range 5 {
		k.churn(10, 10)
		k.foldKeyed()
	}
	all := k.keysUnder("index/7/")
	if r := k.sweep(); r.Deleted != 0 || len(k.keysUnder("index/7/")) != len(all) || len(all) != 10 {
		t.Fatalf("the sweep deleted %d of %d objects of kept snapshots", r.Deleted, len(all))
	}
	stray := index.Owner{Table: 7, Bucket: 0}.Key("r-stray")
	if err := k.store.Put(context.Background(), stray, []byte("x")); err != nil {
		t.Fatal(err)
	}
	r, err := k.lake.Expire(context.Background(), k.def, ExpireOptions{Keep: 2, MinAge: -1})
	if err != nil || r.Snapshots != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	// Two manifests stay, which list three runs, and the stray.
	if left := k.keysUnder("index/7/"); len(left) != 6 || r.IndexObjects != 5 {
		t.Fatalf("%d index objects were deleted with their snapshots, left are %v", r.IndexObjects, left)
	}
	before := k.load().Generation(0)
	if r := k.sweep(); r.Deleted != 1 || !r.Raised || k.load().Generation(0) != before+1 {
		t.Fatalf("a stray run was not swept behind a commit: %+v", r)
	}
	if slices.Contains(k.keysUnder("index/7/"), stray) {
		t.Fatal("the stray is still there")
	}
	refs, err := k.lake.References(context.Background(), k.def)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range slices.Concat(k.keysUnder("index/7/"), k.keysUnder(k.def.dataPrefix())) {
		if !refs[key] {
			t.Errorf("%s is left and referenced by nothing", key)
		}
	}
	k.foldKeyed()
	k.check()
}

// An owner wrote its index and was paused before the commit that names it: the sweep
// deletes the index, and the commit is refused.
func TestKeyedFoldWhoseIndexWasSweptIsRefused(t *testing.T) {
	k := newKeyedTable(t, objstore.NewMem(), sweepAtOnce(), "3", nil)
	withIndex(k)
	k.churn(10, 10)
	k.foldKeyed()
	k.churn(10, 10)
	var places map[int64]RowRef
	in := k.keyedInput(k.load(), &places)
	written := in.Buckets[0].Keyed.Written
	in.Buckets[0].Keyed.Written = func(ctx context.Context, g uint64, files []FoldedFile) (string, error) {
		name, err := written(ctx, g, files)
		if r := k.sweep(); r.Deleted < 2 {
			t.Errorf("the sweep deleted %+v", r)
		}
		return name, err
	}
	if _, err := k.lake.Fold(context.Background(), k.def, in); !errs.Is(err, errs.Conflict) {
		t.Fatalf("a fold whose index was swept says %v", err)
	}
	if _, err := k.lake.References(context.Background(), k.def); err != nil {
		t.Fatal(err)
	}
}

func TestDroppedTableTakesItsIndexAndChangelogAlong(t *testing.T) {
	k := newKeyedTable(t, objstore.NewMem(), quickOptions(), "2", nil)
	withIndex(k)
	k.churn(10, 10)
	k.foldKeyed()
	if _, err := k.lake.RemoveTable(context.Background(), "lake/db/t"+SuffixChangelog+"-7"); err != nil || len(k.keysUnder("index/7/")) == 0 {
		t.Fatalf("a changelog's directory took the index along, %v", err)
	}
	def, err := ChangelogDef(k.def, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.lake.CreateTable(context.Background(), def); err != nil {
		t.Fatal(err)
	}
	if TablePrefix(def.Prefix) != k.def.Prefix || TablePrefix(k.def.Prefix) != k.def.Prefix {
		t.Errorf("the changelog in %s is of %s", def.Prefix, TablePrefix(def.Prefix))
	}
	if _, err := k.lake.RemoveTable(context.Background(), k.def.Prefix); err != nil {
		t.Fatal(err)
	}
	if left := k.keysUnder(""); len(left) != 0 {
		t.Fatalf("left: %v", left)
	}
}
