package merge

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/segments"
)

// A modelRow is key, version, a, b; nil is NULL.
type modelRow [4]any

var modelSchema = &segments.Schema{ID: 1, Fields: []segments.Field{
	{ID: 1, Name: "k", Type: segments.Type{Kind: segments.Long}, Required: true},
	{ID: 2, Name: "v", Type: segments.Type{Kind: segments.Int}},
	{ID: 3, Name: "a", Type: segments.Type{Kind: segments.String}},
	{ID: 4, Name: "b", Type: segments.Type{Kind: segments.Double}},
}}

func batchOf(t testing.TB, s *segments.Schema, rows ...[]any) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for _, row := range rows {
		for i, v := range row {
			if err := segments.AppendValue(b.Field(i), v); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.NewRecordBatch()
}

func rowsOf(rec arrow.RecordBatch) (out [][]any) {
	if rec == nil {
		return nil
	}
	for i := range int(rec.NumRows()) {
		row := make([]any, rec.NumCols())
		for c := range row {
			col := &column{rows: rec.Column(c), n: int32(rec.NumRows())} //nolint:gosec // small
			if !col.null(int32(i)) {                                     //nolint:gosec // small
				row[c] = col.value(int32(i)) //nolint:gosec // small
			}
		}
		out = append(out, row)
	}
	return out
}

// write is one row of a request in the model.
type write struct {
	row    modelRow
	delete bool
}

type change struct {
	kind int32
	row  modelRow
}

// model is the table of changes, written down once more on a map.
type model struct {
	def  Definition
	rows map[int64]modelRow
}

func (m *model) apply(w write, named map[int]bool) (out []change) {
	key := w.row[0].(int64) //nolint:forcetypeassert // the model's own
	old, present := m.rows[key]
	update := func(row modelRow) {
		if row == old && !m.def.KeepNoops {
			return
		}
		if !m.def.AfterOnly {
			out = append(out, change{UpdateBefore, old})
		}
		out = append(out, change{UpdateAfter, row})
		m.rows[key] = row
	}
	row := w.row
	if named != nil {
		row = old
		if !present {
			row = modelRow{key}
		}
		for c := 1; c < 4; c++ {
			if named[c] {
				row[c] = w.row[c]
				if w.delete {
					row[c] = nil
				}
			}
		}
	}
	switch {
	case w.delete && (m.def.Deletes == DeleteIgnore || !present):
	case w.delete && (named == nil || row == modelRow{key}):
		out = append(out, change{Delete, old})
		delete(m.rows, key)
	case w.delete:
		update(row)
	case !present:
		out = append(out, change{Insert, row})
		m.rows[key] = row
	case m.def.Kind == FirstRow:
	case m.def.Kind == Versioned && (w.row[1] == nil || old[1] != nil && w.row[1].(int32) < old[1].(int32)): //nolint:forcetypeassert // the model's own
	default:
		update(row)
	}
	return out
}

func randomWrite(rng *rand.Rand) write {
	w := write{row: modelRow{rng.Int64N(5)}, delete: rng.IntN(4) == 0}
	if rng.IntN(4) > 0 {
		w.row[1] = rng.Int32N(3)
	}
	if rng.IntN(3) > 0 {
		w.row[2] = string(rune('a' + rng.IntN(2)))
	}
	if rng.IntN(3) > 0 {
		w.row[3] = float64(rng.IntN(2))
	}
	return w
}

func TestChangesAreThoseOfTheTable(t *testing.T) {
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 9)) //nolint:gosec // a seeded test
		def := Definition{
			Schema: modelSchema, PrimaryKey: []int32{1}, Kind: []Kind{LastRow, FirstRow, Versioned}[rng.IntN(3)], VersionColumn: 2,
			Deletes: []DeleteBehavior{DeleteAllow, DeleteIgnore}[rng.IntN(2)], AfterOnly: rng.IntN(2) == 0, KeepNoops: rng.IntN(2) == 0,
		}
		e, err := New(def)
		if err != nil {
			t.Fatal(err)
		}
		m := &model{def: def, rows: map[int64]modelRow{}}
		for round := range 12 {
			var columns []int
			var named map[int]bool
			if def.Kind == LastRow && rng.IntN(2) == 0 {
				named = map[int]bool{}
				for c := 1; c < 4; c++ {
					if rng.IntN(2) == 0 {
						columns, named[c] = append(columns, c), true
					}
				}
				if columns == nil {
					columns = []int{}
				}
			}
			var writes []write
			for range 1 + rng.IntN(12) {
				writes = append(writes, randomWrite(rng))
			}
			got, want := applyBoth(t, e, m, writes, columns, named)
			if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d round %d, %+v, columns %v, writes %v:\n got %v\nwant %v", seed, round, def, columns, writes, got, want)
			}
		}
	}
}

