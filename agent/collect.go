package agent

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// collector deletes what no durable state needs any more: WAL objects, old
// checkpoints, heartbeats of the dead, directories of dropped tables, leftovers
// of probes. It decides from a listing, object by object (see roots), and only
// while the metadata state does not move under it.
//
// An idle agent lists nothing: a sweep runs when something may have become
// garbage since the last one, or when garbage waits for its age.
type collector struct {
	n      *incarnation
	active atomic.Bool // something may have become garbage since the last sweep
	total  atomic.Int64

	sweeping sync.Mutex // one sweep at a time; guards what follows
	since    map[string]time.Time
	lake     lakeGarbage
	probes   time.Time // when to look for leftovers of probes; zero = not any more
}

func newCollector(n *incarnation) *collector {
	c := &collector{n: n, since: map[string]time.Time{}, lake: newLakeGarbage(), probes: n.agent.clock()}
	c.active.Store(true)
	return c
}

func (c *collector) wake() { c.active.Store(true) }

const (
	// deadKept is how long fences, heartbeats and ids of dead incarnations stay: an
	// upload that is older than this is taken to be dead for good.
	deadKept = metastore.DeadKept
	// maxSweep bounds the objects that are deleted in one round.
	maxSweep = 20_000
	// probeKept is how old a leftover of a probe must be: no probe takes so long.
	probeKept = time.Hour
)

// run sweeps until ctx ends.
func (c *collector) run(ctx context.Context) {
	tick := time.NewTicker(c.n.agent.cfg.CollectInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !c.active.Load() && !c.lakeDue() && !c.pruneDue() && !c.probesDue() {
			continue
		}
		if _, err := c.sweep(ctx); err != nil && ctx.Err() == nil {
			c.n.logger.Warn("sweep failed; it is tried again", "error", err)
		}
	}
}

// sweep deletes garbage and returns how many objects went.
func (c *collector) sweep(ctx context.Context) (int, error) {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	n, again, err := c.round(ctx, c.active.Swap(false))
	c.total.Add(int64(n))
	if again || err != nil {
		c.active.Store(true)
	}
	return n, err
}

func (c *collector) round(ctx context.Context, active bool) (deleted int, again bool, err error) {
	if active {
		if deleted, again, err = c.sweepLog(ctx); err != nil {
			return deleted, true, err
		}
	}
	n, err := c.sweepLake(ctx)
	deleted += n
	if err != nil {
		return deleted, true, err
	}
	n, err = c.sweepProbes(ctx)
	deleted += n
	if err == nil {
		err = c.prune(ctx)
	}
	return deleted, again, err
}

// sweepLog deletes garbage among WAL objects, checkpoints and heartbeats. A slot
// that moves meanwhile voids the round: what was judged is judged anew.
func (c *collector) sweepLog(ctx context.Context) (deleted int, again bool, err error) {
	before := c.n.agent.meta.State()
	r, err := c.gather(ctx, before)
	if err != nil {
		return 0, true, err
	}
	if r == nil {
		return 0, c.settle(ctx), nil
	}
	found, err := c.judgeAll(ctx, r)
	if err != nil {
		return 0, true, err
	}
	state, err := c.n.agent.meta.Refresh(ctx)
	if err != nil || state.Seq != before.Seq {
		return 0, true, err
	}
	doomed := found.doomed
	if r.others {
		doomed = c.grace(doomed, r.safeAge)
	}
	for i, key := range doomed {
		if err := c.n.agent.store.Delete(ctx, key); err != nil {
			return i, true, err
		}
		c.n.agent.footers.forget(key)
	}
	again = found.waiting || len(doomed) < len(found.doomed) || len(found.doomed) >= maxSweep
	if found.unsettled {
		again = c.settle(ctx) || again
	}
	return len(doomed), again, nil
}

// grace holds back what became garbage lately: an agent that took its rows into
// the lake may still have readers on it, and its pins are known to it alone.
func (c *collector) grace(doomed []string, safeAge time.Duration) []string {
	now := c.n.agent.clock()
	since := make(map[string]time.Time, len(doomed))
	ready := doomed[:0:0]
	for _, key := range doomed {
		first, ok := c.since[key]
		if !ok {
			first = now
		}
		since[key] = first
		if now.Sub(first) >= safeAge {
			ready = append(ready, key)
		}
	}
	c.since = since
	return ready
}

