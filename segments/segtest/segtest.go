// Package segtest makes random schemas and rows for tests: every type at every
// place, boundary values, NULLs, NaN, infinities, empty and long values. The
// same generator state makes the same result.
package segtest

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/segments"
)

// maxColumns bounds the columns of a random schema, maxDepth their nesting,
// maxItems the length of a list or map.
const (
	maxColumns = 12
	maxDepth   = 3
	maxItems   = 4
)

// primitives are one type of each primitive kind, and corners of the parametric ones.
var primitives = []string{
	"boolean", "int", "long", "float", "double", "decimal(1,0)", "decimal(9,2)", "decimal(18,18)", "decimal(38,10)",
	"date", "time", "timestamp", "timestamptz", "string", "uuid", "fixed(1)", "fixed(7)", "fixed(40)", "binary",
}

// NewRand returns a generator for a seed that a failing test prints.
func NewRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, seed)) }

// MustType parses a type that is known to be good.
func MustType(s string) segments.Type {
	t, err := segments.ParseType(s)
	if err != nil {
		panic(err)
	}
	return t
}

// Schema builds a valid schema with ids from columns written "name type [required]".
func Schema(columns ...string) *segments.Schema {
	s := &segments.Schema{ID: 0}
	for _, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		typ, required := strings.CutSuffix(typ, " required")
		s.Fields = append(s.Fields, segments.Field{Name: name, Type: MustType(typ), Required: required})
	}
	s, _ = segments.AssignFieldIDs(s, 0)
	if err := s.Validate(); err != nil {
		panic(err)
	}
	return s
}

// AllTypes returns a schema with a column of every primitive type and of some
// nested ones, all optional.
func AllTypes() *segments.Schema {
	columns := []string{"l list<string>", "m map<string,long>", "s struct<a:int,b:struct<c:list<double required>>>", "ll list<list<int>>"}
	for i, p := range primitives {
		columns = append(columns, fmt.Sprintf("c%d %s", i, p))
	}
	return Schema(columns...)
}

// RandomSchema returns a valid schema with ids.
func RandomSchema(r *rand.Rand) *segments.Schema {
	s := &segments.Schema{ID: int32(r.IntN(5)), Fields: randomFields(r, 1+r.IntN(maxColumns), 0)}
	s, _ = segments.AssignFieldIDs(s, int32(r.IntN(100)))
	return s
}

func randomFields(r *rand.Rand, n, depth int) []segments.Field {
	out := make([]segments.Field, n)
	for i := range out {
		out[i] = segments.Field{Name: fmt.Sprintf("f%d-%d_x", depth, i), Type: RandomType(r, depth), Required: r.IntN(4) == 0}
	}
	return out
}

// RandomType returns a type nested at most maxDepth-depth deep.
func RandomType(r *rand.Rand, depth int) segments.Type {
	if depth < maxDepth && r.IntN(4) == 0 {
		switch r.IntN(3) {
		case 0:
			return segments.Type{Kind: segments.List, Children: []segments.Field{
				{Name: "element", Type: RandomType(r, depth+1), Required: r.IntN(3) == 0}}}
		case 1:
			return segments.Type{Kind: segments.Map, Children: []segments.Field{
				{Name: "key", Type: RandomType(r, maxDepth), Required: true},
				{Name: "value", Type: RandomType(r, depth+1), Required: r.IntN(3) == 0}}}
		}
		return segments.Type{Kind: segments.Struct, Children: randomFields(r, 1+r.IntN(3), depth+1)}
	}
	return MustType(primitives[r.IntN(len(primitives))])
}

// Options shape random rows.
type Options struct {
	// NullPercent is how many optional values of 100 are NULL.
	NullPercent int
	// Extreme adds values that a column's bytes can hold but no calendar or
	// decimal text can: dates and timestamps out of the years 1 to 9999.
	Extreme bool
}

// RandomBatch returns n rows with a fifth of NULLs, or none, or all, by chance.
func RandomBatch(r *rand.Rand, s *segments.Schema, n int) arrow.RecordBatch {
	nulls := [...]int{20, 20, 0, 100}[r.IntN(4)]
	return Batch(r, s, n, Options{NullPercent: nulls})
}

// Batch returns n random rows.
func Batch(r *rand.Rand, s *segments.Schema, n int, o Options) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for i, f := range s.Fields {
		for range n {
			o.append(r, b.Field(i), f)
		}
	}
	return b.NewRecordBatch()
}

func (o Options) append(r *rand.Rand, b array.Builder, f segments.Field) {
	if !f.Required && r.IntN(100) < o.NullPercent {
		b.AppendNull()
		return
	}
	t := f.Type
	switch b := b.(type) {
	case *array.MapBuilder:
		b.Append(true)
		for range r.IntN(maxItems) {
			o.append(r, b.KeyBuilder(), t.Children[0])
			o.append(r, b.ItemBuilder(), t.Children[1])
		}
	case *array.ListBuilder:
		b.Append(true)
		for range r.IntN(maxItems) {
			o.append(r, b.ValueBuilder(), t.Children[0])
		}
	case *array.StructBuilder:
		b.Append(true)
		for i, c := range t.Children {
			o.append(r, b.FieldBuilder(i), c)
		}
	default:
		o.appendPrimitive(r, b, t)
	}
}

