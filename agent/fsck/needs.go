package fsck

import (
	"context"
	"fmt"
	"slices"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// needs is what the durable state needs, at one moment.
type needs struct {
	state *metastore.State
	// keys maps each needed object to who needs it.
	keys map[string]string
	// live are the live segments of each bucket, ascending.
	live map[wal.BucketID][]wal.SegmentRef
	// segments maps a WAL object to the segments in it that are live.
	segments map[wal.ObjectID][]wal.SegmentRef
	// tails are the incarnations whose WAL is replayed, from where, up to where.
	tails map[string]span
	// lakeSizes are the sizes that Iceberg's manifests state.
	lakeSizes map[string]int64
	offsets   map[wal.BucketID]int64 // lake offsets
	lakeRows  int64
	damage    []Finding
	// kept is not needed, and not garbage either: what the checkpoint before the
	// newest refers to, and WAL from the position that it covers.
	kept     map[string]struct{}
	keptFrom map[string]uint64
}

// span is a range of WAL positions; a log without a fence may grow: its end is wal.ToEnd.
type span struct{ from, end uint64 }

func (n *needs) need(key, who string) { n.keys[key] = who }

func (n *needs) broken(key string, err error) {
	level := Corrupt
	if errs.Is(err, errs.NotFound) {
		level = Missing
	}
	n.damage = append(n.damage, Finding{Level: level, Key: key, Reason: err.Error()})
}

// gather works out what is needed. It fails only when the store cannot be read;
// what is damaged is noted.
func (c *checker) gather(ctx context.Context) (*needs, error) {
	state, err := c.meta.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	n := &needs{
		state: state, keys: map[string]string{}, live: map[wal.BucketID][]wal.SegmentRef{},
		segments: map[wal.ObjectID][]wal.SegmentRef{}, tails: map[string]span{},
		lakeSizes: map[string]int64{}, offsets: map[wal.BucketID]int64{}, kept: map[string]struct{}{}, keptFrom: map[string]uint64{},
	}
	if err := c.gatherSlots(ctx, n); err != nil {
		return nil, err
	}
	n.needFences()
	for _, db := range state.Databases() {
		for _, t := range state.Tables(db.Name) {
			if err := c.gatherTable(ctx, n, t); err != nil {
				return nil, err
			}
		}
	}
	return n, nil
}

// gatherSlots follows each slot to its manifest: the newest checkpoint of a
// slot's owner, or the one that the state names.
func (c *checker) gatherSlots(ctx context.Context, n *needs) error {
	bySource := map[wal.CheckpointRef][]int{} // slots whose buckets a checkpoint tells
	newest := map[string]wal.CheckpointRef{}
	for i, slot := range n.state.Slots() {
		ref := wal.CheckpointRef(slot.Checkpoint)
		if slot.Owner != "" {
			if _, ok := newest[slot.Owner]; !ok {
				found, ok, err := wal.NewestCheckpoint(ctx, c.store, slot.Owner)
				if passing(err) {
					return err
				}
				if !ok || err != nil {
					found = ref
				}
				newest[slot.Owner] = found
			}
			ref = newest[slot.Owner]
		}
		if !ref.IsZero() {
			bySource[ref] = append(bySource[ref], i)
		}
		if named := wal.CheckpointRef(slot.Checkpoint); !named.IsZero() {
			if err := c.keepCheckpoint(ctx, n, named, "a slot of the metadata state"); err != nil {
				return err
			}
		}
	}
	for ref, slots := range bySource {
		if err := c.gatherCheckpoint(ctx, n, ref, slots); err != nil {
			return err
		}
	}
	for owner, ref := range newest {
		if err := c.keepOlder(ctx, n, owner, ref); err != nil {
			return err
		}
	}
	return nil
}

// keepCheckpoint needs all parts of a checkpoint.
func (c *checker) keepCheckpoint(ctx context.Context, n *needs, ref wal.CheckpointRef, who string) error {
	if _, ok := n.keys[ref.Key()]; ok {
		return nil
	}
	n.need(ref.Key(), who)
	parts, err := wal.CheckpointParts(ctx, c.store, ref)
	if passing(err) {
		return err
	}
	if err != nil {
		n.broken(ref.Key(), err)
		return nil
	}
	for _, p := range parts {
		n.need(p, "checkpoint "+ref.Key())
	}
	return nil
}

// gatherCheckpoint takes the live segments of some slots' buckets out of a
// checkpoint, and the WAL behind it when the slots have an owner.
func (c *checker) gatherCheckpoint(ctx context.Context, n *needs, ref wal.CheckpointRef, slots []int) error {
	if err := c.keepCheckpoint(ctx, n, ref, "the owner of slots"); err != nil {
		return err
	}
	covers, manifests, err := wal.LoadCheckpoint(ctx, c.store, ref)
	if passing(err) {
		return err
	}
	if err != nil {
		n.broken(ref.Key(), err)
		return nil
	}
	for _, m := range manifests {
		if !slices.Contains(slots, n.state.SlotOf(m.Bucket.Table, m.Bucket.Bucket)) || !n.hasBucket(m.Bucket) {
			continue
		}
		n.live[m.Bucket] = append(n.live[m.Bucket], m.Segments...)
		for _, s := range m.Segments {
			n.segments[s.Object] = append(n.segments[s.Object], s)
			n.need(s.Object.Key(), fmt.Sprintf("live segment of bucket %s", m.Bucket))
		}
	}
	if owner := n.state.Slot(slots[0]).Owner; owner == ref.Incarnation {
		n.tails[owner] = span{covers, n.endOf(owner)}
	}
	return nil
}

// keepOlder keeps what the checkpoint before the newest needs: the collector
// leaves it alone too. A later one that a recovery passes over is corrupt.
func (c *checker) keepOlder(ctx context.Context, n *needs, owner string, newest wal.CheckpointRef) error {
	older := wal.CheckpointRef{}
	for info, err := range c.store.List(ctx, "checkpoint/"+owner+"/", "") {
		if err != nil {
			return err
		}
		ref, ok := wal.ParseCheckpointKey(info.Key)
		if !ok || newest.Incarnation != owner {
			continue
		}
		if ref.Seq < newest.Seq {
			older = ref
		}
		if ref.Seq > newest.Seq {
			_, err := wal.CheckpointParts(ctx, c.store, ref)
			if passing(err) {
				return err
			}
			if errs.Is(err, errs.Corrupt) {
				n.broken(ref.Key(), err)
			}
		}
	}
	if older.IsZero() {
		return nil
	}
	parts, err := wal.CheckpointParts(ctx, c.store, older)
	if passing(err) {
		return err
	}
	if err != nil {
		return nil // it is being collected
	}
	for _, p := range parts {
		n.kept[p] = struct{}{}
	}
	covers, manifests, err := wal.LoadCheckpoint(ctx, c.store, older)
	if passing(err) {
		return err
	}
	if err != nil {
		return nil
	}
	for _, m := range manifests {
		for _, s := range m.Segments {
			n.kept[s.Object.Key()] = struct{}{}
		}
	}
	n.keptFrom[owner] = covers
	return nil
}

func (n *needs) hasBucket(b wal.BucketID) bool {
	t, ok := n.state.Table(b.Table)
	return ok && b.Bucket < t.Buckets
}

// endOf returns where an incarnation's log ends for good; wal.ToEnd while it may grow.
func (n *needs) endOf(incarnation string) uint64 {
	if a, ok := n.state.Agent(incarnation); ok && a.State == metastore.Fenced {
		return a.FenceAt
	}
	return wal.ToEnd
}

// needFences: a fence is what keeps an incarnation dead, as long as the metadata
// knows it.
func (n *needs) needFences() {
	for _, a := range n.state.Agents() {
		if a.State == metastore.Fenced {
			n.need(wal.ObjectID{Incarnation: a.Incarnation, Seq: a.FenceAt}.Key(), "the metadata state: it is the fence of "+a.Incarnation)
		}
	}
}

// gatherTable takes a table's needs out of its Iceberg metadata.
func (c *checker) gatherTable(ctx context.Context, n *needs, t *metastore.Table) error {
	def := agent.LakeDef(t)
	snap, err := c.lake.Load(ctx, def)
	if err == nil {
		err = c.gatherLake(ctx, n, def, snap)
	}
	if passing(err) {
		return err
	}
	if err != nil {
		n.broken(def.Prefix, err)
	}
	return nil
}

func (c *checker) gatherLake(ctx context.Context, n *needs, def lakehouse.TableDef, snap *lakehouse.Snapshot) error {
	refs, err := c.lake.References(ctx, def)
	if err != nil {
		return err
	}
	for key := range refs {
		n.need(key, "iceberg table "+def.String())
	}
	files, err := snap.Files(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		n.lakeSizes[f.Key] = f.Size
	}
	for b, at := range snap.Offsets {
		n.offsets[wal.BucketID{Table: def.ID, Bucket: b}] = at
	}
	n.lakeRows += snap.Rows
	return nil
}

// passing reports whether err says nothing about the object: the store could not
// be reached, or the caller has gone.
func passing(err error) bool {
	switch {
	case err == nil:
		return false
	case errs.Is(err, errs.NotFound), errs.Is(err, errs.Corrupt), errs.Is(err, errs.Invalid):
		return false
	}
	return true
}
