package lakehouse

import (
	"context"
	"fmt"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
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
	for seed := range uint64(30) {
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

var _ segments.Kind
