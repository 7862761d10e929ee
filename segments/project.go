package segments

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

// Project reads rows of one schema as rows of another, matching columns by
// field id at every depth: columns are dropped, renamed, reordered and widened,
// and a column that from lacks gets its default, or NULL. Values are shared
// with rec where they can be. A change that cannot be made is Invalid.
//
// from may be a selection of the schema that wrote the rows, but then a column
// that was left out reads as if it had never been written.
func Project(rec arrow.RecordBatch, from, to *Schema) (arrow.RecordBatch, error) {
	if err := checkBatch(rec, from); err != nil {
		return nil, errs.In("project rows", err)
	}
	schema := to.Arrow()
	cols := make([]arrow.Array, len(to.Fields))
	for i, f := range to.Fields {
		var err error
		if at := from.IndexOfID(f.ID); at >= 0 {
			cols[i], err = projectColumn(rec.Column(at), from.Fields[at].Type, f.Type, schema.Field(i).Type)
		} else {
			cols[i], err = absentColumn(f, schema.Field(i).Type, int(rec.NumRows()))
		}
		if err != nil {
			return nil, errs.In("project column "+f.Name, err)
		}
	}
	return array.NewRecordBatch(schema, cols, rec.NumRows()), nil
}

func projectColumn(a arrow.Array, from, to Type, dt arrow.DataType) (arrow.Array, error) {
	if sameArrow(a.DataType(), dt) {
		a.Retain()
		return a, nil
	}
	d, err := projectData(a.Data(), from, to, dt)
	if err != nil {
		return nil, err
	}
	return array.MakeFromData(d), nil
}

// sameArrow reports whether two types are equal down to names and field ids.
func sameArrow(a, b arrow.DataType) bool { return arrow.TypeEqual(a, b, arrow.CheckMetadata()) }

func absentColumn(f Field, dt arrow.DataType, n int) (arrow.Array, error) {
	v, err := f.DefaultValue()
	if err != nil {
		return nil, err
	}
	if v == nil && f.Required {
		return nil, errs.New(errs.Invalid, "it is required, has no default, and the rows lack it")
	}
	return ConstantArray(f.Type, dt, v, n)
}

// ConstantArray returns n times the value v, which is of the Go type that
// FromIcebergValue returns for t, or nil for NULL. dt is t's Arrow type.
func ConstantArray(t Type, dt arrow.DataType, v any, n int) (arrow.Array, error) {
	if v == nil {
		return array.MakeArrayOfNull(memory.DefaultAllocator, dt, n), nil
	}
	b := array.NewBuilder(memory.DefaultAllocator, dt)
	b.Reserve(n)
	for range n {
		if err := AppendValue(b, v); err != nil {
			return nil, errs.New(errs.Invalid, "a Go value of type %T is no value of type %s", v, t)
		}
	}
	return b.NewArray(), nil
}

// projectData rebuilds data of one type as another. The result shares buffers
// unless values change their width.
func projectData(d arrow.ArrayData, from, to Type, dt arrow.DataType) (arrow.ArrayData, error) {
	if sameArrow(d.DataType(), dt) {
		d.Retain()
		return d, nil
	}
	switch {
	case from.Kind == Int && to.Kind == Long:
		return widened(d, dt, widen[int32, int64]), nil
	case from.Kind == Float && to.Kind == Double:
		return widened(d, dt, widen[float32, float64]), nil
	case from.Kind != to.Kind:
		return nil, CheckWiden(from, to)
	case from.Kind == Decimal:
		if err := CheckWiden(from, to); err != nil && !from.Same(to) {
			return nil, err
		}
		return retyped(d, dt, nil), nil
	case from.Kind == List:
		child, err := projectData(d.Children()[0], from.Children[0].Type, to.Children[0].Type, dt.(*arrow.ListType).Elem())
		if err != nil {
			return nil, err
		}
		return retyped(d, dt, []arrow.ArrayData{child}), nil
	case from.Kind == Map:
		entries, err := projectStruct(d.Children()[0], from.Children, to.Children, dt.(*arrow.MapType).Elem().(*arrow.StructType))
		if err != nil {
			return nil, err
		}
		return retyped(d, dt, []arrow.ArrayData{entries}), nil
	case from.Kind == Struct:
		return projectStruct(d, from.Children, to.Children, dt.(*arrow.StructType))
	case from.Kind == Fixed && from.Length != to.Length:
		return nil, CheckWiden(from, to)
	}
	return retyped(d, dt, nil), nil
}

func projectStruct(d arrow.ArrayData, from, to []Field, dt *arrow.StructType) (arrow.ArrayData, error) {
	children := make([]arrow.ArrayData, len(to))
	for i, f := range to {
		cdt := dt.Field(i).Type
		at := -1
		for j := range from {
			if from[j].ID == f.ID {
				at = j
			}
		}
		if at < 0 {
			if f.Required {
				return nil, errs.New(errs.Invalid, "field %s is required, and the rows lack it", f.Name)
			}
			children[i] = array.MakeArrayOfNull(memory.DefaultAllocator, cdt, d.Offset()+d.Len()).Data()
			continue
		}
		var err error
		children[i], err = projectData(d.Children()[at], from[at].Type, f.Type, cdt)
		if err != nil {
			return nil, errs.In("field "+f.Name, err)
		}
	}
	return retyped(d, dt, children), nil
}

// retyped is d with another type and, for nested types, other children.
func retyped(d arrow.ArrayData, dt arrow.DataType, children []arrow.ArrayData) arrow.ArrayData {
	return array.NewData(dt, d.Len(), d.Buffers(), children, d.NullN(), d.Offset())
}

// widened is d's values converted, from offset zero.
func widened(d arrow.ArrayData, dt arrow.DataType, convert func([]byte, int, int) []byte) arrow.ArrayData {
	bufs := []*memory.Buffer{nil, memory.NewBufferBytes(convert(buf(d.Buffers(), 1), d.Offset(), d.Len()))}
	if b := buf(d.Buffers(), 0); len(b) > 0 && d.NullN() != 0 {
		bits := make([]byte, bytesForBits(d.Len()))
		bitutil.CopyBitmap(b, d.Offset(), d.Len(), bits, 0)
		bufs[0] = memory.NewBufferBytes(bits)
	}
	return array.NewData(dt, d.Len(), bufs, nil, d.NullN(), 0)
}

func widen[A int32 | float32, B int64 | float64](b []byte, off, n int) []byte {
	if n == 0 {
		return nil
	}
	out := make([]B, n)
	for i, v := range view[A](b)[off : off+n] {
		out[i] = B(v)
	}
	return bytesOf(out)
}
