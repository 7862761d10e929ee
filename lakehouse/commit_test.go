package lakehouse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// hookStore calls before and after around each conditional put.
type hookStore struct {
	objstore.Store
	before, after func(key string)
}

func (h *hookStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	if h.before != nil {
		h.before(key)
	}
	out, err := h.Store.PutIfAbsent(ctx, key, body)
	if h.after != nil {
		h.after(key)
	}
	return out, err
}

// once runs f at the first call only; f may commit through the same store.
func once(f func()) func(string) {
	var done atomic.Bool
	return func(string) {
		if done.CompareAndSwap(false, true) {
			f()
		}
	}
}

func idSchema() *segments.Schema { return segtest.Schema("id long", "name string") }

// with returns the same table seen by another process.
func (x *foldTable) with(store objstore.Store, o Options) *foldTable {
	y := *x
	y.store, y.lake = store, Open(store, o)
	return &y
}

func TestDecideMovesABucketOnlyFromWhatItWasFoldedFrom(t *testing.T) {
	parent := lakeState{offsets: map[int32]int64{0: 10, 1: 5}, generations: map[int32]uint64{0: 2, 1: 1}}
	for _, c := range []struct {
		move bucketMove
		ok   bool
	}{
		{bucketMove{bucket: 0, from: 10, to: 20, generation: 2}, true},
		{bucketMove{bucket: 0, from: 10, to: 10, generation: 2}, true},
		{bucketMove{bucket: 2, from: 0, to: 7, generation: 0}, true},
		{bucketMove{bucket: 0, from: 9, to: 20, generation: 2}, false},
		{bucketMove{bucket: 0, from: 11, to: 20, generation: 2}, false},
		{bucketMove{bucket: 0, from: 10, to: 20, generation: 1}, false},
		{bucketMove{bucket: 0, from: 10, to: 20, generation: 3}, false},
		{bucketMove{bucket: 2, from: 1, to: 7, generation: 0}, false},
	} {
		next, err := decide(parent, []bucketMove{{bucket: 1, from: 5, to: 6, generation: 1}, c.move})
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.move, err)
		}
		if err == nil && (next.offsets[c.move.bucket] != c.move.to || next.generations[c.move.bucket] != c.move.generation+1 || next.offsets[1] != 6) {
			t.Errorf("%+v: next state %+v", c.move, next)
		}
		if err != nil && !errs.Is(err, errs.Conflict) {
			t.Errorf("%+v: class of %v", c.move, err)
		}
	}
	if parent.offsets[1] != 5 {
		t.Error("decide changed the parent")
	}
}

func TestOfRacingFoldersOneWinsAndRowsAreThereOnce(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	for round := range 3 {
		rec := batchOf(s, 20, uint64(round))
		const folders = 6
		errsSeen := make([]error, folders)
		inputs := make([]FoldInput, folders)
		for i := range folders {
			inputs[i] = x.input(0, int64(round), rec)
		}
		var wg sync.WaitGroup
		for i := range folders {
			wg.Go(func() {
				_, errsSeen[i] = x.with(x.store, quickOptions()).lake.Fold(context.Background(), x.def, inputs[i])
			})
		}
		wg.Wait()
		won := 0
		for _, err := range errsSeen {
			if err == nil {
				won++
			} else if !errs.Is(err, errs.Conflict) {
				t.Fatalf("loser's error: %v", err)
			}
		}
		if won != 1 {
			t.Fatalf("%d folders won: %v", won, errors.Join(errsSeen...))
		}
		x.rows = append(x.rows, rec)
		x.check()
	}
	if n := len(x.keysUnder(x.def.dataPrefix())); n != 3 {
		t.Fatalf("%d data files after 3 folds: the losers left theirs", n)
	}
}

