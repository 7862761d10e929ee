package rows

import (
	"math"
	"math/big"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/decimal256"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows/literal"
)

// adder appends value i of an array, which is not NULL, to a column.
type adder func(a arrow.Array, i int) error

// leaf returns how values of a foreign type are appended to col, which is of
// type t, or nil when they cannot be.
func leaf(from arrow.DataType, t segments.Type, col column) adder {
	switch dt := from.(type) {
	case *arrow.NullType:
		return nullsOf(col)
	case *arrow.DictionaryType:
		return dictionaryLeaf(dt, t, col)
	}
	if get := integerOf(from); get != nil {
		return integerLeaf(get, t, col)
	}
	switch c := col.(type) {
	case *floatColumn:
		if from.ID() == arrow.FLOAT16 {
			return func(a arrow.Array, i int) error { c.append(a.(*array.Float16).Value(i).Float32()); return nil }
		}
	case *doubleColumn:
		switch from.ID() {
		case arrow.FLOAT16:
			return func(a arrow.Array, i int) error {
				c.append(float64(a.(*array.Float16).Value(i).Float32()))
				return nil
			}
		case arrow.FLOAT32:
			return func(a arrow.Array, i int) error { c.append(float64(a.(*array.Float32).Value(i))); return nil }
		}
	case *decimalColumn:
		return decimalLeaf(from, c)
	case *dateColumn, *timeColumn, *timestampColumn:
		return temporalLeaf(from, col)
	case *stringColumn:
		return stringLeaf(from, c)
	case *binaryColumn, *fixedColumn:
		return bytesLeaf(from, col)
	}
	return nil
}

// nullsOf appends NULLs: arrays of the null type have no other value, but no bitmap that says so.
func nullsOf(col column) adder {
	return func(arrow.Array, int) error { col.null(); return nil }
}

// dictionaryLeaf decodes a dictionary.
func dictionaryLeaf(dt *arrow.DictionaryType, t segments.Type, col column) adder {
	var add adder
	if arrow.TypeEqual(dt.ValueType, t.Arrow()) {
		add = sameLeaf(col)
	} else {
		add = leaf(dt.ValueType, t, col)
	}
	if add == nil {
		return nil
	}
	return func(a arrow.Array, i int) error {
		d := a.(*array.Dictionary)
		values, at := d.Dictionary(), d.GetValueIndex(i)
		if values.IsNull(at) {
			col.null()
			return nil
		}
		return add(values, at)
	}
}

// sameLeaf appends values of the column's own Arrow type.
func sameLeaf(col column) adder {
	switch c := col.(type) {
	case *boolColumn:
		return func(a arrow.Array, i int) error { c.append(a.(*array.Boolean).Value(i)); return nil }
	case *intColumn:
		return func(a arrow.Array, i int) error { c.append(a.(*array.Int32).Value(i)); return nil }
	case *longColumn:
		return func(a arrow.Array, i int) error { c.append(a.(*array.Int64).Value(i)); return nil }
	case *floatColumn:
		return func(a arrow.Array, i int) error { c.append(a.(*array.Float32).Value(i)); return nil }
	case *doubleColumn:
		return func(a arrow.Array, i int) error { c.append(a.(*array.Float64).Value(i)); return nil }
	case *decimalColumn:
		return decimalLeaf(c.dt, c)
	case *dateColumn:
		return func(a arrow.Array, i int) error { c.append(a.(*array.Date32).Value(i)); return nil }
	case *timeColumn:
		return temporalLeaf(arrow.FixedWidthTypes.Time64us, c)
	case *timestampColumn:
		return func(a arrow.Array, i int) error { c.append(a.(*array.Timestamp).Value(i)); return nil }
	case *stringColumn:
		return stringLeaf(arrow.BinaryTypes.String, c)
	case *binaryColumn, *fixedColumn:
		return bytesLeaf(arrow.BinaryTypes.Binary, col)
	}
	return nil
}

// integer is a 64-bit integer of either sign.
type integer struct {
	v   int64
	big bool // v is a uint64 above MaxInt64
}

