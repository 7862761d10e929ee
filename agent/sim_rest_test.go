package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// finish has a healthy agent take in the rest and then rest: nothing is garbage any more.
func (w *simWorld) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*simPatience)
	defer cancel()
	var wg sync.WaitGroup
	for _, s := range w.sources {
		s.mu.Lock()
		s.rows = max(s.next, 1)
		s.acked = s.acked[:s.rows]
		s.mu.Unlock()
		wg.Go(func() { s.run(ctx, w.url, s.rows) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		w.fatalf("a producer does not come to its end")
	}
	if err := w.audit(w.url()); err != nil {
		w.fatalf("at the end: %v", err)
	}
	for _, s := range w.all {
		s.heal()
	}
	// What a process put below lake/ after its slots were swept, and what it left
	// before it joined, may still be in use by it: only its oblivion ends that.
	w.rest(ctx, 0, "at rest", func(key string) bool {
		return strings.HasPrefix(key, "probe/") || strings.HasPrefix(key, "agents/") || strings.HasPrefix(key, "lake/")
	})
	w.alone(ctx)
	w.ahead.Add(int64(deadKept + 24*time.Hour))
	w.rest(ctx, time.Hour, "when the dead are forgotten", func(string) bool { return false })
	if err := w.aged.allGone(w); err != nil {
		w.fatalf("%v", err)
	}
}

// alone waits until every other incarnation is known to be dead.
func (w *simWorld) alone(ctx context.Context) {
	for len(w.serving.agent.meta.State().LiveAgents()) > 1 {
		if ctx.Err() != nil {
			w.fatalf("dead incarnations are not fenced: %v", w.serving.agent.meta.State().LiveAgents())
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// restRounds is how many sweeps without a failure may pass before the store is clean.
const restRounds = 60

// rest sweeps by hand, and lets time pass, until a walk of the store finds no garbage
// but what is excused. Its patience is in sweeps, not in seconds, because the store's
// clock that they go by is that of a heartbeat.
func (w *simWorld) rest(ctx context.Context, passes time.Duration, when string, excused func(key string) bool) {
	begun := w.now()
	var last error
	for rounds := 0; ; pause(ctx, 5*time.Millisecond) {
		w.ahead.Add(int64(passes))
		if last = w.sweep(ctx, begun); last == nil {
			rounds++
		}
		check, err := CheckStore(ctx, w.store)
		check.Garbage = slices.DeleteFunc(check.Garbage, excused)
		if rounds > 0 && err == nil && len(check.Damage) == 0 && len(check.Garbage) == 0 {
			return
		}
		if rounds == restRounds || ctx.Err() != nil {
			w.fatalf("%s, after %d sweeps (the last: %v): garbage %v, damage %v (%v)", when, rounds, last, check.Garbage, check.Damage, err)
		}
	}
}

// sweep does once what collector, checkpointer and folder do now and then. It fails,
// too, while the store's clock has not passed begun.
func (w *simWorld) sweep(ctx context.Context, begun time.Time) error {
	n, err := w.serving.agent.owner()
	if err != nil {
		return err
	}
	if n.checkpoints.pendingChange() {
		if _, err := n.checkpoints.write(ctx); err != nil {
			return err
		}
	}
	w.maintain(ctx, n, "aged")
	n.collector.wake()
	if _, err := n.collector.sweep(ctx); err != nil {
		return err
	}
	now, err := n.agent.storeNow(ctx, n.id)
	if err == nil && now.Before(begun) {
		err = fmt.Errorf("the last heartbeat is %s old", begun.Sub(now))
	}
	return err
}

// maintain compacts, expires and applies retention, as after some folds.
func (w *simWorld) maintain(ctx context.Context, n *incarnation, table string) {
	if def, err := n.agent.meta.State().TableByName("shop", table); err == nil {
		n.maintain(ctx, def)
	}
}
