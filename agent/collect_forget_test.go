package agent

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// movable is a clock that a test moves.
type movable struct{ ahead atomic.Int64 }

func (m *movable) now() time.Time       { return time.Now().Add(time.Duration(m.ahead.Load())) }
func (m *movable) move(d time.Duration) { m.ahead.Add(int64(d)) }

// startAt is start for an agent that goes by a clock and sweeps all the time.
func startAt(t *testing.T, store objstore.Store, now func() time.Time) *harness {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Store, cfg.Listen, cfg.AgentID, cfg.FlushAge, cfg.MemoryLimitBytes = store.URL(), "127.0.0.1:0", "test", time.Millisecond, -1
	cfg.CollectInterval, cfg.SafeAge, cfg.Lease = 5*time.Millisecond, 0, time.Second
	a, err := New(cfg, store, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a.clock, a.meta.now = now, now
	if err := a.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, agent: a, url: "http://" + a.Addr()}
	t.Cleanup(h.stop)
	return h
}

func keysOf(t *testing.T, store objstore.Store, prefix string) (keys []string) {
	t.Helper()
	for info, err := range store.List(t.Context(), prefix, "") {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

// A process that was paused may put files when its slots were swept long ago. An idle
// successor looked no more.
func TestWhatADeadProcessPutLateGoesWhenItIsForgotten(t *testing.T) {
	var clock movable
	store := objstore.NewMemClock(clock.now)
	gate := newSimGate(store)
	former := startAt(t, gate, clock.now)
	former.createTable("kept", 1)
	former.createTable("dropped", 1)
	former.must("POST", tableURL+"kept/rows", rowsBody(0, 10))
	former.must("POST", tableURL+"dropped/rows", rowsBody(0, 10))
	dead := former.agent.Incarnation()
	gate.kill()
	former.kill()

	h := startAt(t, store, clock.now)
	h.must("POST", tableURL+"kept/fold", "")
	h.must("DELETE", tableURL+"dropped", "")
	own := func(key string) bool { return strings.Contains(key, dead) }
	h.eventually(func() bool { return len(keysOf(t, store, "lake/shop/dropped-2/")) == 0 })
	h.eventually(func() bool { return !slices.ContainsFunc(keysOf(t, store, "checkpoint/"), own) })
	h.eventually(func() bool { return !h.agent.current.Load().collector.active.Load() })
	late := []string{
		"lake/shop/dropped-2/data/b00000-00000000000000000000-00000000000000000010-11111111-2222-3333-4444-555555555555.parquet",
		"lake/shop/kept-1/data/b00000-00000000000000000003-00000000000000000009-11111111-2222-3333-4444-555555555555.parquet",
		"lake/shop/kept-1/metadata/11111111-2222-3333-4444-555555555555-m1.avro",
	}
	for _, key := range late {
		if err := store.Put(t.Context(), key, []byte("late")); err != nil {
			t.Fatal(err)
		}
	}
	fence := slices.IndexFunc(keysOf(t, store, "wal/"), own)
	if _, err := store.Head(t.Context(), "agents/"+dead); err != nil || fence < 0 {
		t.Fatalf("fence %d and heartbeat (%v) of a dead incarnation went too early", fence, err)
	}

	clock.move(metastore.DeadKept + 2*time.Hour)
	left := func(key string) bool { return own(key) || slices.Contains(late, key) }
	h.eventually(func() bool { return !slices.ContainsFunc(keysOf(t, store, ""), left) })
	if n := h.count("kept", "union"); n != 10 {
		t.Errorf("%d rows", n)
	}
}

func TestLeftoversOfProbesGoAfterAnHour(t *testing.T) {
	var clock movable
	store := objstore.NewMemClock(clock.now)
	if err := store.Put(t.Context(), "probe/old", []byte("x")); err != nil {
		t.Fatal(err)
	}
	clock.move(2 * probeKept)
	if err := store.Put(t.Context(), "probe/young", []byte("x")); err != nil {
		t.Fatal(err)
	}
	h := startAt(t, store, clock.now)
	h.eventually(func() bool { return slices.Equal(keysOf(t, store, "probe/"), []string{"probe/young"}) })
	h.eventually(func() bool { return !h.agent.current.Load().collector.probesDue() }) // it waits for its age
	h.eventually(func() bool {
		clock.move(probeKept) // the store's clock follows with the next heartbeat
		return len(keysOf(t, store, "probe/")) == 0
	})
}

// crashed leaves a store with live rows whose owner died without a fold, and whose
// first WAL objects were collected.
func crashed(t *testing.T) (store objstore.Store, dead string) {
	t.Helper()
	store = objstore.NewMem()
	gate := newSimGate(store)
	h := startAt(t, gate, time.Now)
	h.createTable("orders", 1)
	h.must("POST", tableURL+"orders/rows", rowsBody(0, 10))
	h.must("POST", tableURL+"orders/fold", "")
	dead = h.agent.Incarnation()
	h.eventually(func() bool { return len(keysOf(t, store, "wal/")) == 0 })
	h.must("POST", tableURL+"orders/rows", rowsBody(10, 30))
	gate.kill()
	h.kill()
	return store, dead
}

func damage(t *testing.T, store objstore.Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if err := store.Put(t.Context(), key, []byte("damaged")); err != nil {
			t.Fatal(err)
		}
	}
}

// Without a readable checkpoint the log of a dead owner has no known start. Its first
// absent position is no end: a fence there would hide the rows behind it for ever.
func TestAStoreWithoutAReadableCheckpointIsRefusedAndLeftAlone(t *testing.T) {
	store, dead := crashed(t)
	checkpoints := keysOf(t, store, "checkpoint/"+dead+"/")
	if len(checkpoints) == 0 {
		t.Fatal("no checkpoint was written")
	}
	for name, spoil := range map[string]func(){
		"damaged": func() { damage(t, store, checkpoints...) },
		"missing": func() {
			for _, key := range checkpoints {
				if err := store.Delete(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
		},
	} {
		spoil()
		before := keysOf(t, store, "wal/")
		_, err := tryStart(t, store, func(*Config) {})
		if err == nil || !strings.Contains(err.Error(), "firn fsck") {
			t.Fatalf("%s: %v", name, err)
		}
		if after := keysOf(t, store, "wal/"); !slices.Equal(before, after) {
			t.Errorf("%s: WAL objects were %v and are %v", name, before, after)
		}
	}
}

// The newest checkpoint is damaged, and the one before is whole: recovery starts there.
func TestRecoveryPassesOverADamagedCheckpoint(t *testing.T) {
	store, dead := crashed(t)
	checkpoints := keysOf(t, store, "checkpoint/"+dead+"/")
	ref, _ := wal.ParseCheckpointKey(checkpoints[len(checkpoints)-1])
	ref.Seq++
	damage(t, store, ref.Key()) // as if it had been written last
	h := startAt(t, store, time.Now)
	h.must("POST", tableURL+"orders/fold", "")
	if n := h.count("orders", "lake"); n != 30 {
		t.Errorf("%d rows of 30", n)
	}
	check, err := CheckStore(context.Background(), store)
	if err != nil || len(check.Damage) > 1 {
		t.Errorf("damage %v, %v", check.Damage, err)
	}
}
