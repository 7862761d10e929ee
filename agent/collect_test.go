package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// testRoots: incarnation "me" with checkpoints 5 (covers 20) and 4 (covers 15);
// "alive" lives, "dead" is fenced at 10, "gone" left in order.
func testRoots() *roots {
	id := func(inc string, seq uint64) wal.ObjectID { return wal.ObjectID{Incarnation: inc, Seq: seq} }
	set := func(ids ...wal.ObjectID) map[wal.ObjectID]struct{} {
		m := map[wal.ObjectID]struct{}{}
		for _, i := range ids {
			m[i] = struct{}{}
		}
		return m
	}
	return &roots{
		self:    "me",
		newest:  &written{ref: wal.CheckpointRef{Incarnation: "me", Seq: 5}, covers: 20, refs: set(id("me", 3), id("dead", 3))},
		older:   &written{ref: wal.CheckpointRef{Incarnation: "me", Seq: 4}, covers: 15, refs: set(id("me", 3), id("me", 2), id("dead", 2))},
		foreign: set(id("dead", 4), id("me", 4)), protected: map[string]bool{"alive": true},
		checkpoints: map[string]struct{}{wal.CheckpointRef{Incarnation: "me", Seq: 2}.Key(): {}, wal.CheckpointRef{Incarnation: "gone", Seq: 7}.Key(): {}},
		inUse:       func(o wal.ObjectID) bool { return o == id("me", 5) || o == id("dead", 5) },
		now:         time.Unix(100_000_000, 0), safeAge: 10 * time.Minute,
		fences: map[string]uint64{"dead": 10}, left: map[string]bool{"gone": true},
	}
}

func TestWhatIsNeededIsNeverJudgedGarbage(t *testing.T) {
	r := testRoots()
	object := func(inc string, seq int) string { return wal.ObjectID{Incarnation: inc, Seq: uint64(seq)}.Key() }
	check := func(inc string, seq int) string { return wal.CheckpointRef{Incarnation: inc, Seq: uint64(seq)}.Key() }
	day := 24 * time.Hour
	for _, tc := range []struct {
		key  string
		age  time.Duration
		want verdict
		why  string
	}{
		{object("me", 25), day, verdictKeep, "no checkpoint covers it"},
		{object("me", 20), day, verdictKeep, "the newest checkpoint covers what is below 20"},
		{object("me", 17), day, verdictSettle, "only the newest checkpoint covers it"},
		{object("me", 17), time.Minute, verdictLater, "and it is young"},
		{object("me", 3), day, verdictLater, "the newest checkpoint names it"},
		{object("me", 2), day, verdictSettle, "the older checkpoint names it"},
		{object("me", 4), day, verdictKeep, "another owner's checkpoint names it"},
		{object("me", 5), day, verdictKeep, "a reader has it"},
		{object("me", 6), day, verdictDelete, "nobody needs it"},
		{object("me", 6), time.Minute, verdictLater, "an upload may be young"},
		{object("dead", 2), day, verdictSettle, "the older checkpoint names it"},
		{object("dead", 3), day, verdictLater, "the newest checkpoint names it"},
		{object("dead", 4), day, verdictKeep, "another owner's checkpoint names it"},
		{object("dead", 5), day, verdictKeep, "it is live here"},
		{object("dead", 6), day, verdictDelete, "nobody needs it"},
		{object("dead", 10), 100 * day, verdictKeep, "it is the fence, and the metadata names it"},
		{object("dead", 11), day, verdictUnlessFence, "it was never acknowledged, or is a barrier"},
		{object("gone", 1), day, verdictDelete, "nobody needs it"},
		{object("forgotten", 10), day, verdictDelete, "the metadata forgot its incarnation"},
		{object("alive", 1), 100 * day, verdictKeep, "its owner judges it"},
		{check("me", 6), day, verdictKeep, "its outcome may be open"},
		{check("me", 2), day, verdictKeep, "a checkpoint in use has it as a part"},
		{check("me", 3), day, verdictDelete, "two newer ones stand"},
		{check("me", 3), time.Minute, verdictLater, "a recovery may be reading it"},
		{check("gone", 7), day, verdictKeep, "a slot names it"},
		{check("gone", 6), day, verdictDelete, "nothing names it"},
		{check("alive", 1), day, verdictKeep, "its owner judges it"},
		{"agents/me", day, verdictKeep, "it beats"},
		{"agents/alive", 100 * day, verdictKeep, "it is alive by the metadata"},
		{"agents/dead", 100 * day, verdictKeep, "who fenced it may still look"},
		{"agents/gone", day, verdictDelete, "it left"},
		{"agents/unknown", day, verdictKeep, "it may be about to join"},
		{"agents/unknown", deadKept + day, verdictDelete, "it died before it joined"},
		{"wal/me/stray.txt", 100 * day, verdictKeep, "it is not ours"},
		{"other/thing", 100 * day, verdictKeep, "it is not ours"},
	} {
		if got := r.judge(objstore.Info{Key: tc.key, ModTime: r.now.Add(-tc.age)}); got != tc.want {
			t.Errorf("%s, %s old: verdict %d, want %d: %s", tc.key, tc.age, got, tc.want, tc.why)
		}
	}
}

