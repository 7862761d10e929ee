package rows

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/segments/rows/literal"
)

type boolCell struct {
	nulls
	arr *array.Boolean
}

func (c *boolCell) bind(a arrow.Array) error {
	b, ok := a.(*array.Boolean)
	if !ok {
		return wrongType(a)
	}
	c.arr = b
	c.set(a)
	return nil
}
func (c *boolCell) json(dst []byte, i int) []byte { return strconv.AppendBool(dst, c.arr.Value(i)) }
func (c *boolCell) csv(dst []byte, i int) []byte  { return c.json(dst, i) }

// bindValues binds a cell of fixed-width values; a wrong type is the caller's
// fault and reported as an error.
func bindValues[T any](n *nulls, vals *[]T, get func(arrow.Array) []T, a arrow.Array) (err error) {
	defer func() {
		if recover() != nil {
			err = wrongType(a)
		}
	}()
	*vals = get(a)
	n.set(a)
	return nil
}

type intCell[T int8 | int16 | int32 | int64] struct {
	nulls
	get    func(arrow.Array) []T
	vals   []T
	quoted bool
}

func newIntCell[T int8 | int16 | int32 | int64](get func(arrow.Array) []T) *intCell[T] {
	return &intCell[T]{get: get}
}

func (c *intCell[T]) bind(a arrow.Array) error { return bindValues(&c.nulls, &c.vals, c.get, a) }

func (c *intCell[T]) json(dst []byte, i int) []byte {
	if c.quoted {
		return append(c.csv(append(dst, '"'), i), '"')
	}
	return c.csv(dst, i)
}

func (c *intCell[T]) csv(dst []byte, i int) []byte {
	return strconv.AppendInt(dst, int64(c.vals[i]), 10)
}

type floatCell[T float32 | float64] struct {
	nulls
	get  func(arrow.Array) []T
	vals []T
	bits int
}

func (c *floatCell[T]) bind(a arrow.Array) error { return bindValues(&c.nulls, &c.vals, c.get, a) }

func (c *floatCell[T]) json(dst []byte, i int) []byte {
	v := float64(c.vals[i])
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return append(c.csv(append(dst, '"'), i), '"')
	}
	return c.csv(dst, i)
}

func (c *floatCell[T]) csv(dst []byte, i int) []byte {
	v := float64(c.vals[i])
	switch {
	case math.IsNaN(v):
		return append(dst, "NaN"...)
	case math.IsInf(v, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(v, -1):
		return append(dst, "-Infinity"...)
	}
	if abs := math.Abs(v); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		return strconv.AppendFloat(dst, v, 'e', -1, c.bits)
	}
	return strconv.AppendFloat(dst, v, 'f', -1, c.bits)
}

type decimalCell struct {
	nulls
	vals  []decimal128.Num
	scale int
}

func (c *decimalCell) bind(a arrow.Array) error {
	return bindValues(&c.nulls, &c.vals, func(a arrow.Array) []decimal128.Num { return a.(*array.Decimal128).Values() }, a)
}
func (c *decimalCell) json(dst []byte, i int) []byte {
	return append(c.csv(append(dst, '"'), i), '"')
}
func (c *decimalCell) csv(dst []byte, i int) []byte {
	return literal.AppendDecimal(dst, c.vals[i], c.scale)
}

type dateCell struct {
	nulls
	vals []arrow.Date32
}

func (c *dateCell) bind(a arrow.Array) error {
	return bindValues(&c.nulls, &c.vals, func(a arrow.Array) []arrow.Date32 { return a.(*array.Date32).Date32Values() }, a)
}
func (c *dateCell) json(dst []byte, i int) []byte { return append(c.csv(append(dst, '"'), i), '"') }
func (c *dateCell) csv(dst []byte, i int) []byte {
	return literal.AppendDate(dst, int32(c.vals[i]))
}

type timeCell struct {
	nulls
	vals []arrow.Time64
}

func (c *timeCell) bind(a arrow.Array) error {
	return bindValues(&c.nulls, &c.vals, func(a arrow.Array) []arrow.Time64 { return a.(*array.Time64).Time64Values() }, a)
}
func (c *timeCell) json(dst []byte, i int) []byte { return append(c.csv(append(dst, '"'), i), '"') }
func (c *timeCell) csv(dst []byte, i int) []byte  { return literal.AppendTime(dst, int64(c.vals[i])) }

