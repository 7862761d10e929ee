package agent

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
)

// keyedWorld is a primary-key table beside a map.
type keyedWorld struct {
	t     *testing.T
	rng   *rand.Rand
	store objstore.Store
	h     *harness
	want  map[int64]kvRow
	steps []string
}

type kvRow struct {
	n any // int32 or NULL
	s any // string or NULL
}

const kvKeys = 40

func (w *keyedWorld) fatal(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("after %v: %s", w.steps, fmt.Sprintf(format, args...))
}

func (w *keyedWorld) table() (*incarnation, *metastore.Table) {
	w.t.Helper()
	def, n, err := w.h.agent.tableAndOwner(context.Background(), "shop", "kv")
	if err != nil {
		w.t.Fatal(err)
	}
	return n, def
}

// batch builds rows of some columns of a schema.
func batch(t testing.TB, s *segments.Schema, values ...[]any) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for _, row := range values {
		for i, v := range row {
			if err := segments.AppendValue(b.Field(i), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.NewRecordBatch()
}

// request writes a few random rows: upserts, deletes, or a partial write.
func (w *keyedWorld) request() {
	n, def := w.table()
	req := WriteRequest{Table: def, Schema: def.Current()}
	partial := w.rng.IntN(3) == 0
	if partial {
		req.Columns = []int{2}
	}
	var values [][]any
	var deletes []bool
	for range 1 + w.rng.IntN(10) {
		k := w.rng.Int64N(kvKeys)
		row := kvRow{n: w.rng.Int32N(4), s: fmt.Sprint("s", w.rng.IntN(4))}
		del := !partial && w.rng.IntN(4) == 0
		values = append(values, []any{k, row.n, row.s})
		deletes = append(deletes, del)
		switch old, ok := w.want[k]; {
		case del:
			delete(w.want, k)
		case partial && ok:
			w.want[k] = kvRow{n: old.n, s: row.s}
		case partial:
			w.want[k] = kvRow{s: row.s}
		default:
			w.want[k] = row
		}
	}
	req.Chunks = []rows.Chunk{{Rows: batch(w.t, def.Current(), values...)}}
	req.Deletes, req.BodyRows = [][]bool{deletes}, int64(len(values))
	res, err := n.write(context.Background(), req)
	if err != nil {
		w.fatal("write: %v %v", err, res.Errors)
	}
}

func (w *keyedWorld) fold() {
	n, def := w.table()
	if _, err := n.fold(context.Background(), def); err != nil {
		w.fatal("fold: %v", err)
	}
}

func (w *keyedWorld) compact() {
	n, def := w.table()
	if _, err := n.compact(context.Background(), def, true, 0); err != nil {
		w.fatal("compact: %v", err)
	}
}

func (w *keyedWorld) restart() {
	w.h.stop()
	w.h = start(w.t, w.store)
}

// check compares lookups, the union read and the count with the map.
func (w *keyedWorld) check() {
	w.t.Helper()
	n, def := w.table()
	key, _ := def.Current().Select([]string{"k"})
	var keys [][]any
	for k := range int64(kvKeys + 3) {
		keys = append(keys, []any{k})
	}
	got, err := n.lookup(context.Background(), LookupRequest{Table: def, Keys: batch(w.t, key, keys...), Schema: key, Out: def.Current()})
	if err != nil {
		w.fatal("lookup: %v", err)
	}
	found := map[int64]kvRow{}
	if got.Rows != nil {
		found = w.rowsOf(got.Rows)
	}
	for k, c := range got.Counts {
		if _, ok := w.want[int64(k)]; ok != (c == 1) {
			w.fatal("key %d has %d rows", k, c)
		}
	}
	if !maps.Equal(found, w.want) {
		w.fatal("lookup finds %v, want %v", found, w.want)
	}
	stream, err := n.Scan(context.Background(), def, ScanRequest{})
	if err != nil {
		w.fatal("scan: %v", err)
	}
	defer stream.Close()
	scanned := map[int64]kvRow{}
	total := 0
	for rec, err := range stream.Batches {
		if err != nil {
			w.fatal("scan: %v", err)
		}
		total += int(rec.NumRows())
		maps.Copy(scanned, w.rowsOf(rec))
	}
	if total != len(w.want) || !maps.Equal(scanned, w.want) {
		w.fatal("scan has %d rows %v, want %v", total, scanned, w.want)
	}
	if c, err := n.count(context.Background(), def, ScanRequest{}); err != nil || c != int64(len(w.want)) {
		w.fatal("count is %d, %v, want %d", c, err, len(w.want))
	}
}

// checkChanges replays the changelog from a start and compares what it comes to.
func (w *keyedWorld) checkChanges(mode StartMode) {
	w.t.Helper()
	n, def := w.table()
	stream, err := n.Changes(context.Background(), def, ChangesRequest{Start: Start{Mode: mode}})
	if err != nil {
		w.fatal("changes: %v", err)
	}
	state := map[int64]kvRow{}
	for b, err := range stream.Batches {
		if err != nil {
			w.fatal("changes: %v", err)
		}
		if b.Rows == nil {
			continue
		}
		for i := range int(b.Rows.NumRows()) {
			for k, row := range w.rowsOf(b.Rows.NewSlice(int64(i), int64(i)+1)) {
				old, present := state[k]
				switch kind := changeName(b, i); {
				case kind == "INSERT" && !present:
					state[k] = row
				case kind == "UPDATE_BEFORE" && present && old == row:
				case kind == "UPDATE_AFTER" && present:
					state[k] = row
				case kind == "DELETE" && present && old == row:
					delete(state, k)
				default:
					w.fatal("offset %d: %s of %d %v, which is %v (%v)", b.Offsets[i], kind, k, row, old, present)
				}
			}
		}
	}
	if !maps.Equal(state, w.want) {
		w.fatal("the changes come to %v, want %v", state, w.want)
	}
}

func (w *keyedWorld) rowsOf(rec arrow.RecordBatch) map[int64]kvRow {
	out := map[int64]kvRow{}
	k, n, s := rec.Column(0).(*array.Int64), rec.Column(1).(*array.Int32), rec.Column(2).(*array.String) //nolint:forcetypeassert // the table's
	for i := range int(rec.NumRows()) {
		var row kvRow
		if n.IsValid(i) {
			row.n = n.Value(i)
		}
		if s.IsValid(i) {
			row.s = s.Value(i)
		}
		out[k.Value(i)] = row
	}
	return out
}

func TestAKeyedTableIsWhatAMapIs(t *testing.T) {
	for seed := range uint64(simSeeds(4)) {
		for _, image := range []string{"full", "after"} {
			t.Run(fmt.Sprintf("seed=%d/%s", seed, image), func(t *testing.T) {
				t.Parallel()
				w := &keyedWorld{t: t, rng: rand.New(rand.NewPCG(seed, 4)), store: objstore.NewMem(), want: map[int64]kvRow{}} //nolint:gosec // a seeded test
				w.h = start(t, w.store)
				w.h.do("POST", "/v1/databases", `{"name":"shop"}`)
				w.h.must("POST", "/v1/databases/shop/tables", fmt.Sprintf(`{"name":"kv","columns":[{"name":"k","type":"long"},{"name":"n","type":"int"},{"name":"s","type":"string"}],
					"primary_key":["k"],"buckets":2,"properties":{"fold_interval":"0","changelog_image":%q}}`, image))
				for range 40 {
					switch w.rng.IntN(10) {
					case 0:
						w.steps = append(w.steps, "restart")
						w.restart()
					case 1:
						w.steps = append(w.steps, "fold")
						w.fold()
					case 2:
						w.steps = append(w.steps, "compact")
						w.compact()
					default:
						w.steps = append(w.steps, "request")
						w.request()
					}
					w.check()
					w.checkChanges(StartSnapshot)
				}
			})
		}
	}
}
