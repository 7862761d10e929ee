package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// All tables were once looked at four times a second: ten thousand at rest cost a
// tenth of a processor.
func TestTablesAtRestAreNotLookedAt(t *testing.T) {
	h := start(t, objstore.NewMem())
	for i := range 3 {
		h.createTable(fmt.Sprintf("t%d", i), 1)
		h.must("POST", tableURL+fmt.Sprintf("t%d/rows", i), rowsBody(0, 1))
	}
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	watched := func() int {
		n.folder.mu.Lock()
		defer n.folder.mu.Unlock()
		return len(n.folder.watched)
	}
	if got := watched(); got != 3 {
		t.Errorf("%d tables with live rows are looked at, want 3", got)
	}
	for i := range 2 {
		h.must("POST", tableURL+fmt.Sprintf("t%d/fold", i), "{}")
	}
	waitUntil(t, func() bool { return watched() == 1 })

	h.must("POST", tableURL+"t0/rows", rowsBody(1, 2))
	if got := watched(); got != 2 {
		t.Errorf("%d tables are looked at after a row came, want 2", got)
	}
	h.must("PATCH", "/v1/databases/shop/tables/t1", `{"changes":[{"set_properties":{"retention":"1h"}}]}`)
	waitUntil(t, func() bool { return watched() == 3 })
	h.must("PATCH", "/v1/databases/shop/tables/t0", `{"changes":[{"set_properties":{"fold_interval":"100ms"}}]}`)
	def, err := h.agent.meta.State().TableByName("shop", "t0")
	if err != nil {
		t.Fatal(err)
	}
	table := n.lookupTable(def.ID)
	waitUntil(t, func() bool { return table.oldest.Load() == 0 })
	waitUntil(t, func() bool { return watched() == 2 })
}

// Maintenance follows folds, and keeps what is young: without another one, later,
// a table that came to rest keeps its small files and old snapshots for ever.
func TestATableThatCameToRestIsMaintainedOnceMore(t *testing.T) {
	var clock movable
	h := startAt(t, objstore.NewMemClock(clock.now), clock.now)
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.createTable("o", 1)
	h.must("PATCH", tableURL+"o", `{"changes":[{"set_properties":{"fold_interval":"0"}}]}`)
	for i := range 4 {
		h.must("POST", tableURL+"o/rows", rowsBody(i, i+1))
		h.must("POST", tableURL+"o/fold", "")
	}
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	def, err := h.agent.meta.State().TableByName("shop", "o")
	if err != nil {
		t.Fatal(err)
	}
	table := n.lookupTable(def.ID)
	settling := func() bool {
		n.folder.mu.Lock()
		defer n.folder.mu.Unlock()
		return n.folder.settling[def.ID] != nil
	}
	waitUntil(t, settling)
	clock.move(settleAge - time.Minute)
	if table.settleDue(clock.now()) {
		t.Error("it is due while its snapshots are young")
	}
	clock.move(2 * time.Minute)
	waitUntil(t, table.settled)
	joined := func() bool {
		snapshots := h.must("GET", tableURL+"o/snapshots", "")["snapshots"].([]any)
		return snapshots[len(snapshots)-1].(map[string]any)["files"] == 1.0
	}
	waitUntil(t, joined)
	clock.move(settleTick)
	waitUntil(t, func() bool { return !settling() })
}
