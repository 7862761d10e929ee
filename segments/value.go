package segments

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/internal/errs"
)

// IcebergValue returns the value at row in Iceberg's single-value binary form,
// in fresh bytes, and whether it is NULL. Nested types have no such form: nil,
// not NULL. arr must have t's Arrow type.
func IcebergValue(arr arrow.Array, row int, t Type) (value []byte, null bool) {
	if arr.IsNull(row) {
		return nil, true
	}
	switch a := arr.(type) {
	case *array.Boolean:
		if a.Value(row) {
			return []byte{1}, false
		}
		return []byte{0}, false
	case *array.Int32:
		return le32(uint32(a.Value(row))), false
	case *array.Date32:
		return le32(uint32(a.Value(row))), false
	case *array.Int64:
		return le64(uint64(a.Value(row))), false
	case *array.Time64:
		return le64(uint64(a.Value(row))), false
	case *array.Timestamp:
		return le64(uint64(a.Value(row))), false
	case *array.Float32:
		return le32(math.Float32bits(a.Value(row))), false
	case *array.Float64:
		return le64(math.Float64bits(a.Value(row))), false
	case *array.Decimal128:
		return appendDecimal(nil, a.Value(row)), false
	case *array.String:
		return append([]byte{}, a.Value(row)...), false
	case *array.Binary:
		return append([]byte{}, a.Value(row)...), false
	case *array.FixedSizeBinary:
		return append([]byte{}, a.Value(row)...), false
	}
	return nil, false
}

func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

// appendDecimal appends the shortest two's complement big-endian form.
func appendDecimal(dst []byte, n decimal128.Num) []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(n.HighBits()))
	binary.BigEndian.PutUint64(b[8:], n.LowBits())
	i := 0
	for i < 15 && (b[i] == 0 && b[i+1] < 0x80 || b[i] == 0xff && b[i+1] >= 0x80) {
		i++
	}
	return append(dst, b[i:]...)
}

func decodeDecimal(b []byte) decimal128.Num {
	fill := byte(0)
	if b[0] >= 0x80 {
		fill = 0xff
	}
	var w [16]byte
	for i := range 16 - len(b) {
		w[i] = fill
	}
	copy(w[16-len(b):], b)
	return decimal128.New(int64(binary.BigEndian.Uint64(w[:8])), binary.BigEndian.Uint64(w[8:]))
}

// FromIcebergValue reads a single-value binary. The result is a bool, int32
// (int, date), int64 (long, time, timestamp, timestamptz), float32, float64,
// decimal128.Num, string, or []byte (uuid, fixed, binary; not copied). Values
// written before a column was widened are read too. Bytes of a wrong length
// are Corrupt.
func FromIcebergValue(b []byte, t Type) (any, error) {
	switch t.Kind {
	case Boolean:
		if len(b) == 1 {
			return b[0] != 0, nil
		}
	case Int, Date:
		if len(b) == 4 {
			return int32(binary.LittleEndian.Uint32(b)), nil
		}
	case Long, Time, Timestamp, TimestampTZ:
		switch {
		case len(b) == 8:
			return int64(binary.LittleEndian.Uint64(b)), nil
		case len(b) == 4 && t.Kind == Long:
			return int64(int32(binary.LittleEndian.Uint32(b))), nil
		}
	case Float:
		if len(b) == 4 {
			return math.Float32frombits(binary.LittleEndian.Uint32(b)), nil
		}
	case Double:
		switch len(b) {
		case 8:
			return math.Float64frombits(binary.LittleEndian.Uint64(b)), nil
		case 4:
			return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), nil
		}
	case Decimal:
		if len(b) >= 1 && len(b) <= 16 {
			return decodeDecimal(b), nil
		}
	case String:
		return string(b), nil
	case UUID:
		if len(b) == 16 {
			return b, nil
		}
	case Fixed:
		if len(b) == t.Length {
			return b, nil
		}
	case Binary:
		return b, nil
	}
	return nil, errs.New(errs.Corrupt, "%d bytes are not a single value of type %s", len(b), t)
}

// ToIcebergValue writes a value of the Go type that FromIcebergValue returns
// for t in single-value binary form.
func ToIcebergValue(v any, t Type) ([]byte, error) {
	switch v := v.(type) {
	case bool:
		if t.Kind == Boolean {
			if v {
				return []byte{1}, nil
			}
			return []byte{0}, nil
		}
	case int32:
		if t.Kind == Int || t.Kind == Date {
			return le32(uint32(v)), nil
		}
	case int64:
		switch t.Kind {
		case Long, Time, Timestamp, TimestampTZ:
			return le64(uint64(v)), nil
		}
	case float32:
		if t.Kind == Float {
			return le32(math.Float32bits(v)), nil
		}
	case float64:
		if t.Kind == Double {
			return le64(math.Float64bits(v)), nil
		}
	case decimal128.Num:
		if t.Kind == Decimal {
			return appendDecimal(nil, v), nil
		}
	case string:
		if t.Kind == String {
			return []byte(v), nil
		}
	case []byte:
		switch {
		case t.Kind == Binary, t.Kind == UUID && len(v) == 16, t.Kind == Fixed && len(v) == t.Length:
			return append([]byte{}, v...), nil
		}
	}
	return nil, errs.New(errs.Invalid, "a Go value of type %T is no value of type %s", v, t)
}

// CompareValues orders two single-value binaries of a type as Iceberg does:
// numbers by value, with -0.0 before +0.0 and NaN above everything, strings and
// bytes lexically, false before true. Malformed bytes are Corrupt.
func CompareValues(t Type, a, b []byte) (int, error) {
	switch t.Kind {
	case String, Binary, Fixed, UUID:
		return bytes.Compare(a, b), nil
	}
	x, err := FromIcebergValue(a, t)
	if err != nil {
		return 0, err
	}
	y, err := FromIcebergValue(b, t)
	if err != nil {
		return 0, err
	}
	switch x := x.(type) {
	case bool:
		return cmp.Compare(b2i(x), b2i(y.(bool))), nil
	case int32:
		return cmp.Compare(x, y.(int32)), nil
	case int64:
		return cmp.Compare(x, y.(int64)), nil
	case float32:
		return compareFloats(float64(x), float64(y.(float32))), nil
	case float64:
		return compareFloats(x, y.(float64)), nil
	case decimal128.Num:
		return x.Cmp(y.(decimal128.Num)), nil
	}
	return 0, errs.New(errs.Invalid, "values of type %s have no order", t)
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func compareFloats(a, b float64) int {
	switch an, bn := a != a, b != b; {
	case an || bn:
		return b2i(an) - b2i(bn)
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return b2i(math.Signbit(b)) - b2i(math.Signbit(a))
}

// decimalAt reads the i-th decimal of a buffer.
func decimalAt(b []byte, i int) decimal128.Num {
	return decimal128.New(int64(binary.LittleEndian.Uint64(b[16*i+8:])), binary.LittleEndian.Uint64(b[16*i:]))
}
