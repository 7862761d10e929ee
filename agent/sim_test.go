package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
)

// The simulation runs whole agents in this process over one store in memory that
// fails by seed, with writers that retry and replay, folds, compactions,
// checkpoints and sweeps at a safe age of nothing, deaths, restarts under the
// same id, and takeovers of a paused agent by another. After each episode an
// auditor holds what was acknowledged or read against what is there.
//
// The seed fixes what is done and which calls fail, but not the order in which
// goroutines run, so a seed gives the same kind of run and not the same log of
// events. Simulations that are exact to the event are in the rooms below (wal,
// metastore, lakehouse), where the protocols are pure.

var simTables = []struct{ name, definition string }{
	{"one", `{"name":"one","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"properties":{"fold_interval":"100ms"}}`},
	{"keyed", `{"name":"keyed","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"bucket_key":["id"],"buckets":3,"properties":{"fold_interval":"0"}}`},
}

type simWorld struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	store   objstore.Store // the truth
	sources []*simSource
	loose   *simLoose

	seenMu sync.Mutex
	seen   map[string]map[place]int64

	mu      sync.Mutex
	serving *simAgent
	all     []*simAgent
}

// simAgent is one process.
type simAgent struct {
	agent  *Agent
	gate   *simGate
	faults *faultstore.Store
}

func (s *simAgent) url() string { return "http://" + s.agent.Addr() }

// simSeeds is how many seeds are run; make sim asks for more.
func simSeeds(fallback int) int {
	if n, err := strconv.Atoi(os.Getenv("FIRN_SIM_SEEDS")); err == nil && n > 0 {
		return n
	}
	return fallback
}

func TestSimulatedAgentsLoseAndDoubleNothing(t *testing.T) {
	first := uint64(1)
	if n, err := strconv.ParseUint(os.Getenv("FIRN_SIM_FIRST"), 10, 64); err == nil {
		first = n
	}
	for seed := first; seed < first+uint64(simSeeds(5)); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			runSim(t, seed)
		})
	}
}

func runSim(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0xf12a))
	w := &simWorld{t: t, seed: seed, rng: rng, store: objstore.NewMem(), seen: map[string]map[place]int64{}, loose: &simLoose{table: "one", acked: map[int64]bool{}}}
	w.sources = []*simSource{
		newSimSource("one", "p1", 0, 4000, true, rand.New(rand.NewPCG(seed, 1))),
		newSimSource("keyed", "p2", 1<<20, 4000, false, rand.New(rand.NewPCG(seed, 2))),
	}
	defer w.end()
	w.serve("a", false)
	w.create()
	for episode := range 2 + rng.IntN(3) {
		w.episode(episode)
		if t.Failed() {
			return
		}
	}
	w.finish()
}

func (w *simWorld) fatalf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d: "+format, append([]any{w.seed}, args...)...)
}

func (w *simWorld) create() {
	h := &harness{t: w.t, agent: w.serving.agent, url: w.serving.url()}
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	for _, table := range simTables {
		h.must("POST", "/v1/databases/shop/tables", table.definition)
	}
}

