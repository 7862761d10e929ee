package agent

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// collector deletes what no durable state needs any more: WAL objects, old
// checkpoints, heartbeats of the dead. It decides from a listing, object by
// object, and only while the metadata state does not move under it.
type collector struct {
	n      *incarnation
	kick   chan struct{}
	active atomic.Bool // something may have become garbage since the last sweep
	total  atomic.Int64
}

func newCollector(n *incarnation) *collector {
	c := &collector{n: n, kick: make(chan struct{}, 1)}
	c.active.Store(true)
	return c
}

func (c *collector) wake() { c.active.Store(true) }

// deadKept is how long fences, heartbeats and ids of dead incarnations stay: an
// upload that is older than this is taken to be dead for good.
const deadKept = metastore.DeadKept

// run sweeps until ctx ends; an idle agent does not list anything.
func (c *collector) run(ctx context.Context) {
	tick := time.NewTicker(c.n.agent.cfg.CollectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.active.Load() {
			continue
		}
		if _, err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.n.logger.Warn("sweep failed; it is tried again", "error", err)
		}
	}
}

// roots is what a sweep must not touch.
type roots struct {
	self        string
	newest      *written // of this incarnation
	older       *written
	foreign     map[wal.ObjectID]struct{} // segments referenced by other live incarnations or released slots
	protected   map[string]bool           // incarnations whose objects are not ours to judge
	checkpoints map[string]struct{}       // keys of checkpoint objects in use
	inUse       func(wal.ObjectID) bool
	now         time.Time // by the store's clock
	safeAge     time.Duration
	fences      map[string]uint64 // where the fences of dead incarnations stand
}

// sweep deletes garbage and returns how many objects went. A slot that moves
// while it runs voids the round.
func (c *collector) sweep(ctx context.Context) (int, error) {
	c.active.Store(false)
	before := c.n.agent.meta.State().Seq
	r, err := c.gather(ctx)
	if err != nil || r == nil {
		c.active.Store(true)
		return 0, err
	}
	var doomed []string
	waiting := false
	for _, prefix := range []string{"wal/", "checkpoint/", "agents/"} {
		for info, err := range c.n.agent.store.List(ctx, prefix, "") {
			if err != nil {
				c.active.Store(true)
				return 0, err
			}
			switch r.judge(info) {
			case verdictDelete:
				doomed = append(doomed, info.Key)
			case verdictLater:
				waiting = true
			case verdictKeep:
			}
			if len(doomed) >= maxSweep {
				break
			}
		}
	}
	state, err := c.n.agent.meta.Refresh(ctx)
	if err != nil {
		return 0, err
	}
	if state.Seq != before {
		c.active.Store(true)
		return 0, nil
	}
	for i, key := range doomed {
		if err := c.n.agent.store.Delete(ctx, key); err != nil {
			c.active.Store(true)
			return i, err
		}
		c.n.agent.footers.forget(key)
	}
	c.total.Add(int64(len(doomed)))
	if waiting || len(doomed) >= maxSweep {
		c.active.Store(true)
	}
	return len(doomed), nil
}

const maxSweep = 20_000 // objects deleted in one round

