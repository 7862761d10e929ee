package agent

import (
	"context"
	"sync"
	"time"

	"github.com/firn-data/firn/wal"
)

// objectRefs counts the live segments of each WAL object.
type objectRefs struct {
	mu   sync.Mutex
	live map[wal.ObjectID]int
	pins map[wal.ObjectID]int
}

func newObjectRefs() *objectRefs {
	return &objectRefs{live: map[wal.ObjectID]int{}, pins: map[wal.ObjectID]int{}}
}

func (r *objectRefs) add(id wal.ObjectID, delta int) { r.change(r.live, id, delta) }
func (r *objectRefs) pin(id wal.ObjectID, delta int) { r.change(r.pins, id, delta) }

func (r *objectRefs) change(m map[wal.ObjectID]int, id wal.ObjectID, delta int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m[id] += delta; m[id] <= 0 {
		delete(m, id)
	}
}

// snapshot returns the objects with live segments.
func (r *objectRefs) snapshot() map[wal.ObjectID]struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[wal.ObjectID]struct{}, len(r.live))
	for id := range r.live {
		out[id] = struct{}{}
	}
	return out
}

// inUse reports whether an object has live segments or readers.
func (r *objectRefs) inUse(id wal.ObjectID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.live[id] > 0 || r.pins[id] > 0
}

// written is what the collector knows of one checkpoint of this incarnation.
type written struct {
	ref    wal.CheckpointRef
	covers uint64 // every position below is in the manifests
	refs   map[wal.ObjectID]struct{}
}

// checkpointer writes the incarnation's checkpoints: only buckets that changed,
// when enough WAL objects, a fold or time make it worth while, and never when
// nothing changed.
type checkpointer struct {
	n      *incarnation
	writer *wal.CheckpointWriter

	mu      sync.Mutex
	dirty   map[*bucket]struct{}
	removed map[wal.BucketID]struct{}
	objects int
	newest  [2]*written // newest first
	kick    chan struct{}

	writing sync.Mutex // one checkpoint at a time
}

const (
	checkpointMaxDelay = 30 * time.Second       // a change waits at most so long
	checkpointDebounce = 500 * time.Millisecond // a burst of folds makes one checkpoint
)

func newCheckpointer(n *incarnation, w *wal.CheckpointWriter) *checkpointer {
	return &checkpointer{n: n, writer: w, dirty: map[*bucket]struct{}{}, removed: map[wal.BucketID]struct{}{}, kick: make(chan struct{}, 1)}
}

func (c *checkpointer) mark(b *bucket) {
	c.mu.Lock()
	c.dirty[b] = struct{}{}
	c.mu.Unlock()
}

func (c *checkpointer) remove(id wal.BucketID) {
	c.mu.Lock()
	c.removed[id] = struct{}{}
	c.mu.Unlock()
	c.soon()
}

func (c *checkpointer) objectWritten() {
	c.mu.Lock()
	c.objects++
	due := c.objects >= c.n.agent.cfg.CheckpointObjects
	c.mu.Unlock()
	if due {
		c.soon()
	}
}

func (c *checkpointer) soon() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

func (c *checkpointer) pendingChange() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.dirty)+len(c.removed) > 0
}

// run writes checkpoints until ctx ends.
func (c *checkpointer) run(ctx context.Context) {
	timer := time.NewTicker(checkpointMaxDelay)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			c.n.expireProducers()
		case <-c.kick:
			select {
			case <-ctx.Done():
				return
			case <-time.After(min(checkpointDebounce, c.n.agent.cfg.CollectInterval)):
			}
		}
		if !c.pendingChange() {
			continue
		}
		if _, err := c.write(ctx); err != nil && ctx.Err() == nil {
			c.n.logger.Warn("checkpoint not written; it is tried again", "error", err)
		}
	}
}

// write makes one checkpoint of everything that changed. The sequence that it
// covers is taken first: what is captured after it may hold newer segments,
// which a replay skips.
func (c *checkpointer) write(ctx context.Context) (wal.CheckpointRef, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.n.publishMu.RLock()
	covers := c.n.published
	c.n.publishMu.RUnlock()
	// Taken before the buckets are captured: who lets go of a segment marks its
	// bucket first, so refs holds at least what older manifests still name.
	refs := c.n.refs.snapshot()
	c.mu.Lock()
	dirty, removed, objects := c.dirty, c.removed, c.objects
	c.dirty, c.removed, c.objects = map[*bucket]struct{}{}, map[wal.BucketID]struct{}{}, 0
	c.mu.Unlock()
	changed := make([]wal.BucketManifest, 0, len(dirty))
	for b := range dirty {
		if _, gone := removed[b.id]; gone {
			continue
		}
		m := b.manifest()
		for _, s := range m.Segments {
			refs[s.Object] = struct{}{}
		}
		changed = append(changed, m)
	}
	ids := make([]wal.BucketID, 0, len(removed))
	for id := range removed {
		ids = append(ids, id)
	}
	ref, err := c.writer.Write(ctx, covers, changed, ids)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		for b := range dirty {
			c.dirty[b] = struct{}{}
		}
		for id := range removed {
			c.removed[id] = struct{}{}
		}
		c.objects += objects
		return ref, err
	}
	c.newest[1], c.newest[0] = c.newest[0], &written{ref: ref, covers: covers, refs: refs}
	c.n.collector.wake()
	return ref, nil
}

// settled returns the two newest checkpoints; the older one is nil until there are two.
func (c *checkpointer) settled() (newest, older *written) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest[0], c.newest[1]
}
