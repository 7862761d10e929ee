package agent

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments/merge"
)

// keyedTable is what a primary-key table has beside a log table's state.
type keyedTable struct {
	openMu sync.Mutex // one opening at a time
	opened atomic.Bool
	rules  atomic.Pointer[keyedRules]
}

// keyedRules is how a version of a table's definition treats writes.
type keyedRules struct {
	version uint64
	engine  *merge.Engine
	hasher  *index.Hasher
}

// rulesOf returns the rules of a definition, made once a version.
func (k *keyedTable) rulesOf(def *metastore.Table) (*keyedRules, error) {
	if r := k.rules.Load(); r != nil && r.version == def.Version {
		return r, nil
	}
	engine, err := merge.New(mergeDefinition(def))
	if err != nil {
		return nil, err
	}
	hasher, err := index.NewHasher(def.Current(), def.PrimaryKey, def.BucketKey)
	if err != nil {
		return nil, err
	}
	r := &keyedRules{version: def.Version, engine: engine, hasher: hasher}
	k.rules.Store(r)
	return r, nil
}

func mergeDefinition(def *metastore.Table) merge.Definition {
	d := merge.Definition{
		Schema: def.Current(), PrimaryKey: def.PrimaryKey,
		Kind: map[string]merge.Kind{
			"last_row": merge.LastRow, "first_row": merge.FirstRow, "versioned": merge.Versioned, "aggregation": merge.Aggregation,
		}[def.MergeEngine()],
		Deletes: map[string]merge.DeleteBehavior{
			"allow": merge.DeleteAllow, "ignore": merge.DeleteIgnore, "reject": merge.DeleteReject,
		}[def.DeleteBehavior()],
		AfterOnly: def.ChangelogImage() == "after", KeepNoops: def.NoopUpdates() == "keep",
	}
	if f, ok := def.Current().Field(def.VersionColumn()); ok {
		d.VersionColumn = f.ID
	}
	return d
}

// keyedBucket is what a bucket of a primary-key table has beside a log's state.
type keyedBucket struct {
	lane lane

	// Guarded by bucket.mu.
	state   *index.State
	lake    *index.Index // the runs of generation bucket.gen
	name    string       // of the manifest of lake; empty before the first fold
	flights []flight     // handed to the WAL and not published, ascending
}

// flight is changes on their way to the store.
type flight struct {
	base, end int64
	changes   arrow.RecordBatch // of the log's schema
}

// publishKeyed makes what was published durable for the index. The bucket is locked.
func (b *bucket) publishKeyed() {
	if b.keyed == nil || b.keyed.state == nil {
		return
	}
	b.keyed.state.Publish(b.hw)
	n := 0
	for n < len(b.keyed.flights) && b.keyed.flights[n].end <= b.hw {
		n++
	}
	b.keyed.flights = b.keyed.flights[n:]
}

// sameIndex takes over the generation of a snapshot that moved no row of the bucket,
// and reports whether it is one, and whether the generation changed.
func (b *bucket) sameIndex(snap *lakehouse.Snapshot) (same, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keyed.state == nil || snap.IndexName(b.id.Bucket) != b.keyed.name || snap.Offset(b.id.Bucket) != b.lake {
		return false, false
	}
	before := b.gen
	b.gen = snap.Generation(b.id.Bucket)
	return true, b.gen != before
}

// lane admits one write of a bucket at a time, in the order of arrival: who waits
// on a channel is served first come, first served.
type lane chan struct{}

func newLane() lane { return make(lane, 1) }

func (l lane) enter(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errs.Wrap(errs.Canceled, "write rows", ctx.Err())
	}
}

func (l lane) leave() { <-l }

// openKeyed makes the index of a primary-key table's owned buckets: the runs that
// belong to the lake's snapshot, and the live log behind it applied to them.
func (n *incarnation) openKeyed(ctx context.Context, t *table, def *metastore.Table) error {
	if t.keyed.opened.Load() {
		return nil
	}
	t.keyed.openMu.Lock()
	defer t.keyed.openMu.Unlock()
	if t.keyed.opened.Load() {
		return nil
	}
	for _, b := range t.buckets { // no write is half applied while the states are made
		if err := b.keyed.lane.enter(ctx); err != nil {
			return err
		}
		defer b.keyed.lane.leave()
	}
	lakeDef := n.agent.lakeDef(def)
	snap, err := n.agent.loadLake(ctx, lakeDef)
	if err != nil {
		return err
	}
	n.advance(t, snap)
	t.synced.Store(true)
	for _, b := range t.buckets {
		if !n.owned[b.slot].Load() {
			return n.notOwner(def, b)
		}
		if err := n.openBucket(ctx, def, t, b, snap); err != nil {
			return errs.In("open the key index of bucket "+b.id.String(), err)
		}
	}
	t.keyed.opened.Store(true)
	return nil
}

// openBucket builds the state of a bucket whose lane is held.
func (n *incarnation) openBucket(ctx context.Context, def *metastore.Table, t *table, b *bucket, snap *lakehouse.Snapshot) error {
	rules, err := t.keyed.rulesOf(def)
	if err != nil {
		return err
	}
	lake, err := n.openIndex(ctx, b, snap)
	if err != nil {
		return err
	}
	if err := n.settleFlights(ctx, b); err != nil {
		return err
	}
	v := b.view()
	state := index.NewState(v.lake)
	read := projection{out: keySchema(def), read: keySchema(def)}
	for _, s := range v.live {
		rec, err := n.readLive(ctx, def, s, read, v.lake, v.hw)
		if err != nil {
			return err
		}
		if err := applyLog(ctx, state, lake, rules.hasher, keySchema(def), rec, max(s.ref.BaseOffset, v.lake)); err != nil {
			return err
		}
	}
	state.Publish(v.hw)
	b.raiseEarliest(v.lake)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.keyed.state, b.keyed.lake, b.keyed.name = state, lake, snap.IndexName(b.id.Bucket)
	return nil
}

// openIndex opens the runs that belong to a snapshot.
func (n *incarnation) openIndex(ctx context.Context, b *bucket, snap *lakehouse.Snapshot) (*index.Index, error) {
	owner := index.Owner{Table: b.id.Table, Bucket: b.id.Bucket}
	m := &index.Manifest{Owner: owner}
	if name := snap.IndexName(b.id.Bucket); name != "" {
		body, _, err := n.agent.store.Get(ctx, owner.Key(name))
		if err != nil {
			return nil, err
		}
		if m, err = index.DecodeManifest(body, owner.Key(name), owner); err != nil {
			return nil, err
		}
	}
	return index.Open(ctx, n.agent.indexCache, m, nil)
}

// settleFlights waits until what a bucket handed to the WAL is published.
func (n *incarnation) settleFlights(ctx context.Context, b *bucket) error {
	b.mu.Lock()
	tail := b.tail
	b.mu.Unlock()
	if tail == nil {
		return nil
	}
	select {
	case <-tail.done:
		return tail.err
	case <-n.stopped:
		return n.failure()
	case <-ctx.Done():
		return errs.Wrap(errs.Canceled, "wait for rows on their way", ctx.Err())
	}
}