func (o Options) appendPrimitive(r *rand.Rand, b array.Builder, t segments.Type) {
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(r.IntN(2) == 0)
	case *array.Int32Builder:
		b.Append(pick(r, int32(r.Uint32()), 0, -1, 1, math.MinInt32, math.MaxInt32))
	case *array.Int64Builder:
		b.Append(pick(r, int64(r.Uint64()), 0, -1, 1, math.MinInt64, math.MaxInt64, 1<<53+1))
	case *array.Float32Builder:
		b.Append(pick(r, r.Float32(), 0, float32(math.Copysign(0, -1)), float32(math.NaN()), float32(math.Inf(1)), float32(math.Inf(-1)),
			math.MaxFloat32, math.SmallestNonzeroFloat32))
	case *array.Float64Builder:
		b.Append(pick(r, r.NormFloat64(), 0, math.Copysign(0, -1), math.NaN(), math.Inf(1), math.Inf(-1),
			math.MaxFloat64, math.SmallestNonzeroFloat64))
	case *array.Decimal128Builder:
		b.Append(randomDecimal(r, t))
	case *array.Date32Builder:
		b.Append(arrow.Date32(o.pickTime(r, 1, math.MinInt32, math.MaxInt32)))
	case *array.Time64Builder:
		b.Append(pick(r, arrow.Time64(r.Int64N(86_400_000_000)), 0, 86_399_999_999))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(o.pickTime(r, 86_400_000_000, math.MinInt64, math.MaxInt64)))
	case *array.StringBuilder:
		b.Append(randomString(r))
	case *array.FixedSizeBinaryBuilder:
		n := t.Length
		if t.Kind == segments.UUID {
			n = 16
		}
		b.Append(randomBytes(r, n))
	case *array.BinaryBuilder:
		b.Append(randomBytes(r, pick(r, r.IntN(10), 0, 31, 32, 33, 100)))
	default:
		panic(fmt.Sprintf("segtest: no values for %s", b.Type()))
	}
}

// pick returns mostly random, and sometimes one of the corners.
func pick[T any](r *rand.Rand, random T, corners ...T) T {
	if r.IntN(4) == 0 {
		return corners[r.IntN(len(corners))]
	}
	return random
}

// The first and the last day of the years 1 to 9999, and how many lie between.
const (
	firstDay = -719162
	lastDay  = 2932896
)

// pickTime returns a point in time in units of which a day has perDay.
func (o Options) pickTime(r *rand.Rand, perDay, lowest, highest int64) int64 {
	low, high := firstDay*perDay, (lastDay+1)*perDay-1
	corners := []int64{0, -1, 1, perDay - 1, -perDay, low, high}
	if o.Extreme {
		corners = append(corners, lowest, highest)
	}
	return pick(r, low+r.Int64N(high-low+1), corners...)
}

func randomDecimal(r *rand.Rand, t segments.Type) decimal128.Num {
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Precision)), nil)
	v := new(big.Int).SetUint64(r.Uint64())
	v.Mul(v, new(big.Int).SetUint64(r.Uint64()))
	v.Rsh(v, uint(r.IntN(128)))
	v.Mod(v, limit)
	top := new(big.Int).Sub(limit, big.NewInt(1))
	v = pick(r, v, new(big.Int), big.NewInt(1), top)
	if r.IntN(2) == 0 {
		v.Neg(v)
	}
	return decimal128.FromBigInt(v)
}

// runes are of one to four bytes, with the corners of UTF-8 and what formats escape.
var runes = []rune{'a', 'b', 'Z', '0', ' ', '"', '\\', ',', '\n', '\t', '\'', '<', 'é', 'ß', '\u07ff', '世', '\ud7ff', '\ue000', '\uffff', '𝄞', '\U0010ffff'}

func randomString(r *rand.Rand) string {
	n := pick(r, r.IntN(12), 0, 1, 31, 32, 33, 80)
	var b strings.Builder
	alphabet := runes
	if r.IntN(2) == 0 {
		alphabet = runes[:4]
	}
	for range n {
		b.WriteRune(alphabet[r.IntN(len(alphabet))])
	}
	return b.String()
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	fill := pick(r, -1, 0, 0xff)
	for i := range b {
		if b[i] = byte(fill); fill < 0 {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

// Equal says how two batches differ in schema or values, NaN equal to NaN and
// -0.0 not to 0.0; empty when they do not.
func Equal(want, got arrow.RecordBatch) string {
	if !want.Schema().Equal(got.Schema()) {
		return fmt.Sprintf("schemas differ: want %s, got %s", want.Schema(), got.Schema())
	}
	if want.NumRows() != got.NumRows() {
		return fmt.Sprintf("want %d rows, got %d", want.NumRows(), got.NumRows())
	}
	for i, w := range want.Columns() {
		for row := range w.Len() {
			a, b := Format(w, row), Format(got.Column(i), row)
			if a != b {
				return fmt.Sprintf("column %s, row %d: want %s, got %s", want.ColumnName(i), row, a, b)
			}
		}
	}
	return ""
}
