package lakehouse

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments/segtest"
)

// offsetsOf returns "bucket/offset/timestamp row" of every row, as the lake's own
// scan delivers them, sorted.
func (x *foldTable) offsetsOf(s *Snapshot) []string {
	x.t.Helper()
	var out []string
	for b, err := range s.Scan(context.Background(), ScanOptions{WithOffsets: true}) {
		if err != nil {
			x.t.Fatal(err)
		}
		for i := range int(b.Rows.NumRows()) {
			one := b.Rows.NewSlice(int64(i), int64(i)+1)
			out = append(out, fmt.Sprintf("%d/%08d/%d %s", b.Bucket, b.Offsets[i], b.Timestamps[i], rowKeys(one)[0]))
		}
	}
	slices.Sort(out)
	return out
}

func TestCompactionKeepsRowsOffsetsAndTimestamps(t *testing.T) {
	s := segtest.Schema("b boolean", "v long", "u uuid", "l list<uuid>")
	for _, parts := range [][]string{nil, {"bucket(2,v)", "identity(b)"}} {
		t.Run(fmt.Sprint(parts), func(t *testing.T) {
			o := quickOptions()
			o.SafeAge = -1
			x := newFoldTable(t, objstore.NewMem(), o, s, func(d *TableDef) {
				d.Buckets = 3
				partitionBy(t, parts...)(d)
			})
			for i := range 4 {
				for b := range int32(3) {
					x.fold(b, batchOf(s, 10, uint64(i)), batchOf(s, 5, uint64(i)))
				}
			}
			before := x.load()
			want := x.offsetsOf(before)
			r, err := x.lake.Compact(context.Background(), x.def, CompactOptions{Buckets: []int32{0, 2}, MinFiles: 2})
			if err != nil {
				t.Fatal(err)
			}
			if r.FilesAfter >= r.FilesBefore || r.Rows == 0 {
				t.Fatalf("%+v", r)
			}
			x.check()
			after := x.load()
			if got := x.offsetsOf(after); !slices.Equal(got, want) {
				t.Fatalf("offsets changed: %d rows, were %d", len(got), len(want))
			}
			for b := range int32(3) {
				bumped := uint64(1)
				if b == 1 {
					bumped = 0
				}
				if after.Offset(b) != before.Offset(b) || after.Generation(b) != before.Generation(b)+bumped {
					t.Errorf("bucket %d: offset %d generation %d, were %d %d", b, after.Offset(b), after.Generation(b), before.Offset(b), before.Generation(b))
				}
			}
			// Folds go on, and the replaced files go with their snapshots.
			x.fold(0, batchOf(s, 9, 77))
			x.check()
			if _, err := x.lake.Expire(context.Background(), x.def, ExpireOptions{Keep: 1, MinAge: -1}); err != nil {
				t.Fatal(err)
			}
			if n := len(x.keysUnder(x.def.dataPrefix())); int64(n) != x.load().FileCount {
				t.Errorf("%d data files in the store, %d in the table", n, x.load().FileCount)
			}
			x.sweepClean()
		})
	}
}

func TestCompactionThatLosesToAFoldOfItsBucketGivesUp(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	for i := range 5 {
		x.fold(0, batchOf(s, 10, uint64(i)))
	}
	hook := &hookStore{Store: x.store}
	hook.before = once(func() { x.fold(0, batchOf(s, 10, 50)) })
	if _, err := x.with(hook, quickOptions()).lake.Compact(context.Background(), x.def, CompactOptions{}); !errs.Is(err, errs.Conflict) {
		t.Fatalf("compaction: %v", err)
	}
	x.check()
	if n := len(x.keysUnder(x.def.dataPrefix())); n != 6 {
		t.Fatalf("%d data files", n)
	}
}

func TestCompactionRewritesALogarithmicNumberOfTimes(t *testing.T) {
	// 4,000 equal files one after the other, compacted after each: count what is rewritten.
	var files []DataFile
	var rewritten, total int64
	const size = 100 << 10
	for i := range int64(4000) {
		files = append(files, DataFile{Key: fmt.Sprint(i), BaseOffset: i, EndOffset: i + 1, Size: size, Rows: 1})
		total += size
		for _, g := range planCompaction(files, 64<<20, CompactOptions{}) {
			first := slices.IndexFunc(files, func(f DataFile) bool { return f.BaseOffset == g[0].BaseOffset })
			joined := DataFile{BaseOffset: g[0].BaseOffset, EndOffset: g[len(g)-1].EndOffset}
			for _, f := range g {
				joined.Size += f.Size
			}
			joined.Key = fmt.Sprint("j", joined.BaseOffset, joined.EndOffset)
			rewritten += joined.Size
			files = slices.Replace(files, first, first+len(g), joined)
		}
	}
	if len(files) > 40 {
		t.Errorf("%d files are left", len(files))
	}
	if amplification := float64(rewritten) / float64(total); amplification > 8 {
		t.Errorf("each byte was rewritten %.1f times", amplification)
	}
}