func TestFoldersOfDifferentBucketsAllCommit(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) { d.Buckets = 8 })
	var wg sync.WaitGroup
	for b := range int32(8) {
		rec := batchOf(s, 10, uint64(b))
		x.rows = append(x.rows, rec)
		in, y := x.input(b, 1, rec), x.with(x.store, quickOptions())
		wg.Go(func() {
			if _, err := y.lake.Fold(context.Background(), y.def, in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	x.check()
}

func TestFolderThatStalledAfterItWroteFilesIsRefused(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	rec := batchOf(s, 30, 1)
	hook := &hookStore{Store: x.store}
	stalled := x.with(hook, quickOptions())
	in := stalled.input(0, 1, rec)
	hook.before = once(func() { x.fold(0, rec) })
	if _, err := stalled.lake.Fold(context.Background(), x.def, in); !errs.Is(err, errs.Conflict) {
		t.Fatalf("stalled fold: %v", err)
	}
	x.check()
	if n := len(x.keysUnder(x.def.dataPrefix())); n != 1 {
		t.Fatalf("%d data files", n)
	}
}

// smallKeep makes metadata versions disappear after three newer ones.
func smallKeep() Options {
	o := quickOptions()
	o.KeepVersions, o.SafeAge = 3, -1
	return o
}

func TestCommitAtAFreedVersionIsNotACommit(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), smallKeep(), s, func(d *TableDef) { d.Buckets = 2 })
	hook := &hookStore{Store: x.store}
	stalled := x.with(hook, smallKeep())
	rec := batchOf(s, 30, 1)
	in := stalled.input(0, 1, rec)
	hook.before = once(func() {
		for i := range 10 {
			x.fold(1, batchOf(s, 5, uint64(i)))
		}
	})
	_, err := stalled.lake.Fold(context.Background(), x.def, in)
	if !errs.Is(err, errs.Unknown) {
		t.Fatalf("fold at a freed version: %v", err)
	}
	x.check()
	for _, y := range []*foldTable{x, stalled, x.with(x.store, smallKeep())} {
		if at := y.load().Offset(0); at != 0 {
			t.Fatalf("bucket 0 is at %d", at)
		}
	}
	x.fold(0, rec)
	x.check()
}

func TestCommitThatManyFollowedBeforeItWasVerifiedIsACommit(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), smallKeep(), s, func(d *TableDef) { d.Buckets = 2 })
	hook := &hookStore{Store: x.store}
	slow := x.with(hook, smallKeep())
	rec := batchOf(s, 30, 1)
	in := slow.input(0, 1, rec)
	hook.after = once(func() {
		for i := range 10 {
			x.fold(1, batchOf(s, 5, uint64(i)))
		}
	})
	if _, err := slow.lake.Fold(context.Background(), x.def, in); err != nil {
		t.Fatal(err)
	}
	x.rows = append(x.rows, rec)
	x.check()
}

func TestCommitThatWasExpiredBeforeItWasVerifiedKeepsItsFiles(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), smallKeep(), s, func(d *TableDef) { d.Buckets = 2 })
	hook := &hookStore{Store: x.store}
	slow := x.with(hook, smallKeep())
	rec := batchOf(s, 30, 1)
	in := slow.input(0, 1, rec)
	hook.after = once(func() {
		for i := range 10 {
			x.fold(1, batchOf(s, 5, uint64(i)))
		}
		if _, err := x.lake.Expire(context.Background(), x.def, ExpireOptions{Keep: 2, MinAge: -1}); err != nil {
			t.Fatal(err)
		}
	})
	if _, err := slow.lake.Fold(context.Background(), x.def, in); !errs.Is(err, errs.Unknown) {
		t.Fatalf("unverifiable commit: %v", err)
	}
	x.rows = append(x.rows, rec)
	x.check() // the rows are there, with their file
}

// foldOps counts the store calls of one fold.
func foldOps(t *testing.T, s *segments.Schema, rec arrow.RecordBatch) int {
	inner := objstore.NewMem()
	x := newFoldTable(t, inner, quickOptions(), s, nil)
	fs := faultstore.New(inner, 1)
	var n atomic.Int64
	fs.Observe(func(faultstore.Event) { n.Add(1) })
	y := x.with(fs, quickOptions())
	in := x.input(0, 1, rec)
	if _, err := y.lake.Fold(context.Background(), x.def, in); err != nil {
		t.Fatal(err)
	}
	return int(n.Load())
}

