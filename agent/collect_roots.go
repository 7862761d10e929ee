package agent

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// roots is what a sweep must not touch, as of one metadata state.
type roots struct {
	self        string
	newest      *written // checkpoint of this incarnation
	older       *written
	foreign     map[wal.ObjectID]struct{} // segments that others' checkpoints and released slots need
	protected   map[string]bool           // incarnations whose objects are not ours to judge
	others      bool                      // other agents are live
	checkpoints map[string]struct{}       // keys of checkpoint objects in use
	inUse       func(wal.ObjectID) bool   // live or pinned here
	now         time.Time                 // by the store's clock
	ahead       time.Duration             // how far this machine's clock is beyond now
	safeAge     time.Duration
	fences      map[string]uint64 // where the fences of dead incarnations stand
	left        map[string]bool   // incarnations that ended in order
}

// gather collects the roots; nil means that this incarnation has not written two
// checkpoints yet, without which nothing can be judged.
func (c *collector) gather(ctx context.Context, state *metastore.State) (*roots, error) {
	a := c.n.agent
	r := &roots{
		self: c.n.id, foreign: map[wal.ObjectID]struct{}{}, protected: map[string]bool{}, fences: map[string]uint64{}, left: map[string]bool{},
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
	if err := c.gatherSlots(ctx, r, state); err != nil {
		return nil, err
	}
	for _, g := range state.Agents() {
		switch {
		case g.State == metastore.Live && g.Incarnation != c.n.id:
			r.protected[g.Incarnation], r.others = true, true
		case g.State == metastore.Fenced:
			r.fences[g.Incarnation] = g.FenceAt
		case g.State == metastore.Left:
			r.left[g.Incarnation] = true
		}
	}
	now, err := a.storeNow(ctx, c.n.id)
	r.now, r.ahead = now, a.clock().Sub(now)
	return r, err
}

// gatherSlots keeps what the slots name, and what the owners of other slots need.
func (c *collector) gatherSlots(ctx context.Context, r *roots, state *metastore.State) error {
	seen := map[wal.CheckpointRef]bool{}
	for _, slot := range state.Slots() {
		if slot.Owner != "" && slot.Owner != c.n.id {
			r.protected[slot.Owner] = true
		}
		ref := wal.CheckpointRef(slot.Checkpoint)
		if ref.IsZero() || seen[ref] {
			continue
		}
		seen[ref] = true
		if err := c.protectCheckpoint(ctx, r, ref); err != nil {
			return err
		}
		if slot.Owner == c.n.id {
			continue
		}
		if err := c.foreignRefs(ctx, r, ref); err != nil {
			return err
		}
	}
	for owner := range r.protected {
		if err := c.newestOf(ctx, r, owner); err != nil {
			return err
		}
	}
	return nil
}

// newestOf keeps what the two newest readable checkpoints of another incarnation
// need: should one be damaged, a recovery starts from the other.
func (c *collector) newestOf(ctx context.Context, r *roots, incarnation string) error {
	var refs []wal.CheckpointRef
	for info, err := range c.n.agent.store.List(ctx, "checkpoint/"+incarnation+"/", "") {
		if err != nil {
			return err
		}
		if ref, ok := wal.ParseCheckpointKey(info.Key); ok {
			refs = append(refs, ref)
		}
	}
	slices.SortFunc(refs, func(a, b wal.CheckpointRef) int { return strings.Compare(b.Key(), a.Key()) })
	kept := 0
	for _, ref := range refs {
		err := c.foreignRefs(ctx, r, ref)
		switch {
		case err == nil:
			kept++
		case !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.NotFound):
			return err
		}
		if kept == 2 {
			break
		}
	}
	return nil
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
	verdictSettle      // garbage but for the older checkpoint
	verdictUnlessFence // garbage unless it is a fence
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
		if id, ok := wal.ParseObjectKey(info.Key); ok {
			return r.judgeWAL(id, age)
		}
	case "checkpoint":
		if ref, ok := wal.ParseCheckpointKey(info.Key); ok {
			return r.judgeCheckpoint(ref, age)
		}
	case "agents":
		return r.judgeHeartbeat(incarnation, age)
	}
	return verdictKeep
}

// judgeWAL: an object goes when no checkpoint of the two newest needs it, for
// its segments or for the positions behind it, and nobody holds it.
func (r *roots) judgeWAL(id wal.ObjectID, age time.Duration) verdict {
	if _, ok := r.foreign[id]; ok || r.inUse(id) {
		return verdictKeep
	}
	if id.Incarnation == r.self && id.Seq >= r.newest.covers {
		return verdictKeep // the next checkpoint will cover it
	}
	if _, ok := r.newest.refs[id]; ok {
		return verdictLater
	}
	fence, fenced := r.fences[id.Incarnation]
	if fenced && id.Seq == fence {
		return verdictKeep // it must outlive every upload of its incarnation
	}
	if v := r.whenOld(age); v != verdictDelete {
		return v
	}
	if fenced && id.Seq > fence {
		return verdictUnlessFence
	}
	if _, ok := r.older.refs[id]; ok || id.Incarnation == r.self && id.Seq >= r.older.covers {
		return verdictSettle
	}
	return verdictDelete
}

// judgeCheckpoint: one of our own that is newer than what we know to be written
// has an outcome that is not known yet, or was written since the roots were gathered.
func (r *roots) judgeCheckpoint(ref wal.CheckpointRef, age time.Duration) verdict {
	if _, ok := r.checkpoints[ref.Key()]; ok || ref.Incarnation == r.self && ref.Seq > r.newest.ref.Seq {
		return verdictKeep
	}
	return r.whenOld(age)
}

// judgeHeartbeat: a fenced incarnation's stays as long as the metadata knows it,
// and an unknown one may belong to an agent that is about to join.
func (r *roots) judgeHeartbeat(incarnation string, age time.Duration) verdict {
	_, fenced := r.fences[incarnation]
	switch {
	case incarnation == r.self || fenced:
		return verdictKeep
	case r.left[incarnation]:
		return r.whenOld(age)
	case age > deadKept:
		return verdictDelete
	case age+r.ahead > deadKept:
		return verdictLater // by this machine's clock it is: the next heartbeat brings the store's
	}
	return verdictKeep
}

func (r *roots) whenOld(age time.Duration) verdict {
	if age >= r.safeAge {
		return verdictDelete
	}
	return verdictLater
}
