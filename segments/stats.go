package segments

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// statsBytes is where string and binary bounds are cut: long enough for UUIDs
// in text form less their tail and for most identifiers, short enough for a
// footer with thousands of columns.
const statsBytes = 32

// ComputeStats returns the statistics of an array whose type is t's Arrow type.
func ComputeStats(arr arrow.Array, t Type) ColumnStats {
	d := arr.Data()
	off, n := d.Offset(), d.Len()
	col := column{n: n, validOff: off, flagsOff: off}
	if arr.NullN() > 0 {
		col.valid = buf(d.Buffers(), 0)
	}
	values := buf(d.Buffers(), 1)
	w := t.width()
	switch {
	case n == 0 || t.Kind.Nested():
	case t.Kind == Boolean:
		col.flags = values
	case t.Kind == String || t.Kind == Binary:
		col.offsets, col.data = int32s(values)[off:off+n+1], buf(d.Buffers(), 2)
	default:
		col.values = values[off*w : (off+n)*w]
	}
	return computeStats(t, col, int64(arr.NullN()))
}

// computeStats works on well-formed values; nulls is the exact count.
func computeStats(t Type, col column, nulls int64) ColumnStats {
	s := ColumnStats{Valid: true, Nulls: nulls}
	if t.Kind.Nested() || int(nulls) == col.n {
		return s
	}
	valid := validRuns{n: col.n, off: col.validOff, bits: col.valid}
	switch t.Kind {
	case Boolean:
		s.Min, s.Max = boolBounds(col.flags, col.flagsOff, valid)
	case Int, Date:
		lo, hi := intBounds(view[int32](col.values), valid)
		s.Min, s.Max = le32(uint32(lo)), le32(uint32(hi))
	case Long, Time, Timestamp, TimestampTZ:
		lo, hi := intBounds(view[int64](col.values), valid)
		s.Min, s.Max = le64(uint64(lo)), le64(uint64(hi))
	case Float:
		v := view[float32](col.values)
		lo, hi, nans, any := floatBounds(v, valid)
		if s.NaNs = nans; any {
			lo, hi = zeroSigns(v, valid, lo, hi)
			s.Min, s.Max = le32(math.Float32bits(lo)), le32(math.Float32bits(hi))
		}
	case Double:
		v := view[float64](col.values)
		lo, hi, nans, any := floatBounds(v, valid)
		if s.NaNs = nans; any {
			lo, hi = zeroSigns(v, valid, lo, hi)
			s.Min, s.Max = le64(math.Float64bits(lo)), le64(math.Float64bits(hi))
		}
	case Decimal:
		lo, hi := decimalBounds(view[decimal128.Num](col.values), valid)
		s.Min, s.Max = appendDecimal(nil, lo), appendDecimal(nil, hi)
	case String, Binary:
		lo, hi := bytesBounds(col.offsets, col.data, valid)
		s.Min, s.Max = lowerBound(lo, t.Kind), upperBound(hi, t.Kind)
	case UUID, Fixed:
		lo, hi := fixedBounds(col.values, t.width(), valid)
		s.Min, s.Max = lowerBound(lo, t.Kind), upperBound(hi, t.Kind)
	}
	return s
}

// validRuns yields the runs of non-null rows of an array, 64 rows at a look.
type validRuns struct {
	bits   []byte // nil: all valid
	off, n int
	i      int
}

// next returns the next run [from, to), or false at the end.
func (v *validRuns) next() (from, to int, ok bool) {
	if v.bits == nil {
		from, v.i = v.i, v.n
		return from, v.n, from < v.n
	}
	for v.i < v.n {
		w, have := v.word()
		if w == 0 {
			v.i += have
			continue
		}
		v.i += bits.TrailingZeros64(w)
		break
	}
	from = v.i
	for v.i < v.n {
		w, have := v.word()
		ones := min(bits.TrailingZeros64(^w), have)
		v.i += ones
		if ones < have {
			break
		}
	}
	return from, v.i, from < v.i
}

// word returns the validity bits from row i on, and how many rows they tell of.
func (v *validRuns) word() (w uint64, have int) {
	at := v.off + v.i
	b := v.bits[at/8:]
	if len(b) >= 8 {
		w = binary.LittleEndian.Uint64(b)
	} else {
		for i, c := range b {
			w |= uint64(c) << (8 * i)
		}
	}
	shift := at % 8
	have = min(64-shift, v.n-v.i)
	w >>= shift
	if have < 64 {
		w &= 1<<have - 1
	}
	return w, have
}

func intBounds[T int32 | int64](v []T, valid validRuns) (lo, hi T) {
	from, to, _ := valid.next()
	lo, hi = v[from], v[from]
	for ok := true; ok; from, to, ok = valid.next() {
		for _, x := range v[from:to] {
			lo, hi = min(lo, x), max(hi, x)
		}
	}
	return lo, hi
}

// floatBounds leaves NaN out; any is false when there is nothing else.
func floatBounds[T float32 | float64](v []T, valid validRuns) (lo, hi T, nans int64, any bool) {
	lo, hi = T(math.Inf(1)), T(math.Inf(-1))
	total := int64(0)
	for from, to, ok := valid.next(); ok; from, to, ok = valid.next() {
		total += int64(to - from)
		for _, x := range v[from:to] {
			if x < lo {
				lo = x
			}
			if x > hi {
				hi = x
			}
			if x != x {
				nans++
			}
		}
	}
	return lo, hi, nans, nans < total
}

