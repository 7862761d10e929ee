package filter

import (
	"bytes"
	"cmp"
	"math"

	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/segments"
)

// Verdict is what statistics say of a set of rows.
type Verdict uint8

// The verdicts.
const (
	None Verdict = iota // no row matches
	Some                // rows may match
	All                 // every row matches
)

// String returns the verdict's name.
func (v Verdict) String() string { return [...]string{"none", "some", "all"}[v] }

// outcomes is a set of truth values that a predicate can have on some rows.
type outcomes uint8

const (
	canTrue outcomes = 1 << iota
	canFalse
	canUnknown
	anything = canTrue | canFalse | canUnknown
)

// Prune evaluates the predicate on the statistics of a set of rows. stats
// returns those of a top-level column and the number of rows; false is "not
// known". Bounds may be cut, as segments.ColumnStats says.
func (e *Expr) Prune(stats func(fieldID int32) (s segments.ColumnStats, rows int64, ok bool)) Verdict {
	switch got := possible(e.root, stats); {
	case got&canTrue == 0:
		return None
	case got == canTrue:
		return All
	}
	return Some
}

type statsFunc = func(int32) (segments.ColumnStats, int64, bool)

func possible(n Node, stats statsFunc) outcomes {
	switch n := n.(type) {
	case *And:
		got := canTrue
		for _, arg := range n.Args {
			got = join(got, possible(arg, stats), func(a, b Truth) Truth {
				switch {
				case a == False || b == False:
					return False
				case a == True && b == True:
					return True
				}
				return Unknown
			})
		}
		return got
	case *Or:
		got := canFalse
		for _, arg := range n.Args {
			got = join(got, possible(arg, stats), func(a, b Truth) Truth {
				switch {
				case a == True || b == True:
					return True
				case a == False && b == False:
					return False
				}
				return Unknown
			})
		}
		return got
	case *Const:
		return outcome(n.Truth)
	case *CompareColumns:
		return canTrue | canFalse | nullable(n.Left, stats) | nullable(n.Right, stats)
	}
	return leafPossible(n, stats)
}

func outcome(t Truth) outcomes {
	return [...]outcomes{Unknown: canUnknown, False: canFalse, True: canTrue}[t]
}

// join combines every pair that can occur.
func join(a, b outcomes, op func(a, b Truth) Truth) outcomes {
	var out outcomes
	for _, x := range [...]Truth{True, False, Unknown} {
		for _, y := range [...]Truth{True, False, Unknown} {
			if a&outcome(x) != 0 && b&outcome(y) != 0 {
				out |= outcome(op(x, y))
			}
		}
	}
	return out
}

func nullable(c *Column, stats statsFunc) outcomes {
	if k, ok := known(c, stats); ok && k.nulls == 0 {
		return 0
	}
	return canUnknown
}

// knowledge is what the statistics say of one column.
type knowledge struct {
	nulls, nans, numbers int64 // numbers: neither NULL nor NaN
	low, high            *Value
}

// known reads the statistics of a column; those inside structs have none.
func known(c *Column, stats statsFunc) (knowledge, bool) {
	if len(c.path) > 0 {
		return knowledge{}, false
	}
	s, rows, ok := stats(c.Root)
	if !ok || !s.Valid || s.Nulls < 0 || s.NaNs < 0 || s.Nulls+s.NaNs > rows {
		return knowledge{}, false
	}
	k := knowledge{nulls: s.Nulls, nans: s.NaNs, numbers: rows - s.Nulls - s.NaNs}
	k.low, k.high = bound(s.Min, c.Type), bound(s.Max, c.Type)
	return k, true
}

// bound reads a bound; one that cannot be read is unknown.
func bound(b []byte, t segments.Type) *Value {
	if b == nil {
		return nil
	}
	v := Value{Kind: t.Kind}
	got, err := segments.FromIcebergValue(b, t)
	if err != nil {
		return nil
	}
	switch x := got.(type) {
	case bool:
		if x {
			v.Int = 1
		}
	case int32:
		v.Int = int64(x)
	case int64:
		v.Int = x
	case float32:
		v.Float = float64(x)
	case float64:
		v.Float = x
	case decimal128.Num:
		v.Dec = x
	case string:
		v.Bytes = []byte(x)
	case []byte:
		v.Bytes = x
	default:
		return nil
	}
	if math.IsNaN(v.Float) {
		return nil
	}
	return &v
}