func TestCrashAtEachStepOfAFoldLosesAndRepeatsNothing(t *testing.T) {
	s := idSchema()
	rec := batchOf(s, 40, 1)
	steps := foldOps(t, s, rec)
	if steps < 6 {
		t.Fatalf("a fold made %d store calls", steps)
	}
	for _, fault := range []faultstore.Fault{faultstore.Fail, faultstore.FailAfter, faultstore.LateApply} {
		for step := range steps {
			t.Run(fmt.Sprintf("%s at %d", fault, step), func(t *testing.T) {
				inner := objstore.NewMem()
				x := newFoldTable(t, inner, smallKeep(), s, nil)
				ctx, crash := context.WithCancel(context.Background())
				defer crash()
				fs := faultstore.New(inner, 1,
					faultstore.Rule{Fault: fault, After: step, Times: 1},
					faultstore.Rule{Fault: faultstore.Fail, After: step + 1})
				var n atomic.Int64
				fs.Observe(func(faultstore.Event) {
					if n.Add(1) > int64(step+1) {
						crash()
					}
				})
				dead := x.with(fs, smallKeep())
				_, err := dead.lake.Fold(ctx, x.def, x.input(0, 1, rec))
				fs.Release(context.Background(), "")

				again := x.with(inner, smallKeep())
				at := again.load().Offset(0)
				if err == nil && at != 40 {
					t.Fatalf("the fold succeeded, and the lake offset is %d", at)
				}
				if at != 0 && at != 40 {
					t.Fatalf("lake offset %d", at)
				}
				if at == 0 {
					again.fold(0, rec)
				} else {
					again.rows = append(again.rows, rec)
				}
				again.fold(0, batchOf(s, 3, 9))
				again.check()
				again.sweepClean()
			})
		}
	}
}

// sweepClean sweeps until nothing waits and checks that only referenced objects are left.
func (x *foldTable) sweepClean() {
	x.t.Helper()
	ctx := context.Background()
	for range 3 {
		if _, err := x.lake.SweepOrphans(ctx, x.def); err != nil {
			x.t.Fatal(err)
		}
	}
	refs, err := x.lake.References(ctx, x.def)
	if err != nil {
		x.t.Fatal(err)
	}
	for _, key := range x.keysUnder(x.def.Prefix) {
		if _, version := parseVersionKey(key); !version && !refs[key] && key != x.def.hintKey() {
			x.t.Errorf("object %s is garbage and was not swept", key)
		}
	}
	have := map[string]bool{}
	for _, key := range x.keysUnder(x.def.Prefix) {
		have[key] = true
	}
	for key := range refs {
		if !have[key] {
			x.t.Errorf("object %s is referenced and missing", key)
		}
	}
	x.check()
}

func TestFoldSurvivesAStoreThatLosesAnswers(t *testing.T) {
	s := idSchema()
	for seed := range int64(testScale(3, 10)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			inner := objstore.NewMem()
			x := newFoldTable(t, inner, quickOptions(), s, nil)
			fs := faultstore.New(inner, seed,
				faultstore.Rule{Fault: faultstore.FailAfter, Ops: []objstore.Op{objstore.OpPut}, Chance: 0.1}, // five in a row fail the fold
				faultstore.Rule{Fault: faultstore.FailAfter, Ops: []objstore.Op{objstore.OpPutIfAbsent}, Chance: 0.3},
				faultstore.Rule{Fault: faultstore.Conflict, Ops: []objstore.Op{objstore.OpPutIfAbsent}, Chance: 0.3},
				faultstore.Rule{Fault: faultstore.Duplicate, Ops: []objstore.Op{objstore.OpPutIfAbsent}, Chance: 0.3})
			y := x.with(fs, seededOptions(uint64(seed)))
			for i := range 6 {
				y.fold(0, batchOf(s, 7, uint64(i)))
			}
			y.check()
		})
	}
}

