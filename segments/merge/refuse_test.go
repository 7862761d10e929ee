package merge

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

func TestDecimalsAreExactAndNeverWrap(t *testing.T) {
	d := func(text string) any {
		n, ok := new(big.Int).SetString(text, 10)
		if !ok {
			t.Fatal(text)
		}
		return decimal128.FromBigInt(n)
	}
	nines := strings.Repeat("9", 38)
	for _, c := range []struct {
		typ, aggregate string
		values         []any
		want           []any // nil is a refusal
	}{
		{"decimal(38,0)", "sum", []any{d(nines), d("1"), d("-" + nines)}, []any{d(nines), nil, d("0")}},
		{"decimal(5,2)", "sum", []any{d("99999"), d("1")}, []any{d("99999"), nil}},
		{"decimal(9,2)", "product", []any{d("150"), d("150"), d("-1")}, []any{d("150"), d("225"), d("-2")}}, // 1.50 × 1.50 = 2.25; × -0.01 = -0.0225
		{"decimal(38,2)", "product", []any{d(nines), d("200")}, []any{d(nines), nil}},
	} {
		typ, err := segments.ParseType(c.typ)
		if err != nil {
			t.Fatal(err)
		}
		f := segments.Field{ID: 2, Name: "x", Type: typ, Aggregate: c.aggregate}
		fn, err := parseAggregate(f)
		if err != nil {
			t.Fatal(err)
		}
		var rows [][]any
		for _, v := range c.values {
			rows = append(rows, []any{v})
		}
		col := &column{field: f, rows: batchOf(t, &segments.Schema{Fields: []segments.Field{f}}, rows...).Column(0), n: int32(len(rows))} //nolint:gosec // small
		state, _ := fn.first(col, 0)
		for i := 1; i < len(rows); i++ {
			cell, reason := fn.merge(col, state, int32(i)) //nolint:gosec // small
			if (reason != "") != (c.want[i] == nil) {
				t.Errorf("%s of %s at %d: %q", c.aggregate, c.typ, i, reason)
			}
			if reason == "" {
				state = cell
				if got := col.value(state); got != c.want[i] {
					t.Errorf("%s of %s at %d: %v, want %v", c.aggregate, c.typ, i, got, c.want[i])
				}
			}
		}
	}
}

