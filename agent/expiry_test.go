package agent

import (
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

func TestIdempotencyKeysAreForgottenAfterADayAndProducersAsTheTableSays(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1)
	h.must("POST", tableURL+"orders/rows", rowsBody(0, 1), "Idempotency-Key", "k")
	h.must("POST", tableURL+"orders/rows?producer_id=p&first_sequence=0", rowsBody(1, 2))
	n := h.agent.current.Load()
	b := n.allTables()[0].buckets[0]
	known := func() (key, producer bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		_, key = b.durable.Get("k", true)
		_, producer = b.durable.Get("p", false)
		return key, producer
	}
	n.expireProducers()
	if key, producer := known(); !key || !producer {
		t.Fatalf("fresh states: key %v, producer %v", key, producer)
	}
	if !b.expireProducers(0, time.Now().Add(time.Hour).UnixMicro()) {
		t.Fatal("nothing expired")
	}
	if key, producer := known(); key || !producer {
		t.Fatalf("a day later: key %v, producer %v", key, producer)
	}
	if !b.expireProducers(time.Now().Add(time.Hour).UnixMicro(), 0) {
		t.Fatal("nothing expired")
	}
	if _, producer := known(); producer {
		t.Fatal("the producer is still known")
	}
	h.must("POST", tableURL+"orders/rows?producer_id=p&first_sequence=2", rowsBody(2, 3))
}