func TestADroppedTablesDirectoryIsRemoved(t *testing.T) {
	store := objstore.NewMem()
	fast := func(c *Config) { c.CollectInterval, c.SafeAge = 10*time.Millisecond, 0 }
	h := start(t, store, fast)
	for i := range 3 {
		h.createTable(fmt.Sprintf("t%d", i), 1)
		h.must("POST", fmt.Sprintf("%st%d/rows", tableURL, i), rowsBody(0, 10))
		h.must("POST", fmt.Sprintf("%st%d/fold", tableURL, i), "")
		h.must("POST", fmt.Sprintf("%st%d/rows", tableURL, i), rowsBody(10, 20))
	}
	h.must("DELETE", tableURL+"t0", "")
	h.createTable("t0", 1) // a new table of the name has a directory of its own
	h.must("POST", tableURL+"t0/rows", rowsBody(0, 5))
	h.must("POST", tableURL+"t0/fold", "")
	h.atRest(t)
	wantDirs(t, h, "lake/shop/t1-2", "lake/shop/t2-3", "lake/shop/t0-4")

	// What was dropped while the collector had no chance goes after a restart.
	h.stop()
	h = start(t, store, func(c *Config) { c.CollectInterval = time.Hour })
	h.must("DELETE", tableURL+"t1", "")
	h.stop()
	h = start(t, store, fast)
	h.atRest(t)
	wantDirs(t, h, "lake/shop/t2-3", "lake/shop/t0-4")
	if n := h.count("t0", "union"); n != 5 {
		t.Errorf("t0 holds %d rows", n)
	}
	if n := h.count("t2", "union"); n != 20 {
		t.Errorf("t2 holds %d rows", n)
	}
}

func wantDirs(t *testing.T, h *harness, want ...string) {
	t.Helper()
	left := map[string]bool{}
	if err := lakeDirs(t.Context(), h.agent, func(dir string) { left[dir] = true }); err != nil {
		t.Fatal(err)
	}
	for _, dir := range want {
		if !left[dir] {
			t.Errorf("%s is gone", dir)
		}
		delete(left, dir)
	}
	for dir := range left {
		t.Errorf("%s is left", dir)
	}
}

func TestTheSearchForDirectoriesHopsOverLargeOnes(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store)
	for i := range 3 {
		for j := range 2500 {
			if err := store.Put(t.Context(), fmt.Sprintf("lake/db/t%d-%d/data/%05d", i, i+100, j), []byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := h.agent.Store().Snapshot()
	wantDirs(t, h, "lake/db/t0-100", "lake/db/t1-101", "lake/db/t2-102")
	if n := h.agent.Store().Snapshot().Since(before).Calls(objstore.OpList, ""); n > 4 {
		t.Errorf("%d pages listed for 3 directories", n)
	}
}

func TestASlotThatMovesVoidsASweep(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store, func(c *Config) { c.CollectInterval, c.SafeAge = time.Hour, 0 })
	h.createTable("orders", 1)
	for i := range 4 {
		h.must("POST", tableURL+"orders/rows", rowsBody(i*10, i*10+10))
	}
	h.must("POST", tableURL+"orders/fold", "")
	n := h.agent.current.Load()
	for range 2 {
		n.collector.settle(t.Context())
		if _, err := n.checkpoints.write(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Another process appends to the metadata; this one has not seen it yet.
	other, err := metastore.Open(t.Context(), store, metastore.Options{Writer: "other", Manual: true})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Append(t.Context(), metastore.DecideCreateDatabase("d2", "", false)); err != nil {
		t.Fatal(err)
	}
	stale := h.agent.meta.State().Seq < other.State().Seq
	deleted, err := n.collector.sweep(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if stale && deleted != 0 {
		t.Errorf("%d objects deleted while the metadata moved", deleted)
	}
	// The store's clock is read off the last heartbeat, so garbage ages with it.
	for deadline := time.Now().Add(10 * time.Second); deleted == 0 && stale; {
		if deleted, err = n.collector.sweep(t.Context()); err != nil || time.Now().After(deadline) {
			t.Fatalf("then %d objects deleted: %v", deleted, err)
		}
	}
}
