package rows

import (
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// converter turns batches of a foreign schema into batches of ours. Columns
// are matched by name, in any order.
type converter struct {
	d       *decoder
	columns []origin
	source  *arrow.Schema
}

// origin is how one of our columns is got.
type origin struct {
	field field // its name, default and an empty column to fill
	from  int   // position in the foreign batch, -1 when it is missing
	cast  caster
}

func newConverter(d *decoder, foreign *arrow.Schema) (*converter, error) {
	byName := make(map[string]int, foreign.NumFields())
	for i, f := range foreign.Fields() {
		if _, dup := byName[f.Name]; dup {
			return nil, errs.New(errs.Invalid, "the schema of the body has two columns %q", f.Name)
		}
		byName[f.Name] = i
		if d.schema.Index(f.Name) < 0 && !d.passes(f.Name) {
			if d.opts.Schema.Index(f.Name) >= 0 {
				return nil, errs.New(errs.Invalid, "the body has column %q, which is not among the columns asked for", f.Name)
			}
			return nil, errs.New(errs.Invalid, "the body has column %q, which the table does not have; its columns are %s",
				f.Name, strings.Join(d.schema.Names(), ", "))
		}
	}
	obj, err := newObject(d.schema.Fields, d.opts.IgnoreUnknown)
	if err != nil {
		return nil, err
	}
	c := &converter{d: d, source: foreign, columns: make([]origin, len(d.schema.Fields))}
	for i, f := range d.schema.Fields {
		col := &c.columns[i]
		col.field, col.from = obj.fields[i], -1
		at, found := byName[f.Name]
		if !found {
			if f.Required && col.field.def == nil {
				return nil, errs.New(errs.Invalid, "the body lacks the required column %q", f.Name)
			}
			if err := checkDefault(&col.field); err != nil {
				return nil, err
			}
			continue
		}
		col.from = at
		if col.cast, err = newCaster(foreign.Field(at).Type, f, d.opts.IgnoreUnknown); err != nil {
			return nil, errs.New(errs.Invalid, "column %q: %v", f.Name, err)
		}
	}
	return c, nil
}

// passes reports whether a column that is not selected is passed over.
func (d *decoder) passes(name string) bool {
	return d.opts.IgnoreUnknown || d.opts.PassOthers && d.opts.Schema.Index(name) >= 0
}

// check validates the buffers of the columns that are used, and measures them.
func (c *converter) check(rec arrow.RecordBatch) (size int64, err error) {
	for i := range c.columns {
		col := &c.columns[i]
		if col.from < 0 {
			size += 16 * rec.NumRows()
			continue
		}
		arr := rec.Column(col.from)
		if int64(arr.Len()) != rec.NumRows() {
			return 0, errs.New(errs.Invalid, "column %q has %d values in a batch of %d rows", col.field.name, arr.Len(), rec.NumRows())
		}
		if err := array.ValidateFull(forCheck(arr)); err != nil {
			return 0, errs.New(errs.Invalid, "column %q of the body is malformed: %v", col.field.name, err)
		}
		one := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{c.source.Field(col.from)}, nil), []arrow.Array{arr}, rec.NumRows())
		size += max(segments.SizeOf(one), rec.NumRows()/8)
	}
	return size, nil
}

// forCheck returns the array in a form whose validation leaves to us what is a
// matter of single rows: whether a text is UTF-8.
func forCheck(arr arrow.Array) arrow.Array {
	var as arrow.DataType
	switch arr.DataType().ID() {
	case arrow.STRING:
		as = arrow.BinaryTypes.Binary
	case arrow.LARGE_STRING:
		as = arrow.BinaryTypes.LargeBinary
	default:
		return withNulls(arr)
	}
	d := arr.Data()
	return array.MakeFromData(array.NewData(as, d.Len(), d.Buffers(), nil, d.NullN(), d.Offset()))
}

// withNulls gives arrays of Arrow's null type inside a nested one the validity
// buffer that the validation asks for and the IPC reader leaves out.
func withNulls(arr arrow.Array) arrow.Array {
	d := arr.Data()
	if len(d.Children()) == 0 {
		if d.DataType().ID() == arrow.NULL {
			return array.NewNull(d.Len())
		}
		return arr
	}
	children := make([]arrow.ArrayData, len(d.Children()))
	for i, child := range d.Children() {
		children[i] = child
		if child.DataType().ID() == arrow.NULL || len(child.Children()) > 0 {
			children[i] = withNulls(array.MakeFromData(child)).Data()
		}
	}
	return array.MakeFromData(array.NewData(d.DataType(), d.Len(), d.Buffers(), children, d.NullN(), d.Offset()))
}

