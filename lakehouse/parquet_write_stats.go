package lakehouse

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/big"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// boundLength is how many characters (string) or bytes (binary) of a bound are
// kept, Iceberg's default "truncate(16)".
const boundLength = 16

// metricsBuilder joins one leaf's statistics over a file's row groups.
type metricsBuilder struct {
	leaf  leaf
	out   ColumnMetrics
	lower []byte // Iceberg single-value binary, not truncated
	upper []byte
	lost  bool // some row group has values and no bounds
}

func (b *metricsBuilder) add(chunk *metadata.ColumnChunkMetaData) error {
	b.out.Bytes += chunk.TotalCompressedSize()
	b.out.Values += chunk.NumValues()
	stats, err := chunk.Statistics()
	if err != nil {
		return errs.Wrap(errs.Internal, "read parquet statistics", err)
	}
	if stats == nil || !stats.HasNullCount() {
		b.out.Nulls, b.lost = -1, true
		return nil
	}
	if b.out.Nulls >= 0 {
		b.out.Nulls += stats.NullCount()
	}
	if !stats.HasMinMax() {
		b.lost = b.lost || stats.NullCount() < chunk.NumValues() && !floating(b.leaf.typ.Kind)
		return nil
	}
	lower, upper := boundFromParquet(b.leaf.typ, stats.EncodeMin()), boundFromParquet(b.leaf.typ, stats.EncodeMax())
	// append keeps an empty bound apart from an unknown one, which is nil.
	if b.lower == nil || compareBounds(b.leaf.typ, lower, b.lower) < 0 {
		b.lower = append([]byte{}, lower...)
	}
	if b.upper == nil || compareBounds(b.leaf.typ, upper, b.upper) > 0 {
		b.upper = append([]byte{}, upper...)
	}
	return nil
}

// finish returns the metrics. Bounds are left out for values inside of lists and
// maps, as other writers do, and for uuids, whose order engines disagree on.
func (b *metricsBuilder) finish() ColumnMetrics {
	m := b.out
	if b.lost || b.leaf.repeated || b.lower == nil || b.leaf.typ.Kind == segments.UUID {
		return m
	}
	switch b.leaf.typ.Kind {
	case segments.String:
		m.Lower, m.Upper = truncateLower(b.lower), truncateStringUpper(b.upper)
	case segments.Binary:
		m.Lower, m.Upper = b.lower[:min(len(b.lower), boundLength)], truncateBinaryUpper(b.upper)
	default:
		m.Lower, m.Upper = b.lower, b.upper
	}
	return m
}

// boundFromParquet turns a Parquet statistic's plain bytes into an Iceberg
// single value. They differ for decimals only: Iceberg's are minimal big-endian.
func boundFromParquet(t segments.Type, v []byte) []byte {
	if t.Kind != segments.Decimal {
		return v
	}
	var n *big.Int
	switch {
	case t.Precision <= 9:
		n = big.NewInt(int64(int32(binary.LittleEndian.Uint32(v))))
	case t.Precision <= 18:
		n = big.NewInt(int64(binary.LittleEndian.Uint64(v)))
	default:
		n = signedBig(v)
	}
	return twosComplement(n)
}

// signedBig reads a big-endian two's complement number.
func signedBig(v []byte) *big.Int {
	n := new(big.Int).SetBytes(v)
	if len(v) > 0 && v[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(v))*8))
	}
	return n
}

// twosComplement writes a number in the fewest big-endian bytes.
func twosComplement(n *big.Int) []byte {
	if n.Sign() >= 0 {
		b := n.Bytes()
		if len(b) == 0 || b[0]&0x80 != 0 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	bits := new(big.Int).Not(n).BitLen() + 1
	size := (bits + 7) / 8
	b := new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(size)*8)).Bytes()
	return b
}

