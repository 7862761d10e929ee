package segments_test

import (
	"bytes"
	"math"
	"strings"
	"testing"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

func TestStatisticsBoundEveryValue(t *testing.T) {
	for seed := range seeds(t, 120) {
		r := segtest.NewRand(uint64(seed))
		s := segtest.AllTypes()
		rec := randomSlice(r, segtest.Batch(r, s, 60, segtest.Options{NullPercent: [...]int{0, 30, 95, 100}[r.IntN(4)], Extreme: true}))
		e, err := segments.Encode(rec, s, segments.CodecNone)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range s.Fields {
			st := e.Columns[i].Stats
			var nulls, nans int64
			exact := true
			var lo, hi []byte
			for row := range int(rec.NumRows()) {
				v, null := segments.IcebergValue(rec.Column(i), row, f.Type)
				if null {
					nulls++
					continue
				}
				if f.Type.Kind.Nested() {
					continue
				}
				if isNaN(v, f.Type) {
					nans++
					continue
				}
				if lo == nil || less(t, f.Type, v, lo) {
					lo = v
				}
				if hi == nil || less(t, f.Type, hi, v) {
					hi = v
				}
				exact = exact && len(v) <= 32
				if st.Min != nil && less(t, f.Type, v, st.Min) || st.Max != nil && less(t, f.Type, st.Max, v) {
					t.Fatalf("seed %d, %s: %x is outside [%x, %x]", seed, f.Type, v, st.Min, st.Max)
				}
			}
			if !st.Valid || st.Nulls != nulls || st.NaNs != nans {
				t.Fatalf("seed %d, %s: %+v, want %d nulls and %d NaN", seed, f.Type, st, nulls, nans)
			}
			if exact && (!bytes.Equal(st.Min, lo) || !bytes.Equal(st.Max, hi) || (st.Min == nil) != (lo == nil)) {
				t.Fatalf("seed %d, %s: [%x, %x], want [%x, %x]", seed, f.Type, st.Min, st.Max, lo, hi)
			}
		}
	}
}

func isNaN(v []byte, t segments.Type) bool {
	x, _ := segments.FromIcebergValue(v, t)
	switch x := x.(type) {
	case float32:
		return x != x
	case float64:
		return x != x
	}
	return false
}

func less(t *testing.T, typ segments.Type, a, b []byte) bool {
	t.Helper()
	c, err := segments.CompareValues(typ, a, b)
	if err != nil {
		t.Fatal(err)
	}
	return c < 0
}

func TestNegativeZeroIsBelowZero(t *testing.T) {
	neg := math.Copysign(0, -1)
	for _, c := range []struct {
		values   []any
		min, max float64
	}{
		{[]any{0.0, neg}, neg, 0}, {[]any{neg, 0.0, math.NaN()}, neg, 0}, {[]any{neg}, neg, neg}, {[]any{0.0, nil}, 0, 0},
		{[]any{-1.0, neg}, -1, neg}, {[]any{neg, 1.0}, neg, 1}, {[]any{math.Inf(1)}, math.Inf(1), math.Inf(1)},
		{[]any{math.Inf(-1), math.NaN()}, math.Inf(-1), math.Inf(-1)},
	} {
		s, rec := column(t, "double", c.values...)
		st := segments.ComputeStats(rec.Column(0), s.Fields[0].Type)
		lo, _ := segments.FromIcebergValue(st.Min, s.Fields[0].Type)
		hi, _ := segments.FromIcebergValue(st.Max, s.Fields[0].Type)
		if math.Float64bits(lo.(float64)) != math.Float64bits(c.min) || math.Float64bits(hi.(float64)) != math.Float64bits(c.max) {
			t.Errorf("%v: [%v, %v]", c.values, lo, hi)
		}
	}
	s, rec := column(t, "float", float32(math.NaN()), nil)
	if st := segments.ComputeStats(rec.Column(0), s.Fields[0].Type); st.Min != nil || st.Max != nil || st.NaNs != 1 || st.Nulls != 1 {
		t.Errorf("only NaN: %+v", st)
	}
}

func TestLongBoundsAreCutAndRoundedUp(t *testing.T) {
	a31 := strings.Repeat("a", 31)
	top := strings.Repeat("\U0010ffff", 9)
	for _, c := range []struct {
		typ      string
		v        any
		min, max any // string; nil: no bound
	}{
		{"string", a31 + "b", a31 + "b", a31 + "b"},
		{"string", a31 + "bX", a31 + "b", a31 + "c"},
		{"string", a31 + "éX", a31, a31[:30] + "b"},
		{"string", a31[:30] + "\u07ffX", a31[:30] + "\u07ff", a31[:30] + "\u0800"},
		{"string", a31[:29] + "\ud7ffX", a31[:29] + "\ud7ff", a31[:29] + "\ue000"},
		{"string", "b" + a31[:27] + "\U0010ffffX", "b" + a31[:27] + "\U0010ffff", "b" + a31[:26] + "b"},
		{"string", top, top[:32], nil},
		{"binary", append(bytes.Repeat([]byte{0xff}, 31), 0xff, 1), strings.Repeat("\xff", 32), nil},
		{"binary", append(bytes.Repeat([]byte{1}, 31), 0xff, 1), strings.Repeat("\x01", 31) + "\xff", strings.Repeat("\x01", 30) + "\x02"},
		{"fixed(33)", bytes.Repeat([]byte{1}, 33), nil, nil},
	} {
		s, rec := column(t, c.typ, c.v)
		st := segments.ComputeStats(rec.Column(0), s.Fields[0].Type)
		for i, got := range [][]byte{st.Min, st.Max} {
			want := []any{c.min, c.max}[i]
			if want == nil && got != nil || want != nil && string(got) != want {
				t.Errorf("%s %q bound %d: got %q, want %q", c.typ, c.v, i, got, want)
			}
		}
	}
}

func TestSingleValuesReadBack(t *testing.T) {
	for seed := range uint64(50) {
		r := segtest.NewRand(seed)
		s := segtest.AllTypes()
		rec := segtest.Batch(r, s, 20, segtest.Options{Extreme: true})
		for i, f := range s.Fields {
			for row := range 20 {
				b, _ := segments.IcebergValue(rec.Column(i), row, f.Type)
				if f.Type.Kind.Nested() {
					if b != nil {
						t.Fatalf("%s has the value %x", f.Type, b)
					}
					continue
				}
				v, err := segments.FromIcebergValue(b, f.Type)
				if err != nil {
					t.Fatal(err)
				}
				back, err := segments.ToIcebergValue(v, f.Type)
				if err != nil || !bytes.Equal(back, b) {
					t.Fatalf("%s: %x reads as %v and writes as %x, %v", f.Type, b, v, back, err)
				}
				if c, err := segments.CompareValues(f.Type, b, back); c != 0 || err != nil {
					t.Fatalf("%s: %x differs from itself", f.Type, b)
				}
			}
		}
	}
}

func TestValuesOfNarrowerTypesAreRead(t *testing.T) {
	if v, err := segments.FromIcebergValue([]byte{0xff, 0xff, 0xff, 0xff}, segtest.MustType("long")); err != nil || v != int64(-1) {
		t.Error(v, err)
	}
	if v, err := segments.FromIcebergValue([]byte{0, 0, 0x80, 0x3f}, segtest.MustType("double")); err != nil || v != 1.0 {
		t.Error(v, err)
	}
	for _, typ := range []string{"int", "long", "double", "decimal(3,1)", "uuid", "fixed(3)", "boolean"} {
		if v, err := segments.FromIcebergValue([]byte{}, segtest.MustType(typ)); err == nil {
			t.Errorf("%s: nothing reads as %v", typ, v)
		}
	}
}
