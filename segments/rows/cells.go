package rows

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/internal/errs"
)

// cell writes the values of one column. bind gives it an array; the other
// methods then take a position in it that is not NULL.
type cell interface {
	bind(a arrow.Array) error
	isNull(i int) bool
	json(dst []byte, i int) []byte
	csv(dst []byte, i int) []byte
}

// nulls is a cell's view of the array's validity.
type nulls struct {
	bits   []byte
	offset int
}

func (n *nulls) set(a arrow.Array) {
	n.bits = nil
	if a.NullN() > 0 {
		n.bits, n.offset = a.NullBitmapBytes(), a.Data().Offset()
	}
}

func (n *nulls) isNull(i int) bool {
	if n.bits == nil {
		return false
	}
	i += n.offset
	return n.bits[i>>3]&(1<<(i&7)) == 0
}

// newCell returns the writer of a field's values.
func newCell(f arrow.Field, o EncodeOptions) (cell, error) {
	switch t := f.Type.(type) {
	case *arrow.BooleanType:
		return &boolCell{}, nil
	case *arrow.Int8Type:
		return newIntCell(func(a arrow.Array) []int8 { return a.(*array.Int8).Int8Values() }), nil
	case *arrow.Int16Type:
		return newIntCell(func(a arrow.Array) []int16 { return a.(*array.Int16).Int16Values() }), nil
	case *arrow.Int32Type:
		return newIntCell(func(a arrow.Array) []int32 { return a.(*array.Int32).Int32Values() }), nil
	case *arrow.Int64Type:
		c := newIntCell(func(a arrow.Array) []int64 { return a.(*array.Int64).Int64Values() })
		c.quoted = o.LongAsString
		return c, nil
	case *arrow.Float32Type:
		return &floatCell[float32]{bits: 32, get: func(a arrow.Array) []float32 { return a.(*array.Float32).Float32Values() }}, nil
	case *arrow.Float64Type:
		return &floatCell[float64]{bits: 64, get: func(a arrow.Array) []float64 { return a.(*array.Float64).Float64Values() }}, nil
	case *arrow.Decimal128Type:
		return &decimalCell{scale: int(t.Scale)}, nil
	case *arrow.Date32Type:
		return &dateCell{}, nil
	case *arrow.Time64Type:
		if t.Unit == arrow.Microsecond {
			return &timeCell{}, nil
		}
	case *arrow.TimestampType:
		if t.Unit == arrow.Microsecond {
			return &timestampCell{zone: t.TimeZone != ""}, nil
		}
	case *arrow.StringType:
		return &stringCell{}, nil
	case *arrow.BinaryType:
		return &binaryCell{}, nil
	case *arrow.FixedSizeBinaryType:
		return &fixedCell{uuid: isUUID(f, t, o)}, nil
	case *arrow.DictionaryType:
		values, err := newCell(arrow.Field{Name: f.Name, Type: t.ValueType, Metadata: f.Metadata}, o)
		return &dictionaryCell{values: values}, err
	case *arrow.ListType:
		elem, err := newCell(t.ElemField(), o)
		return &listCell{elem: elem}, err
	case *arrow.MapType:
		return newMapCell(t, o)
	case *arrow.StructType:
		return newStructCell(t, o)
	}
	return nil, errs.New(errs.Internal, "no text form for column %q of Arrow type %s", f.Name, f.Type)
}

// dictionaryCell writes what the indices stand for.
type dictionaryCell struct {
	arr    *array.Dictionary
	values cell
}

func (c *dictionaryCell) bind(a arrow.Array) error {
	d, ok := a.(*array.Dictionary)
	if !ok {
		return wrongType(a)
	}
	c.arr = d
	return c.values.bind(d.Dictionary())
}

func (c *dictionaryCell) isNull(i int) bool {
	return c.arr.IsNull(i) || c.values.isNull(c.arr.GetValueIndex(i))
}
func (c *dictionaryCell) json(dst []byte, i int) []byte {
	return c.values.json(dst, c.arr.GetValueIndex(i))
}
func (c *dictionaryCell) csv(dst []byte, i int) []byte {
	return c.values.csv(dst, c.arr.GetValueIndex(i))
}

func wrongType(a arrow.Array) error {
	return errs.New(errs.Internal, "encode rows: a column has Arrow type %s, which is not the schema's", a.DataType())
}

