package rows

import (
	"fmt"
	"sort"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/segments"
)

// caster turns an array of one type into data of a column's type. Values that
// have no equal there mark their row as bad and become NULL.
type caster interface {
	cast(a arrow.Array, at place) arrow.ArrayData
}

// newCaster returns how values of a foreign type become those of the field, or
// an error when some could be lost whatever the values are.
func newCaster(from arrow.DataType, f segments.Field, ignoreUnknown bool) (caster, error) {
	if ext, ok := from.(arrow.ExtensionType); ok {
		inner, err := newCaster(ext.StorageType(), f, ignoreUnknown)
		return extensionCaster{inner}, err
	}
	refuse := func() (caster, error) {
		return nil, fmt.Errorf("type %s of Arrow cannot become %s without loss", from, f.Type)
	}
	switch f.Type.Kind {
	case segments.List:
		return newListCaster(from, f, ignoreUnknown, refuse)
	case segments.Map:
		return newMapCaster(from, f, ignoreUnknown, refuse)
	case segments.Struct:
		return newStructCaster(from, f, ignoreUnknown, refuse)
	}
	want := f.Type.Arrow()
	if arrow.TypeEqual(from, want) {
		return sameCaster{check: sameCheck(f.Type)}, nil
	}
	col, err := newColumn(f.Type, ignoreUnknown)
	if err != nil {
		return nil, err
	}
	if add := leaf(from, f.Type, col); add != nil {
		return &leafCaster{col: col, add: add}, nil
	}
	return refuse()
}

// extensionCaster casts the storage of an extension type.
type extensionCaster struct{ inner caster }

func (c extensionCaster) cast(a arrow.Array, at place) arrow.ArrayData {
	return c.inner.cast(a.(array.ExtensionArray).Storage(), at)
}

// sameCaster passes data on without a copy, after a check of the values that
// Arrow allows and the column's type does not.
type sameCaster struct {
	check func(a arrow.Array, at place)
}

func (c sameCaster) cast(a arrow.Array, at place) arrow.ArrayData {
	if c.check != nil {
		c.check(a, at)
	}
	a.Data().Retain()
	return a.Data()
}

const (
	errTimeRange = valueReason("not a time of day")
	errPrecision = valueReason("more digits than the precision of the column")
)

func sameCheck(t segments.Type) func(arrow.Array, place) {
	switch t.Kind {
	case segments.String:
		return checkUTF8
	case segments.Time:
		return func(a arrow.Array, at place) {
			for i, v := range a.(*array.Time64).Time64Values() {
				if (v < 0 || v >= dayMicros) && a.IsValid(i) {
					at.fail(i, errTimeRange)
				}
			}
		}
	case segments.Decimal:
		return func(a arrow.Array, at place) {
			for i, v := range a.(*array.Decimal128).Values() {
				if !v.FitsInPrecision(int32(t.Precision)) && a.IsValid(i) {
					at.fail(i, errPrecision)
				}
			}
		}
	}
	return nil
}

const dayMicros = 24 * 60 * 60 * 1_000_000

// checkUTF8 checks all values at once: bytes that are UTF-8 together, cut only
// at the starts of characters, are UTF-8 each.
func checkUTF8(a arrow.Array, at place) {
	s := a.(*array.String)
	if s.Len() == 0 {
		return
	}
	all := s.ValueBytes()
	if utf8.Valid(all) && cutsAtRunes(s, all) {
		return
	}
	for i := range s.Len() {
		if s.IsValid(i) && !utf8.ValidString(s.Value(i)) {
			at.fail(i, errTextUTF8)
		}
	}
}

func cutsAtRunes(s *array.String, all []byte) bool {
	base := s.ValueOffset(0)
	for i := range s.Len() {
		if p := s.ValueOffset(i) - base; p < len(all) && !utf8.RuneStart(all[p]) {
			return false
		}
	}
	return true
}

// leafCaster rebuilds an array value by value.
type leafCaster struct {
	col column
	add func(a arrow.Array, i int) error
}

func (c *leafCaster) cast(a arrow.Array, at place) arrow.ArrayData {
	for i := range a.Len() {
		if a.IsNull(i) {
			c.col.null()
			continue
		}
		if err := c.add(a, i); err != nil {
			c.col.truncate(i)
			c.col.null()
			at.fail(i, err)
		}
	}
	return c.col.take()
}