func integerOf(dt arrow.DataType) func(a arrow.Array, i int) integer {
	switch dt.ID() {
	case arrow.INT8:
		return func(a arrow.Array, i int) integer { return integer{v: int64(a.(*array.Int8).Value(i))} }
	case arrow.INT16:
		return func(a arrow.Array, i int) integer { return integer{v: int64(a.(*array.Int16).Value(i))} }
	case arrow.INT32:
		return func(a arrow.Array, i int) integer { return integer{v: int64(a.(*array.Int32).Value(i))} }
	case arrow.INT64:
		return func(a arrow.Array, i int) integer { return integer{v: a.(*array.Int64).Value(i)} }
	case arrow.UINT8:
		return func(a arrow.Array, i int) integer { return integer{v: int64(a.(*array.Uint8).Value(i))} }
	case arrow.UINT16:
		return func(a arrow.Array, i int) integer { return integer{v: int64(a.(*array.Uint16).Value(i))} }
	case arrow.UINT32:
		return func(a arrow.Array, i int) integer { return integer{v: int64(a.(*array.Uint32).Value(i))} }
	case arrow.UINT64:
		return func(a arrow.Array, i int) integer {
			u := a.(*array.Uint64).Value(i)
			return integer{v: int64(u), big: u > math.MaxInt64}
		}
	}
	return nil
}

const errInexact = valueReason("the integer has no exact floating-point value")

func integerLeaf(get func(arrow.Array, int) integer, t segments.Type, col column) adder {
	switch c := col.(type) {
	case *intColumn:
		return func(a arrow.Array, i int) error {
			n := get(a, i)
			if n.big || n.v != int64(int32(n.v)) {
				return errIntRange
			}
			c.append(int32(n.v))
			return nil
		}
	case *longColumn:
		return func(a arrow.Array, i int) error {
			n := get(a, i)
			if n.big {
				return errLongRange
			}
			c.append(n.v)
			return nil
		}
	case *floatColumn:
		return func(a arrow.Array, i int) error {
			n := get(a, i)
			if n.big || n.v > 1<<24 || n.v < -1<<24 {
				return errInexact
			}
			c.append(float32(n.v))
			return nil
		}
	case *doubleColumn:
		return func(a arrow.Array, i int) error {
			n := get(a, i)
			if n.big || n.v > 1<<53 || n.v < -1<<53 {
				return errInexact
			}
			c.append(float64(n.v))
			return nil
		}
	case *decimalColumn:
		return func(a arrow.Array, i int) error {
			n := get(a, i)
			v := decimal128.FromI64(n.v)
			if n.big {
				v = decimal128.FromU64(uint64(n.v))
			}
			v, err := rescale(v, 0, t.Scale, t.Precision)
			if err == nil {
				c.append(v)
			}
			return err
		}
	}
	return nil
}

func decimalLeaf(from arrow.DataType, c *decimalColumn) adder {
	dt, ok := from.(arrow.DecimalType)
	if !ok {
		return nil
	}
	scale := int(dt.GetScale())
	if scale < -38 || scale > 76 {
		return nil
	}
	add := func(v decimal128.Num) error {
		v, err := rescale(v, scale, c.scale, c.precision)
		if err == nil {
			c.append(v)
		}
		return err
	}
	switch from.ID() {
	case arrow.DECIMAL32:
		return func(a arrow.Array, i int) error {
			return add(decimal128.FromI64(int64(a.(*array.Decimal32).Value(i))))
		}
	case arrow.DECIMAL64:
		return func(a arrow.Array, i int) error {
			return add(decimal128.FromI64(int64(a.(*array.Decimal64).Value(i))))
		}
	case arrow.DECIMAL128:
		return func(a arrow.Array, i int) error { return add(a.(*array.Decimal128).Value(i)) }
	case arrow.DECIMAL256:
		return func(a arrow.Array, i int) error { return wideDecimal(a.(*array.Decimal256).Value(i), scale, c) }
	}
	return nil
}

// wideDecimal brings a decimal of up to 76 digits to the column's scale before its width.
func wideDecimal(v decimal256.Num, scale int, c *decimalColumn) error {
	n := v.BigInt()
	ten := big.NewInt(10)
	for ; scale > c.scale; scale-- {
		var rem big.Int
		if n.QuoRem(n, ten, &rem); rem.Sign() != 0 {
			return errDecimalFraction
		}
	}
	if n.BitLen() > 127 {
		return errPrecision
	}
	out, err := rescale(decimal128.FromBigInt(n), scale, c.scale, c.precision)
	if err == nil {
		c.append(out)
	}
	return err
}

const errNotMidnight = valueReason("a date64 that is not a whole day")