// seededOptions makes names and pauses follow from a seed.
func seededOptions(seed uint64) Options {
	o := quickOptions()
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0x1d))
	o.NewID = func() (id uuid.UUID) {
		mu.Lock()
		defer mu.Unlock()
		binary.BigEndian.PutUint64(id[:8], rng.Uint64())
		binary.BigEndian.PutUint64(id[8:], rng.Uint64())
		return id
	}
	o.Create.Rand = func() float64 { return 0.5 }
	return o
}

func TestManyCommitsKeepTheMetadataBounded(t *testing.T) {
	s := idSchema()
	o := quickOptions()
	o.KeepVersions, o.SafeAge = 20, -1
	x := newFoldTable(t, objstore.NewMem(), o, s, nil)
	ctx := context.Background()
	for i := range testScale(60, 300) {
		x.fold(0, batchOf(s, 2, uint64(i)))
		if i%5 == 4 {
			if _, err := x.lake.Expire(ctx, x.def, ExpireOptions{Keep: 10, MinAge: -1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	versions, others := 0, 0
	for _, key := range x.keysUnder(x.def.metadataPrefix()) {
		if _, ok := parseVersionKey(key); ok {
			versions++
		} else {
			others++
		}
	}
	snap := x.load()
	if n := len(snap.Metadata.Snapshots()); n > 10 {
		t.Errorf("%d snapshots", n)
	}
	if versions > 20 || others > 60 {
		t.Errorf("%d metadata versions, %d other metadata files", versions, others)
	}
	manifests, err := x.lake.manifestList(ctx, snap.Metadata.CurrentSnapshot().ManifestList)
	if err != nil {
		t.Fatal(err)
	}
	if len(manifests) > 16 {
		t.Errorf("%d manifests in the newest snapshot", len(manifests))
	}
	hint, _, err := x.store.Get(ctx, x.def.hintKey())
	if err != nil || string(hint) != itoa(snap.MetadataVersion) {
		t.Errorf("hint %q of version %d: %v", hint, snap.MetadataVersion, err)
	}
	x.check()
	x.sweepClean()
}

func TestDroppedTableIsNotFoldedIntoItsSuccessor(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	hook := &hookStore{Store: x.store}
	stalled := x.with(hook, quickOptions())
	in := stalled.input(0, 1, batchOf(s, 10, 1))
	var reborn *foldTable
	hook.before = once(func() {
		if _, err := x.lake.RemoveTable(context.Background(), x.def.Prefix); err != nil {
			t.Fatal(err)
		}
		reborn = newFoldTable(t, x.store, quickOptions(), s, func(d *TableDef) { d.ID, d.Prefix = 8, "lake/db/t-8" })
	})
	_, _ = stalled.lake.Fold(context.Background(), x.def, in)
	reborn.check()
	reborn.fold(0, batchOf(s, 4, 2))
	reborn.check()
	if n := len(x.keysUnder("lake/db/t-8/data/")); n != 1 {
		t.Fatalf("%d data files in the successor", n)
	}
	// Even under the same prefix, another table's uuid is refused.
	other := reborn.def
	other.UUID = x.def.UUID
	if _, err := Open(x.store, quickOptions()).Load(context.Background(), other); !errs.Is(err, errs.Conflict) {
		t.Fatalf("load of another table's directory: %v", err)
	}
}

func TestLoadFindsTheNewestVersionDespiteAStaleHintAndCache(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), smallKeep(), s, nil)
	stale := x.with(x.store, smallKeep())
	stale.load()
	for i := range 9 {
		x.fold(0, batchOf(s, 1, uint64(i)))
	}
	if err := x.store.Put(context.Background(), x.def.hintKey(), []byte("1")); err != nil {
		t.Fatal(err)
	}
	fresh := x.with(x.store, smallKeep())
	if at := fresh.load().Offset(0); at != 9 {
		t.Fatalf("first load sees offset %d", at)
	}
	// The stale cache names a version that was freed, as were those after it.
	in := FoldInput{Buckets: []BucketFold{bucketFold(0, 9, 9, 1, batchOf(s, 1, 50))}}
	if _, err := stale.lake.Fold(context.Background(), x.def, in); !errs.Is(err, errs.Conflict) {
		t.Fatalf("fold on a stale cache: %v", err)
	}
}
