package lakehouse

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments/segtest"
)

func TestFoldedRowsOfEveryTypeAreReadByIceberg(t *testing.T) {
	for _, format := range []string{"2", "3"} {
		t.Run("v"+format, func(t *testing.T) {
			s := segtest.AllTypes()
			x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) { d.Properties[PropFormatVersion] = format })
			x.check()
			x.fold(0, batchOf(s, 300, 1), batchOf(s, 1, 2))
			x.check()
			x.fold(0, batchOf(s, 200, 3))
			x.check()
		})
	}
}

func TestFoldedRowsOfRandomSchemasAreReadByIceberg(t *testing.T) {
	for seed := range uint64(testScale(8, 60)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			s := segtest.RandomSchema(segtest.NewRand(seed))
			x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
			x.fold(0, batchOf(s, 100, seed), batchOf(s, 57, seed+100))
			x.check()
		})
	}
}

func TestEmptyFoldCommitsNothing(t *testing.T) {
	s := segtest.Schema("id long")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	before := x.load()
	if r := x.fold(0); r.SnapshotID != 0 || r.Rows != 0 {
		t.Fatalf("empty fold: %+v", r)
	}
	if after := x.load(); after.MetadataVersion != before.MetadataVersion {
		t.Fatalf("empty fold wrote metadata version %d", after.MetadataVersion)
	}
}

func TestSecondFoldFromTheSameOffsetIsRefused(t *testing.T) {
	s := segtest.Schema("id long", "name string")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, nil)
	stale := x.input(0, 5, batchOf(s, 10, 1))
	x.fold(0, batchOf(s, 10, 1))
	_, err := x.lake.Fold(context.Background(), x.def, stale)
	if !errs.Is(err, errs.Conflict) {
		t.Fatalf("second fold of the same rows: %v", err)
	}
	x.check()
	if n := len(x.keysUnder(x.def.dataPrefix())); n != 1 {
		t.Fatalf("%d data files after a refused fold", n)
	}
}

func TestFoldWithFewOpenFilesAndLittleMemoryKeepsOffsetsExact(t *testing.T) {
	s := segtest.Schema("k int", "v string")
	o := quickOptions()
	o.MaxOpenFiles, o.MaxFoldBytes, o.TargetFileBytes, o.RowGroupRows = 3, 256<<10, 64<<10, 500
	x := newFoldTable(t, objstore.NewMem(), o, s, partitionBy(t, "bucket(7,k)"))
	x.fold(0, batchOf(s, 3000, 1), batchOf(s, 2000, 2), batchOf(s, 1, 3))
	x.check()
	files, err := x.load().Files(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]bool, 5001)
	for _, f := range files {
		runs, err := x.lake.fileRuns(context.Background(), &f)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r.FirstOffset < f.BaseOffset || r.FirstOffset+r.Count > f.EndOffset {
				t.Fatalf("run %+v outside of %s", r, f.Key)
			}
			for i := r.FirstOffset; i < r.FirstOffset+r.Count; i++ {
				if seen[i] {
					t.Fatalf("offset %d is in two places", i)
				}
				seen[i] = true
			}
		}
	}
	if slices.Contains(seen, false) {
		t.Fatal("an offset is missing")
	}
	if len(files) < 9 {
		t.Errorf("%d files: the bounds did not bite", len(files))
	}
}

func TestFoldRefusesHolesAndRepeatedBuckets(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) { d.Buckets = 2 })
	ctx := context.Background()
	for name, in := range map[string]FoldInput{
		"short":    {Buckets: []BucketFold{{Bucket: 0, To: 11, Next: bucketFold(0, 0, 0, 1, batchOf(s, 10, 1)).Next}}},
		"long":     {Buckets: []BucketFold{{Bucket: 0, To: 9, Next: bucketFold(0, 0, 0, 1, batchOf(s, 10, 1)).Next}}},
		"shifted":  {Buckets: []BucketFold{{Bucket: 0, To: 10, Next: bucketFold(0, 1, 0, 1, batchOf(s, 10, 1)).Next}}},
		"repeated": {Buckets: []BucketFold{bucketFold(0, 0, 0, 1, batchOf(s, 10, 1)), bucketFold(0, 0, 0, 1, batchOf(s, 10, 1))}},
		"reader":   {Buckets: []BucketFold{{Bucket: 0, To: 9, Next: func(context.Context) (FoldBatch, error) { return FoldBatch{}, errs.New(errs.Corrupt, "bad") }}}},
	} {
		if _, err := x.lake.Fold(ctx, x.def, in); err == nil || name == "reader" && !errs.Is(err, errs.Corrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	x.check()
	if n := len(x.keysUnder(x.def.dataPrefix())); n != 0 {
		t.Errorf("%d data files are left of refused folds", n)
	}
}