// temporalLeaf brings dates, times and timestamps to days and microseconds.
func temporalLeaf(from arrow.DataType, col column) adder {
	switch c := col.(type) {
	case *dateColumn:
		if from.ID() != arrow.DATE64 {
			return nil
		}
		return func(a arrow.Array, i int) error {
			const day = 24 * 60 * 60 * 1000
			ms := int64(a.(*array.Date64).Value(i))
			if ms%day != 0 || ms/day != int64(int32(ms/day)) {
				return errNotMidnight
			}
			c.append(arrow.Date32(ms / day))
			return nil
		}
	case *timeColumn:
		var get func(a arrow.Array, i int) int64
		var unit arrow.TimeUnit
		switch dt := from.(type) {
		case *arrow.Time32Type:
			unit, get = dt.Unit, func(a arrow.Array, i int) int64 { return int64(a.(*array.Time32).Value(i)) }
		case *arrow.Time64Type:
			unit, get = dt.Unit, func(a arrow.Array, i int) int64 { return int64(a.(*array.Time64).Value(i)) }
		default:
			return nil
		}
		return func(a arrow.Array, i int) error {
			us, err := micros(get(a, i), unit)
			if err == nil && (us < 0 || us >= dayMicros) {
				err = errTimeRange
			}
			if err == nil {
				c.append(arrow.Time64(us))
			}
			return err
		}
	case *timestampColumn:
		dt, ok := from.(*arrow.TimestampType)
		if !ok || (dt.TimeZone != "") != c.zone {
			return nil
		}
		return func(a arrow.Array, i int) error {
			us, err := micros(int64(a.(*array.Timestamp).Value(i)), dt.Unit)
			if err == nil {
				c.append(arrow.Timestamp(us))
			}
			return err
		}
	}
	return nil
}

// micros converts a time to microseconds when that is exact.
func micros(v int64, unit arrow.TimeUnit) (int64, error) {
	factor := int64(1)
	switch unit {
	case arrow.Second:
		factor = 1_000_000
	case arrow.Millisecond:
		factor = 1_000
	case arrow.Nanosecond:
		if v%1000 != 0 {
			return 0, literal.ErrNanos
		}
		return v / 1000, nil
	}
	if v > math.MaxInt64/factor || v < math.MinInt64/factor {
		return 0, literal.ErrTooFar
	}
	return v * factor, nil
}

func stringLeaf(from arrow.DataType, c *stringColumn) adder {
	get := stringOf(from)
	if get == nil {
		return nil
	}
	return func(a arrow.Array, i int) error {
		v := get(a, i)
		if !utf8.ValidString(v) {
			return errTextUTF8
		}
		c.data = append(c.data, v...)
		c.close()
		return nil
	}
}

func stringOf(from arrow.DataType) func(a arrow.Array, i int) string {
	switch from.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		return func(a arrow.Array, i int) string { return a.(array.StringLike).Value(i) }
	}
	return nil
}

// bytesLeaf takes bytes in any layout; a uuid column also takes its text form.
func bytesLeaf(from arrow.DataType, col column) adder {
	var get func(a arrow.Array, i int) []byte
	switch from.ID() {
	case arrow.BINARY, arrow.LARGE_BINARY, arrow.BINARY_VIEW:
		get = func(a arrow.Array, i int) []byte { return valueBytes(a, i) }
	case arrow.FIXED_SIZE_BINARY:
		get = func(a arrow.Array, i int) []byte { return valueBytes(a, i) }
	}
	switch c := col.(type) {
	case *binaryColumn:
		if get == nil {
			return nil
		}
		return func(a arrow.Array, i int) error { c.append(get(a, i)); return nil }
	case *fixedColumn:
		if text := stringOf(from); text != nil && c.uuid {
			return func(a arrow.Array, i int) error { return c.text([]byte(text(a, i))) }
		}
		if get == nil {
			return nil
		}
		return func(a arrow.Array, i int) error {
			v := get(a, i)
			if len(v) != c.width {
				return errFixedLength
			}
			c.append(v)
			return nil
		}
	}
	return nil
}

func valueBytes(a arrow.Array, i int) []byte {
	switch a := a.(type) {
	case *array.Binary:
		return a.Value(i)
	case *array.LargeBinary:
		return a.Value(i)
	case *array.BinaryView:
		return a.Value(i)
	case *array.FixedSizeBinary:
		return a.Value(i)
	}
	panic("bytes of " + a.DataType().String())
}