func TestBitmapsAreJoinedInThePortableFormat(t *testing.T) {
	b32 := func(v ...uint32) any {
		b, err := roaring.BitmapOf(v...).ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b64 := func(v ...uint64) any {
		b, err := roaring64.BitmapOf(v...).ToBytes()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, values := range map[string][]any{
		"rbm32": {b32(1, 7), b32(2, 1<<31), nil, b32(7)},
		"rbm64": {b64(1, 7), b64(2, 1<<40), nil, b64(7)},
	} {
		f := segments.Field{ID: 2, Name: "x", Type: segments.Type{Kind: segments.Binary}, Aggregate: name}
		e, err := New(Definition{
			Schema:     &segments.Schema{Fields: []segments.Field{{ID: 1, Name: "k", Type: segments.Type{Kind: segments.Long}, Required: true}, f}},
			PrimaryKey: []int32{1}, Kind: Aggregation, Deletes: DeleteIgnore,
		})
		if err != nil {
			t.Fatal(err)
		}
		req := &Request{}
		var rows [][]any
		for i, v := range values {
			rows = append(rows, []any{int64(1), v})
			req.Before, req.OldRow = append(req.Before, int32(i)-1), append(req.OldRow, Absent) //nolint:gosec // small
		}
		req.Rows = batchOf(t, e.def.Schema, rows...)
		res, err := e.Apply(req)
		if err != nil || len(res.Errors) > 0 {
			t.Fatal(err, res.Errors)
		}
		all := rowsOf(res.Changes)
		last, _ := all[len(all)-1][1].([]byte)
		if name == "rbm32" {
			got := roaring.New()
			if err := got.UnmarshalBinary(last); err != nil || !slices.Equal(got.ToArray(), []uint32{1, 2, 7, 1 << 31}) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		} else {
			got := roaring64.New()
			if err := got.UnmarshalBinary(last); err != nil || !slices.Equal(got.ToArray(), []uint64{1, 2, 7, 1 << 40}) {
				t.Errorf("%s: %v, %v", name, got, err)
			}
		}
		// The last two writes change nothing: insert, update.
		if len(all) != 3 {
			t.Errorf("%s: %d changes, want INSERT, UPDATE_BEFORE, UPDATE_AFTER", name, len(all))
		}
	}
}

func requiredSchema() *segments.Schema {
	return &segments.Schema{ID: 1, Fields: []segments.Field{
		{ID: 1, Name: "k", Type: segments.Type{Kind: segments.Long}, Required: true},
		{ID: 2, Name: "must", Type: segments.Type{Kind: segments.Long}, Required: true},
		{ID: 3, Name: "given", Type: segments.Type{Kind: segments.String}, Default: json.RawMessage(`"d"`), Required: true},
		{ID: 4, Name: "free", Type: segments.Type{Kind: segments.String}},
	}}
}

func TestRequiredIsEnforcedForWhatAWriteLeavesEmptyOnly(t *testing.T) {
	s := requiredSchema()
	e, err := New(Definition{Schema: s, PrimaryKey: []int32{1}, Kind: LastRow, Deletes: DeleteAllow})
	if err != nil {
		t.Fatal(err)
	}
	rows := batchOf(t, s, []any{int64(1), int64(5), "", "x"})
	for _, c := range []struct {
		columns []int
		deletes bool
		old     []any
		reason  string
		left    []any
	}{
		{columns: []int{1}, left: []any{int64(1), int64(5), "d", nil, Insert}},
		{columns: []int{3}, reason: "must"},
		{columns: []int{3}, old: []any{int64(1), int64(9), "g", nil}, left: []any{int64(1), int64(9), "g", "x", UpdateAfter}},
		{columns: []int{1}, deletes: true, old: []any{int64(1), int64(9), "g", nil}, reason: "must"},
		{columns: []int{3}, deletes: true, old: []any{int64(1), int64(9), "g", "y"}, left: []any{int64(1), int64(9), "g", nil, UpdateAfter}},
	} {
		req := &Request{Rows: rows, Columns: c.columns, Deletes: []bool{c.deletes}, Before: []int32{-1}, OldRow: []int32{Absent}}
		if c.old != nil {
			req.Old, req.OldRow = batchOf(t, s, c.old), []int32{0}
		}
		res, err := e.Apply(req)
		if err != nil {
			t.Fatal(err)
		}
		if c.reason != "" {
			if len(res.Errors) != 1 || res.Errors[0].Column != c.reason || res.Changes != nil {
				t.Errorf("%+v: errors %v", c, res.Errors)
			}
			continue
		}
		all := rowsOf(res.Changes)
		if len(res.Errors) > 0 || !slices.Equal(all[len(all)-1], c.left) {
			t.Errorf("%+v: left %v, errors %v", c, all, res.Errors)
		}
	}
}

func TestADeleteThatIsRejectedIsARowError(t *testing.T) {
	e, err := New(Definition{Schema: modelSchema, PrimaryKey: []int32{1}, Kind: LastRow, Deletes: DeleteReject})
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.Apply(&Request{
		Rows: batchOf(t, modelSchema, []any{int64(1), nil, nil, nil}, []any{int64(1), nil, nil, nil}), Deletes: []bool{true, false}, Before: []int32{-1, 0}, OldRow: []int32{Absent, Absent},
	})
	if err != nil || len(res.Errors) != 1 || res.Errors[0].Row != 0 || len(rowsOf(res.Changes)) != 1 {
		t.Errorf("%+v, %v", res, err)
	}
}

func TestPresentRowsAreToldApartWithoutTheirValues(t *testing.T) {
	e, err := New(Definition{Schema: modelSchema, PrimaryKey: []int32{1}, Kind: LastRow, Deletes: DeleteAllow, AfterOnly: true, KeepNoops: true})
	if err != nil {
		t.Fatal(err)
	}
	if e.NeedsOld(false, false) || !e.NeedsOld(true, false) || !e.NeedsOld(false, true) {
		t.Error("old values are asked for when they are not needed, or not when they are")
	}
	res, err := e.Apply(&Request{
		Rows: batchOf(t, modelSchema, []any{int64(1), nil, "a", nil}, []any{int64(2), nil, "b", nil}), Before: []int32{-1, -1}, OldRow: []int32{Present, Absent},
	})
	if err != nil {
		t.Fatal(err)
	}
	all := rowsOf(res.Changes)
	if len(all) != 2 || all[0][4] != UpdateAfter || all[1][4] != Insert {
		t.Errorf("%v", all)
	}
}

func TestAnAggregateThatCannotWorkIsRefused(t *testing.T) {
	for typ, aggregate := range map[string]string{"string": "sum", "long": "bool_and", "double": "count", "list<int>": "max", "int": "rbm32", "date": "product", "binary": "string_agg", "boolean": "median"} {
		parsed, err := segments.ParseType(typ)
		if err != nil {
			t.Fatal(err)
		}
		if err := CheckAggregate(segments.Field{Name: "x", Type: parsed, Aggregate: aggregate}); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s of %s: %v", aggregate, typ, err)
		}
	}
}