func TestRetentionDropsWholeFilesFromTheStartOnly(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	fold := func(at int64, rec arrow.RecordBatch) {
		if _, err := x.lake.Fold(context.Background(), x.def, x.input(0, at, rec)); err != nil {
			t.Fatal(err)
		}
	}
	recs := []arrow.RecordBatch{batchOf(s, 10, 1), batchOf(s, 10, 2), batchOf(s, 10, 3), batchOf(s, 10, 4)}
	for i, at := range []int64{1000, 2000, 9000, 3000} { // the third is young, the fourth old again
		fold(at, recs[i])
	}
	r, err := x.lake.Retain(context.Background(), x.def, nil, time.UnixMicro(5000))
	if err != nil {
		t.Fatal(err)
	}
	if r.Files != 2 || r.Rows != 20 || r.Earliest[0] != 20 {
		t.Fatalf("%+v", r)
	}
	x.rows = recs[2:]
	x.check()
	if e, err := x.load().Earliest(context.Background()); err != nil || e[0] != 20 {
		t.Fatalf("earliest %v, %v", e, err)
	}
	if r, err := x.lake.Retain(context.Background(), x.def, nil, time.UnixMicro(5000)); err != nil || r.Files != 0 || r.SnapshotID != 0 {
		t.Fatalf("second pass: %+v, %v", r, err)
	}
	if _, err := x.lake.Retain(context.Background(), x.def, nil, time.UnixMicro(1<<40)); err != nil {
		t.Fatal(err)
	}
	x.rows = nil
	x.check()
	if e, err := x.load().Earliest(context.Background()); err != nil || e[0] != 40 {
		t.Fatalf("earliest of an emptied bucket %v, %v", e, err)
	}
	x.fold(0, batchOf(s, 3, 9))
	x.check()
}

func TestRetentionOfPartitionsLeavesNoHoles(t *testing.T) {
	s := segtest.Schema("k boolean")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, partitionBy(t, "identity(k)"))
	for i := range 12 {
		if _, err := x.lake.Fold(context.Background(), x.def, x.input(0, int64(i)*10, batchOf(s, 6, uint64(i)))); err != nil {
			t.Fatal(err)
		}
	}
	for cut := int64(0); cut < 140; cut += 17 {
		if _, err := x.lake.Retain(context.Background(), x.def, nil, time.UnixMicro(cut)); err != nil {
			t.Fatal(err)
		}
		snap := x.load()
		earliest, err := snap.Earliest(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if rows := int64(len(x.offsetsOf(snap))); rows != 72-earliest[0] {
			t.Fatalf("cut %d: %d rows from offset %d to 72", cut, rows, earliest[0])
		}
	}
}

func TestExpiredSnapshotsGoWithTheirFilesAndPinnedOnesStay(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	ctx := context.Background()
	for i := range 12 {
		x.fold(0, batchOf(s, 10, uint64(i)))
	}
	old, err := x.load().At(x.load().Metadata.Snapshots()[2].SnapshotID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.lake.Compact(ctx, x.def, CompactOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	x.fold(0, batchOf(s, 10, 100))
	if r, err := x.lake.Expire(ctx, x.def, ExpireOptions{Keep: 1}); err != nil || r.Snapshots != 0 {
		t.Fatalf("young snapshots were expired: %+v, %v", r, err)
	}
	pinned := func(id int64) bool { return id == old.ID }
	r, err := x.lake.Expire(ctx, x.def, ExpireOptions{Keep: 1, MinAge: -1, Pinned: pinned})
	if err != nil {
		t.Fatal(err)
	}
	if r.Snapshots != 12 || r.DataFiles != 9 || r.MetadataFiles == 0 {
		t.Errorf("%+v", r)
	}
	if got := countRecords(x.scan(old)); got != 30 {
		t.Errorf("pinned snapshot has %d rows", got)
	}
	if r, err = x.lake.Expire(ctx, x.def, ExpireOptions{Keep: 1, MinAge: -1}); err != nil || r.Snapshots != 1 || r.DataFiles != 3 {
		t.Errorf("after unpinning: %+v, %v", r, err)
	}
	if _, err := x.load().At(old.ID); !errs.Is(err, errs.NotFound) {
		t.Errorf("expired snapshot: %v", err)
	}
	x.check()
	if n := len(x.keysUnder(x.def.dataPrefix())); int64(n) != x.load().FileCount {
		t.Errorf("%d data files in the store, %d in the table", n, x.load().FileCount)
	}
}

func TestDataFileOfAFoldThatIsNotCommittedYetIsNotSwept(t *testing.T) {
	s := idSchema()
	o := quickOptions()
	o.SafeAge = -1 // whatever the sweep keeps, it keeps not because of age
	x := newFoldTable(t, objstore.NewMem(), o, s, nil)
	x.fold(0, batchOf(s, 10, 1))
	hook := &hookStore{Store: x.store}
	hook.before = once(func() { // the manifest and its list go: the next attempt makes new ones
		if r, err := x.lake.SweepOrphans(context.Background(), x.def); err != nil || r.Deleted != 2 || r.Waiting != 1 || r.Raised {
			t.Errorf("sweep in the middle of a commit: %+v, %v", r, err)
		}
	})
	y := x.with(hook, o)
	y.fold(0, batchOf(s, 10, 2))
	y.check()
	junk := dataName{bucket: 0, base: 3, end: 9}
	if err := x.store.Put(context.Background(), x.def.dataPrefix()+junk.String(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if r, err := x.lake.SweepOrphans(context.Background(), x.def); err != nil || r.Deleted == 0 {
		t.Fatalf("sweep: %+v, %v", r, err)
	}
	y.sweepClean()
}

func TestYoungOrphansWait(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	x.fold(0, batchOf(s, 10, 1))
	junk := dataName{bucket: 0, base: 3, end: 9}
	if err := x.store.Put(context.Background(), x.def.dataPrefix()+junk.String(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if r, err := x.lake.SweepOrphans(context.Background(), x.def); err != nil || r.Deleted != 0 || r.Waiting != 1 {
		t.Fatalf("sweep: %+v, %v", r, err)
	}
}