// compareValues orders two values of one kind, neither of them NaN.
func compareValues(a, b *Value) int {
	switch a.Kind {
	case segments.Float, segments.Double:
		switch {
		case a.Float < b.Float:
			return -1
		case a.Float > b.Float:
			return 1
		}
		return 0
	case segments.Decimal:
		return a.Dec.Cmp(b.Dec)
	case segments.String, segments.UUID, segments.Fixed, segments.Binary:
		return bytes.Compare(a.Bytes, b.Bytes)
	}
	return cmp.Compare(a.Int, b.Int)
}

func leafPossible(n Node, stats statsFunc) outcomes {
	switch n := n.(type) {
	case *IsNull:
		return swapIf(nullPossible(n.Col, stats), n.Not)
	case *IsNaN:
		return swapIf(each(n.Col, stats, canTrue, func(knowledge) outcomes { return canFalse }), n.Not)
	case *Known:
		of := swapIf(canTrue, !n.Value)
		return each(n.Col, stats, of, func(knowledge) outcomes { return of })
	case *Compare:
		nan := canFalse
		if n.Op == Ne {
			nan = canTrue
		}
		return each(n.Col, stats, nan, func(k knowledge) outcomes { return k.compare(n.Op, &n.Value) })
	case *In:
		got := each(n.Col, stats, canFalse, func(k knowledge) outcomes { return k.in(n.Values) })
		if n.Null && got&canFalse != 0 {
			got = got&^canFalse | canUnknown
		}
		return swapIf(got, n.Not)
	case *Like:
		return swapIf(each(n.Col, stats, canFalse, func(k knowledge) outcomes { return k.like(n.Pattern) }), n.Not)
	}
	return anything
}

// swapIf exchanges true and false.
func swapIf(o outcomes, swap bool) outcomes {
	if !swap {
		return o
	}
	out := o & canUnknown
	if o&canTrue != 0 {
		out |= canFalse
	}
	if o&canFalse != 0 {
		out |= canTrue
	}
	return out
}

// each gathers the outcomes of a comparison over NULLs, NaNs and the rest.
func each(c *Column, stats statsFunc, nan outcomes, rest func(knowledge) outcomes) outcomes {
	k, ok := known(c, stats)
	if !ok {
		return anything
	}
	var out outcomes
	if k.nulls > 0 {
		out |= canUnknown
	}
	if k.nans > 0 {
		out |= nan
	}
	if k.numbers > 0 {
		out |= rest(k)
	}
	return out
}

func nullPossible(c *Column, stats statsFunc) outcomes {
	k, ok := known(c, stats)
	if !ok {
		return canTrue | canFalse
	}
	var out outcomes
	if k.nulls > 0 {
		out |= canTrue
	}
	if k.nans+k.numbers > 0 {
		out |= canFalse
	}
	return out
}

// compare says what values between the bounds can give. An unknown bound is
// beyond everything.
func (k knowledge) compare(op Op, v *Value) outcomes {
	low, high := -1, 1 // the order of each bound and v
	equal := false     // all values are v
	if k.low != nil {
		low = compareValues(k.low, v)
	}
	if k.high != nil {
		high = compareValues(k.high, v)
	}
	equal = k.low != nil && k.high != nil && low == 0 && high == 0
	var t, f bool
	switch op {
	case Eq, Ne:
		t, f = low <= 0 && high >= 0, !equal
		if op == Ne {
			t, f = f, t
		}
	case Lt:
		t, f = low < 0, high >= 0
	case Le:
		t, f = low <= 0, high > 0
	case Gt:
		t, f = high > 0, low <= 0
	case Ge:
		t, f = high >= 0, low < 0
	}
	var out outcomes
	if t {
		out |= canTrue
	}
	if f {
		out |= canFalse
	}
	return out
}

func (k knowledge) in(values []Value) outcomes {
	out := canFalse
	for i := range values {
		got := k.compare(Eq, &values[i])
		out |= got & canTrue
		if got == canTrue {
			return canTrue
		}
	}
	return out
}

// like uses the text that a match starts with.
func (k knowledge) like(p Pattern) outcomes {
	text, all := p.Prefix()
	prefix := []byte(text)
	out := canTrue | canFalse
	if k.high != nil && bytes.Compare(k.high.Bytes, prefix) < 0 {
		out &^= canTrue
	}
	if k.low != nil && bytes.Compare(k.low.Bytes, prefix) > 0 && !bytes.HasPrefix(k.low.Bytes, prefix) {
		out &^= canTrue
	}
	if all && k.low != nil && k.high != nil && bytes.HasPrefix(k.low.Bytes, prefix) && bytes.HasPrefix(k.high.Bytes, prefix) {
		out &^= canFalse
	}
	if all && len(prefix) == 0 {
		out = canTrue
	}
	return out
}
