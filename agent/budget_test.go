package agent

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// dataPuts counts the puts that carry rows or what is made of them.
func dataPuts(s objstore.LedgerSnapshot) int64 {
	var n int64
	for _, row := range s {
		if (row.Op == objstore.OpPut || row.Op == objstore.OpPutIfAbsent) && row.Class != "agents" {
			n += row.Calls
		}
	}
	return n
}

func describe(s objstore.LedgerSnapshot) string {
	var b strings.Builder
	for _, row := range s {
		fmt.Fprintf(&b, "%v %s: %d; ", row.Op, row.Class, row.Calls)
	}
	return b.String()
}

func TestAnAcknowledgedFlushCostsOnePut(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.FlushAge = 20 * time.Millisecond })
	for i := range 20 {
		h.createTable(fmt.Sprintf("t%d", i), 2)
	}
	for i := range 20 { // warm: the first append of a table may look at its lake
		h.must("POST", fmt.Sprintf("%st%d/rows", tableURL, i), rowsBody(0, 1))
	}
	before := h.agent.Store().Snapshot()
	var wg sync.WaitGroup
	const writers, requests = 20, 10
	for i := range writers {
		wg.Go(func() {
			for r := range requests {
				if status, body := h.do("POST", fmt.Sprintf("%st%d/rows", tableURL, i), rowsBody(r*10, r*10+10)); status != 200 {
					t.Errorf("status %d: %s", status, body)
				}
			}
		})
	}
	wg.Wait()
	spent := h.agent.Store().Snapshot().Since(before)
	wal := spent.Puts("wal")
	if wal == 0 || wal >= writers*requests/2 {
		t.Errorf("%d requests to %d tables cost %d WAL puts; they must share them", writers*requests, writers, wal)
	}
	if extra := dataPuts(spent) - wal - spent.Puts("checkpoint"); extra != 0 {
		t.Errorf("writes put other things than WAL objects: %s", describe(spent))
	}
	if ck := spent.Puts("checkpoint"); ck > 1+wal/256+2 {
		t.Errorf("%d checkpoints for %d WAL objects", ck, wal)
	}
	if reads := spent.Gets("wal") + spent.Calls(objstore.OpList, ""); reads != 0 {
		t.Errorf("writes read the WAL or list: %s", describe(spent))
	}
}

// TestAnIdleAgentPutsNothingAndListsNothing watches an agent at rest. What it
// does by the clock is measured over an interval in which its sweeps, folds and
// looks for a checkpoint are due many times.
func TestAnIdleAgentPutsNothingAndListsNothing(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.CollectInterval, c.SafeAge = 10*time.Millisecond, 0 })
	h.createTable("orders", 4)
	h.must("POST", tableURL+"orders/rows", rowsBody(0, 100))
	h.must("POST", tableURL+"orders/fold", "")
	h.atRest(t)
	before := h.agent.Store().Snapshot()
	const watched = 2 * time.Second
	time.Sleep(watched)
	spent := h.agent.Store().Snapshot().Since(before)
	if n := dataPuts(spent); n != 0 {
		t.Errorf("an idle agent puts: %s", describe(spent))
	}
	if n := spent.Calls(objstore.OpList, "") + spent.Calls(objstore.OpDelete, ""); n != 0 {
		t.Errorf("an idle agent lists or deletes: %s", describe(spent))
	}
	// One look at the metadata log each 250 ms at first, later each 5 s.
	if n := spent.Gets(""); n > int64(watched/(250*time.Millisecond))+1 {
		t.Errorf("an idle agent reads: %s", describe(spent))
	}
	if n := spent.Puts("agents"); n > int64(watched/(h.agent.cfg.Lease/4))+1 {
		t.Errorf("%d heartbeats in %s of a lease of %s", n, watched, h.agent.cfg.Lease)
	}
}

// atRest waits until the collector has nothing more to do.
func (h *harness) atRest(t *testing.T) {
	t.Helper()
	n := h.agent.current.Load()
	rest := func() bool {
		n.collector.lake.mu.Lock()
		defer n.collector.lake.mu.Unlock()
		return !n.collector.active.Load() && !n.checkpoints.pendingChange() &&
			len(n.collector.lake.suspect)+len(n.collector.lake.resting)+len(n.collector.lake.dropped) == 0
	}
	for deadline, calm := time.Now().Add(20*time.Second), 0; calm < 40; {
		if time.Now().After(deadline) {
			t.Fatalf("the collector does not come to rest: active %v", n.collector.active.Load())
		}
		if rest() {
			calm++
		} else {
			calm = 0
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestAtRestTheStoreHoldsLittleMoreThanTheLake(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store, func(c *Config) { c.CollectInterval, c.SafeAge = 10*time.Millisecond, 0 })
	h.createTable("orders", 2)
	for i := range 20 {
		h.must("POST", tableURL+"orders/rows", rowsBody(i*20_000, (i+1)*20_000))
		if i%5 == 4 {
			h.must("POST", tableURL+"orders/fold", "")
		}
	}
	h.atRest(t)
	check, err := CheckStore(t.Context(), store)
	if err != nil || len(check.Damage)+len(check.Garbage) > 0 {
		t.Fatalf("damage %v, garbage %v (%v)", check.Damage, check.Garbage, err)
	}
	if most := check.LakeBytes * 115 / 100; check.Bytes > most {
		t.Errorf("the store holds %d bytes, the lake %d of them: more than 1.15 times", check.Bytes, check.LakeBytes)
	}
	for info, err := range store.List(t.Context(), "wal/", "") {
		if err != nil {
			t.Fatal(err)
		}
		t.Errorf("%s is left after everything was folded", info.Key)
	}
}
