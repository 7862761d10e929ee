package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// episode lets clients work for a while and then lets something happen.
func (w *simWorld) episode(n int) {
	kind := []string{"death", "stop", "takeover", "faults"}[w.rng.IntN(4)]
	if n == 0 || w.rng.IntN(3) > 0 {
		w.serving.faults.Add(simFaults(w.rng)...)
	}
	clients, stop := context.WithCancel(context.Background())
	defer stop()
	limit := int64(n+1) * 700
	done := w.clients(clients, limit)
	work := time.Duration(100+w.rng.IntN(200)) * time.Millisecond
	pause(clients, work/2)
	if w.rng.IntN(2) == 0 {
		w.ahead.Add(int64(w.rng.IntN(100)) * int64(time.Minute))
	}
	pause(clients, work/2)
	id := w.serving.agent.cfg.AgentID
	former := w.serving
	switch kind {
	case "death":
		w.atAPoint(former, former.gate.kill)
		stop()
		w.bury(former)
		done()
		w.serve(id, w.rng.IntN(2) == 0)
	case "stop":
		former.heal()
		stop()
		done()
		w.close(former)
		w.serve(id, w.rng.IntN(2) == 0)
	case "takeover":
		w.takeover(former, map[string]string{"a": "b", "b": "a"}[id], limit)
		stop()
		done()
	case "faults":
		stop()
		done()
	}
	w.serving.heal()
	w.await(w.serving)
	w.quiesce(w.serving)
	if err := w.audit(w.url()); err != nil {
		w.fatalf("after episode %d (%s): %v", n, kind, err)
	}
}

// atAPoint kills or freezes a process: at once, or where it tells most.
func (w *simWorld) atAPoint(s *simAgent, act func()) {
	if w.rng.IntN(3) == 0 {
		act()
		return
	}
	point := simPoints[w.rng.IntN(len(simPoints))]
	point.after = w.rng.IntN(2) == 0
	met := s.gate.at(point, act)
	select {
	case <-met:
	case <-time.After(150 * time.Millisecond): // it may never come
		if s.gate.disarm() {
			act()
			return
		}
		<-met
	}
}

// takeover pauses a process in the middle of everything, has another take its
// slots, and wakes it: nothing that it acknowledges then may be lost.
func (w *simWorld) takeover(former *simAgent, id string, limit int64) {
	w.atAPoint(former, former.gate.freeze)
	before := former.agent.Incarnation()
	for _, s := range w.sources {
		s.doubt()
	}
	next := w.serve(id, false)
	w.await(next)
	clients, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	done := w.clients(clients, limit+300)
	done()
	stop()
	former.gate.thaw()
	deadline := time.Now().Add(simPatience)
	for former.agent.Incarnation() == before && former.agent.Err() == nil {
		if time.Now().After(deadline) {
			w.fatalf("the paused incarnation %s does not notice that it was fenced", before)
		}
		time.Sleep(5 * time.Millisecond)
	}
	pause(context.Background(), 20*time.Millisecond) // let it answer what waited
	former.gate.kill()
	w.bury(former)
}

// clients starts writers, readers and a janitor; the returned function waits for them.
func (w *simWorld) clients(ctx context.Context, limit int64) (wait func()) {
	var wg sync.WaitGroup
	for _, s := range w.sources {
		wg.Go(func() { s.run(ctx, w.url, limit) })
	}
	wg.Go(func() { w.loose.run(ctx, w.url) })
	wg.Go(func() { w.watch(ctx) })
	wg.Go(func() { w.aged.run(ctx, w) })
	wg.Go(func() { w.altered.run(ctx, w.url) })
	wg.Go(func() { w.brief.run(ctx, w) })
	seed := w.rng.Uint64()
	wg.Go(func() { w.janitor(ctx, rand.New(rand.NewPCG(seed, 3))) })
	return wg.Wait
}

// janitor asks for folds, compactions and expiries, alters and drops tables, and reads.
func (w *simWorld) janitor(ctx context.Context, rng *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(5+rng.IntN(25))*time.Millisecond)
		table := simTables[rng.IntN(len(simTables))].name
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		switch rng.IntN(8) {
		case 0:
			_ = post(one, w.url()+tableURL+table+"/compact")
		case 1:
			if table = simTables[rng.IntN(2)].name; w.readOnce(table) != nil {
				cancel()
				return
			}
		case 2:
			_, _ = call(one, "POST", w.url()+tableURL+table+"/expire", fmt.Sprintf(`{"keep_last":%d}`, 1+rng.IntN(4)))
		case 3:
			w.altered.alter(one, w.url(), rng)
		case 4:
			w.brief.recreate(one, w)
		default:
			_ = post(one, w.url()+tableURL+table+"/fold")
		}
		cancel()
	}
}

// readOnce reads a table as it is, and fails the test when a row moved.
func (w *simWorld) readOnce(table string) error {
	log, err := readLog(w.url(), table)
	if err != nil {
		return nil // a fault, or the agent is going
	}
	if err := w.remember(table, log, false); err != nil {
		w.t.Errorf("seed %d: %v", w.seed, err)
		return err
	}
	return nil
}

// heal ends the faults of a process and applies what is still on its way.
func (s *simAgent) heal() {
	s.faults.Clear()
	s.faults.Release(context.Background(), "")
}

// await waits until a process serves every bucket.
func (w *simWorld) await(s *simAgent) {
	deadline := time.Now().Add(simPatience)
	for {
		var err error
		for _, table := range simTables {
			if table.name == "brief" {
				continue // it may be dropped
			}
			if _, e := fetch("GET", s.url()+tableURL+table.name+"/offsets"); e != nil {
				err = e
			}
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			w.fatalf("the agent does not serve: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// quiesce waits for requests whose clients gave up: their rows may still land.
func (w *simWorld) quiesce(s *simAgent) {
	ctx, cancel := context.WithTimeout(context.Background(), simPatience)
	defer cancel()
	for range 3 {
		pause(ctx, 20*time.Millisecond)
		n := s.agent.current.Load()
		if n == nil {
			w.fatalf("the agent has no incarnation")
		}
		if err := n.pending.Acquire(ctx, s.agent.cfg.MaxPendingBytes); err != nil {
			w.fatalf("rows are pending for ever: %v", err)
		}
		n.pending.Release(s.agent.cfg.MaxPendingBytes)
	}
}

// bury drops a dead process; what it says is of no interest.
func (w *simWorld) bury(s *simAgent) {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	_ = s.agent.Close(ctx)
}

func (w *simWorld) close(s *simAgent) {
	ctx, cancel := context.WithTimeout(context.Background(), simPatience)
	defer cancel()
	// A connection that a canceled request opened and nobody used would be waited for.
	ended := make(chan struct{})
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-time.After(10 * time.Millisecond):
				http.DefaultClient.CloseIdleConnections()
			}
		}
	}()
	err := s.agent.Close(ctx)
	close(ended)
	if err != nil {
		w.fatalf("close: %v", err)
	}
}
