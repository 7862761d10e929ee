package agent

import (
	"context"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
)

// beginLease writes the first heartbeat and keeps beating.
func (n *incarnation) beginLease(ctx context.Context) error {
	a := n.agent
	var err error
	n.lease, err = metastore.OpenHeartbeat(ctx, metastore.HeartbeatOptions{
		Store: a.store, Lease: a.cfg.Lease, Logger: n.logger, Live: a.meta.log.Load().CheckLive(n.id),
		Beat: metastore.Beat{Incarnation: n.id, AgentID: a.cfg.AgentID, Address: a.cfg.Advertise, Zone: a.cfg.Zone, Version: Version},
	})
	if err != nil {
		return err
	}
	n.observer = metastore.OpenObserver(metastore.ObserverOptions{
		Store: a.store, State: a.meta.State, Self: n.id, Lease: a.cfg.Lease, Logger: n.logger,
	})
	return nil
}

// confirmLease returns nil when nobody else can own this incarnation's slots:
// what promises the latest value is answered only then.
func (n *incarnation) confirmLease(ctx context.Context) error {
	select {
	case <-n.stopped:
		return n.failure()
	default:
	}
	err := n.lease.Confirm(ctx)
	if errs.Is(err, errs.Fenced) {
		n.fail(err)
		return n.failure()
	}
	return err
}

const clusterRetry = time.Second // pause after a takeover that did not succeed

// watchCluster follows the metadata log and the other agents' heartbeats: it
// notices its own fencing, forgets dropped tables, claims slots that became
// free, and fences agents that fell silent.
func (n *incarnation) watchCluster(ctx context.Context) {
	fencedLater := map[string]time.Time{}
	for ctx.Err() == nil {
		state, changed := n.agent.meta.Watch()
		silent, spoke := n.observer.Silent()
		if fenced, _ := metastore.FencedSelf(state, n.id); fenced {
			n.fail(errs.New(errs.Fenced, "incarnation %s was fenced", n.id))
			return
		}
		n.forgetDropped(state)
		retry := n.takeOver(ctx, state, silent, fencedLater)
		if len(metastore.PlanSoleClaims(state, n.id)) > 0 {
			if err := n.claimFree(ctx); err != nil && ctx.Err() == nil {
				n.logger.Warn("claiming slots failed; it is tried again", "error", err)
				retry = true
			}
		}
		var again <-chan time.Time
		if retry || len(fencedLater) > 0 {
			again = time.After(clusterRetry)
		}
		select {
		case <-ctx.Done():
		case <-changed:
		case <-spoke:
		case <-again:
		case <-n.lease.Fenced():
			n.fail(errs.New(errs.Fenced, "incarnation %s was fenced", n.id))
			return
		}
	}
}

// takeOver fences silent incarnations: at once those for which this agent goes
// first, after one more lease the others.
func (n *incarnation) takeOver(ctx context.Context, state *metastore.State, silent []string, later map[string]time.Time) (retry bool) {
	now, waiting := metastore.PlanTakeover(state, n.id, silent)
	due := map[string]time.Time{}
	for _, id := range waiting {
		at, known := later[id]
		switch {
		case !known:
			due[id] = n.agent.clock().Add(n.agent.cfg.Lease)
		case n.agent.clock().After(at):
			now = append(now, id)
		default:
			due[id] = at
		}
	}
	clear(later)
	for id, at := range due {
		later[id] = at
	}
	for _, id := range now {
		err := n.fence(ctx, state, id)
		if err == nil {
			err = n.awaitSilence(ctx, id)
		}
		if err != nil && ctx.Err() == nil {
			n.logger.Warn("taking over failed; it is tried again", "other", id, "error", err)
			retry = true
		}
	}
	return retry
}

// awaitSilence returns once a fenced incarnation can hold no lease any more. One
// that came back to life meanwhile may answer reads until its lease ends; its
// slots are not served here before that.
func (n *incarnation) awaitSilence(ctx context.Context, id string) error {
	for {
		silent, err := n.observer.StillSilent(ctx, id)
		if err != nil || silent {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(n.agent.cfg.Lease / 4):
		}
	}
}

// forgetDropped lets go of tables that the metadata does not know any more.
func (n *incarnation) forgetDropped(state *metastore.State) {
	for _, t := range n.allTables() {
		if _, ok := state.Table(t.id); !ok {
			n.dropTable(t.id)
			n.collector.wake()
		}
	}
}

// agentState is an incarnation's state as the API shows it.
func (a *Agent) agentState(g *metastore.Agent) string {
	if g.State != metastore.Live {
		return string(g.State)
	}
	if n := a.current.Load(); n != nil {
		silent, _ := n.observer.Silent()
		for _, id := range silent {
			if id == g.Incarnation {
				return "silent"
			}
		}
	}
	return "alive"
}
