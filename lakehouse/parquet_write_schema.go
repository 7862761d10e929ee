package lakehouse

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// fileSchema is a schema in the form that data files are written with: the
// columns of the schema and nothing else, field ids on every level, uuids
// annotated as such. It is immutable.
type fileSchema struct {
	schema *segments.Schema
	rows   *arrow.Schema // of the batches that come in
	file   *arrow.Schema // of what is written: uuids are extension arrays
	leaves []leaf        // in the order of Parquet's columns
	retype []bool        // by top-level column: its arrays need the file's type
}

// leaf is a primitive column, perhaps nested.
type leaf struct {
	id       int32
	typ      segments.Type
	column   int    // top-level
	path     string // Parquet's dotted path
	repeated bool   // inside of a list or map
}

func newFileSchema(s *segments.Schema) (*fileSchema, error) {
	out := &fileSchema{schema: s, rows: s.Arrow()}
	fields := make([]arrow.Field, len(s.Fields))
	for i, f := range out.rows.Fields() {
		t, changed := annotate(f.Type, s.Fields[i].Type)
		f.Type = t
		fields[i] = f
		out.retype = append(out.retype, changed)
		out.collect(s.Fields[i], i, false)
	}
	out.file = arrow.NewSchema(fields, nil)
	pq, err := pqarrow.ToParquet(out.file, parquet.NewWriterProperties(parquet.WithStoreDecimalAsInteger(true)), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "make parquet schema", err)
	}
	if pq.NumColumns() != len(out.leaves) {
		return nil, errs.New(errs.Internal, "parquet schema has %d leaves and the table schema %d", pq.NumColumns(), len(out.leaves))
	}
	for i := range out.leaves {
		node := pq.Column(i).SchemaNode()
		if node.FieldID() != out.leaves[i].id {
			return nil, errs.New(errs.Internal, "parquet leaf %d has field id %d and not %d", i, node.FieldID(), out.leaves[i].id)
		}
		out.leaves[i].path = pq.Column(i).Path()
	}
	return out, nil
}

func (s *fileSchema) collect(f segments.Field, column int, repeated bool) {
	if !f.Type.Kind.Nested() {
		s.leaves = append(s.leaves, leaf{id: f.ID, typ: f.Type, column: column, repeated: repeated})
		return
	}
	for _, c := range f.Type.Children {
		s.collect(c, column, repeated || f.Type.Kind != segments.Struct)
	}
}

// annotate returns an Arrow type with uuids as Arrow's uuid extension type, which
// Parquet writes with the UUID annotation that other engines need.
func annotate(t arrow.DataType, of segments.Type) (arrow.DataType, bool) {
	switch of.Kind {
	case segments.UUID:
		return extensions.NewUUIDType(), true
	case segments.List:
		e := t.(*arrow.ListType).ElemField()
		et, changed := annotate(e.Type, of.Children[0].Type)
		if !changed {
			return t, false
		}
		e.Type = et
		return arrow.ListOfField(e), true
	case segments.Map:
		m := t.(*arrow.MapType)
		k, v := m.KeyField(), m.ItemField()
		kt, kc := annotate(k.Type, of.Children[0].Type)
		vt, vc := annotate(v.Type, of.Children[1].Type)
		if !kc && !vc {
			return t, false
		}
		k.Type, v.Type = kt, vt
		return arrow.MapOfFields(k, v), true
	case segments.Struct:
		st := t.(*arrow.StructType)
		fields, retyped := make([]arrow.Field, st.NumFields()), false
		for i, f := range st.Fields() {
			ft, changed := annotate(f.Type, of.Children[i].Type)
			f.Type = ft
			fields[i], retyped = f, retyped || changed
		}
		if retyped {
			return arrow.StructOf(fields...), true
		}
	}
	return t, false
}

// fileBatch gives a batch the file's types. The caller releases the result.
func (s *fileSchema) fileBatch(rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	if int(rec.NumCols()) != len(s.schema.Fields) {
		return nil, errs.New(errs.Internal, "a batch has %d columns, and schema %d has %d", rec.NumCols(), s.schema.ID, len(s.schema.Fields))
	}
	cols := make([]arrow.Array, rec.NumCols())
	for i := range cols {
		c := rec.Column(i)
		if want := s.rows.Field(i).Type; !arrow.TypeEqual(c.DataType(), want) {
			return nil, errs.New(errs.Internal, "column %q of a batch is %s and not %s", s.schema.Fields[i].Name, c.DataType(), want)
		}
		cols[i] = c
		if s.retype[i] {
			cols[i] = array.MakeFromData(retype(c.Data(), s.file.Field(i).Type))
		}
	}
	return array.NewRecordBatch(s.file, cols, rec.NumRows()), nil
}

// retype returns the same buffers under another type of the same layout.
func retype(d arrow.ArrayData, t arrow.DataType) arrow.ArrayData {
	kids := d.Children()
	if len(kids) > 0 {
		var types []arrow.DataType
		switch t := t.(type) {
		case *arrow.MapType:
			types = []arrow.DataType{t.Elem()}
		case *arrow.ListType:
			types = []arrow.DataType{t.Elem()}
		case *arrow.StructType:
			for _, f := range t.Fields() {
				types = append(types, f.Type)
			}
		}
		out := make([]arrow.ArrayData, len(kids))
		for i, k := range kids {
			out[i] = retype(k, types[i])
		}
		kids = out
	}
	return array.NewData(t, d.Len(), d.Buffers(), kids, d.NullN(), d.Offset())
}
