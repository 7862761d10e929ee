package agent

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
	"github.com/firn-data/firn/lakehouse"
)

// The simulation runs whole agents in this process over one store in memory that
// fails by seed, with writers that retry and replay, folds, compactions, expiries,
// retention by a clock that jumps, tables that are altered, dropped and created
// again under load, checkpoints and sweeps at a safe age of nothing, deaths, restarts
// under the same id, and takeovers of a paused agent by another. After each episode
// an auditor holds what was acknowledged or read against what is there, and at the
// end the store must come to rest without garbage.
//
// The seed fixes what is done and which calls fail, but not the order in which
// goroutines run, so a seed gives the same kind of run and not the same log of
// events. Simulations that are exact to the event are in the rooms below (wal,
// metastore, lakehouse), where the protocols are pure.

var simTables = []struct{ name, definition string }{
	{"one", `{"name":"one","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"properties":{"fold_interval":"100ms"}}`},
	{"keyed", `{"name":"keyed","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"bucket_key":["id"],"buckets":3,"properties":{"fold_interval":"0"}}`},
	{"aged", `{"name":"aged","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"properties":{"fold_interval":"0","retention":"2h"}}`},
	{"altered", `{"name":"altered","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"bucket_key":["id"],"buckets":2,"properties":{"fold_interval":"100ms"}}`},
	{"brief", briefDefinition},
}

type simWorld struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	store   objstore.Store // the truth
	ahead   atomic.Int64   // by how many ns the clock of store and agents is ahead
	sources []*simSource
	loose   *simLoose
	aged    simAged
	altered simAltered
	brief   simBrief

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

// simPatience is when something that must come is taken for hung, on a busy machine too.
const simPatience = 2 * time.Minute

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
	w := &simWorld{t: t, seed: seed, rng: rng, seen: map[string]map[place]int64{}, loose: &simLoose{table: "one", acked: map[int64]bool{}}}
	w.store = objstore.NewMemClock(w.now)
	w.aged.rows, w.altered.rows, w.brief.rows = map[int64]*agedRow{}, map[int64]*alteredRow{}, map[int64]*briefRow{}
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

// now is the clock of the store and of all agents.
func (w *simWorld) now() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }

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
		s.agent.clock, s.agent.meta.now = w.now, w.now
		s.agent.lake = lakehouse.Open(s.agent.store, lakehouse.Options{Logger: s.agent.logger, SafeAge: -1, Now: w.now})
		patience := simPatience
		if len(rules) > 0 {
			patience = 10 * time.Second // faults may keep it from starting
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
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
