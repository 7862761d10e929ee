package bench

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/minio/simdjson-go"
	"github.com/valyala/fastjson"

	"github.com/firn-data/firn/loadtest"
	"github.com/firn-data/firn/segments/rows/literal"
)

// The fastest JSON parsers for Go, walked with the fields in the order of the
// schema. They are dependencies of tests only.
func init() {
	libraryDecoders = append(libraryDecoders, decoder{"fastjson", fastDecode})
	if simdjson.SupportedCPU() {
		libraryDecoders = append(libraryDecoders, decoder{"simdjson-go", simdDecode})
	}
}

// flightColumns are builders of flights.
type flightColumns struct {
	record *array.RecordBuilder
	all    []array.Builder
	names  []string
}

func newColumns(rows int) *flightColumns {
	schema := loadtest.Flights.Schema()
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	b.Reserve(rows)
	c := &flightColumns{record: b, all: b.Fields()}
	for _, f := range schema.Fields() {
		c.names = append(c.names, f.Name)
	}
	return c
}

func (c *flightColumns) number(i int, v int64) error {
	switch b := c.all[i].(type) {
	case *array.Int32Builder:
		b.Append(int32(v)) //nolint:gosec // the bodies are our own
	case *array.Int64Builder:
		b.Append(v)
	default:
		return fmt.Errorf("column %s is no number", c.names[i])
	}
	return nil
}

func (c *flightColumns) text(i int, v []byte) error {
	switch b := c.all[i].(type) {
	case *array.TimestampBuilder:
		us, err := literal.Timestamp(v, false)
		if err != nil {
			return err
		}
		b.Append(arrow.Timestamp(us))
	case *array.StringBuilder:
		b.BinaryBuilder.Append(v)
	default:
		return fmt.Errorf("column %s is no text", c.names[i])
	}
	return nil
}

func (c *flightColumns) rows() int64 { return c.record.NewRecordBatch().NumRows() }

func simdDecode(body []byte) (int64, error) {
	parsed, err := simdjson.ParseND(body, nil, simdjson.WithCopyStrings(false))
	if err != nil {
		return 0, err
	}
	c := newColumns(bytes.Count(body, []byte{'\n'}))
	iter, root, value := parsed.Iter(), simdjson.Iter{}, simdjson.Iter{}
	var obj *simdjson.Object
	for iter.Advance() == simdjson.TypeRoot {
		_, inner, err := iter.Root(&root)
		if err != nil {
			return 0, err
		}
		if obj, err = inner.Object(obj); err != nil {
			return 0, err
		}
		for i := 0; ; i++ {
			name, typ, err := obj.NextElementBytes(&value)
			if err != nil {
				return 0, err
			}
			if typ == simdjson.TypeNone {
				break
			}
			if string(name) != c.names[i] {
				return 0, fmt.Errorf("field %s in the place of %s", name, c.names[i])
			}
			if typ == simdjson.TypeString {
				v, verr := value.StringBytes()
				if err = verr; err == nil {
					err = c.text(i, v)
				}
			} else {
				v, verr := value.Int()
				if err = verr; err == nil {
					err = c.number(i, v)
				}
			}
			if err != nil {
				return 0, err
			}
		}
	}
	return c.rows(), nil
}

func fastDecode(body []byte) (int64, error) {
	c := newColumns(bytes.Count(body, []byte{'\n'}))
	var p fastjson.Parser
	for line := range bytes.Lines(body) {
		v, err := p.ParseBytes(line)
		if err != nil {
			return 0, err
		}
		obj, err := v.Object()
		if err != nil {
			return 0, err
		}
		i := 0
		obj.Visit(func(key []byte, v *fastjson.Value) {
			switch {
			case err != nil:
			case string(key) != c.names[i]:
				err = fmt.Errorf("field %s in the place of %s", key, c.names[i])
			case v.Type() == fastjson.TypeString:
				err = c.text(i, v.GetStringBytes())
			default:
				err = c.number(i, v.GetInt64())
			}
			i++
		})
		if err != nil {
			return 0, err
		}
	}
	return c.rows(), nil
}
