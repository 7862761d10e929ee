package rows

import (
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
)

// TypeKey is the key under which the metadata of an Arrow field names the
// table's type where Arrow's own does not tell: fixed(16), which has the Arrow
// type of a uuid. Whoever prints the rows later needs no table then.
const TypeKey = "firn.type"

// isUUID asks the table, or else the field's own mark, what 16 bytes are.
func isUUID(f arrow.Field, t *arrow.FixedSizeBinaryType, o EncodeOptions) bool {
	if t.ByteWidth != 16 {
		return false
	}
	if kind, ok := f.Metadata.GetValue(TypeKey); ok {
		return kind == segments.Type{Kind: segments.UUID}.String()
	}
	return !isFixed16(f, o.Table)
}

// isFixed16 reports whether the table says that a field of 16 bytes is no uuid.
func isFixed16(f arrow.Field, table *segments.Schema) bool {
	if table == nil {
		return false
	}
	text, _ := f.Metadata.GetValue(segments.FieldIDKey)
	id, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return false
	}
	field, ok := table.FieldByID(int32(id))
	return ok && field.Type.Kind == segments.Fixed
}

// marked returns the schema with every fixed(16) named in its field's metadata;
// without any it is the same schema.
func marked(s *arrow.Schema, table *segments.Schema) *arrow.Schema {
	fields, changed := markFields(s.Fields(), table)
	if !changed {
		return s
	}
	meta := s.Metadata()
	return arrow.NewSchema(fields, &meta)
}

func markFields(in []arrow.Field, table *segments.Schema) (out []arrow.Field, changed bool) {
	out = make([]arrow.Field, len(in))
	for i, f := range in {
		var c bool
		out[i], c = markField(f, table)
		changed = changed || c
	}
	return out, changed
}

func markField(f arrow.Field, table *segments.Schema) (arrow.Field, bool) {
	changed := false
	switch t := f.Type.(type) {
	case *arrow.FixedSizeBinaryType:
		if changed = t.ByteWidth == 16 && isFixed16(f, table); changed {
			kind := segments.Type{Kind: segments.Fixed, Length: t.ByteWidth}.String()
			f.Metadata = arrow.NewMetadata(append(f.Metadata.Keys(), TypeKey), append(f.Metadata.Values(), kind))
		}
	case *arrow.ListType:
		var elem arrow.Field
		if elem, changed = markField(t.ElemField(), table); changed {
			f.Type = arrow.ListOfField(elem)
		}
	case *arrow.MapType:
		key, inKey := markField(t.KeyField(), table)
		item, inItem := markField(t.ItemField(), table)
		if changed = inKey || inItem; changed {
			f.Type = arrow.MapOfFields(key, item)
		}
	case *arrow.StructType:
		var children []arrow.Field
		if children, changed = markFields(t.Fields(), table); changed {
			f.Type = arrow.StructOf(children...)
		}
	}
	return f, changed
}
