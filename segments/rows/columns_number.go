package rows

import (
	"math"
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/segments/rows/literal"
)

type boolColumn struct {
	validity
	vals []byte
}

func (c *boolColumn) append(v bool) {
	if c.n>>3 >= len(c.vals) {
		c.vals = append(c.vals, 0)
	}
	bitutil.SetBitTo(c.vals, c.n, v)
	c.valid()
}

func (c *boolColumn) null() {
	if c.n>>3 >= len(c.vals) {
		c.vals = append(c.vals, 0)
	}
	bitutil.ClearBit(c.vals, c.n)
	c.invalid()
}

func (c *boolColumn) size() int { return len(c.vals) }

func (c *boolColumn) truncate(n int) {
	c.vals = c.vals[:(n+7)/8]
	c.validity.truncate(n)
}

func (c *boolColumn) take() arrow.ArrayData {
	vals := c.vals
	c.vals = make([]byte, 0, len(vals))
	bitmap, n, nulls := c.validity.take()
	return newData(arrow.FixedWidthTypes.Boolean, n, nulls, nil, bitmap, memory.NewBufferBytes(vals))
}

func (c *boolColumn) json(s *scanner) bool {
	switch s.peek() {
	case 't':
		if !s.word("true") {
			return false
		}
		c.append(true)
	case 'f':
		if !s.word("false") {
			return false
		}
		c.append(false)
	default:
		return s.mismatch("true or false")
	}
	return true
}

const errBool = valueReason("not true or false")

func (c *boolColumn) text(b []byte) error {
	switch string(b) {
	case "true", "TRUE", "True":
		c.append(true)
	case "false", "FALSE", "False":
		c.append(false)
	default:
		return errBool
	}
	return nil
}

type intColumn struct{ values[int32] }

func (c *intColumn) size() int { return 4 * len(c.vals) }
func (c *intColumn) take() arrow.ArrayData {
	return takeValues(&c.values, arrow.PrimitiveTypes.Int32, arrow.GetBytes)
}

func (c *intColumn) json(s *scanner) bool {
	v, ok := s.integer()
	if !ok {
		return false
	}
	if v != int64(int32(v)) {
		return s.fail(errIntRange)
	}
	c.append(int32(v))
	return true
}

func (c *intColumn) text(b []byte) error {
	v, err := integerText(b)
	if err != nil {
		return err
	}
	if v != int64(int32(v)) {
		return errIntRange
	}
	c.append(int32(v))
	return nil
}

type longColumn struct{ values[int64] }

func (c *longColumn) size() int { return 8 * len(c.vals) }
func (c *longColumn) take() arrow.ArrayData {
	return takeValues(&c.values, arrow.PrimitiveTypes.Int64, arrow.GetBytes)
}

func (c *longColumn) json(s *scanner) bool {
	if s.peek() == '"' {
		b, ok := s.str()
		if !ok {
			return false
		}
		if err := c.text(b); err != nil {
			return s.fail(err)
		}
		return true
	}
	v, ok := s.integer()
	if ok {
		c.append(v)
	}
	return ok
}

func (c *longColumn) text(b []byte) error {
	v, err := integerText(b)
	if err != nil {
		return err
	}
	c.append(v)
	return nil
}

const (
	errFloat      = valueReason("not a number")
	errFloatRange = valueReason("outside the range of the floating-point type")
)

// unsafeString views bytes as a string for a call that does not keep it.
func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// parseFloat parses a number in JSON's or CSV's form, without names.
func parseFloat(b []byte, bits int) (float64, error) {
	v, err := strconv.ParseFloat(unsafeString(b), bits)
	if err == nil {
		return v, nil
	}
	if math.IsInf(v, 0) {
		return 0, errFloatRange
	}
	return 0, errFloat
}

// namedFloat parses the values that JSON has no number for.
func namedFloat(b []byte) (float64, bool) {
	switch string(b) {
	case "NaN", "nan":
		return math.NaN(), true
	case "Infinity", "+Infinity", "inf", "Inf", "+Inf":
		return math.Inf(1), true
	case "-Infinity", "-inf", "-Inf":
		return math.Inf(-1), true
	}
	return 0, false
}