// listCaster makes lists of lists in any of Arrow's layouts with one element after the other.
type listCaster struct {
	dt   arrow.DataType
	elem caster
	// required elements are never NULL
	required bool
}

func newListCaster(from arrow.DataType, f segments.Field, ignoreUnknown bool, refuse func() (caster, error)) (caster, error) {
	switch from.(type) {
	case *arrow.NullType:
		return nullCaster(f, ignoreUnknown)
	case *arrow.ListType, *arrow.LargeListType, *arrow.FixedSizeListType:
	default:
		return refuse()
	}
	child := f.Type.Children[0]
	elem, err := newCaster(from.(arrow.ListLikeType).Elem(), child, ignoreUnknown)
	if err != nil {
		return nil, fmt.Errorf("elements: %w", err)
	}
	return &listCaster{dt: f.Type.Arrow(), elem: elem, required: child.Required}, nil
}

// ranges are the positions of a list's or map's children.
type ranges struct {
	ends  []int32 // with a zero in front: Arrow's offsets, from the first child used
	child arrow.Array
}

// children returns the children that a uses, and where each value's are.
func children(a arrow.Array, list array.ListLike) ranges {
	n := a.Len()
	r := ranges{ends: make([]int32, n+1)}
	if n == 0 {
		r.child = array.NewSlice(list.ListValues(), 0, 0)
		return r
	}
	first, last := int64(-1), int64(0)
	contiguous := true
	for i := range n {
		start, end := list.ValueOffsets(i)
		if first < 0 {
			first = start
		} else if start != last {
			contiguous = false
		}
		last = end
		r.ends[i+1] = int32(end - first)
	}
	if !contiguous {
		panic("list offsets are not ascending")
	}
	if last-first > maxBatchRows { // elements without a type cost their sender nothing
		panic(overLimit{maxBatchRows})
	}
	r.child = array.NewSlice(list.ListValues(), first, last)
	return r
}

// below returns the place of the children, whose rows are those of the values
// that hold them.
func (r ranges) below(at place, a arrow.Array, name string) place {
	return place{marks: at.marks, path: at.path + name, row: func(i int) int {
		parent := sort.Search(len(r.ends)-1, func(k int) bool { return int(r.ends[k+1]) > i })
		if a.IsNull(parent) { // a child without a meaning
			return -1
		}
		return at.row(parent)
	}}
}

func (c *listCaster) cast(a arrow.Array, at place) arrow.ArrayData {
	r := children(a, a.(array.ListLike))
	below := r.below(at, a, "[]")
	if c.required {
		below.requireAll(r.child)
	}
	child := c.elem.cast(r.child, below)
	return newData(c.dt, a.Len(), a.NullN(), []arrow.ArrayData{child}, bitmapOf(a), int32Buffer(r.ends))
}

func int32Buffer(v []int32) *memory.Buffer { return memory.NewBufferBytes(arrow.GetBytes(v)) }

// bitmapOf returns the validity of an array as a bitmap that starts at bit 0.
func bitmapOf(a arrow.Array) *memory.Buffer {
	if a.NullN() == 0 || len(a.NullBitmapBytes()) == 0 {
		return nil
	}
	out := make([]byte, bitutil.BytesForBits(int64(a.Len())))
	bitutil.CopyBitmap(a.NullBitmapBytes(), a.Data().Offset(), a.Len(), out, 0)
	return memory.NewBufferBytes(out)
}

// mapCaster makes maps.
type mapCaster struct {
	dt         *arrow.MapType
	key, value caster
	required   bool
}

func newMapCaster(from arrow.DataType, f segments.Field, ignoreUnknown bool, refuse func() (caster, error)) (caster, error) {
	if from.ID() == arrow.NULL {
		return nullCaster(f, ignoreUnknown)
	}
	m, ok := from.(*arrow.MapType)
	if !ok {
		return refuse()
	}
	key, err := newCaster(m.KeyType(), f.Type.Children[0], ignoreUnknown)
	if err != nil {
		return nil, fmt.Errorf("keys: %w", err)
	}
	value, err := newCaster(m.ItemType(), f.Type.Children[1], ignoreUnknown)
	if err != nil {
		return nil, fmt.Errorf("values: %w", err)
	}
	return &mapCaster{dt: f.Type.Arrow().(*arrow.MapType), key: key, value: value, required: f.Type.Children[1].Required}, nil
}

