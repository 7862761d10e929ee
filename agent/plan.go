package agent

import (
	"context"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// bucketRange is what a read takes from one bucket: [from, to) out of live segments.
type bucketRange struct {
	bucket   int32
	earliest int64
	from, to int64
	segs     []*liveSegment
	keyed    *keyedView // nil in a log table
}

// readPlan is one moment of a table: a lake snapshot and the live rows from
// exactly its offsets (INVARIANT(agent-4)). Close it to unpin its objects.
type readPlan struct {
	def     *metastore.Table
	snap    *lakehouse.Snapshot
	buckets []bucketRange
	refs    *objectRefs
	pinned  []wal.ObjectID
	unpin   func() // of the snapshot; nil = not pinned
}

func (p *readPlan) close() {
	for _, id := range p.pinned {
		p.refs.pin(id, -1)
	}
	p.pinned = nil
	if p.unpin != nil {
		p.unpin()
		p.unpin = nil
	}
}

const planAttempts = 16 // a fold between loading the snapshot and looking at the buckets makes a plan start over

// plan captures a table at one moment.
func (n *incarnation) plan(ctx context.Context, def *metastore.Table) (*readPlan, error) {
	t, err := n.tableFor(def)
	if err != nil {
		return nil, err
	}
	for _, b := range t.buckets {
		if !n.owned[b.slot].Load() {
			return nil, n.notOwner(def, b)
		}
	}
	lakeDef := n.agent.lakeDef(def)
	if err := n.syncTable(ctx, t, def); err != nil {
		return nil, err
	}
	for range planAttempts {
		snap, err := n.snapshot(ctx, t, lakeDef)
		if err != nil {
			return nil, err
		}
		p := &readPlan{def: def, snap: snap, refs: n.refs, unpin: t.readers.pin(snap.ID)}
		if n.capture(t, p) {
			return p, nil
		}
		p.close()
		t.snap.Store(nil)
	}
	return nil, errs.New(errs.Unavailable, "table %s.%s is folded faster than it can be read; retry", def.Database, def.Name)
}

// syncTable takes over what the lake holds, once per incarnation and table.
func (n *incarnation) syncTable(ctx context.Context, t *table, def *metastore.Table) error {
	if t.keyed != nil {
		return n.openKeyed(ctx, t, def)
	}
	return n.syncLake(ctx, t, n.agent.lakeDef(def))
}

// capture takes the live rows of all buckets at one moment and pins their
// objects. It reports false when the snapshot is older than what a fold dropped.
func (n *incarnation) capture(t *table, p *readPlan) bool {
	n.publishMu.RLock()
	defer n.publishMu.RUnlock()
	for i, b := range t.buckets {
		v := b.view()
		r := bucketRange{bucket: int32(i), earliest: v.earliest, from: p.snap.Offsets[int32(i)], to: v.hw} //nolint:gosec // at most 4096 buckets
		for _, s := range v.live {
			if s.end() > r.from {
				r.segs = append(r.segs, s)
			}
		}
		if r.from < v.lake || (len(r.segs) > 0 && r.segs[0].ref.BaseOffset > r.from) {
			return false
		}
		if b.keyed != nil {
			if r.keyed = b.captureKeyed(p.snap.Generations[r.bucket]); r.keyed == nil || r.from != v.lake {
				return false
			}
		}
		if b.keyed != nil { // what is folded is rows, not the changes that made them
			r.earliest = max(r.earliest, r.from)
		}
		r.to = max(r.to, r.from)
		for _, s := range r.segs {
			p.refs.pin(s.ref.Object, 1)
			p.pinned = append(p.pinned, s.ref.Object)
		}
		p.buckets = append(p.buckets, r)
	}
	return true
}

// snapshotTrust is how long a plan may use a snapshot that this incarnation
// loaded or committed itself. An older one stays right (the live rows from its
// offsets are kept or the plan starts over); it only misses another agent's
// compaction.
const snapshotTrust = 30 * time.Second

// cachedSnapshot is a snapshot and when it was known to be the newest.
type cachedSnapshot struct {
	snap *lakehouse.Snapshot
	at   time.Time
}

// snapshot returns the table's lake snapshot for a plan, from memory when that is fresh enough.
func (n *incarnation) snapshot(ctx context.Context, t *table, def lakehouse.TableDef) (*lakehouse.Snapshot, error) {
	if c := t.snap.Load(); c != nil && n.agent.clock().Sub(c.at) < snapshotTrust {
		snap := *c.snap
		snap.Table = def // the schema may have changed since
		return &snap, nil
	}
	at := n.agent.clock()
	snap, err := n.agent.loadLake(ctx, def)
	if err != nil {
		return nil, err
	}
	t.snap.Store(&cachedSnapshot{snap, at})
	return snap, nil
}

// loadLake returns the newest snapshot of a table, whose Iceberg metadata is
// made now if its creation was cut short.
func (a *Agent) loadLake(ctx context.Context, def lakehouse.TableDef) (*lakehouse.Snapshot, error) {
	snap, err := a.lake.Load(ctx, def)
	if !errs.Is(err, errs.NotFound) {
		return snap, err
	}
	if err := a.lake.CreateTable(ctx, def); err != nil {
		return nil, err
	}
	return a.lake.Load(ctx, def)
}

// syncLake takes over the lake's offsets once per incarnation and table: a fold
// may have been committed after the checkpoint that this incarnation began with.
func (n *incarnation) syncLake(ctx context.Context, t *table, def lakehouse.TableDef) error {
	if t.synced.Load() {
		return nil
	}
	snap, err := n.agent.loadLake(ctx, def)
	if err != nil {
		return err
	}
	earliest, err := snap.Earliest(ctx)
	if err != nil {
		return err
	}
	n.adopt(t, snap)
	for b, at := range earliest {
		if int(b) < len(t.buckets) {
			t.buckets[b].raiseEarliest(at)
		}
	}
	t.synced.Store(true)
	return nil
}

// adopt moves the buckets of a table to a lake snapshot. A primary-key table whose
// rows moved by it is opened again.
func (n *incarnation) adopt(t *table, snap *lakehouse.Snapshot) {
	if t.keyed == nil {
		n.advance(t, snap)
		return
	}
	n.publishMu.Lock()
	defer n.publishMu.Unlock()
	for _, b := range t.buckets {
		same, changed := b.sameIndex(snap)
		if !same {
			t.keyed.opened.Store(false)
		}
		if changed {
			n.checkpoints.mark(b)
		}
	}
	t.snap.Store(&cachedSnapshot{snap, n.agent.clock()})
}

// advance moves the buckets of a table to a lake snapshot.
func (n *incarnation) advance(t *table, snap *lakehouse.Snapshot) {
	n.publishMu.Lock()
	defer n.publishMu.Unlock()
	for i, b := range t.buckets {
		bucket := int32(i) //nolint:gosec // at most 4096 buckets
		gone, changed := b.advanceLake(snap.Offsets[bucket], snap.Generations[bucket])
		if changed {
			n.checkpoints.mark(b) // before the segments go: see checkpointer.write
		}
		if len(gone) > 0 {
			n.forget(gone)
		}
	}
	t.noteLive()
	t.snap.Store(&cachedSnapshot{snap, n.agent.clock()})
}

// liveRows returns how many rows of the plan are not in its lake snapshot.
func (p *readPlan) liveRows() int64 {
	var rows int64
	for _, b := range p.buckets {
		rows += b.to - b.from
	}
	return rows
}
