package crash

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/testkit/faultproxy"
	"github.com/firn-data/firn/internal/testkit/s3test"
	"github.com/firn-data/firn/loadtest"
)

// config makes everything happen often: flushes, checkpoints, folds, collections
// at age zero.
const config = `
flush_age: 3ms
safe_age: 0s
collect_interval: 150ms
checkpoint_objects: 15
memory_limit_bytes: 402653184
`

// world is an agent, its tables, and all who use them.
type world struct {
	t     *testing.T
	p     *process
	c     *client.Client
	rng   *rand.Rand
	books []*book

	mu     sync.Mutex
	failed error
	stop   context.CancelFunc // of writers and followers
}

// patient outlasts any number of deaths in a row.
var patient = client.RetryPolicy{Attempts: 10_000, MinPause: 20 * time.Millisecond, MaxPause: 300 * time.Millisecond}

const database = "crash"

// tables differ in what a kill can break: buckets, keys, partitions.
var tables = []*firnv1.CreateTableRequest{
	{Name: "plain", Properties: map[string]string{"fold_interval": "300ms"}},
	{Name: "keyed", Buckets: 3, BucketKey: []string{"seq"}, PartitionBy: []string{"bucket(2,value)"}, Properties: map[string]string{"fold_interval": "500ms"}},
	{Name: "sticky", Buckets: 2, PartitionBy: []string{"identity(writer)"}, Properties: map[string]string{"fold_interval": "1s", "fold_bytes": "65536"}},
}

func TestKillsLoseAndRepeatNothingOnFiles(t *testing.T) {
	dir := folder(t)
	survive(t, newProcess(t, dir, "file://"+filepath.Join(dir, "store"), config), int(number(t, "FIRN_CRASH_ROUNDS", rounds(12))))
}

// The way to the store breaks as well: one request in 50 meets a 503, the answer to
// one in 50 is lost.
func TestKillsLoseAndRepeatNothingOnS3(t *testing.T) {
	s3 := s3test.Start(t)
	faults := faultproxy.Start(t, s3.Endpoint, uint64(number(t, "FIRN_CRASH_SEED", 1)), //nolint:gosec // only a seed
		faultproxy.Rule{Kind: faultproxy.Answer, Status: http.StatusServiceUnavailable, Chance: 0.02},
		faultproxy.Rule{Kind: faultproxy.LoseAnswer, Chance: 0.02})
	survive(t, newProcess(t, folder(t), s3.URL("crash", faults.URL), config, s3.Env()...), int(number(t, "FIRN_CRASH_ROUNDS", rounds(4))))
}

func rounds(n int64) int64 {
	if testing.Short() {
		return n / 5
	}
	return n
}

// survive kills the agent over and over under load, and audits.
func survive(t *testing.T, p *process, rounds int) {
	seed := number(t, "FIRN_CRASH_SEED", time.Now().UnixNano())
	t.Logf("FIRN_CRASH_SEED=%d, %d rounds", seed, rounds)
	w := &world{t: t, p: p, rng: rand.New(rand.NewPCG(uint64(seed), 1))}
	w.open(seed)
	defer func() { _ = w.c.Close() }()
	ctx, stop := context.WithCancel(t.Context())
	drain, cut := context.WithCancel(t.Context())
	defer cut()
	w.stop = stop
	sources := w.sources(ctx, drain)
	followers := w.followers(drain)
	var starts []time.Duration
	for round := range rounds {
		w.disturb(ctx, round)
		starts = append(starts, p.start())
		if round%5 == 4 {
			w.audit(fmt.Sprintf("after kill %d", round+1))
		}
		if w.failure() != nil {
			break
		}
	}
	stop()
	w.await(sources, "writers")
	if err := w.failure(); err != nil {
		t.Fatalf("FIRN_CRASH_SEED=%d: %v", seed, err)
	}
	w.finish(seed)
	cut()
	w.await(followers, "followers")
	if err := w.failure(); err != nil {
		t.Fatalf("FIRN_CRASH_SEED=%d: %v", seed, err)
	}
	slices.Sort(starts)
	t.Logf("ready after a kill: median %v, worst %v", starts[len(starts)/2].Round(time.Millisecond), starts[len(starts)-1].Round(time.Millisecond))
}

// open starts the agent for the first time and makes the tables.
func (w *world) open(seed int64) {
	w.p.start()
	c, err := client.New(w.p.url(), client.WithRetry(patient))
	if err != nil {
		w.t.Fatal(err)
	}
	w.c = c
	if _, err := c.EnsureDatabase(w.t.Context(), database); err != nil {
		w.t.Fatal(err)
	}
	gen := loadtest.NewGenerator(loadtest.Tiny, uint64(seed)) //nolint:gosec // only a seed
	for _, def := range tables {
		req := &firnv1.CreateTableRequest{Database: database, Name: def.Name, Columns: loadtest.Tiny.Columns(), Buckets: def.Buckets,
			BucketKey: def.BucketKey, PartitionBy: def.PartitionBy, Properties: def.Properties}
		if _, err := c.CreateTable(w.t.Context(), req); err != nil {
			w.t.Fatalf("create table %s: %v", def.Name, err)
		}
		w.books = append(w.books, newBook(c.Table(database, def.Name), gen))
	}
}

