package merge

import (
	"math"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// aggregate is the function of a column. Both return the cell of the column's new
// value, or why the row is refused.
type aggregate interface {
	// first sees the value of a key's first row.
	first(c *column, in int32) (cell int32, reason string)
	// merge sees the present value and that of a later row.
	merge(c *column, old, in int32) (cell int32, reason string)
}

// DefaultAggregate is the function of a column that names none.
const DefaultAggregate = "last_non_null"

// function builds the aggregate of a column, whose argument may be empty. It
// returns nil when the column's type does not fit.
type function struct {
	kinds []segments.Kind // nil: all
	make  func(argument string) aggregate
}

var (
	numbers = []segments.Kind{segments.Int, segments.Long, segments.Float, segments.Double, segments.Decimal}
	ordered = append([]segments.Kind{
		segments.Boolean, segments.Date, segments.Time, segments.Timestamp, segments.TimestampTZ, segments.String, segments.UUID, segments.Fixed, segments.Binary,
	}, numbers...)
)

var functions = map[string]function{
	"sum":         {numbers, func(string) aggregate { return skipNull{arithmetic{op: add}} }},
	"product":     {numbers, func(string) aggregate { return skipNull{arithmetic{op: multiply}} }},
	"min":         {ordered, func(string) aggregate { return skipNull{extreme{sign: -1}} }},
	"max":         {ordered, func(string) aggregate { return skipNull{extreme{sign: 1}} }},
	"last_value":  {nil, func(string) aggregate { return choose{pick: func(_ *column, _, in int32) int32 { return in }} }},
	"first_value": {nil, func(string) aggregate { return choose{pick: func(_ *column, old, _ int32) int32 { return old }} }},
	"last_non_null": {nil, func(string) aggregate {
		return skipNull{choose{pick: func(_ *column, _, in int32) int32 { return in }}}
	}},
	"first_non_null": {nil, func(string) aggregate {
		return skipNull{choose{pick: func(_ *column, old, _ int32) int32 { return old }}}
	}},
	"string_agg": {[]segments.Kind{segments.String}, func(separator string) aggregate { return skipNull{join{separator: separator}} }},
	"bool_and":   {[]segments.Kind{segments.Boolean}, func(string) aggregate { return skipNull{logic{and: true}} }},
	"bool_or":    {[]segments.Kind{segments.Boolean}, func(string) aggregate { return skipNull{logic{and: false}} }},
	"rbm32":      {[]segments.Kind{segments.Binary}, func(string) aggregate { return skipNull{bitmap{union32}} }},
	"rbm64":      {[]segments.Kind{segments.Binary}, func(string) aggregate { return skipNull{bitmap{union64}} }},
	"count":      {[]segments.Kind{segments.Int, segments.Long}, func(string) aggregate { return count{} }},
}

// CheckAggregate says why a column cannot have the aggregate that it names; nil
// when it can, or names none.
func CheckAggregate(f segments.Field) error {
	_, err := parseAggregate(f)
	return err
}

func parseAggregate(f segments.Field) (aggregate, error) {
	text := f.Aggregate
	if text == "" {
		text = DefaultAggregate
	}
	name, argument, call := strings.Cut(text, "(")
	fn, ok := functions[name]
	if !ok || call && (name != "string_agg" || !strings.HasSuffix(argument, ")")) {
		return nil, errs.New(errs.Invalid, "column %q: aggregate %q is not known", f.Name, f.Aggregate)
	}
	separator := ","
	if call {
		separator = unquote(strings.TrimSuffix(argument, ")"))
	}
	for i, k := range fn.kinds {
		if k == f.Type.Kind {
			break
		}
		if i == len(fn.kinds)-1 {
			return nil, errs.New(errs.Invalid, "column %q: aggregate %s does not work on %s", f.Name, name, f.Type)
		}
	}
	return fn.make(separator), nil
}

// unquote strips one pair of single or double quotes.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}

// skipNull leaves a NULL out: the other value stands.
type skipNull struct{ aggregate }

func (a skipNull) first(c *column, in int32) (int32, string) {
	if c.null(in) {
		return in, ""
	}
	return a.aggregate.first(c, in)
}

func (a skipNull) merge(c *column, old, in int32) (int32, string) {
	switch {
	case c.null(in):
		return old, ""
	case c.null(old):
		return a.aggregate.first(c, in)
	}
	return a.aggregate.merge(c, old, in)
}

// asItIs is the first value of most functions.
type asItIs struct{}

func (asItIs) first(_ *column, in int32) (int32, string) { return in, "" }

// choose takes one of two cells.
type choose struct {
	asItIs
	pick func(c *column, old, in int32) int32
}

func (a choose) merge(c *column, old, in int32) (int32, string) { return a.pick(c, old, in), "" }

// extreme takes the value that is further in a direction.
type extreme struct {
	asItIs
	sign int
}

func (a extreme) merge(c *column, old, in int32) (int32, string) {
	if c.compare(in, old)*a.sign > 0 {
		return in, ""
	}
	return old, ""
}

// logic joins booleans.
type logic struct {
	asItIs
	and bool
}

func (a logic) merge(c *column, old, in int32) (int32, string) {
	if c.value(old) == !a.and { // false AND, true OR: decided
		return old, ""
	}
	return in, ""
}

// join appends strings.
type join struct {
	asItIs
	separator string
}

// maxAggregateBytes bounds a string or a bitmap that grows with each write.
const maxAggregateBytes = 16 << 20

func (a join) merge(c *column, old, in int32) (int32, string) {
	x, _ := c.value(old).(string)
	y, _ := c.value(in).(string)
	if len(x)+len(a.separator)+len(y) > maxAggregateBytes {
		return null, "string_agg grows beyond 16 MiB"
	}
	return c.compute(x + a.separator + y), ""
}

// count counts the values that are not NULL.
type count struct{}

func (count) number(c *column, n int64) any {
	if c.field.Type.Kind == segments.Int {
		return int32(n) //nolint:gosec // checked by the caller
	}
	return n
}

func (a count) first(c *column, in int32) (int32, string) {
	if c.null(in) {
		return c.compute(a.number(c, 0)), ""
	}
	return c.compute(a.number(c, 1)), ""
}

func (a count) merge(c *column, old, in int32) (int32, string) {
	switch {
	case c.null(in):
		return old, ""
	case c.null(old):
		return a.first(c, in)
	}
	n := c.integer(old)
	if n == math.MaxInt64 || c.field.Type.Kind == segments.Int && n == math.MaxInt32 {
		return null, "count overflows"
	}
	return c.compute(a.number(c, n+1)), ""
}

// arithmetic computes numbers. What does not fit is refused.
type arithmetic struct {
	asItIs
	op operation
}

type operation uint8

const (
	add operation = iota + 1
	multiply
)

func (o operation) String() string {
	if o == add {
		return "sum"
	}
	return "product"
}

func (a arithmetic) merge(c *column, old, in int32) (int32, string) {
	var v any
	ok := true
	switch x := c.value(old).(type) {
	case int32:
		y, _ := c.value(in).(int32)
		n := int64(x) + int64(y)
		if a.op == multiply {
			n = int64(x) * int64(y)
		}
		v, ok = int32(n), n >= math.MinInt32 && n <= math.MaxInt32 //nolint:gosec // checked beside
	case int64:
		y, _ := c.value(in).(int64)
		v, ok = a.longs(x, y)
	case float32:
		y, _ := c.value(in).(float32)
		v = x + y
		if a.op == multiply {
			v = x * y
		}
	case float64:
		y, _ := c.value(in).(float64)
		v = x + y
		if a.op == multiply {
			v = x * y
		}
	case decimal128.Num:
		y, _ := c.value(in).(decimal128.Num)
		v, ok = a.decimals(c.field.Type, x, y)
	}
	if !ok {
		return null, a.op.String() + " overflows " + c.field.Type.String()
	}
	return c.compute(v), ""
}

func (a arithmetic) longs(x, y int64) (int64, bool) {
	if a.op == add {
		n := x + y
		return n, (n > x) == (y > 0)
	}
	if x == 0 || y == 0 {
		return 0, true
	}
	n := x * y
	return n, n/y == x && !(x == -1 && y == math.MinInt64) && !(y == -1 && x == math.MinInt64)
}

// decimals computes exactly, and rounds a product half away from zero to the
// column's scale.
func (a arithmetic) decimals(t segments.Type, x, y decimal128.Num) (decimal128.Num, bool) {
	n := x.BigInt()
	if a.op == add {
		n.Add(n, y.BigInt())
	} else {
		n.Mul(n, y.BigInt())
		n = roundedQuotient(n, t.Scale)
	}
	if digits(n) > t.Precision {
		return decimal128.Num{}, false
	}
	return decimal128.FromBigInt(n), true
}

// bitmap joins roaring bitmaps in the portable format.
type bitmap struct {
	union func(x, y []byte) ([]byte, error)
}

func (a bitmap) first(c *column, in int32) (int32, string) {
	x, _ := c.value(in).([]byte)
	return a.joined(c, x, nil)
}

func (a bitmap) merge(c *column, old, in int32) (int32, string) {
	x, _ := c.value(old).([]byte)
	y, _ := c.value(in).([]byte)
	return a.joined(c, x, y)
}

func (a bitmap) joined(c *column, x, y []byte) (int32, string) {
	out, err := a.union(x, y)
	switch {
	case err != nil:
		return null, "the value is no roaring bitmap in the portable format: " + err.Error()
	case len(out) > maxAggregateBytes:
		return null, "the bitmap grows beyond 16 MiB"
	}
	return c.compute(out), ""
}

// union32 joins 32-bit bitmaps; y may be nil. The result is run-optimized, so that
// equal sets are equal bytes.
func union32(x, y []byte) ([]byte, error) {
	out := roaring.New()
	for _, b := range [][]byte{x, y} {
		if b == nil {
			continue
		}
		one := roaring.New()
		if err := one.UnmarshalBinary(b); err != nil {
			return nil, err
		}
		if err := one.Validate(); err != nil {
			return nil, err
		}
		out.Or(one)
	}
	out.RunOptimize()
	return out.ToBytes()
}

// union64 joins 64-bit bitmaps, as union32.
func union64(x, y []byte) ([]byte, error) {
	out := roaring64.New()
	for _, b := range [][]byte{x, y} {
		if b == nil {
			continue
		}
		one := roaring64.New()
		if err := one.UnmarshalBinary(b); err != nil {
			return nil, err
		}
		if err := one.Validate(); err != nil {
			return nil, err
		}
		out.Or(one)
	}
	out.RunOptimize()
	return out.ToBytes()
}