// gather collects the roots; nil means that it is too early to judge.
func (c *collector) gather(ctx context.Context) (*roots, error) {
	a := c.n.agent
	r := &roots{
		self: c.n.id, foreign: map[wal.ObjectID]struct{}{}, protected: map[string]bool{}, fences: map[string]uint64{},
		checkpoints: map[string]struct{}{}, inUse: c.n.refs.inUse, safeAge: a.cfg.SafeAge,
	}
	r.newest, r.older = c.n.checkpoints.settled()
	if r.newest == nil || r.older == nil {
		return nil, nil
	}
	for _, w := range []*written{r.newest, r.older} {
		if err := c.protectCheckpoint(ctx, r, w.ref); err != nil {
			return nil, err
		}
	}
	state := a.meta.State()
	seen := map[wal.CheckpointRef]bool{}
	for _, slot := range state.Slots() {
		if slot.Owner != "" && slot.Owner != c.n.id {
			r.protected[slot.Owner] = true
		}
		if slot.Checkpoint.Incarnation == "" || seen[wal.CheckpointRef(slot.Checkpoint)] {
			continue
		}
		ref := wal.CheckpointRef(slot.Checkpoint)
		seen[ref] = true
		if err := c.protectCheckpoint(ctx, r, ref); err != nil {
			return nil, err
		}
		if slot.Owner == c.n.id {
			continue
		}
		if err := c.foreignRefs(ctx, r, ref); err != nil {
			return nil, err
		}
	}
	for owner := range r.protected {
		if err := c.newestOf(ctx, r, owner); err != nil {
			return nil, err
		}
	}
	for _, live := range state.LiveAgents() {
		if live.Incarnation != c.n.id {
			r.protected[live.Incarnation] = true
		}
	}
	for _, dead := range state.Agents() {
		if dead.State == metastore.Fenced {
			r.fences[dead.Incarnation] = dead.FenceAt
		}
	}
	now, err := a.storeNow(ctx, c.n.id)
	r.now = now
	return r, err
}

// newestOf protects the two newest checkpoints of another incarnation.
func (c *collector) newestOf(ctx context.Context, r *roots, incarnation string) error {
	ref, ok, err := wal.NewestCheckpoint(ctx, c.n.agent.store, incarnation)
	if err != nil || !ok {
		return err
	}
	return c.foreignRefs(ctx, r, ref)
}

func (c *collector) foreignRefs(ctx context.Context, r *roots, ref wal.CheckpointRef) error {
	_, manifests, err := wal.LoadCheckpoint(ctx, c.n.agent.store, ref)
	if err != nil {
		return errs.In("load checkpoint of another owner", err)
	}
	for _, m := range manifests {
		for _, s := range m.Segments {
			r.foreign[s.Object] = struct{}{}
		}
	}
	return nil
}

func (c *collector) protectCheckpoint(ctx context.Context, r *roots, ref wal.CheckpointRef) error {
	keys, err := wal.CheckpointParts(ctx, c.n.agent.store, ref)
	if err != nil {
		return err
	}
	for _, k := range keys {
		r.checkpoints[k] = struct{}{}
	}
	return nil
}

type verdict uint8

const (
	verdictKeep verdict = iota
	verdictLater
	verdictDelete
)

// judge decides about one object. It is pure.
func (r *roots) judge(info objstore.Info) verdict {
	root, rest, _ := strings.Cut(info.Key, "/")
	incarnation, _, _ := strings.Cut(rest, "/")
	if r.protected[incarnation] {
		return verdictKeep
	}
	age := r.now.Sub(info.ModTime)
	switch root {
	case "wal":
		id, ok := wal.ParseObjectKey(info.Key)
		if !ok {
			return verdictKeep
		}
		return r.judgeWAL(id, age)
	case "checkpoint":
		if _, ok := r.checkpoints[info.Key]; ok {
			return verdictKeep
		}
		return r.whenOld(age, r.safeAge)
	case "agents":
		if incarnation == r.self {
			return verdictKeep
		}
		if age > deadKept {
			return verdictDelete
		}
	}
	return verdictKeep
}

func (r *roots) judgeWAL(id wal.ObjectID, age time.Duration) verdict {
	if id.Incarnation == r.self && id.Seq >= r.older.covers {
		return verdictKeep // a later checkpoint will cover it
	}
	if _, ok := r.foreign[id]; ok || r.inUse(id) {
		return verdictKeep
	}
	for _, w := range []*written{r.newest, r.older} {
		if _, ok := w.refs[id]; ok {
			return verdictLater
		}
	}
	if fence, ok := r.fences[id.Incarnation]; ok && id.Seq >= fence {
		return r.whenOld(age, deadKept) // a fence must outlive every upload of its incarnation
	}
	return r.whenOld(age, r.safeAge)
}

func (r *roots) whenOld(age, limit time.Duration) verdict {
	switch {
	case age >= limit:
		return verdictDelete
	case limit == deadKept:
		return verdictKeep
	}
	return verdictLater
}
