package agent

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments/rows"
)

func TestConcurrentPartialWritersChangeTheirOwnColumns(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"kv","columns":[{"name":"k","type":"long"},{"name":"n","type":"int"},{"name":"s","type":"string"}],
		"primary_key":["k"],"buckets":2,"properties":{"fold_interval":"0"}}`)
	def, n, err := h.agent.tableAndOwner(context.Background(), "shop", "kv")
	if err != nil {
		t.Fatal(err)
	}
	const writers, rounds, keys = 4, 60, 10
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range rounds {
				req := WriteRequest{Table: def, Schema: def.Current(), Columns: []int{1 + w%2}}
				var values [][]any
				for k := range int64(keys) {
					values = append(values, []any{k, int32(i), fmt.Sprint(i)}) //nolint:gosec // small
				}
				req.Chunks, req.BodyRows = []rows.Chunk{{Rows: batch(t, def.Current(), values...)}}, keys
				if _, err := n.write(context.Background(), req); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	w := &keyedWorld{t: t, h: h, want: map[int64]kvRow{}}
	for k := range int64(keys) {
		w.want[k] = kvRow{n: int32(rounds - 1), s: fmt.Sprint(rounds - 1)}
	}
	w.check()
	w.checkChanges(StartEarliest)
}

func TestWritersAndReadersAgreeWhileTheTableIsFoldedAndCompacted(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"kv","columns":[{"name":"k","type":"long"},{"name":"n","type":"int"},{"name":"s","type":"string"}],
		"primary_key":["k"],"buckets":2,"properties":{"fold_interval":"0"}}`)
	def, n, err := h.agent.tableAndOwner(context.Background(), "shop", "kv")
	if err != nil {
		t.Fatal(err)
	}
	const writers, rounds, keys = 3, 80, 8
	key, _ := def.Current().Select([]string{"k"})
	var work, upkeep sync.WaitGroup
	stop := make(chan struct{})
	upkeep.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_, err := n.fold(context.Background(), def)
			if err == nil && i%3 == 2 {
				_, err = n.compact(context.Background(), def, true, 0)
			}
			if err != nil {
				t.Errorf("upkeep: %v", err)
				return
			}
		}
	})
	for w := range writers {
		work.Go(func() {
			for i := range rounds {
				var values, wanted [][]any
				for k := range int64(keys) {
					id := k*writers + int64(w)
					values = append(values, []any{id, int32(i), fmt.Sprint(w, i)}) //nolint:gosec // small
					wanted = append(wanted, []any{id})
				}
				req := WriteRequest{Table: def, Schema: def.Current(), Chunks: []rows.Chunk{{Rows: batch(t, def.Current(), values...)}}, BodyRows: keys}
				if _, err := n.write(context.Background(), req); err != nil {
					t.Error(err)
					return
				}
				got, err := n.lookup(context.Background(), LookupRequest{Table: def, Keys: batch(t, key, wanted...), Schema: key, Out: def.Current()})
				if err != nil {
					t.Error(err)
					return
				}
				world := &keyedWorld{t: t}
				for k, row := range world.rowsOf(got.Rows) {
					if row.n != int32(i) { //nolint:gosec // small
						t.Errorf("writer %d reads %v at key %d after it wrote %d", w, row, k, i)
					}
				}
			}
		})
	}
	work.Wait()
	close(stop)
	upkeep.Wait()
	w := &keyedWorld{t: t, h: h, want: map[int64]kvRow{}}
	for id := range int64(keys * writers) {
		w.want[id] = kvRow{n: int32(rounds - 1), s: fmt.Sprint(id%writers, rounds-1)}
	}
	w.check()
	w.checkChanges(StartSnapshot)
}
