package lakehouse

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// sweepAtOnce lets a sweep delete whatever it finds, however young.
func sweepAtOnce() Options {
	o := quickOptions()
	o.SafeAge = -1
	return o
}

func (x *foldTable) sweep() SweepResult {
	x.t.Helper()
	r, err := x.lake.SweepOrphans(context.Background(), x.def)
	if err != nil {
		x.t.Fatal(err)
	}
	return r
}

// A former owner wrote the files of a compaction and was paused before its commit.
// The new owner swept them as orphans. The former one woke and committed: the table
// named files that were gone.
func TestCompactionWhoseFilesWereSweptIsRefused(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), sweepAtOnce(), s, func(d *TableDef) { d.Buckets = 2 })
	for i := range 4 {
		x.fold(0, batchOf(s, 10, uint64(i)))
		x.fold(1, batchOf(s, 10, uint64(i)))
	}
	before := x.load()
	hook := &hookStore{Store: x.store}
	hook.before = once(func() {
		r := x.sweep()
		if r.Deleted == 0 || r.Waiting != 0 || !r.Raised {
			t.Errorf("sweep: %+v", r)
		}
	})
	paused := x.with(hook, sweepAtOnce())
	if _, err := paused.lake.Compact(context.Background(), x.def, CompactOptions{All: true}); !errs.Is(err, errs.Conflict) {
		t.Fatalf("compaction whose files were swept: %v", err)
	}
	x.sweepClean()
	for b := range int32(2) {
		if at := x.load().Offset(b); at != before.Offset(b) {
			t.Errorf("bucket %d: the lake offset moved from %d to %d", b, before.Offset(b), at)
		}
	}
}

// The sweep's own commit may lose its version to the compaction that woke just then:
// the files are the table's, and stay.
func TestCompactionThatWakesBeforeTheSweepCommitsKeepsItsFiles(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), sweepAtOnce(), s, nil)
	for i := range 4 {
		x.fold(0, batchOf(s, 10, uint64(i)))
	}
	wake, woke := make(chan struct{}), make(chan error)
	written := make(chan struct{})
	hook := &hookStore{Store: x.store}
	hook.before = once(func() { close(written); <-wake })
	go func() {
		_, err := x.with(hook, sweepAtOnce()).lake.Compact(context.Background(), x.def, CompactOptions{All: true})
		woke <- err
	}()
	<-written
	late := &hookStore{Store: x.store}
	late.before = once(func() {
		close(wake)
		if err := <-woke; err != nil {
			t.Errorf("compaction: %v", err)
		}
	})
	y := x.with(late, sweepAtOnce())
	if _, err := y.lake.SweepOrphans(context.Background(), x.def); err != nil && !errs.Is(err, errs.Conflict) {
		t.Fatal(err)
	}
	y.sweepClean()
	if n := y.load().FileCount; n != 1 {
		t.Errorf("%d files after the compaction", n)
	}
}

func TestAFoldThatWasPausedDuringASweepIsCommitted(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), sweepAtOnce(), s, nil)
	x.fold(0, batchOf(s, 10, 1))
	hook := &hookStore{Store: x.store}
	hook.before = once(func() { x.sweep() })
	rec := batchOf(s, 10, 2)
	x.with(hook, sweepAtOnce()).fold(0, rec)
	x.rows = append(x.rows, rec)
	x.sweepClean()
}

// The former owner's fold was paused, the new owner folded the same rows and swept.
func TestAFoldOfRowsThatAnotherFoldedIsRefusedAndItsFilesAreSwept(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), sweepAtOnce(), s, nil)
	rec := batchOf(s, 10, 1)
	hook := &hookStore{Store: x.store}
	hook.before = once(func() {
		x.fold(0, rec)
		if r := x.sweep(); r.Deleted == 0 {
			t.Errorf("sweep: %+v", r)
		}
	})
	paused := x.with(hook, sweepAtOnce())
	in := paused.input(0, 1000, rec)
	if _, err := paused.lake.Fold(context.Background(), x.def, in); !errs.Is(err, errs.Conflict) {
		t.Fatalf("fold: %v", err)
	}
	x.sweepClean()
}

func TestASweepThatFindsNothingCommitsNothing(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), sweepAtOnce(), s, nil)
	x.fold(0, batchOf(s, 10, 1))
	junk := dataName{bucket: 0, base: 3, end: 9}
	if err := x.store.Put(context.Background(), x.def.dataPrefix()+junk.String(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if r := x.sweep(); r.Deleted != 1 || !r.Raised {
		t.Fatalf("sweep: %+v", r)
	}
	version := x.load().MetadataVersion
	for range 3 {
		if r := x.sweep(); r != (SweepResult{}) {
			t.Fatalf("sweep: %+v", r)
		}
	}
	if now := x.load().MetadataVersion; now != version {
		t.Errorf("an idle table went from version %d to %d", version, now)
	}
}

// immortal refuses to delete data files.
type immortal struct{ objstore.Store }

func (s immortal) Delete(ctx context.Context, key string) error {
	if strings.Contains(key, "/data/") {
		return errs.New(errs.PermissionDenied, "delete %s", key)
	}
	return s.Store.Delete(ctx, key)
}

func TestAnOrphanThatCannotBeDeletedCostsOneCommit(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, immortal{objstore.NewMem()}, sweepAtOnce(), s, nil)
	x.fold(0, batchOf(s, 10, 1))
	junk := dataName{bucket: 0, base: 3, end: 9}
	if err := x.store.Put(context.Background(), x.def.dataPrefix()+junk.String(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	x.sweep()
	version := x.load().MetadataVersion
	for range 3 {
		if r := x.sweep(); r.Left != 1 || r.Raised {
			t.Fatalf("sweep: %+v", r)
		}
	}
	if now := x.load().MetadataVersion; now != version {
		t.Errorf("the table went from version %d to %d", version, now)
	}
}

// A request that ended in the middle of a commit left its manifests to a sweep that
// no idle table had coming.
func TestACommitThatIsCanceledBeforeItsVersionIsPutLeavesNothing(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), sweepAtOnce(), s, nil)
	x.fold(0, batchOf(s, 10, 1))
	before := x.keysUnder(x.def.Prefix)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	y := x.with(&cancelAtList{Store: x.store, cancel: cancel}, sweepAtOnce())
	_, err := y.lake.Fold(ctx, x.def, x.input(0, 1, batchOf(s, 10, 2)))
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("canceled fold: %v", err)
	}
	if after := x.keysUnder(x.def.Prefix); len(after) != len(before) {
		t.Errorf("%d objects before, then %v", len(before), after)
	}
}

// cancelAtList ends the caller's context when a manifest list was written.
type cancelAtList struct {
	objstore.Store
	cancel context.CancelFunc
}

func (c *cancelAtList) Put(ctx context.Context, key string, body []byte) error {
	err := c.Store.Put(ctx, key, body)
	if strings.Contains(key, "/metadata/snap-") {
		c.cancel()
	}
	return err
}