// compareBounds orders two Iceberg single values of a type.
func compareBounds(t segments.Type, a, b []byte) int {
	switch t.Kind {
	case segments.Int, segments.Date:
		return cmp.Compare(int32(binary.LittleEndian.Uint32(a)), int32(binary.LittleEndian.Uint32(b)))
	case segments.Long, segments.Time, segments.Timestamp, segments.TimestampTZ:
		return cmp.Compare(int64(binary.LittleEndian.Uint64(a)), int64(binary.LittleEndian.Uint64(b)))
	case segments.Float:
		return cmp.Compare(math.Float32frombits(binary.LittleEndian.Uint32(a)), math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case segments.Double:
		return cmp.Compare(math.Float64frombits(binary.LittleEndian.Uint64(a)), math.Float64frombits(binary.LittleEndian.Uint64(b)))
	case segments.Decimal:
		return signedBig(a).Cmp(signedBig(b))
	}
	return bytes.Compare(a, b)
}

// truncateLower cuts a string to boundLength characters. What is not UTF-8 has no bound.
func truncateLower(v []byte) []byte {
	if !utf8.Valid(v) {
		return nil
	}
	return v[:runePrefix(v)]
}

// runePrefix returns the bytes of the first boundLength characters.
func runePrefix(v []byte) int {
	at := 0
	for n := 0; n < boundLength && at < len(v); n++ {
		_, size := utf8.DecodeRune(v[at:])
		at += size
	}
	return at
}

// truncateStringUpper cuts a string to boundLength characters and, when that cut
// something, raises the last character that can be raised. nil: there is no bound.
func truncateStringUpper(v []byte) []byte {
	if !utf8.Valid(v) {
		return nil
	}
	end := runePrefix(v)
	if end == len(v) {
		return v
	}
	for end > 0 {
		r, size := utf8.DecodeLastRune(v[:end])
		end -= size
		next := r + 1
		if next == 0xD800 { // the first surrogate: no characters
			next = 0xE000
		}
		if next <= utf8.MaxRune {
			return utf8.AppendRune(slices.Clone(v[:end]), next)
		}
	}
	return nil
}

// truncateBinaryUpper does the same with bytes.
func truncateBinaryUpper(v []byte) []byte {
	if len(v) <= boundLength {
		return v
	}
	out := slices.Clone(v[:boundLength])
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] < 0xFF {
			out[i]++
			return out[:i+1]
		}
	}
	return nil
}

func floating(k segments.Kind) bool { return k == segments.Float || k == segments.Double }

// countNaNs counts a floating-point leaf's NaNs, outside of lists and maps, where
// neither the value nor a struct around it is NULL.
func countNaNs(a arrow.Array, l leaf, f segments.Field) int64 {
	if f.Type.Kind == segments.Struct {
		s := a.(*array.Struct)
		for i, c := range f.Type.Children {
			if containsLeaf(c, l.id) {
				if s.NullN() == 0 {
					return countNaNs(s.Field(i), l, c)
				}
				return countMaskedNaNs(s, s.Field(i), l, c)
			}
		}
		return 0
	}
	return countValidNaNs(a, func(int) bool { return true })
}

func containsLeaf(f segments.Field, id int32) bool {
	return f.ID == id || slices.ContainsFunc(f.Type.Children, func(c segments.Field) bool { return containsLeaf(c, id) })
}

// countMaskedNaNs counts below a struct that has NULLs.
func countMaskedNaNs(parent *array.Struct, a arrow.Array, l leaf, f segments.Field) int64 {
	valid := parent.IsValid
	for f.Type.Kind == segments.Struct {
		s, outer := a.(*array.Struct), valid
		for i, c := range f.Type.Children {
			if containsLeaf(c, l.id) {
				a, f = s.Field(i), c
				break
			}
		}
		valid = func(i int) bool { return outer(i) && s.IsValid(i) }
	}
	return countValidNaNs(a, valid)
}

func countValidNaNs(a arrow.Array, valid func(int) bool) (n int64) {
	switch a := a.(type) {
	case *array.Float32:
		for i, v := range a.Float32Values() {
			if v != v && a.IsValid(i) && valid(i) {
				n++
			}
		}
	case *array.Float64:
		for i, v := range a.Float64Values() {
			if v != v && a.IsValid(i) && valid(i) {
				n++
			}
		}
	}
	return n
}
