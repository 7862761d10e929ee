package lakehouse

import (
	"context"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// One agent's clock was ahead by hours when it folded. Nobody whose clock was right
// could expire, sweep or alter the table until theirs caught up.
func TestAClockThatRanAheadDoesNotStopMaintenance(t *testing.T) {
	s := idSchema()
	x := newFoldTable(t, objstore.NewMem(), sweepAtOnce(), s, nil)
	o := sweepAtOnce()
	o.Now = func() time.Time { return time.Now().Add(3 * time.Hour) }
	ahead := x.with(x.store, o)
	for i := range 3 {
		ahead.fold(0, batchOf(s, 5, uint64(i)))
	}
	x.rows = ahead.rows
	r, err := x.lake.Expire(context.Background(), x.def, ExpireOptions{Keep: 1, MinAge: -1})
	if err != nil || r.Snapshots != 2 {
		t.Fatalf("expire: %+v, %v", r, err)
	}
	x.fold(0, batchOf(s, 5, 9))
	x.check()
	x.def.Version++
	x.def.Properties[PropKeepSnapshots] = "5"
	if err := x.lake.SyncSchema(context.Background(), x.def); err != nil {
		t.Fatal(err)
	}
	if err := x.store.Put(context.Background(), x.def.metadataPrefix()+"orphan-m1.avro", []byte("x")); err != nil {
		t.Fatal(err)
	}
	x.sweepClean()
}
