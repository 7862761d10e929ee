package agent

import (
	"testing"

	"github.com/firn-data/firn/internal/objstore"
)

// A stream that does not follow ends at the high watermark of its start. Rows that
// became durable in between once made the agent slice a segment backwards, and die.
func TestStreamEndsWhereItsLogEndedWhenRowsArriveMeanwhile(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1)
	h.must("POST", tableURL+"orders/rows", rowsBody(0, 10))
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	def, err := h.agent.meta.State().TableByName("shop", "orders")
	if err != nil {
		t.Fatal(err)
	}
	stream, err := n.Changes(t.Context(), def, ChangesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for i := 10; i < 40; i += 10 {
		h.must("POST", tableURL+"orders/rows", rowsBody(i, i+10))
	}
	var offsets []int64
	for b, err := range stream.Batches {
		if err != nil {
			t.Fatal(err)
		}
		offsets = append(offsets, b.Offsets...)
	}
	if len(offsets) != 10 || offsets[9] != 9 {
		t.Errorf("offsets %v, want 0 to 9", offsets)
	}
}
