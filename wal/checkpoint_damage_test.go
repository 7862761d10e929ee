package wal

import (
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
)

// A put whose answer was lost is told from another's by reading it back. When
// that answer was damaged on its way, the writer took itself for fenced.
func TestADamagedReadBackDoesNotFenceTheCheckpointWriter(t *testing.T) {
	for _, fault := range []faultstore.Fault{faultstore.FlipBit, faultstore.Truncate} {
		store := faultstore.New(objstore.NewMem(), 1,
			faultstore.Rule{Fault: faultstore.Duplicate, Ops: []objstore.Op{objstore.OpPutIfAbsent}, Times: 1},
			faultstore.Rule{Fault: fault, Ops: []objstore.Op{objstore.OpGet}, Times: 1})
		w, err := NewCheckpointWriter(store, "inc")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(t.Context(), 0, nil, nil); !errs.Is(err, errs.Unavailable) {
			t.Fatalf("%v: %v", fault, err)
		}
		ref, err := w.Write(t.Context(), 0, nil, nil)
		if err != nil || ref.Seq != 2 {
			t.Fatalf("%v: then %v, %v", fault, ref, err)
		}
		for seq := uint64(1); seq <= 2; seq++ {
			if _, _, err := LoadCheckpoint(t.Context(), store, CheckpointRef{"inc", seq}); err != nil {
				t.Errorf("%v: checkpoint %d: %v", fault, seq, err)
			}
		}
	}
}