func (c *mapCaster) cast(a arrow.Array, at place) arrow.ArrayData {
	m := a.(*array.Map)
	r := children(a, m)
	entries := r.child.(*array.Struct)
	below := r.below(at, a, "")
	key, value := entries.Field(0), entries.Field(1)
	below.requireAll(key)
	if c.required {
		below.requireAll(value)
	}
	kv := []arrow.ArrayData{c.key.cast(key, below), c.value.cast(value, below)}
	data := newData(c.dt.Elem(), r.child.Len(), 0, kv, nil)
	return newData(c.dt, a.Len(), a.NullN(), []arrow.ArrayData{data}, bitmapOf(a), int32Buffer(r.ends))
}

// structCaster makes structs, matching children by name.
type structCaster struct {
	dt     arrow.DataType
	fields []origin
}

func newStructCaster(from arrow.DataType, f segments.Field, ignoreUnknown bool, refuse func() (caster, error)) (caster, error) {
	if from.ID() == arrow.NULL {
		return nullCaster(f, ignoreUnknown)
	}
	s, ok := from.(*arrow.StructType)
	if !ok {
		return refuse()
	}
	obj, err := newObject(f.Type.Children, ignoreUnknown)
	if err != nil {
		return nil, err
	}
	for _, theirs := range s.Fields() {
		if _, known := obj.index[theirs.Name]; !known && !ignoreUnknown {
			return nil, fmt.Errorf("the struct has field %q, which the column does not have", theirs.Name)
		}
	}
	c := &structCaster{dt: f.Type.Arrow(), fields: make([]origin, len(obj.fields))}
	for i, child := range f.Type.Children {
		src := &c.fields[i]
		src.field, src.from = obj.fields[i], -1
		if at, found := s.FieldIdx(child.Name); found {
			src.from = at
			if src.cast, err = newCaster(s.Field(at).Type, child, ignoreUnknown); err != nil {
				return nil, fmt.Errorf("field %q: %w", child.Name, err)
			}
		} else if child.Required && src.field.def == nil {
			return nil, fmt.Errorf("the struct lacks the required field %q", child.Name)
		}
	}
	return c, nil
}

func (c *structCaster) cast(a arrow.Array, at place) arrow.ArrayData {
	s := a.(*array.Struct)
	out := make([]arrow.ArrayData, len(c.fields))
	row := func(i int) int {
		if s.IsNull(i) {
			return -1
		}
		return at.row(i)
	}
	for i := range c.fields {
		f := &c.fields[i]
		below := place{marks: at.marks, path: at.path + "." + f.field.name, row: row}
		if f.from < 0 {
			for k := range s.Len() {
				if err := f.field.missing(); err != nil {
					f.field.col.truncate(k)
					f.field.col.null()
					below.fail(k, err)
				}
			}
			out[i] = f.field.col.take()
			continue
		}
		child := s.Field(f.from)
		if f.field.required {
			below.requireAll(child)
		}
		out[i] = f.cast.cast(child, below)
	}
	return newData(c.dt, s.Len(), s.NullN(), out, bitmapOf(s))
}

// nullCaster makes a column of NULLs of an array that has no type.
func nullCaster(f segments.Field, ignoreUnknown bool) (caster, error) {
	col, err := newColumn(f.Type, ignoreUnknown)
	return &leafCaster{col: col, add: nullsOf(col)}, err
}

// rescale returns v × 10^(to-from) when that is exact and fits.
func rescale(v decimal128.Num, from, to, precision int) (decimal128.Num, error) {
	for ; from > to; from-- {
		q, rem := v.Div(decimal128.FromI64(10))
		if rem.Sign() != 0 {
			return v, errDecimalFraction
		}
		v = q
	}
	for ; from < to; from++ {
		if !v.FitsInPrecision(37) {
			return v, errPrecision
		}
		v = v.Mul(decimal128.FromI64(10))
	}
	if !v.FitsInPrecision(int32(precision)) {
		return v, errPrecision
	}
	return v, nil
}

const errDecimalFraction = valueReason("more fraction digits than the scale of the column: the value would be rounded")