// part converts rows [from, to) of a checked batch.
func (c *converter) part(rec arrow.RecordBatch, from, to int64) (part, error) {
	n := int(to - from)
	marks := newMarks(n)
	out := make([]arrow.ArrayData, len(c.columns))
	for i := range c.columns {
		col := &c.columns[i]
		if col.from < 0 {
			for range n {
				if err := col.field.missing(); err != nil {
					return part{}, errs.New(errs.Invalid, "column %q: %v", col.field.name, err)
				}
			}
			out[i] = col.field.col.take()
			continue
		}
		arr := array.NewSlice(rec.Column(col.from), from, to)
		m := marks.in(col.field.name)
		if col.field.required {
			m.requireAll(arr)
		}
		out[i] = col.cast.cast(arr, m)
	}
	p := part{rows: int64(n)}
	if marks.n == 0 {
		p.chunks = []Chunk{{Rows: makeBatch(c.d.arrow, out, n)}}
		return p, nil
	}
	for row, e := range marks.bad {
		if e != nil {
			e.Row = int64(row)
			p.bad.add(*e)
		}
	}
	return p, c.keepGood(&p, out, marks)
}

// keepGood makes the chunk of the rows that are not marked: all of them, or
// those before the first bad one.
func (c *converter) keepGood(p *part, out []arrow.ArrayData, marks *marks) error {
	limit := len(marks.bad)
	if !c.d.opts.SkipBadRows {
		limit = int(p.bad.firstRow)
	}
	var runs [][2]int64
	var ords []int64
	for row := 0; row < limit; row++ {
		if marks.bad[row] != nil {
			continue
		}
		if k := len(runs); k > 0 && runs[k-1][1] == int64(row) {
			runs[k-1][1]++
		} else {
			runs = append(runs, [2]int64{int64(row), int64(row) + 1})
		}
		ords = append(ords, int64(row))
	}
	if len(ords) == 0 {
		return nil
	}
	cols := make([]arrow.Array, len(out))
	for i, d := range out {
		arr := array.MakeFromData(d)
		pieces := make([]arrow.Array, len(runs))
		for k, run := range runs {
			pieces[k] = array.NewSlice(arr, run[0], run[1])
		}
		var err error
		if cols[i] = pieces[0]; len(pieces) > 1 {
			if cols[i], err = array.Concatenate(pieces, c.d.alloc()); err != nil {
				return fmt.Errorf("keep good rows: %w", err)
			}
		}
	}
	chunk := Chunk{First: ords[0], Rows: array.NewRecordBatch(c.d.arrow, cols, int64(len(ords)))}
	if len(runs) > 1 {
		chunk.Ordinals = ords
	}
	p.chunks = []Chunk{chunk}
	return nil
}

// marks collects the bad rows of a stretch of a batch: one reason for each.
type marks struct {
	rows int
	bad  []*RowError // of all rows; nil while none is bad
	n    int
}

func newMarks(rows int) *marks { return &marks{rows: rows} }

func (m *marks) in(column string) place {
	return place{marks: m, path: column, row: func(i int) int { return i }}
}

// place is where values are: a column or a child, and how its values belong to rows.
type place struct {
	marks *marks
	path  string
	row   func(i int) int
}

// fail marks the row of value i as bad.
func (p place) fail(i int, why error) {
	row := p.row(i)
	if p.marks.bad == nil {
		p.marks.bad = make([]*RowError, p.marks.rows)
	}
	if row >= 0 && p.marks.bad[row] == nil {
		p.marks.bad[row] = &RowError{Column: p.path, Reason: why.Error()}
		p.marks.n++
	}
}

// requireAll marks the rows whose value is NULL.
func (p place) requireAll(arr arrow.Array) {
	if arr.NullN() == 0 && arr.DataType().ID() != arrow.DICTIONARY && arr.DataType().ID() != arrow.NULL {
		return
	}
	for i := range arr.Len() {
		if isNull(arr, i) {
			p.fail(i, errRequiredNull)
		}
	}
}

// isNull also looks through a dictionary.
func isNull(arr arrow.Array, i int) bool {
	if arr.DataType().ID() == arrow.NULL || arr.IsNull(i) {
		return true
	}
	if d, ok := arr.(*array.Dictionary); ok {
		return isNull(d.Dictionary(), d.GetValueIndex(i))
	}
	return false
}
