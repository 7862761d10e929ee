package segments

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
)

// width returns the bytes of one value of a fixed-width type, zero for others
// and for booleans, which are bits.
func (t Type) width() int {
	switch t.Kind {
	case Int, Float, Date:
		return 4
	case Long, Double, Time, Timestamp, TimestampTZ:
		return 8
	case Decimal, UUID:
		return 16
	case Fixed:
		return t.Length
	}
	return 0
}

// layout counts the nodes and the buffers of a column of type t.
func (t Type) layout() (nodes, buffers int) {
	nodes, buffers = 1, 2
	switch t.Kind {
	case String, Binary:
		buffers = 3
	case Struct:
		buffers = 1
	case Map: // its entries are structs
		nodes, buffers = 2, 3
	}
	for i := range t.Children {
		n, b := t.Children[i].Type.layout()
		nodes, buffers = nodes+n, buffers+b
	}
	return nodes, buffers
}

// element returns what a list's or map's offsets count.
func (t Type) element() Type {
	if t.Kind == Map {
		return Type{Kind: Struct, Children: t.Children}
	}
	return t.Children[0].Type
}

// checkBatch says how rec differs from the schema's columns. Names count on
// the top level only: inside, writers disagree on them ("item", "element").
func checkBatch(rec arrow.RecordBatch, s *Schema) error {
	if int(rec.NumCols()) != len(s.Fields) {
		return errs.New(errs.Invalid, "the batch has %d columns and schema %d has %d", rec.NumCols(), s.ID, len(s.Fields))
	}
	for i, f := range s.Fields {
		if name := rec.ColumnName(i); name != f.Name {
			return errs.New(errs.Invalid, "column %d of the batch is %q and not %q", i, name, f.Name)
		}
		if err := checkArrowType(f.Type, rec.Column(i).DataType()); err != nil {
			return errs.In("column "+f.Name, err)
		}
	}
	return nil
}

var arrowIDs = [...]arrow.Type{
	Boolean: arrow.BOOL, Int: arrow.INT32, Long: arrow.INT64, Float: arrow.FLOAT32, Double: arrow.FLOAT64,
	Decimal: arrow.DECIMAL128, Date: arrow.DATE32, Time: arrow.TIME64, Timestamp: arrow.TIMESTAMP,
	TimestampTZ: arrow.TIMESTAMP, String: arrow.STRING, UUID: arrow.FIXED_SIZE_BINARY,
	Fixed: arrow.FIXED_SIZE_BINARY, Binary: arrow.BINARY, List: arrow.LIST, Map: arrow.MAP, Struct: arrow.STRUCT,
}

// checkArrowType says why arrays of dt do not hold values of t as they are.
func checkArrowType(t Type, dt arrow.DataType) error {
	mismatch := func() error {
		return errs.New(errs.Invalid, "Arrow type %s does not hold %s", dt, t)
	}
	if t.Kind == 0 || int(t.Kind) >= len(arrowIDs) || dt.ID() != arrowIDs[t.Kind] {
		return mismatch()
	}
	ok := true
	switch dt := dt.(type) {
	case *arrow.Decimal128Type:
		ok = int(dt.Precision) == t.Precision && int(dt.Scale) == t.Scale
	case *arrow.Time64Type:
		ok = dt.Unit == arrow.Microsecond
	case *arrow.TimestampType:
		ok = dt.Unit == arrow.Microsecond && (dt.TimeZone == "") == (t.Kind == Timestamp)
	case *arrow.FixedSizeBinaryType:
		ok = dt.ByteWidth == t.width()
	case *arrow.ListType:
		return checkArrowType(t.Children[0].Type, dt.Elem())
	case *arrow.MapType:
		if err := checkArrowType(t.Children[0].Type, dt.KeyType()); err != nil {
			return err
		}
		return checkArrowType(t.Children[1].Type, dt.ItemType())
	case *arrow.StructType:
		if dt.NumFields() != len(t.Children) {
			return mismatch()
		}
		for i, c := range t.Children {
			if dt.Field(i).Name != c.Name {
				return mismatch()
			}
			if err := checkArrowType(c.Type, dt.Field(i).Type); err != nil {
				return err
			}
		}
	}
	if !ok {
		return mismatch()
	}
	return nil
}
