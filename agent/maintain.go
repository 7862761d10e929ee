package agent

import (
	"context"
	"errors"
	"time"

	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
)

// foldForLoad makes sure that what was acknowledged before the call is in the
// lake, folding at most once in min_fold_interval: a load in between waits for
// the interval's end and shares that fold with every other one that waits.
func (n *incarnation) foldForLoad(ctx context.Context, def *metastore.Table) error {
	t, err := n.tableFor(def)
	if err != nil {
		return err
	}
	if err := n.confirmLease(ctx); err != nil {
		return err
	}
	for _, b := range t.buckets {
		if !n.owned[b.slot].Load() {
			return n.notOwner(def, b)
		}
	}
	targets := make([]int64, len(t.buckets))
	for i, b := range t.buckets {
		targets[i] = b.view().hw
	}
	for !t.foldedTo(targets) {
		wait := time.Until(time.Unix(0, t.lastFold.Load()).Add(def.MinFoldInterval()))
		if wait > 0 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(wait):
			}
			if t.foldedTo(targets) {
				return nil
			}
		}
		if _, err := n.fold(ctx, def); err != nil {
			return err
		}
	}
	return nil
}

// foldedTo reports whether every bucket's lake offset reached its target.
func (t *table) foldedTo(targets []int64) bool {
	for i, b := range t.buckets {
		if b.view().lake < targets[i] {
			return false
		}
	}
	return true
}

// compact joins small lake files, in turn with folds. On demand (all) it joins
// whatever can be joined; in the background only where enough has gathered.
func (n *incarnation) compact(ctx context.Context, def *metastore.Table, all bool, maxBytes int64) (lakehouse.CompactResult, error) {
	t, err := n.tableFor(def)
	if err != nil {
		return lakehouse.CompactResult{}, err
	}
	t.foldMu.Lock()
	defer t.foldMu.Unlock()
	lakeDef := n.agent.lakeDef(def)
	if err := n.syncTable(ctx, t, def); err != nil {
		return lakehouse.CompactResult{}, err
	}
	o := lakehouse.CompactOptions{All: all, MaxBytes: maxBytes}
	if t.keyed != nil {
		res, err := n.compactKeyed(ctx, t, def, o)
		if err != nil || res.SnapshotID != 0 {
			n.collector.folded(def.ID)
		}
		return res, err
	}
	res, err := n.agent.lake.Compact(ctx, lakeDef, o)
	if err != nil || res.SnapshotID != 0 {
		n.collector.folded(def.ID)
	}
	if err != nil {
		return res, err
	}
	return res, n.readopt(ctx, t, lakeDef)
}

// readopt takes over the generations that a lake commit raised.
func (n *incarnation) readopt(ctx context.Context, t *table, lakeDef lakehouse.TableDef) error {
	snap, err := n.agent.loadLake(ctx, lakeDef)
	if err != nil {
		return err
	}
	n.adopt(t, snap)
	n.checkpoints.soon() // if it changed anything
	return nil
}

// retain drops the files whose rows are all older than the table's retention.
func (n *incarnation) retain(ctx context.Context, t *table, def *metastore.Table) error {
	if def.Retention() == 0 {
		return nil
	}
	t.foldMu.Lock()
	defer t.foldMu.Unlock()
	lakeDef := n.agent.lakeDef(def)
	if err := n.syncLake(ctx, t, lakeDef); err != nil {
		return err
	}
	res, err := n.agent.lake.Retain(ctx, lakeDef, nil, n.agent.clock().Add(-def.Retention()))
	if err != nil || res.SnapshotID == 0 {
		return err
	}
	if err := n.readopt(ctx, t, lakeDef); err != nil {
		return err
	}
	for b, earliest := range res.Earliest {
		t.buckets[b].raiseEarliest(earliest)
		n.checkpoints.mark(t.buckets[b])
	}
	return nil
}

// expire removes old Iceberg snapshots and the files that only they held; zero
// values mean the table's own settings.
func (n *incarnation) expire(ctx context.Context, def *metastore.Table, keepLast int, olderThan time.Duration) (lakehouse.ExpireResult, error) {
	t, err := n.tableFor(def)
	if err != nil {
		return lakehouse.ExpireResult{}, err
	}
	t.foldMu.Lock()
	defer t.foldMu.Unlock()
	lakeDef := n.agent.lakeDef(def)
	res, err := n.agent.lake.Expire(ctx, lakeDef, lakehouse.ExpireOptions{Keep: keepLast, MinAge: olderThan, Pinned: t.readers.pinned})
	if err != nil || res.Snapshots > 0 {
		n.collector.folded(def.ID)
	}
	if err != nil {
		return res, err
	}
	return res, n.readopt(ctx, t, lakeDef)
}

// sweepLake removes what no snapshot of a table names and no commit can name any more.
func (n *incarnation) sweepLake(ctx context.Context, t *table, def *metastore.Table) (lakehouse.SweepResult, error) {
	t.foldMu.Lock()
	defer t.foldMu.Unlock()
	lakeDef := n.agent.lakeDef(def)
	res, err := n.agent.lake.SweepOrphans(ctx, lakeDef)
	if res.Raised {
		// The bucket's live rows are folded from the generations that stand now. When
		// they cannot be loaded, the next fold meets a conflict and loads them.
		err = errors.Join(err, n.readopt(ctx, t, lakeDef))
	}
	return res, err
}

// idempotencyKept is how long a request may be repeated under its Idempotency-Key.
const idempotencyKept = 24 * time.Hour

// expireProducers forgets idempotency keys after a day, and silent producers
// where the table says after how long.
func (n *incarnation) expireProducers() {
	state, now := n.agent.meta.State(), n.agent.clock()
	for _, t := range n.allTables() {
		def, ok := state.Table(t.id)
		if !ok {
			continue
		}
		var silentSince int64
		if d := def.ProducerExpiry(); d > 0 {
			silentSince = now.Add(-d).UnixMicro()
		}
		for _, b := range t.buckets {
			if b.expireProducers(silentSince, now.Add(-idempotencyKept).UnixMicro()) {
				n.checkpoints.mark(b)
			}
		}
	}
}
