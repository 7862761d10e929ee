package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/filestore"
)

// mortal is a store whose process dies at a chosen operation: before it, or
// after it was applied and before its answer came. From then on nothing is sent.
type mortal struct {
	objstore.Store
	op     string // "put", "create", "delete", "get"
	match  string // part of the key
	skip   int64  // matching operations that pass before
	after  bool
	seen   atomic.Int64
	dead   atomic.Bool
	deadCh chan struct{}
}

func newMortal(s objstore.Store, op, match string, skip int, after bool) *mortal {
	return &mortal{Store: s, op: op, match: match, skip: int64(skip), after: after, deadCh: make(chan struct{})}
}

var errDead = errs.New(errs.Unavailable, "the process is dead")

// step runs one operation and reports whether the process lived through it.
func (m *mortal) step(op, key string, run func() error) error {
	if m.dead.Load() {
		return errDead
	}
	hit := op == m.op && strings.Contains(key, m.match) && m.seen.Add(1) > m.skip
	if hit && !m.after {
		m.die()
		return errDead
	}
	err := run()
	if hit {
		m.die()
	}
	if m.dead.Load() {
		return errDead
	}
	return err
}

func (m *mortal) die() {
	if !m.dead.Swap(true) {
		close(m.deadCh)
	}
}

func (m *mortal) Put(ctx context.Context, key string, body []byte) error {
	return m.step("put", key, func() error { return m.Store.Put(ctx, key, body) })
}

func (m *mortal) PutIfAbsent(ctx context.Context, key string, body []byte) (out objstore.Outcome, err error) {
	err = m.step("create", key, func() (err error) { out, err = m.Store.PutIfAbsent(ctx, key, body); return err })
	if err != nil {
		return objstore.Unknown, err
	}
	return out, nil
}

func (m *mortal) Delete(ctx context.Context, key string) error {
	return m.step("delete", key, func() error { return m.Store.Delete(ctx, key) })
}

func (m *mortal) Get(ctx context.Context, key string) (b []byte, i objstore.Info, err error) {
	err = m.step("get", key, func() (err error) { b, i, err = m.Store.Get(ctx, key); return err })
	return b, i, err
}

func (m *mortal) GetRange(ctx context.Context, key string, start, n int64) (b []byte, i objstore.Info, err error) {
	err = m.step("get", key, func() (err error) { b, i, err = m.Store.GetRange(ctx, key, start, n); return err })
	return b, i, err
}

func (m *mortal) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	if m.dead.Load() {
		return func(yield func(objstore.Info, error) bool) { yield(objstore.Info{}, errDead) }
	}
	return m.Store.List(ctx, prefix, after)
}

// source is a producer that knows what was acknowledged to it.
type source struct {
	next    int64           // rows below were acknowledged
	offsets map[int64]int64 // row → offset, as acknowledged (one bucket)
	rng     *rand.Rand
}

// send writes batches until the agent does not answer any more, or its process died.
func (s *source) send(h *harness, rows int64, dead <-chan struct{}) error {
	for s.next < rows {
		n := min(1+s.rng.Int64N(40), rows-s.next)
		path := fmt.Sprintf("%sorders/rows?producer_id=p&first_sequence=%d", tableURL, s.next)
		req, err := http.NewRequest(http.MethodPost, h.url+path, strings.NewReader(rowsBody(int(s.next), int(s.next+n))))
		if err != nil {
			return err
		}
		ctx, cancel := untilDeath(20*time.Second, dead)
		res, err := http.DefaultClient.Do(req.WithContext(ctx))
		if err != nil {
			cancel()
			return err
		}
		var answer rowsAnswer
		err = json.NewDecoder(res.Body).Decode(&answer)
		_ = res.Body.Close()
		cancel()
		if err != nil || res.StatusCode != http.StatusOK {
			return fmt.Errorf("status %d: %w", res.StatusCode, err)
		}
		s.note(n, answer)
	}
	return nil
}

// note remembers the offsets of rows that this answer applied. Rows that an
// earlier, lost answer covered are known by their order alone.
func (s *source) note(n int64, a rowsAnswer) {
	if a.Skipped == 0 && len(a.Buckets) == 1 {
		for i := range n {
			s.offsets[s.next+i] = a.Buckets[0].BaseOffset + i
		}
	}
	s.next += n
}