// applyBoth applies one request to the engine, with the old rows of the model, and
// to the model.
func applyBoth(t *testing.T, e *Engine, m *model, writes []write, columns []int, named map[int]bool) (got, want [][]change) {
	t.Helper()
	req := &Request{Columns: columns, Deletes: make([]bool, len(writes)), Before: make([]int32, len(writes)), OldRow: make([]int32, len(writes))}
	var rows, old [][]any
	last := map[int64]int32{}
	for i, w := range writes {
		key := w.row[0].(int64) //nolint:forcetypeassert // the model's own
		rows = append(rows, w.row[:])
		req.Deletes[i], req.Before[i], req.OldRow[i] = w.delete, -1, Absent
		if p, ok := last[key]; ok {
			req.Before[i] = p
		} else if o, ok := m.rows[key]; ok {
			req.OldRow[i] = int32(len(old)) //nolint:gosec // small
			old = append(old, o[:])
		}
		last[key] = int32(i) //nolint:gosec // small
	}
	req.Rows = batchOf(t, e.def.Schema, rows...)
	if len(old) > 0 {
		req.Old = batchOf(t, e.def.Schema, old...)
	}
	for _, w := range writes {
		want = append(want, m.apply(w, named))
	}
	res, err := e.Apply(req)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Errors) > 0 {
		t.Fatalf("row errors %v", res.Errors)
	}
	all := rowsOf(res.Changes)
	begin := int32(0)
	for _, end := range res.Ends {
		var part []change
		for _, row := range all[begin:end] {
			part = append(part, change{row[4].(int32), modelRow(row[:4])}) //nolint:forcetypeassert // the change type
		}
		got = append(got, part)
		begin = end
	}
	return got, want
}

// one applies writes of one key to a column with an aggregate and returns the
// values that it has after each, "NULL" and errors included.
func one(t *testing.T, typ, aggregate string, values ...any) string {
	t.Helper()
	parsed, err := segments.ParseType(typ)
	if err != nil {
		t.Fatal(err)
	}
	s := &segments.Schema{ID: 1, Fields: []segments.Field{
		{ID: 1, Name: "k", Type: segments.Type{Kind: segments.Long}, Required: true},
		{ID: 2, Name: "x", Type: parsed, Aggregate: aggregate},
	}}
	e, err := New(Definition{Schema: s, PrimaryKey: []int32{1}, Kind: Aggregation, Deletes: DeleteIgnore, AfterOnly: true, KeepNoops: true})
	if err != nil {
		t.Fatal(err)
	}
	req := &Request{}
	var rows [][]any
	for i, v := range values {
		rows = append(rows, []any{int64(1), v})
		req.Before, req.OldRow = append(req.Before, int32(i)-1), append(req.OldRow, Absent) //nolint:gosec // small
	}
	req.Rows = batchOf(t, s, rows...)
	res, err := e.Apply(req)
	if err != nil {
		t.Fatal(err)
	}
	failed := map[int]string{}
	for _, r := range res.Errors {
		failed[r.Row] = r.Reason
	}
	all := rowsOf(res.Changes)
	var out []string
	begin := int32(0)
	for i, end := range res.Ends {
		switch {
		case failed[i] != "":
			out = append(out, "("+failed[i]+")")
		case all[begin][1] == nil:
			out = append(out, "NULL")
		default:
			out = append(out, fmt.Sprint(all[begin][1]))
		}
		begin = end
	}
	return strings.Join(out, " ")
}

func TestAggregateFunctions(t *testing.T) {
	l := func(v ...int64) (out []any) {
		for _, n := range v {
			out = append(out, n)
		}
		return out
	}
	for _, c := range []struct {
		typ, aggregate string
		values         []any
		want           string
	}{
		{"long", "sum", l(1, 2, -5), "1 3 -2"},
		{"long", "sum", []any{nil, int64(2), nil}, "NULL 2 2"},
		{"long", "sum", l(1<<62, 1<<62, 5), "4611686018427387904 (sum overflows long) 4611686018427387909"},
		{"long", "sum", l(-1<<63, -1), "-9223372036854775808 (sum overflows long)"},
		{"int", "sum", []any{int32(1 << 30), int32(1 << 30)}, "1073741824 (sum overflows int)"},
		{"long", "product", l(3, -4, 0), "3 -12 0"},
		{"long", "product", l(-1<<63, -1), "-9223372036854775808 (product overflows long)"},
		{"long", "product", l(1<<32, 1<<31), "4294967296 (product overflows long)"},
		{"double", "sum", []any{0.5, 0.25}, "0.5 0.75"},
		{"long", "min", l(3, 5, 1), "3 3 1"},
		{"string", "max", []any{"b", "a", "c"}, "b b c"},
		{"boolean", "min", []any{true, false}, "true false"},
		{"long", "last_value", []any{int64(1), nil}, "1 NULL"},
		{"long", "last_non_null", []any{int64(1), nil, int64(2)}, "1 1 2"},
		{"long", "", []any{int64(1), nil, int64(2)}, "1 1 2"},
		{"long", "first_value", []any{nil, int64(1)}, "NULL NULL"},
		{"long", "first_non_null", []any{nil, int64(1), int64(2)}, "NULL 1 1"},
		{"string", "string_agg", []any{"a", nil, "b"}, "a a a,b"},
		{"string", "string_agg(' | ')", []any{"a", "b"}, "a a | b"},
		{"string", "string_agg()", []any{"a", "b"}, "a ab"},
		{"boolean", "bool_and", []any{true, nil, false, true}, "true true false false"},
		{"boolean", "bool_or", []any{false, nil, true, false}, "false false true true"},
		{"long", "count", []any{nil, int64(7), nil, int64(7)}, "0 1 1 2"},
		{"binary", "rbm32", []any{[]byte("no")}, "(the value is no roaring bitmap"},
	} {
		got := one(t, c.typ, c.aggregate, c.values...)
		if !strings.HasPrefix(got, c.want) || got != c.want && !strings.HasPrefix(c.want, "(the") {
			t.Errorf("%s of %s %v: %s, want %s", c.aggregate, c.typ, c.values, got, c.want)
		}
	}
}