// serve starts a process and makes it the one that clients talk to. Faults that
// keep it from starting pass.
func (w *simWorld) serve(id string, faulty bool) *simAgent {
	var rules []faultstore.Rule
	if faulty {
		rules = simFaults(w.rng)
	}
	seed := w.rng.Int64()
	for attempt := 0; ; attempt++ {
		faults := faultstore.New(w.store, seed, rules...)
		s := &simAgent{gate: newSimGate(faults), faults: faults}
		cfg := DefaultConfig()
		cfg.Store, cfg.Listen, cfg.AgentID, cfg.MemoryLimitBytes = w.store.URL(), "127.0.0.1:0", id, -1
		cfg.FlushAge, cfg.FlushBytes, cfg.CheckpointObjects = time.Millisecond, 4<<10, 3
		cfg.SafeAge, cfg.CollectInterval, cfg.Lease = 0, 15*time.Millisecond, 500*time.Millisecond
		var logger *slog.Logger
		if os.Getenv("FIRN_SIM_LOG") != "" {
			logger = slog.New(slog.NewTextHandler(w.t.Output(), nil)).With("process", len(w.all))
		}
		var err error
		if s.agent, err = New(cfg, s.gate, logger); err != nil {
			w.fatalf("%v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err = s.agent.Open(ctx)
		cancel()
		if err == nil {
			w.mu.Lock()
			w.serving, w.all = s, append(w.all, s)
			w.mu.Unlock()
			return s
		}
		s.gate.kill()
		if attempt > 3 {
			w.fatalf("start %s: %v", id, err)
		}
		rules = nil
	}
}

func (w *simWorld) url() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.serving.url()
}

// simFaults chooses what is wrong with the store for one process.
func simFaults(rng *rand.Rand) []faultstore.Rule {
	cond, put := []objstore.Op{objstore.OpPutIfAbsent}, []objstore.Op{objstore.OpPut}
	reads := []objstore.Op{objstore.OpGet, objstore.OpGetRange}
	ms := func(n int) time.Duration { return time.Duration(1+rng.IntN(n)) * time.Millisecond }
	all := []faultstore.Rule{
		{Fault: faultstore.Fail, Ops: cond, Chance: 0.04},
		{Fault: faultstore.FailAfter, Ops: cond, Chance: 0.06},
		{Fault: faultstore.FailAfter, Ops: put, Chance: 0.04},
		{Fault: faultstore.Conflict, Ops: cond, Chance: 0.05},
		{Fault: faultstore.Duplicate, Ops: cond, Chance: 0.1},
		{Fault: faultstore.LateApply, Ops: cond, Key: "wal/*", Chance: 0.05, Delay: ms(60)},
		{Fault: faultstore.LateApply, Ops: cond, Key: "lake/*", Chance: 0.05, Delay: ms(60)},
		{Fault: faultstore.LateApply, Ops: cond, Key: "meta/*", Chance: 0.05, Delay: ms(60)},
		{Fault: faultstore.Truncate, Ops: reads, Key: "wal/*", Chance: 0.05},
		{Fault: faultstore.FlipBit, Ops: reads, Key: "wal/*", Chance: 0.05},
		{Fault: faultstore.FlipBit, Ops: reads, Key: "checkpoint/*", Chance: 0.02},
		{Fault: faultstore.Fail, Ops: reads, Chance: 0.05},
		{Fault: faultstore.Fail, Ops: []objstore.Op{objstore.OpDelete}, Chance: 0.1},
		{Fault: faultstore.FailAfter, Ops: []objstore.Op{objstore.OpList}, Chance: 0.05},
		{Fault: faultstore.PagesOfOne, Ops: []objstore.Op{objstore.OpList}, Chance: 0.3},
		{Fault: faultstore.Delay, Chance: 0.05, Delay: ms(10)},
		{Fault: faultstore.DelayAnswer, Ops: cond, Chance: 0.1, Delay: ms(20)},
		{Fault: faultstore.DelayAnswer, Ops: cond, Key: "checkpoint/*", Chance: 0.4, Delay: 150*time.Millisecond + ms(200)},
		{Fault: faultstore.Stuck, Ops: cond, Key: "wal/*", After: rng.IntN(40), Times: 1},
		faultstore.Burst(rng.IntN(200), 5+rng.IntN(20)),
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:2+rng.IntN(6)]
}

// episode lets clients work for a while and then lets something happen.
func (w *simWorld) episode(n int) {
	kind := []string{"death", "stop", "takeover", "faults"}[w.rng.IntN(4)]
	if n == 0 || w.rng.IntN(3) > 0 {
		w.serving.faults.Add(simFaults(w.rng)...)
	}
	clients, stop := context.WithCancel(context.Background())
	defer stop()
	limit := int64(n+1) * 700
	done := w.clients(clients, limit, kind == "takeover")
	pause(clients, time.Duration(100+w.rng.IntN(250))*time.Millisecond)
	id := w.serving.agent.cfg.AgentID
	former := w.serving
	switch kind {
	case "death":
		former.gate.kill()
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

// takeover pauses a process in the middle of everything, has another take its
// slots, and wakes it: nothing that it acknowledges then may be lost.
func (w *simWorld) takeover(former *simAgent, id string, limit int64) {
	former.gate.freeze()
	before := former.agent.Incarnation()
	for _, s := range w.sources {
		s.doubt()
	}
	next := w.serve(id, false)
	w.await(next)
	clients, stop := context.WithTimeout(context.Background(), 300*time.Millisecond)
	done := w.clients(clients, limit+300, true)
	done()
	stop()
	former.gate.thaw()
	deadline := time.Now().Add(10 * time.Second)
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
func (w *simWorld) clients(ctx context.Context, limit int64, calm bool) (wait func()) {
	var wg sync.WaitGroup
	for _, s := range w.sources {
		wg.Go(func() { s.run(ctx, w.url, limit) })
	}
	wg.Go(func() { w.loose.run(ctx, w.url) })
	seed := w.rng.Uint64()
	wg.Go(func() { w.janitor(ctx, rand.New(rand.NewPCG(seed, 3)), calm) })
	return wg.Wait
}

// janitor asks for folds and compactions, and reads. A calm one leaves
// compaction alone: a paused compaction's files are safe only behind a safe age.
func (w *simWorld) janitor(ctx context.Context, rng *rand.Rand, calm bool) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(10+rng.IntN(40))*time.Millisecond)
		table := simTables[rng.IntN(len(simTables))].name
		one, cancel := context.WithTimeout(ctx, 2*time.Second)
		switch op := rng.IntN(4); {
		case op == 0 && !calm:
			_ = post(one, w.url()+tableURL+table+"/compact")
		case op == 1:
			if log, err := readLog(w.url(), table); err == nil {
				if err := w.remember(table, log, false); err != nil {
					w.t.Errorf("seed %d: %v", w.seed, err)
				}
			}
		default:
			_ = post(one, w.url()+tableURL+table+"/fold")
		}
		cancel()
	}
}

// heal ends the faults of a process and applies what is still on its way.
func (s *simAgent) heal() {
	s.faults.Clear()
	s.faults.Release(context.Background(), "")
}

// await waits until a process serves every bucket.
func (w *simWorld) await(s *simAgent) {
	deadline := time.Now().Add(15 * time.Second)
	for {
		var err error
		for _, table := range simTables {
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
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
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
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := s.agent.Close(ctx); err != nil {
		w.fatalf("close: %v", err)
	}
}

// finish has a healthy agent take in the rest and then rest: nothing is garbage any more.
func (w *simWorld) finish() {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
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
	for deadline := time.Now().Add(20 * time.Second); ; {
		check, err := CheckStore(ctx, w.store)
		// A probe or a heartbeat of a process that died before it joined may
		// belong to one that is about to join: they stay for an hour, and a week.
		check.Garbage = slices.DeleteFunc(check.Garbage, func(key string) bool {
			return strings.HasPrefix(key, "probe/") || strings.HasPrefix(key, "agents/")
		})
		if err == nil && len(check.Damage) == 0 && len(check.Garbage) == 0 {
			return
		}
		if time.Now().After(deadline) {
			w.fatalf("at rest: garbage %v, damage %v (%v)", check.Garbage, check.Damage, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (w *simWorld) end() {
	for _, s := range w.all {
		s.gate.kill()
		w.bury(s)
	}
}

func post(ctx context.Context, url string) error {
	_, err := fetchWith(ctx, "POST", url)
	return err
}
