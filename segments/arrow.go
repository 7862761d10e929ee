package segments

import (
	"runtime"
	"strconv"
	"sync"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"
)

// FieldIDKey is the key of a field's id in the metadata of an Arrow field; it
// is the one that Parquet writers and Iceberg readers use.
const FieldIDKey = "PARQUET:field_id"

// arrowSchemas caches Arrow's form of a schema beside it instead of in it, so
// that a Schema stays a plain value that can be copied and compared. An entry
// lives as long as its schema.
var arrowSchemas sync.Map // weak.Pointer[Schema] → *arrow.Schema

// Arrow returns the Arrow schema of the columns, with field ids on every level
// under FieldIDKey. The schema must not change afterwards: the result is cached.
//
// Types map as Iceberg does: timestamps are microseconds without a zone or
// with "UTC", times are time64 in microseconds, uuid and fixed are fixed-size
// binaries, decimals are decimal128.
func (s *Schema) Arrow() *arrow.Schema {
	key := weak.Make(s)
	if a, ok := arrowSchemas.Load(key); ok {
		return a.(*arrow.Schema)
	}
	a, loaded := arrowSchemas.LoadOrStore(key, arrow.NewSchema(arrowFields(s.Fields), nil))
	if !loaded {
		runtime.AddCleanup(s, func(k weak.Pointer[Schema]) { arrowSchemas.Delete(k) }, key)
	}
	return a.(*arrow.Schema)
}

func arrowFields(fields []Field) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		out[i] = f.Arrow()
	}
	return out
}

// Arrow returns the field in Arrow's form.
func (f Field) Arrow() arrow.Field {
	return arrow.Field{
		Name: f.Name, Type: f.Type.Arrow(), Nullable: !f.Required,
		Metadata: arrow.NewMetadata([]string{FieldIDKey}, []string{strconv.Itoa(int(f.ID))}),
	}
}

// Arrow returns the type in Arrow's form, or nil for a kind that is none.
func (t Type) Arrow() arrow.DataType {
	switch t.Kind {
	case Boolean:
		return arrow.FixedWidthTypes.Boolean
	case Int:
		return arrow.PrimitiveTypes.Int32
	case Long:
		return arrow.PrimitiveTypes.Int64
	case Float:
		return arrow.PrimitiveTypes.Float32
	case Double:
		return arrow.PrimitiveTypes.Float64
	case Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)}
	case Date:
		return arrow.FixedWidthTypes.Date32
	case Time:
		return arrow.FixedWidthTypes.Time64us
	case Timestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case TimestampTZ:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case String:
		return arrow.BinaryTypes.String
	case UUID:
		return &arrow.FixedSizeBinaryType{ByteWidth: 16}
	case Fixed:
		return &arrow.FixedSizeBinaryType{ByteWidth: t.Length}
	case Binary:
		return arrow.BinaryTypes.Binary
	case List:
		return arrow.ListOfField(t.Children[0].Arrow())
	case Map:
		key := t.Children[0].Arrow()
		key.Nullable = false
		return arrow.MapOfFields(key, t.Children[1].Arrow())
	case Struct:
		return arrow.StructOf(arrowFields(t.Children)...)
	}
	return nil
}