var pow10 = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// float consumes a floating-point value of the given width.
func (s *scanner) float(bits int) (float64, bool) {
	b, i := s.buf, s.pos
	neg := i < len(b) && b[i] == '-'
	if neg {
		i++
	}
	start := i
	m, point := uint64(0), -1
	for ; i < len(b); i++ {
		if d := b[i] - '0'; d <= 9 {
			m = m*10 + uint64(d)
		} else if b[i] == '.' && point < 0 && i > start {
			point = i
		} else {
			break
		}
	}
	n, frac := i-start, 0
	if point >= 0 {
		n--
		frac = i - point - 1
	}
	// Both the digits and the power of ten are exact doubles: one rounding.
	if n == 0 || n > 15 || bits != 64 || point >= 0 && frac == 0 ||
		b[start] == '0' && n-frac > 1 || i < len(b) && b[i]|0x20 == 'e' {
		return s.floatSlow(bits)
	}
	s.pos = i
	v := float64(m)
	if frac > 0 {
		v /= pow10[frac]
	}
	if neg {
		v = -v
	}
	return v, true
}

func (s *scanner) floatSlow(bits int) (float64, bool) {
	c := s.peek()
	if c == '"' {
		at := s.pos
		b, ok := s.str()
		if !ok {
			return 0, false
		}
		v, ok := namedFloat(b)
		if !ok {
			s.pos = at
			return 0, s.mismatch(`a number, "NaN", "Infinity" or "-Infinity"`)
		}
		return v, true
	}
	if c != '-' && c-'0' > 9 {
		return 0, s.mismatch("a number")
	}
	text, ok := s.number()
	if !ok {
		return 0, false
	}
	v, err := parseFloat(text, bits)
	if err != nil {
		return 0, s.fail(err)
	}
	return v, true
}

// floatText parses a CSV field.
func floatText(b []byte, bits int) (float64, error) {
	if v, ok := namedFloat(b); ok {
		return v, nil
	}
	if _, err := literal.ParseNumber(b); err == literal.ErrNumber {
		return 0, errFloat
	}
	return parseFloat(b, bits)
}

type floatColumn struct{ values[float32] }

func (c *floatColumn) size() int { return 4 * len(c.vals) }
func (c *floatColumn) take() arrow.ArrayData {
	return takeValues(&c.values, arrow.PrimitiveTypes.Float32, arrow.GetBytes)
}

func (c *floatColumn) json(s *scanner) bool {
	v, ok := s.float(32)
	if ok {
		c.append(float32(v))
	}
	return ok
}

func (c *floatColumn) text(b []byte) error {
	v, err := floatText(b, 32)
	if err == nil {
		c.append(float32(v))
	}
	return err
}

type doubleColumn struct{ values[float64] }

func (c *doubleColumn) size() int { return 8 * len(c.vals) }
func (c *doubleColumn) take() arrow.ArrayData {
	return takeValues(&c.values, arrow.PrimitiveTypes.Float64, arrow.GetBytes)
}

func (c *doubleColumn) json(s *scanner) bool {
	v, ok := s.float(64)
	if ok {
		c.append(v)
	}
	return ok
}

func (c *doubleColumn) text(b []byte) error {
	v, err := floatText(b, 64)
	if err == nil {
		c.append(v)
	}
	return err
}

type decimalColumn struct {
	values[decimal128.Num]
	dt               arrow.DataType
	precision, scale int
}

func (c *decimalColumn) size() int             { return 16 * len(c.vals) }
func (c *decimalColumn) take() arrow.ArrayData { return takeValues(&c.values, c.dt, arrow.GetBytes) }

func (c *decimalColumn) json(s *scanner) bool {
	var b []byte
	ok := false
	switch ch := s.peek(); {
	case ch == '"':
		b, ok = s.str()
	case ch == '-' || ch-'0' <= 9:
		b, ok = s.number()
	default:
		return s.mismatch("a decimal as number or string")
	}
	if !ok {
		return false
	}
	if err := c.text(b); err != nil {
		return s.fail(err)
	}
	return true
}

func (c *decimalColumn) text(b []byte) error {
	v, err := literal.Decimal(b, c.precision, c.scale)
	if err == nil {
		c.append(v)
	}
	return err
}
