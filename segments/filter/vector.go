package filter

import (
	"bytes"
	"encoding/binary"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// vector is a column of a batch with its values as a typed slice: exactly one
// of the slices is set, but for bytes, which are read by position.
type vector struct {
	kind  segments.Kind
	scale int
	rows  int
	valid []uint64 // nil: every row

	i32   []int32
	i64   []int64
	f32   []float32
	f64   []float64
	dec   []decimal128.Num
	bools []uint64
	// Values of strings and binaries: data[offsets[i]:offsets[i+1]].
	offsets []int32
	data    []byte
	width   int // of fixed-size values in data; 0 for others
}

func newVector(arr arrow.Array, c *Column) (*vector, error) {
	valid := validWords(arr, nil)
	for _, name := range c.path {
		s, ok := arr.(*array.Struct)
		if !ok {
			return nil, mismatch(c, arr)
		}
		at, ok := s.DataType().(*arrow.StructType).FieldIdx(name)
		if !ok {
			return nil, errs.New(errs.Internal, "filter: the batch lacks field %q", c.Name)
		}
		arr = s.Field(at)
		valid = validWords(arr, valid)
	}
	v := &vector{kind: c.Type.Kind, scale: c.Type.Scale, rows: arr.Len(), valid: valid}
	if c.Type.Kind.Nested() || arr.Len() == 0 { // only IS NULL looks at nested ones
		return v, nil
	}
	if !arrow.TypeEqual(arr.DataType(), c.Type.Arrow()) {
		return nil, mismatch(c, arr)
	}
	switch a := arr.(type) {
	case *array.Boolean:
		v.bools = bitWords(a.Data().Buffers()[1].Bytes(), a.Data().Offset(), a.Len())
	case *array.Int32:
		v.i32 = a.Int32Values()
	case *array.Date32:
		v.i32 = arrow.GetData[int32](arrow.GetBytes(a.Date32Values()))
	case *array.Int64:
		v.i64 = a.Int64Values()
	case *array.Time64:
		v.i64 = arrow.GetData[int64](arrow.GetBytes(a.Time64Values()))
	case *array.Timestamp:
		v.i64 = arrow.GetData[int64](arrow.GetBytes(a.TimestampValues()))
	case *array.Float32:
		v.f32 = a.Float32Values()
	case *array.Float64:
		v.f64 = a.Float64Values()
	case *array.Decimal128:
		v.dec = a.Values()
	case *array.String:
		v.offsets, v.data = a.ValueOffsets(), wholeData(a)
	case *array.Binary:
		v.offsets, v.data = a.ValueOffsets(), wholeData(a)
	case *array.FixedSizeBinary:
		v.width = a.DataType().(*arrow.FixedSizeBinaryType).ByteWidth
		if a.Len() > 0 {
			v.data = a.Data().Buffers()[1].Bytes()[a.Data().Offset()*v.width:]
		}
	default:
		return nil, mismatch(c, arr)
	}
	return v, nil
}

func mismatch(c *Column, arr arrow.Array) error {
	return errs.New(errs.Internal, "filter: column %q is %s, the batch has %s", c.Name, c.Type, arr.DataType())
}

func wholeData(a arrow.Array) []byte {
	if b := a.Data().Buffers()[2]; b != nil {
		return b.Bytes()
	}
	return nil
}

// bytes returns value i of a vector of strings or other bytes.
func (v *vector) bytes(i int) []byte {
	if v.width > 0 {
		return v.data[i*v.width : (i+1)*v.width]
	}
	return v.data[v.offsets[i]:v.offsets[i+1]]
}

// validWords returns the rows of arr that are not NULL, and that are in within; nil is all.
func validWords(arr arrow.Array, within []uint64) []uint64 {
	if arr.NullN() == 0 {
		return within
	}
	if arr.DataType().ID() == arrow.NULL || len(arr.NullBitmapBytes()) == 0 {
		return make([]uint64, (arr.Len()+63)/64)
	}
	words := bitWords(arr.NullBitmapBytes(), arr.Data().Offset(), arr.Len())
	for i := range within {
		words[i] &= within[i]
	}
	return words
}

// bitWords copies n bits from position off into words; bits beyond are zero.
func bitWords(b []byte, off, n int) []uint64 {
	words := make([]uint64, (n+63)/64)
	shift := uint(off & 7)
	b = b[off>>3:]
	for i := range words {
		at := 8 * i
		if at+9 <= len(b) {
			w := binary.LittleEndian.Uint64(b[at:]) >> shift
			if shift > 0 {
				w |= uint64(b[at+8]) << (64 - shift)
			}
			words[i] = w
			continue
		}
		var tmp [9]byte
		copy(tmp[:], b[min(at, len(b)):])
		w := binary.LittleEndian.Uint64(tmp[:]) >> shift
		if shift > 0 {
			w |= uint64(tmp[8]) << (64 - shift)
		}
		words[i] = w
	}
	return mask{n, words}.tail().words
}

// compare returns where values compare so with a value of the column's type;
// rows that are NULL have any bit.
func (v *vector) compare(op Op, val Value) mask {
	m := newMask(v.rows)
	switch {
	case v.i32 != nil:
		compareSlice(op, v.i32, int32(val.Int), m.words)
	case v.i64 != nil:
		compareSlice(op, v.i64, val.Int, m.words)
	case v.f32 != nil:
		compareSlice(op, v.f32, float32(val.Float), m.words)
	case v.f64 != nil:
		compareSlice(op, v.f64, val.Float, m.words)
	case v.bools != nil:
		m.or(v.bools)
		m = m.notIf((val.Int == 0) != (op == Ne))
	case v.dec != nil:
		each64(v.rows, m.words, func(i int) bool { return op.holds(v.dec[i].Cmp(val.Dec)) })
	case op == Eq || op == Ne:
		each64(v.rows, m.words, func(i int) bool { return bytes.Equal(v.bytes(i), val.Bytes) })
		m = m.notIf(op == Ne)
	default:
		each64(v.rows, m.words, func(i int) bool { return op.holds(bytes.Compare(v.bytes(i), val.Bytes)) })
	}
	return m
}

// in returns where values equal one of the list.
func (v *vector) in(values []Value) mask {
	m := newMask(v.rows)
	const few = 4
	if len(values) <= few || v.bools != nil {
		for _, val := range values {
			m.or(v.compare(Eq, val).words)
		}
		return m
	}
	switch {
	case v.i32 != nil:
		inSlice(v.i32, values, func(x Value) int32 { return int32(x.Int) }, m.words)
	case v.i64 != nil:
		inSlice(v.i64, values, func(x Value) int64 { return x.Int }, m.words)
	case v.f32 != nil:
		inSlice(v.f32, values, func(x Value) float32 { return float32(x.Float) }, m.words)
	case v.f64 != nil:
		inSlice(v.f64, values, func(x Value) float64 { return x.Float }, m.words)
	case v.dec != nil:
		inSlice(v.dec, values, func(x Value) decimal128.Num { return x.Dec }, m.words)
	default:
		set := make(map[string]struct{}, len(values))
		for _, x := range values {
			set[string(x.Bytes)] = struct{}{}
		}
		each64(v.rows, m.words, func(i int) bool { _, ok := set[string(v.bytes(i))]; return ok })
	}
	return m
}

func inSlice[T comparable](vals []T, list []Value, get func(Value) T, out []uint64) {
	set := make(map[T]struct{}, len(list))
	for _, x := range list {
		set[get(x)] = struct{}{}
	}
	each64(len(vals), out, func(i int) bool { _, ok := set[vals[i]]; return ok })
}

func (v *vector) like(p Pattern) mask {
	m := newMask(v.rows)
	match := p.matcher()
	each64(v.rows, m.words, func(i int) bool { return match(v.bytes(i)) })
	return m
}

func (v *vector) nan() mask {
	m := newMask(v.rows)
	if v.f32 != nil {
		each64(v.rows, m.words, func(i int) bool { return v.f32[i] != v.f32[i] })
	} else {
		each64(v.rows, m.words, func(i int) bool { return v.f64[i] != v.f64[i] })
	}
	return m
}

// each64 sets the bits of the positions where test holds.
func each64(n int, out []uint64, test func(i int) bool) {
	for i := range n {
		if test(i) {
			out[i>>6] |= 1 << (i & 63)
		}
	}
}

type number interface {
	~int32 | ~int64 | ~float32 | ~float64
}

// compareSlice compares a slice with a constant, 64 values a word. The operator
// is chosen outside of the loops, which have no branch but their own.
func compareSlice[T number](op Op, vals []T, c T, out []uint64) {
	for w := range out {
		block := vals[w*64 : min(w*64+64, len(vals))]
		var word uint64
		switch op {
		case Eq, Ne:
			for j, v := range block {
				word |= bit(v == c) << j
			}
		case Lt:
			for j, v := range block {
				word |= bit(v < c) << j
			}
		case Le:
			for j, v := range block {
				word |= bit(v <= c) << j
			}
		case Gt:
			for j, v := range block {
				word |= bit(v > c) << j
			}
		case Ge:
			for j, v := range block {
				word |= bit(v >= c) << j
			}
		}
		if op == Ne {
			word = ^word
			if n := len(block); n < 64 {
				word &= 1<<n - 1
			}
		}
		out[w] = word
	}
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// compareVectors compares two columns row by row.
func compareVectors(op Op, l, r *vector) mask {
	m := newMask(l.rows)
	switch {
	case l.f32 != nil || l.f64 != nil:
		left, right := l.floats(), r.floats()
		each64(l.rows, m.words, func(i int) bool {
			a, b := left(i), right(i)
			switch op {
			case Eq:
				return a == b
			case Ne:
				return a != b
			case Lt:
				return a < b
			case Le:
				return a <= b
			case Gt:
				return a > b
			}
			return a >= b
		})
	case l.dec != nil || r.dec != nil:
		scale := max(l.scale, r.scale)
		left, right := l.decimals(scale), r.decimals(scale)
		each64(l.rows, m.words, func(i int) bool { return op.holds(left(i).cmp(right(i))) })
	case l.i32 != nil || l.i64 != nil:
		left, right := l.ints(), r.ints()
		each64(l.rows, m.words, func(i int) bool {
			a, b := left(i), right(i)
			switch {
			case a < b:
				return op.holds(-1)
			case a > b:
				return op.holds(1)
			}
			return op.holds(0)
		})
	case l.bools != nil:
		each64(l.rows, m.words, func(i int) bool {
			a, b := l.bools[i>>6]>>(i&63)&1, r.bools[i>>6]>>(i&63)&1
			return op.holds(int(a) - int(b))
		})
	default:
		each64(l.rows, m.words, func(i int) bool { return op.holds(bytes.Compare(l.bytes(i), r.bytes(i))) })
	}
	return m
}

func (v *vector) ints() func(int) int64 {
	if v.i32 != nil {
		return func(i int) int64 { return int64(v.i32[i]) }
	}
	return func(i int) int64 { return v.i64[i] }
}

func (v *vector) floats() func(int) float64 {
	if v.f32 != nil {
		return func(i int) float64 { return float64(v.f32[i]) }
	}
	return func(i int) float64 { return v.f64[i] }
}