// jsonCSV writes a nested value into a CSV field: its JSON, quoted.
func jsonCSV(c cell, dst []byte, i int) []byte {
	start := len(dst)
	dst = c.json(dst, i)
	text := string(dst[start:])
	return appendQuoted(dst[:start], text)
}

// listCell writes lists as arrays.
type listCell struct {
	nulls
	arr  *array.List
	elem cell
}

func (c *listCell) bind(a arrow.Array) error {
	l, ok := a.(*array.List)
	if !ok {
		return wrongType(a)
	}
	c.arr = l
	c.set(a)
	return c.elem.bind(l.ListValues())
}

func (c *listCell) json(dst []byte, i int) []byte {
	start, end := c.arr.ValueOffsets(i)
	dst = append(dst, '[')
	for k := int(start); k < int(end); k++ {
		if k > int(start) {
			dst = append(dst, ',')
		}
		dst = appendJSON(c.elem, dst, k)
	}
	return append(dst, ']')
}

func (c *listCell) csv(dst []byte, i int) []byte { return jsonCSV(c, dst, i) }

// appendJSON writes a value that may be NULL.
func appendJSON(c cell, dst []byte, i int) []byte {
	if c.isNull(i) {
		return append(dst, "null"...)
	}
	return c.json(dst, i)
}

// mapCell writes maps: as an object when keys are strings, else as an array of pairs.
type mapCell struct {
	nulls
	arr        *array.Map
	key, value cell
	object     bool
}

func newMapCell(t *arrow.MapType, o EncodeOptions) (cell, error) {
	key, err := newCell(t.KeyField(), o)
	if err != nil {
		return nil, err
	}
	value, err := newCell(t.ItemField(), o)
	return &mapCell{key: key, value: value, object: t.KeyType().ID() == arrow.STRING}, err
}

func (c *mapCell) bind(a arrow.Array) error {
	m, ok := a.(*array.Map)
	if !ok {
		return wrongType(a)
	}
	c.arr = m
	c.set(a)
	if err := c.key.bind(m.Keys()); err != nil {
		return err
	}
	return c.value.bind(m.Items())
}

func (c *mapCell) json(dst []byte, i int) []byte {
	start, end := c.arr.ValueOffsets(i)
	open, shut := byte('['), byte(']')
	if c.object {
		open, shut = '{', '}'
	}
	dst = append(dst, open)
	for k := int(start); k < int(end); k++ {
		if k > int(start) {
			dst = append(dst, ',')
		}
		if c.object {
			dst = append(c.key.json(dst, k), ':')
			dst = appendJSON(c.value, dst, k)
			continue
		}
		dst = append(dst, `{"key":`...)
		dst = c.key.json(dst, k)
		dst = append(dst, `,"value":`...)
		dst = append(appendJSON(c.value, dst, k), '}')
	}
	return append(dst, shut)
}

func (c *mapCell) csv(dst []byte, i int) []byte { return jsonCSV(c, dst, i) }

// structCell writes structs as objects.
type structCell struct {
	nulls
	fields []cell
	keys   [][]byte
}

func newStructCell(t *arrow.StructType, o EncodeOptions) (cell, error) {
	c := &structCell{}
	for i, f := range t.Fields() {
		child, err := newCell(f, o)
		if err != nil {
			return nil, err
		}
		key := byte(',')
		if i == 0 {
			key = '{'
		}
		c.fields = append(c.fields, child)
		c.keys = append(c.keys, append(appendJSONString([]byte{key}, f.Name), ':'))
	}
	return c, nil
}

func (c *structCell) bind(a arrow.Array) error {
	s, ok := a.(*array.Struct)
	if !ok || s.NumField() != len(c.fields) {
		return wrongType(a)
	}
	c.set(a)
	for i, f := range c.fields {
		if err := f.bind(s.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func (c *structCell) json(dst []byte, i int) []byte {
	if len(c.fields) == 0 {
		return append(dst, "{}"...)
	}
	for k, f := range c.fields {
		dst = appendJSON(f, append(dst, c.keys[k]...), i)
	}
	return append(dst, '}')
}

func (c *structCell) csv(dst []byte, i int) []byte { return jsonCSV(c, dst, i) }
