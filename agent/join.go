package agent

import (
	"context"
	"log/slog"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/wal"
)

// incarnate makes a new incarnation: it fences the former ones of this agent
// id, joins, recovers the slots that are free, writes its own checkpoint and
// claims them, and starts to serve.
func (a *Agent) incarnate(ctx context.Context, id string) (*incarnation, error) {
	n := a.newIncarnation(id)
	if err := n.start(ctx); err != nil {
		n.cancel()
		_ = n.endLease(ctx)
		return nil, err
	}
	return n, nil
}

func (a *Agent) newIncarnation(id string) *incarnation {
	n := &incarnation{
		id: id, agent: a, logger: a.logger.With(slog.String("incarnation", id)),
		pending: semaphore.NewWeighted(a.cfg.MaxPendingBytes), tables: map[uint64]*table{},
		refs: newObjectRefs(), buffer: newRowBuffer(a.cfg.CacheBytes), stopped: make(chan struct{}), streamsEnd: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	n.owned = make([]atomic.Bool, metastore.MaxSlots)
	n.folder = newFolder(n)
	n.collector = newCollector(n)
	return n
}

func (n *incarnation) start(ctx context.Context) error {
	a := n.agent
	if err := n.beginLease(ctx); err != nil {
		return err
	}
	if err := n.join(ctx); err != nil {
		return errs.In("join the cluster", err)
	}
	writer, err := wal.NewCheckpointWriter(a.store, n.id)
	if err != nil {
		return err
	}
	n.checkpoints = newCheckpointer(n, writer)
	if err := n.claimFree(ctx); err != nil {
		return err
	}
	n.log, err = wal.New(wal.Options{
		Store: a.store, Incarnation: n.id, FlushBytes: a.cfg.FlushBytes, FlushAge: a.cfg.FlushAge, InFlight: a.cfg.InFlight,
		Codec: segments.CodecZSTD, MaxPendingBytes: 2*a.cfg.MaxPendingBytes + a.cfg.MaxRequestBytes,
		Now: a.clock, OnCommit: n.publish, OnFatal: func(err error) { go n.fail(err) }, Logger: n.logger,
	})
	if err != nil {
		return err
	}
	if err := n.log.Open(ctx); err != nil {
		return err
	}
	n.goroutine(n.checkpoints.run)
	n.goroutine(n.folder.run)
	n.goroutine(n.collector.run)
	n.goroutine(n.watchCluster)
	return nil
}

const claimAttempts = 8 // races for slots that are lost before an attempt is given up

// claimFree recovers and claims the slots that this incarnation should own and
// that nobody alive owns.
func (n *incarnation) claimFree(ctx context.Context) error {
	n.claiming.Lock()
	defer n.claiming.Unlock()
	for range claimAttempts {
		state, err := n.agent.meta.Refresh(ctx)
		if err != nil {
			return err
		}
		plan := metastore.PlanSoleClaims(state, n.id)
		if len(plan) == 0 {
			return nil
		}
		slots := map[int]bool{}
		for _, r := range plan {
			for _, s := range r.Slots {
				slots[s.Slot] = true
			}
		}
		if err := n.recover(ctx, state, plan); err != nil {
			return err
		}
		err = n.claim(ctx, plan, slots)
		if err == nil {
			n.own(state, slots)
			n.suspectCrashed(plan)
			return nil
		}
		n.dropRecovered(state, slots)
		if !errs.Is(err, errs.Conflict) {
			return err
		}
	}
	return errs.New(errs.Unavailable, "other agents claimed slots faster than this one; try again")
}

// claim writes this incarnation's checkpoint, which holds what it recovered,
// and then asks for the slots.
func (n *incarnation) claim(ctx context.Context, plan []metastore.Recovery, slots map[int]bool) error {
	n.eachBucket(slots, n.checkpoints.mark)
	ref, err := n.checkpoints.write(ctx)
	if err != nil {
		return err
	}
	var refs []metastore.SlotRef
	for _, r := range plan {
		refs = append(refs, r.Slots...)
	}
	_, err = n.agent.meta.Append(ctx, metastore.DecideClaim(n.id, refs, metastore.CheckpointRef(ref)))
	return err
}

// own opens claimed slots to readers and writers.
func (n *incarnation) own(state *metastore.State, slots map[int]bool) {
	n.eachBucket(slots, func(b *bucket) { b.admitDurable() })
	for _, t := range n.allTables() {
		t.synced.Store(false)
		t.noteLive()
		n.folder.watch(t)
	}
	for s := range slots {
		n.owned[s].Store(true)
	}
	n.logger.Info("slots claimed", "slots", len(slots), "of", state.SlotCount)
}

// suspectCrashed has the collector look for lake files that the owner left who
// did not end in order.
func (n *incarnation) suspectCrashed(plan []metastore.Recovery) {
	slots := map[int]bool{}
	for _, r := range plan {
		for _, s := range r.Slots {
			slots[s.Slot] = r.Fenced != ""
		}
	}
	n.eachBucket(slots, func(b *bucket) { n.collector.suspectOrphans(b.id.Table) })
}

// eachBucket calls f for the known buckets of some slots.
func (n *incarnation) eachBucket(slots map[int]bool, f func(*bucket)) {
	for _, t := range n.allTables() {
		for _, b := range t.buckets {
			if slots[b.slot] {
				f(b)
			}
		}
	}
}

// dropRecovered forgets what a lost claim recovered.
func (n *incarnation) dropRecovered(_ *metastore.State, slots map[int]bool) {
	n.eachBucket(slots, func(b *bucket) {
		n.forget(b.view().live)
		b.restore(wal.BucketManifest{Bucket: b.id})
		n.checkpoints.remove(b.id)
	})
}

// recover loads the buckets of slots from where their last owner left them:
// released slots are whole in the checkpoint that their release names; a dead
// owner's are in its newest checkpoint and the WAL behind it.
func (n *incarnation) recover(ctx context.Context, state *metastore.State, plan []metastore.Recovery) error {
	for _, r := range plan {
		mine := map[int]bool{}
		for _, s := range r.Slots {
			mine[s.Slot] = true
		}
		var err error
		switch {
		case r.Fenced != "":
			err = n.recoverDead(ctx, state, r, mine)
		case !r.Checkpoint.IsZero():
			_, err = n.restore(ctx, state, wal.CheckpointRef(r.Checkpoint), mine)
		}
		if err != nil {
			return errs.In("recover slots", err)
		}
	}
	return nil
}

// recoverDead takes over the slots of a fenced incarnation.
func (n *incarnation) recoverDead(ctx context.Context, state *metastore.State, r metastore.Recovery, mine map[int]bool) error {
	var from uint64
	ref, ok, err := n.newestCheckpoint(ctx, state, r.Fenced)
	if err != nil {
		return err
	}
	if ok {
		if from, err = n.restore(ctx, state, ref, mine); err != nil {
			return err
		}
	}
	return wal.Replay(ctx, n.agent.store, r.Fenced, from, r.FenceAt, func(id wal.ObjectID, footer *wal.Footer) error {
		for i := range footer.Segments {
			if err := n.replaySegment(state, mine, id, i, &footer.Segments[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// newestCheckpoint returns where the recovery of another incarnation starts. One that
// claimed slots had written a checkpoint first; when neither that nor a newer one can
// be read, its log has no known start: its first positions may have been collected, and
// to take the first absent one for its end would lose what is live behind it.
func (n *incarnation) newestCheckpoint(ctx context.Context, state *metastore.State, other string) (ref wal.CheckpointRef, ok bool, err error) {
	if ref, ok, err = wal.NewestCheckpoint(ctx, n.agent.store, other); err != nil {
		return ref, ok, err
	}
	for _, slot := range state.Slots() {
		claimed := slot.Checkpoint
		if slot.Owner == other && claimed.Incarnation == other && (!ok || ref.Seq < claimed.Seq) {
			return ref, false, errs.New(errs.Corrupt, "no checkpoint of %s at or past %d can be read, with which it claimed its slots: what was live in them is lost; run firn fsck",
				other, claimed.Seq)
		}
	}
	return ref, ok, nil
}

// restore loads the manifests of the wanted slots and returns the WAL position
// that the checkpoint covers up to.
func (n *incarnation) restore(ctx context.Context, state *metastore.State, ref wal.CheckpointRef, mine map[int]bool) (uint64, error) {
	covers, manifests, err := wal.LoadCheckpoint(ctx, n.agent.store, ref)
	if err != nil {
		return 0, err
	}
	for _, m := range manifests {
		b := n.recoveredBucket(state, mine, m.Bucket)
		if b == nil {
			continue
		}
		b.restore(m)
		for _, s := range m.Segments {
			n.refs.add(s.Object, 1)
			n.unfolded.Add(weight(s.Bytes))
		}
	}
	return covers, nil
}

func (n *incarnation) replaySegment(state *metastore.State, mine map[int]bool, id wal.ObjectID, index int, seg *wal.Segment) error {
	b := n.recoveredBucket(state, mine, seg.Bucket)
	if b == nil {
		return nil
	}
	added, err := b.replay(id, index, seg)
	if added {
		n.refs.add(id, 1)
		n.unfolded.Add(weight(seg.BodyLen))
	}
	return err
}

// recoveredBucket returns the state of a bucket in one of the wanted slots; nil
// for others and for dropped tables.
func (n *incarnation) recoveredBucket(state *metastore.State, mine map[int]bool, id wal.BucketID) *bucket {
	def, ok := state.Table(id.Table)
	if !ok || !mine[state.SlotOf(id.Table, id.Bucket)] || id.Bucket >= def.Buckets {
		return nil
	}
	t, err := n.tableFor(def)
	if err != nil {
		return nil
	}
	return t.buckets[id.Bucket]
}

// releaseSlots writes a last checkpoint, gives the slots back and leaves. The
// log is flushed and closed by then.
func (n *incarnation) releaseSlots(ctx context.Context) error {
	ref, err := n.checkpoints.write(ctx)
	if err != nil {
		return err
	}
	if slots := n.agent.meta.State().SlotsOf(n.id); len(slots) > 0 {
		if _, err = n.agent.meta.Append(ctx, metastore.DecideRelease(n.id, slots, metastore.CheckpointRef(ref))); err != nil {
			return err
		}
	}
	_, err = n.agent.meta.Append(ctx, metastore.DecideLeave(n.id))
	return err
}

// join fences the former incarnations of this agent id, which by that can
// never acknowledge again, and makes this one live.
func (n *incarnation) join(ctx context.Context) error {
	a := n.agent
	for {
		state, err := a.meta.Refresh(ctx)
		if err != nil {
			return err
		}
		for _, former := range metastore.PlanStart(state, a.cfg.AgentID) {
			if err := n.fence(ctx, state, former); err != nil {
				return err
			}
		}
		_, err = a.meta.Append(ctx, metastore.DecideJoin(metastore.Join{
			Incarnation: n.id, AgentID: a.cfg.AgentID, Address: a.cfg.Advertise, Zone: a.cfg.Zone, Version: Version,
		}))
		if !errs.Is(err, errs.Conflict) {
			return err
		}
	}
}

// fence ends another incarnation: first its WAL, then its life in the metadata.
func (n *incarnation) fence(ctx context.Context, state *metastore.State, other string) error {
	var from uint64
	ref, ok, err := n.newestCheckpoint(ctx, state, other)
	if err != nil {
		return err
	}
	if ok {
		if from, _, err = wal.LoadCheckpoint(ctx, n.agent.store, ref); err != nil {
			return err
		}
	}
	end, err := wal.Fence(ctx, n.agent.store, other, from, n.id)
	if err != nil {
		return err
	}
	n.logger.Info("fenced", "other", other, "at", end)
	_, err = n.agent.meta.Append(ctx, metastore.DecideFence(other, end, n.id, n.agent.cfg.AgentID))
	return err
}