// settle writes a checkpoint although nothing changed, so that the two newest
// agree and what only the older one needs can go. It reports whether another
// sweep is worth while. A change that waits brings a checkpoint by itself.
func (c *collector) settle(ctx context.Context) (again bool) {
	newest, _ := c.n.checkpoints.settled()
	if newest == nil || c.n.checkpoints.pendingChange() {
		return false // the next checkpoint wakes the collector
	}
	if _, err := c.n.checkpoints.write(ctx); err != nil {
		if ctx.Err() == nil {
			c.n.logger.Warn("checkpoint not written; it is tried again", "error", err)
		}
	}
	return true
}

// judged is what a listing showed.
type judged struct {
	doomed    []string
	waiting   bool // some garbage is too young, or the newest checkpoint still names it
	unsettled bool // some garbage is named by the older checkpoint only
}

func (c *collector) judgeAll(ctx context.Context, r *roots) (judged, error) {
	var out judged
	for _, prefix := range []string{"wal/", "checkpoint/", "agents/"} {
		for info, err := range c.n.agent.store.List(ctx, prefix, "") {
			if err != nil {
				return out, err
			}
			v := r.judge(info)
			if v == verdictUnlessFence {
				if v, err = c.unlessFence(ctx, info); err != nil {
					return out, err
				}
			}
			switch v {
			case verdictDelete:
				out.doomed = append(out.doomed, info.Key)
			case verdictLater:
				out.waiting = true
			case verdictSettle:
				out.unsettled = true
			}
			if len(out.doomed) >= maxSweep {
				return out, nil
			}
		}
	}
	return out, nil
}

// unlessFence looks into an object beyond the end of a dead incarnation's log:
// rows there were never acknowledged, but a fence or a barrier must stay.
func (c *collector) unlessFence(ctx context.Context, info objstore.Info) (verdict, error) {
	id, _ := wal.ParseObjectKey(info.Key)
	footer, err := c.n.agent.footers.get(ctx, id)
	switch {
	case errs.Is(err, errs.NotFound):
		return verdictKeep, nil
	case errs.Is(err, errs.Corrupt):
		return verdictKeep, nil // nobody reads it; it goes when its incarnation is forgotten
	case err != nil:
		return verdictKeep, err
	case footer.IsFence():
		return verdictKeep, nil
	}
	return verdictDelete, nil
}

func (c *collector) probesDue() bool {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	return !c.probes.IsZero() && !c.n.agent.clock().Before(c.probes)
}

// sweepProbes removes what interrupted probes left behind. It looks at the first
// sweep, and an hour later when something was too young then.
func (c *collector) sweepProbes(ctx context.Context) (deleted int, err error) {
	a := c.n.agent
	if c.probes.IsZero() || a.clock().Before(c.probes) {
		return 0, nil
	}
	var now time.Time
	young := false
	for info, err := range a.store.List(ctx, "probe/", "") {
		if err != nil {
			return deleted, err
		}
		if now.IsZero() {
			if now, err = a.storeNow(ctx, c.n.id); err != nil {
				return deleted, err
			}
		}
		if now.Sub(info.ModTime) < max(probeKept, a.cfg.SafeAge) {
			young = true
			continue
		}
		if err := a.store.Delete(ctx, info.Key); err != nil {
			return deleted, err
		}
		deleted++
	}
	c.probes = time.Time{}
	if young {
		c.probes = a.clock().Add(probeKept)
	}
	return deleted, nil
}

func (c *collector) pruneDue() bool {
	return len(metastore.Prunable(c.n.agent.meta.State(), c.n.agent.clock())) > 0
}

// prune lets the metadata forget incarnations that are dead for long enough;
// their fences become garbage by it.
func (c *collector) prune(ctx context.Context) error {
	if !c.pruneDue() {
		return nil
	}
	c.wake()
	_, err := c.n.agent.meta.Append(ctx, metastore.DecidePrune(c.n.agent.clock()))
	return err
}