// zeroSigns makes a zero bound the right one of the two zeros: -0.0 sorts
// before +0.0 in Iceberg, while Go's comparison takes them as equal.
func zeroSigns[T float32 | float64](v []T, valid validRuns, lo, hi T) (T, T) {
	if lo != 0 && hi != 0 {
		return lo, hi
	}
	neg, pos := false, false
	for from, to, ok := valid.next(); ok; from, to, ok = valid.next() {
		for _, x := range v[from:to] {
			if x == 0 {
				s := math.Signbit(float64(x))
				neg, pos = neg || s, pos || !s
			}
		}
	}
	zero := func(negative bool) T {
		if negative {
			return T(math.Copysign(0, -1))
		}
		return 0
	}
	if lo == 0 {
		lo = zero(neg)
	}
	if hi == 0 {
		hi = zero(!pos)
	}
	return lo, hi
}

func boolBounds(v []byte, off int, valid validRuns) (lo, hi []byte) {
	anyTrue, anyFalse := false, false
	for from, to, ok := valid.next(); ok && !(anyTrue && anyFalse); from, to, ok = valid.next() {
		for i := from; i < to; i++ {
			set := v[(off+i)/8]>>((off+i)%8)&1 == 1
			anyTrue, anyFalse = anyTrue || set, anyFalse || !set
		}
	}
	return []byte{byte(b2i(!anyFalse))}, []byte{byte(b2i(anyTrue))}
}

func decimalBounds(v []decimal128.Num, valid validRuns) (lo, hi decimal128.Num) {
	from, to, _ := valid.next()
	lo, hi = v[from], v[from]
	for ok := true; ok; from, to, ok = valid.next() {
		for _, x := range v[from:to] {
			if x.Less(lo) {
				lo = x
			} else if hi.Less(x) {
				hi = x
			}
		}
	}
	return lo, hi
}

// bytesBounds compares whole values only when their first eight bytes, as one
// number, cannot tell them apart from a bound.
func bytesBounds(offsets []int32, data []byte, valid validRuns) (lo, hi []byte) {
	from, to, _ := valid.next()
	lo = data[offsets[from]:offsets[from+1]]
	hi = lo
	loHead := head(data, offsets[from], offsets[from+1])
	hiHead := loHead
	for ok := true; ok; from, to, ok = valid.next() {
		start := offsets[from]
		for _, end := range offsets[from+1 : to+1] {
			h := head(data, start, end)
			if h <= loHead {
				if x := data[start:end]; bytes.Compare(x, lo) < 0 {
					lo, loHead = x, h
				}
			}
			if h >= hiHead {
				if x := data[start:end]; bytes.Compare(x, hi) > 0 {
					hi, hiHead = x, h
				}
			}
			start = end
		}
	}
	return lo, hi
}

// head returns the first eight bytes of data[start:end] as a number that sorts
// like them, zeros standing in for bytes that are missing.
func head(data []byte, start, end int32) uint64 {
	n := uint(end - start)
	if int(start)+8 <= len(data) {
		h := binary.BigEndian.Uint64(data[start:])
		if n < 8 {
			h &= ^uint64(0) << (64 - 8*n)
		}
		return h
	}
	var b [8]byte
	copy(b[:], data[start:end])
	return binary.BigEndian.Uint64(b[:])
}

func fixedBounds(data []byte, w int, valid validRuns) (lo, hi []byte) {
	from, to, _ := valid.next()
	lo = data[from*w : from*w+w]
	hi = lo
	for ok := true; ok; from, to, ok = valid.next() {
		for i := from; i < to; i++ {
			x := data[i*w : i*w+w]
			if bytes.Compare(x, lo) < 0 {
				lo = x
			} else if bytes.Compare(x, hi) > 0 {
				hi = x
			}
		}
	}
	return lo, hi
}

// lowerBound cuts a minimum, a string at a code point's border. Uuids and
// fixed values stay whole: a cut one would have a wrong length.
func lowerBound(v []byte, k Kind) []byte {
	switch {
	case k == UUID || k == Fixed && len(v) <= statsBytes:
		return append([]byte{}, v...)
	case k == Fixed:
		return nil
	case len(v) <= statsBytes:
		return append([]byte{}, v...)
	}
	cut := v[:statsBytes]
	if k == String {
		cut = cutRunes(v)
	}
	return append([]byte{}, cut...)
}

// upperBound cuts a maximum and rounds it up: the last byte, or for a string
// the last code point, that can grow does, and what follows it goes. Nil means
// that none can.
func upperBound(v []byte, k Kind) []byte {
	if len(v) <= statsBytes || k == UUID || k == Fixed {
		return lowerBound(v, k)
	}
	if k == String {
		return incrementRunes(cutRunes(v))
	}
	cut := append([]byte{}, v[:statsBytes]...)
	for i := len(cut) - 1; i >= 0; i-- {
		if cut[i] != 0xff {
			cut[i]++
			return cut[:i+1]
		}
	}
	return nil
}

// cutRunes returns the longest prefix of whole code points within statsBytes.
// Text that is not UTF-8 is cut as it comes.
func cutRunes(v []byte) []byte {
	n := statsBytes
	for n > statsBytes-utf8.UTFMax && !utf8.RuneStart(v[n]) {
		n--
	}
	return v[:n]
}

func incrementRunes(v []byte) []byte {
	if !utf8.Valid(v) {
		return nil
	}
	for len(v) > 0 {
		r, size := utf8.DecodeLastRune(v)
		v = v[:len(v)-size]
		switch {
		case r == 0xD7FF:
			r = 0xE000 // over the surrogates, which are no code points of text
		case r == utf8.MaxRune:
			continue
		default:
			r++
		}
		return utf8.AppendRune(append([]byte{}, v...), r)
	}
	return nil
}