// untilDeath is the patience of a client: it ends with the connection, which a
// dead process takes with it.
func untilDeath(limit time.Duration, dead <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	go func() {
		select {
		case <-dead:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// crashSteps are the steps at which the process dies.
var crashSteps = []struct{ name, op, match string }{
	{"flush", "create", "wal/"},
	{"checkpoint", "create", "checkpoint/"},
	{"fold data file", "put", "/data/"},
	{"fold manifest", "put", "/metadata/"},
	{"lake commit", "create", ".metadata.json"},
	{"version hint", "put", "version-hint"},
	{"collect", "delete", "wal/"},
	{"collect checkpoint", "delete", "checkpoint/"},
	{"metadata log", "create", "meta/log"},
	{"heartbeat", "put", "agents/"},
}

// crashRounds is how often each step is met, a few occurrences later each time.
func crashRounds() int {
	if n, err := strconv.Atoi(os.Getenv("FIRN_CRASH_ROUNDS")); err == nil && n > 0 {
		return n
	}
	return 1
}

func TestNothingAcknowledgedIsLostOrDoubledWhenTheProcessDiesAtAnyStep(t *testing.T) {
	for i, step := range crashSteps {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/after=%v", step.name, after), func(t *testing.T) {
				t.Parallel()
				for round := range crashRounds() {
					crashRound(t, objstore.NewMem(), step.op, step.match, round, after)
				}
			})
		}
		if i%3 > 0 && crashRounds() == 1 {
			continue // every step is met on files when there is time
		}
		t.Run(step.name+"/on files", func(t *testing.T) {
			t.Parallel()
			for round := range crashRounds() {
				store, err := filestore.Open(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				crashRound(t, store, step.op, step.match, round, round%2 == 0)
			}
		})
	}
}

// crashRound has a process die at the step's occurrence after 2·skip others, and
// its successor go on.
func crashRound(t *testing.T, store objstore.Store, op, match string, skip int, after bool) {
	src := &source{offsets: map[int64]int64{}, rng: rand.New(rand.NewPCG(uint64(skip), 7))}
	fast := func(c *Config) {
		c.SafeAge, c.CollectInterval, c.CheckpointObjects = 0, 20*time.Millisecond, 3
	}
	h := start(t, store, fast)
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables",
		`{"name":"orders","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"properties":{"fold_interval":"100ms"}}`)
	h.stop()

	doomed := newMortal(store, op, match, skip*2, after)
	if h, err := tryStart(t, doomed, fast); err == nil {
		for src.send(h, src.next+60, doomed.deadCh) == nil && src.next < 1500 {
			h.tryFold(doomed.deadCh)
		}
		if !doomed.dead.Load() {
			t.Logf("%s %q did not come up %d times", op, match, skip*2)
			doomed.die()
		}
		h.kill()
	}
	rows := max(src.next, 300) + 200
	h = start(t, store, fast)
	defer h.stop()
	src.next = max(0, src.next-src.rng.Int64N(200)) // the source restarts from an older position
	if err := src.send(h, rows, nil); err != nil {
		t.Fatalf("after the restart: %v", err)
	}
	verifyRows(t, h, src, rows)
	h.must("POST", tableURL+"orders/fold", "")
	if n := h.count("orders", "lake"); n != int(rows) {
		t.Fatalf("lake count %d", n)
	}
	verifyRows(t, h, src, rows)
	check, err := CheckStore(t.Context(), store)
	if err != nil || len(check.Damage) > 0 {
		t.Fatalf("the store is damaged: %v %v", check.Damage, err)
	}
}

// tryFold asks for a fold that may never be answered.
func (h *harness) tryFold(dead <-chan struct{}) {
	ctx, cancel := untilDeath(20*time.Second, dead)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+tableURL+"orders/fold", nil)
	if err != nil {
		return
	}
	if res, err := http.DefaultClient.Do(req); err == nil {
		_ = res.Body.Close()
	}
}

// tryStart is start for an agent that may die on the way.
func tryStart(t testing.TB, store objstore.Store, change func(*Config)) (*harness, error) {
	cfg := DefaultConfig()
	cfg.Store, cfg.Listen, cfg.AgentID, cfg.FlushAge, cfg.MemoryLimitBytes = store.URL(), "127.0.0.1:0", "test", time.Millisecond, -1
	change(&cfg)
	a, err := New(cfg, store, nil)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := a.Open(ctx); err != nil {
		return nil, err
	}
	return &harness{t: t, agent: a, url: "http://" + a.Addr()}, nil
}

// kill drops an agent whose store is dead; what it says is of no interest.
func (h *harness) kill() {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_ = h.agent.Close(ctx)
}

// verifyRows checks that the log holds each row once, at dense offsets, and
// acknowledged rows where they were acknowledged.
func verifyRows(t *testing.T, h *harness, src *source, rows int64) {
	t.Helper()
	status, body := h.do("GET", tableURL+"orders/changes?start=earliest", "")
	if status != http.StatusOK {
		t.Fatalf("changes: %d %s", status, body)
	}
	seen := map[int64]bool{}
	sc := bufio.NewScanner(strings.NewReader(body))
	for at := int64(0); sc.Scan(); at++ {
		var row struct {
			ID     int64 `json:"id"`
			Offset int64 `json:"_offset"`
		}
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		if row.Offset != at {
			t.Fatalf("offset %d where %d is next", row.Offset, at)
		}
		if seen[row.ID] {
			t.Fatalf("row %d twice", row.ID)
		}
		seen[row.ID] = true
		if want, ok := src.offsets[row.ID]; ok && want != row.Offset {
			t.Fatalf("row %d was acknowledged at offset %d and is at %d", row.ID, want, row.Offset)
		}
	}
	if int64(len(seen)) != rows {
		t.Fatalf("%d rows, want %d", len(seen), rows)
	}
	if n := h.count("orders", "union"); int64(n) != rows {
		t.Fatalf("count %d", n)
	}
}
