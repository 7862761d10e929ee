package agent

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments/rows"
)

// BenchmarkHotUpserts upserts rows of a few thousand keys with the full changelog.
func BenchmarkHotUpserts(b *testing.B) {
	h := start(b, objstore.NewMem(), func(c *Config) { c.MaxUnfoldedBytes = 8 << 30 })
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"routes","columns":[{"name":"origin","type":"string"},{"name":"destination","type":"string"},
		{"name":"date","type":"timestamp"},{"name":"delay","type":"long"},{"name":"distance","type":"long"}],
		"primary_key":["origin","destination"],"buckets":2,"properties":{"fold_interval":"0"}}`)
	def, n, err := h.agent.tableAndOwner(context.Background(), "shop", "routes")
	if err != nil {
		b.Fatal(err)
	}
	const batchRows = 10_000
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // a seeded benchmark
	var chunks []rows.Chunk
	for i := range 20 {
		var values [][]any
		for j := range batchRows {
			k := rng.IntN(3399)
			values = append(values, []any{fmt.Sprintf("%03d", k%59), fmt.Sprintf("%03d", k/59), int64(i*batchRows+j) * 60_000_000, rng.Int64N(60), int64(k)})
		}
		chunks = append(chunks, rows.Chunk{Rows: batch(b, def.Current(), values...)})
	}
	b.ReportAllocs()
	b.ResetTimer()
	pending := make(chan *pendingAppend, 8)
	done := make(chan error, 1)
	go func() {
		for p := range pending {
			if _, err := p.await(context.Background()); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for i := 0; b.Loop(); i++ {
		p, _, err := n.beginWrite(context.Background(), WriteRequest{Table: def, Schema: def.Current(), Chunks: chunks[i%len(chunks) : i%len(chunks)+1], BodyRows: batchRows})
		if err != nil {
			b.Fatal(err)
		}
		pending <- p
	}
	close(pending)
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)*batchRows/b.Elapsed().Seconds(), "rows/s")
}