// sources starts one writer of each kind on each table.
func (w *world) sources(ctx, drain context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	pool := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	for i, b := range w.books {
		for kind := range 4 {
			s := sender{book: b, url: w.p.url() + "/v1/databases/" + database + "/tables/" + tables[i].Name + "/rows", http: pool, gen: b.gen, writer: int32(kind)} //nolint:gosec // small
			rng := rand.New(rand.NewPCG(w.rng.Uint64(), 2))
			id := fmt.Sprintf("source-%d", kind)
			var run func(ctx, drain context.Context) error
			switch kind {
			case 0:
				run = (&producer{sender: s, id: id, rng: rng, done: map[int64]struct{}{}}).run
			case 1:
				run = (&keyed{sender: s, rng: rng}).run
			case 2:
				run = (&plain{sender: s, rng: rng}).run
			case 3:
				run = (&sdk{sender: s, id: id, rng: rng}).run
			}
			wg.Go(func() { w.note(run(ctx, drain), tables[i].Name) })
		}
	}
	return &wg
}

func (w *world) followers(ctx context.Context) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i, b := range w.books {
		wg.Go(func() { w.note(b.follow(ctx), tables[i].Name) })
	}
	return &wg
}

func (w *world) note(err error, what string) {
	if err == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failed == nil {
		w.failed = fmt.Errorf("%s: %w", what, err)
	}
	w.stop()
}

func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

// A life of the agent ends after a random number of acknowledged rows, so that it
// means the same on a slow machine as on a fast one.
const (
	leastWork   = 1
	mostWork    = 6000
	longestLife = 5 * time.Second
)

// acks returns how many rows were acknowledged so far.
func (w *world) acks() (n int64) {
	for _, b := range w.books {
		b.mu.Lock()
		n += b.acks
		b.mu.Unlock()
	}
	return n
}

// disturb lets the agent work for a while, with folds, compactions and
// expiries on top, then ends it: nearly always by SIGKILL.
func (w *world) disturb(ctx context.Context, round int) {
	enough := w.acks() + int64(math.Pow(leastWork*mostWork, w.rng.Float64()))
	chores, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	rng := rand.New(rand.NewPCG(w.rng.Uint64(), 3))
	wg.Go(func() { w.chores(chores, rng) })
	for end := time.Now().Add(longestLife); w.p.alive() && w.acks() < enough && time.Now().Before(end) && w.failure() == nil; {
		time.Sleep(time.Millisecond)
	}
	if !w.p.alive() {
		w.note(fmt.Errorf("the agent ended by itself: %v", w.p.cmd.ProcessState), "agent")
	} else if round%9 == 8 {
		w.note(w.p.leave(), "agent")
	} else {
		w.p.kill()
	}
	cancel()
	wg.Wait()
}

// chores asks for lake maintenance at random, so that kills meet it under way.
// The agent dies in the middle: errors mean nothing here.
func (w *world) chores(ctx context.Context, rng *rand.Rand) {
	c, err := client.New(w.p.url(), client.WithRetry(client.NoRetry))
	if err != nil {
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		t := c.Table(database, tables[rng.IntN(len(tables))].Name)
		switch rng.IntN(4) {
		case 0, 1:
			_, _ = t.Fold(ctx)
		case 2:
			_, _ = t.Compact(ctx, 0)
		case 3:
			_, _ = t.Expire(ctx, 2, "")
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(rng.IntN(150)) * time.Millisecond):
		}
	}
}

// audit reads everything and compares, with the writers at work.
func (w *world) audit(when string) {
	ctx, cancel := w.p.lifetime(w.t.Context(), verifyLimit)
	defer cancel()
	begun := time.Now()
	for i, b := range w.books {
		_, err := b.verify(ctx)
		if err != nil {
			w.note(fmt.Errorf("%s: %w", when, err), tables[i].Name)
		}
		w.t.Logf("%s: %s is verified by %v", when, tables[i].Name, time.Since(begun).Round(time.Millisecond))
	}
}

// finish checks the exact end, an orderly leave, a start after it, and the store.
func (w *world) finish(seed int64) {
	ctx, cancel := w.p.lifetime(w.t.Context(), 2*verifyLimit)
	defer cancel()
	for i, b := range w.books {
		rows, err := b.final(ctx)
		if err != nil {
			w.t.Fatalf("FIRN_CRASH_SEED=%d: table %s: %v", seed, tables[i].Name, err)
		}
		if err := b.followed(ctx, rows); err != nil {
			w.t.Fatalf("FIRN_CRASH_SEED=%d: table %s: %v", seed, tables[i].Name, err)
		}
		w.t.Logf("%s: %d rows, each once; %d acknowledged, %d answered as applied before", tables[i].Name, rows, b.acks, b.skipped)
	}
	if err := w.p.leave(); err != nil {
		w.t.Fatal(err)
	}
	w.fsck()
	w.p.start()
	ctx, cancel = w.p.lifetime(w.t.Context(), 2*verifyLimit)
	defer cancel()
	for i, b := range w.books {
		if _, err := b.verify(ctx); err != nil {
			w.t.Fatalf("FIRN_CRASH_SEED=%d: table %s after an orderly restart: %v", seed, tables[i].Name, err)
		}
	}
}

// fsck walks the store that nobody uses: nothing that is referenced may be missing.
func (w *world) fsck() {
	ctx, cancel := context.WithTimeout(w.t.Context(), verifyLimit)
	defer cancel()
	if out, err := w.p.run(ctx, "fsck", "--store", w.p.store); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
}

const stuckLimit = 2 * time.Minute

// await waits for goroutines that end by themselves; one that does not is a fault.
func (w *world) await(wg *sync.WaitGroup, what string) {
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-w.p.ended:
		w.t.Fatalf("the agent ended by itself: %v", w.p.cmd.ProcessState)
	case <-time.After(stuckLimit):
		w.t.Fatalf("%s are stuck for %v; first failure: %v", what, stuckLimit, w.failure())
	}
}
