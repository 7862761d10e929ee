package agent

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/objstore"
)

// An SDK writer keeps its append stream open. The agent must end such streams to leave
// (as it ends followers), not wait for the writer.
func TestAgentLeavesWhileAnSDKWriterHoldsItsStream(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1)
	c, err := client.New(h.url, client.WithRetry(client.NoRetry))
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.Table("shop", "orders").NewWriter(client.WriterOptions{ProducerID: "p"})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(t.Context(), leaveRows()); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	begun := time.Now()
	if err := h.agent.Close(ctx); err != nil {
		t.Fatalf("close with an idle append stream open: %v after %v", err, time.Since(begun))
	}
}

func leaveRows() arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "name", Type: arrow.BinaryTypes.String, Nullable: true}}, nil))
	b.Field(0).(*array.Int64Builder).Append(1)
	b.Field(1).(*array.StringBuilder).Append("x")
	return b.NewRecordBatch()
}