// timestampCell writes RFC 3339, but integer microseconds for years that it has no form for.
type timestampCell struct {
	nulls
	vals []arrow.Timestamp
	zone bool
}

// The years that RFC 3339 can write.
const (
	minTextMicros = -62_167_219_200_000_000 // 0000-01-01T00:00:00
	maxTextMicros = 253_402_300_799_999_999 // 9999-12-31T23:59:59.999999
)

func (c *timestampCell) bind(a arrow.Array) error {
	return bindValues(&c.nulls, &c.vals, func(a arrow.Array) []arrow.Timestamp { return a.(*array.Timestamp).TimestampValues() }, a)
}

func (c *timestampCell) json(dst []byte, i int) []byte {
	if v := int64(c.vals[i]); v < minTextMicros || v > maxTextMicros {
		return strconv.AppendInt(dst, v, 10)
	}
	return append(c.csv(append(dst, '"'), i), '"')
}

func (c *timestampCell) csv(dst []byte, i int) []byte {
	v := int64(c.vals[i])
	if v < minTextMicros || v > maxTextMicros {
		return strconv.AppendInt(dst, v, 10)
	}
	return literal.AppendTimestamp(dst, v, c.zone)
}

type stringCell struct {
	nulls
	arr *array.String
}

func (c *stringCell) bind(a arrow.Array) error {
	s, ok := a.(*array.String)
	if !ok {
		return wrongType(a)
	}
	c.arr = s
	c.set(a)
	return nil
}
func (c *stringCell) json(dst []byte, i int) []byte { return appendJSONString(dst, c.arr.Value(i)) }
func (c *stringCell) csv(dst []byte, i int) []byte  { return appendCSV(dst, c.arr.Value(i)) }

// escaped marks the bytes that a JSON string cannot hold as they are.
var escaped = func() (t [256]bool) {
	for i := range 0x20 {
		t[i] = true
	}
	t['"'], t['\\'] = true, true
	return t
}()

// appendJSONString appends a JSON string. s is valid UTF-8.
func appendJSONString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !escaped[c] {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(dst, s[from:]...), '"')
}

// appendCSV appends a CSV field, quoted when it must be; an empty one is
// quoted too, for an empty field without quotes is NULL.
func appendCSV(dst []byte, s string) []byte {
	if s != "" && !strings.ContainsAny(s, "\",\r\n") && s[0] != ' ' && s[0] != '\xef' {
		return append(dst, s...)
	}
	return appendQuoted(dst, s)
}

func appendQuoted(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for {
		i := strings.IndexByte(s, '"')
		if i < 0 {
			break
		}
		dst = append(append(dst, s[:i+1]...), '"')
		s = s[i+1:]
	}
	return append(append(dst, s...), '"')
}

type binaryCell struct {
	nulls
	arr *array.Binary
}

func (c *binaryCell) bind(a arrow.Array) error {
	b, ok := a.(*array.Binary)
	if !ok {
		return wrongType(a)
	}
	c.arr = b
	c.set(a)
	return nil
}
func (c *binaryCell) json(dst []byte, i int) []byte { return appendBase64JSON(dst, c.arr.Value(i)) }
func (c *binaryCell) csv(dst []byte, i int) []byte {
	if v := c.arr.Value(i); len(v) > 0 {
		return base64.StdEncoding.AppendEncode(dst, v)
	}
	return append(dst, '"', '"')
}

func appendBase64JSON(dst, v []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v), '"')
}

type fixedCell struct {
	nulls
	arr  *array.FixedSizeBinary
	uuid bool
}

func (c *fixedCell) bind(a arrow.Array) error {
	b, ok := a.(*array.FixedSizeBinary)
	if !ok {
		return wrongType(a)
	}
	c.arr = b
	c.set(a)
	return nil
}
func (c *fixedCell) json(dst []byte, i int) []byte { return append(c.csv(append(dst, '"'), i), '"') }
func (c *fixedCell) csv(dst []byte, i int) []byte {
	if c.uuid {
		return literal.AppendUUID(dst, c.arr.Value(i))
	}
	return base64.StdEncoding.AppendEncode(dst, c.arr.Value(i))
}
