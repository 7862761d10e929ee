package agent

import (
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
	"github.com/firn-data/firn/wal"
)

// Each live segment once kept its entry, and by that its whole footer: a million
// segments in a thousand objects, read after a restart, took eleven gigabytes.
func TestFootersInMemoryAreBoundedByBytes(t *testing.T) {
	c := newFooterCache(objstore.NewMem())
	footer := &wal.Footer{Segments: make([]wal.Segment, 1000)}
	for i := range footer.Segments {
		footer.Segments[i].Columns = make([]segments.ColumnChunk, 20)
	}
	each := footerMemory(footer)
	for i := range 2 * maxFooterBytes / each {
		c.put(wal.ObjectID{Incarnation: "a", Seq: uint64(i)}, footer)
		if c.bytes > maxFooterBytes || c.bytes != int64(len(c.byID))*each {
			t.Fatalf("%d footers are said to take %d bytes, the bound is %d", len(c.byID), c.bytes, maxFooterBytes)
		}
	}
	for id := range c.byID {
		c.forget(id.Key())
	}
	if c.bytes != 0 || c.order.Len() != 0 {
		t.Errorf("%d bytes are left of nothing", c.bytes)
	}
}

// A scan went bucket by bucket, so with many buckets it came to every object many times.
func TestScanReadsEachObjectOnceWhateverTheBuckets(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store)
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"orders","columns":[{"name":"id","type":"long","required":true},{"name":"name","type":"string"}],
		"buckets":8,"bucket_key":["id"],"properties":{"fold_interval":"0"}}`)
	for i := range 5 {
		h.must("POST", tableURL+"orders/rows", rowsBody(100*i, 100*i+100))
	}
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	def, err := h.agent.meta.State().TableByName("shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	p, err := n.plan(t.Context(), def)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	seen, last := map[wal.ObjectID]bool{}, wal.ObjectID{}
	reads := p.liveReads()
	for _, r := range reads {
		if id := r.seg.ref.Object; id != last {
			if seen[id] {
				t.Fatalf("the scan comes back to %s", id)
			}
			seen[id], last = true, id
		}
	}
	if len(reads) < 5*6 || len(seen) != 5 {
		t.Errorf("%d segments in %d objects: too few to tell", len(reads), len(seen))
	}
	if status, body := h.do("GET", tableURL+"orders/rows?columns=id", ""); status != 200 || strings.Count(body, "\n") != 500 {
		t.Errorf("%d, %d rows", status, strings.Count(body, "\n"))
	}
}

func TestTableWithVeryManyLiveSegmentsIsFoldedWhateverItsPropertiesSay(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1) // fold_interval 0
	h.must("POST", tableURL+"orders/rows", rowsBody(0, 10))
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	def, err := h.agent.meta.State().TableByName("shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	table := n.lookupTable(def.ID)
	if got := table.segments.Load(); got != 1 {
		t.Fatalf("%d live segments are counted, want 1", got)
	}
	table.segments.Store(maxLiveChunks / int64(len(def.Current().Fields)))
	waitUntil(t, func() bool { return table.oldest.Load() == 0 })
	if got := table.segments.Load(); got != 0 {
		t.Errorf("%d live segments are counted after the fold", got)
	}
}

// Rows were counted without what Go and Arrow take around them: a hundred megabytes
// of one-row segments took gigabytes.
func TestBufferedRowsCountWhatTinyBatchesTake(t *testing.T) {
	rec := segtest.RandomBatch(segtest.NewRand(7), segtest.Schema("id long"), 1)
	r := newRowBuffer(1 << 20)
	for i := range 10_000 {
		r.put(segmentKey{wal.ObjectID{Incarnation: "a"}, int32(i)}, []arrow.RecordBatch{rec}, 8)
	}
	if most := (1 << 20) / (batchMemory + columnMemory); len(r.rows) > most {
		t.Errorf("%d rows are kept, want at most %d", len(r.rows), most)
	}
}

// A fold goes bucket by bucket; it once read every footer as often as there were buckets.
func TestFoldOfColdSegmentsReadsEachFooterOnce(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store)
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"orders","columns":[{"name":"id","type":"long","required":true},{"name":"name","type":"string"}],
		"buckets":16,"bucket_key":["id"],"properties":{"fold_interval":"0"}}`)
	for i := range 5 {
		h.must("POST", tableURL+"orders/rows", rowsBody(100*i, 100*i+100))
	}
	h.stop()
	h = start(t, store, func(c *Config) { c.CacheBytes = 1 }) // a cold agent
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	def, err := h.agent.meta.State().TableByName("shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	table, err := n.tableFor(def)
	if err != nil {
		t.Fatal(err)
	}
	p := &readPlan{def: def, refs: n.refs}
	defer p.close()
	entries := &foldEntries{n: n}
	_, segs, more := n.foldInput(table, p, entries)
	if more {
		t.Error("a fold of a few segments leaves some")
	}
	if err := entries.load(t.Context(), segs); err != nil {
		t.Fatal(err)
	}
	if len(entries.known) != len(segs) || len(segs) < 5*10 {
		t.Fatalf("%d of %d entries are known before the fold", len(entries.known), len(segs))
	}
	h.agent.footers.mu.Lock()
	clear(h.agent.footers.byID)
	h.agent.footers.order.Init()
	h.agent.footers.mu.Unlock()
	for _, s := range segs {
		if _, err := entries.get(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(h.agent.footers.byID); n != 0 {
		t.Errorf("the fold read %d footers again", n)
	}
	h.must("POST", tableURL+"orders/fold", "{}")
	if got := h.count("orders", "lake"); got != 500 {
		t.Errorf("%d rows in the lake, want 500", got)
	}
}

func TestVeryManySmallSegmentsCountAgainstTheUnfoldedLimit(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1)
	for i := range 3 {
		h.must("POST", tableURL+"orders/rows", rowsBody(i, i+1))
	}
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	if got := n.unfolded.Load(); got < 3*liveMemory {
		t.Errorf("three segments count %d bytes, want at least %d", got, 3*liveMemory)
	}
	h.must("POST", tableURL+"orders/fold", "{}")
	if got := n.unfolded.Load(); got != 0 {
		t.Errorf("%d bytes count after the fold", got)
	}
}

func TestFoldOfMoreThanOneCommitMayKnowTakesSeveral(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 3)
	for i := range 20 {
		h.must("POST", tableURL+"orders/rows", rowsBody(10*i, 10*i+10))
	}
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	n.folder.entryBytes = 7 * (segmentMemory + 2*chunkMemory)
	res := h.must("POST", tableURL+"orders/fold", "{}")
	if res["rows"] != "200" && res["rows"] != 200.0 {
		t.Errorf("the fold tells of %v rows, want 200", res["rows"])
	}
	if got := h.count("orders", "lake"); got != 200 {
		t.Errorf("%d rows in the lake, want 200", got)
	}
	if got := h.count("orders", "union"); got != 200 {
		t.Errorf("%d rows, want 200", got)
	}
	if snaps := h.must("GET", tableURL+"orders/snapshots", "")["snapshots"].([]any); len(snaps) < 3 {
		t.Errorf("%d snapshots: 20 segments, 7 at a time, take three commits", len(snaps))
	}
}
