package merge

import (
	"bytes"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// A cell is a reference into a column: [0, n) a row of the request, from n on an
// old row, null, or below null a computed value.
const null int32 = -1

// column is one column of a request while it is applied.
type column struct {
	field     segments.Field
	rows, old arrow.Array // old may be nil
	n         int32
	cells     []int32 // of each row of the request; nil when rows are whole
	computed  []any   // as segments.FromIcebergValue returns values
	defaults  int32   // cell of the default; 0 = not made yet
}

// at resolves a reference that is neither null nor computed.
func (c *column) at(cell int32) (arrow.Array, int) {
	if cell < c.n {
		return c.rows, int(cell)
	}
	return c.old, int(cell - c.n)
}

// compute makes a cell of a value.
func (c *column) compute(v any) int32 {
	c.computed = append(c.computed, v)
	return null - int32(len(c.computed)) //nolint:gosec // at most one a row
}

func (c *column) computedAt(cell int32) any { return c.computed[null-cell-1] }

func (c *column) null(cell int32) bool {
	if cell <= null {
		return cell == null
	}
	a, i := c.at(cell)
	return a.IsNull(i)
}

// initial is the cell of a column that an insert does not name: its default, else
// NULL if it may be.
func (c *column) initial() (cell int32, reason string, err error) {
	if len(c.field.Default) == 0 {
		if c.field.Required {
			return null, "the column is required, and a write that does not name it inserts the row", nil
		}
		return null, "", nil
	}
	if c.defaults == 0 {
		v, err := c.field.DefaultValue()
		if err != nil {
			return null, "", err
		}
		c.defaults = c.compute(v)
	}
	return c.defaults, "", nil
}

// value returns a cell that is not NULL as segments.FromIcebergValue does.
func (c *column) value(cell int32) any {
	if cell < null {
		return c.computedAt(cell)
	}
	a, i := c.at(cell)
	switch a := a.(type) {
	case *array.Boolean:
		return a.Value(i)
	case *array.Int32:
		return a.Value(i)
	case *array.Date32:
		return int32(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Time64:
		return int64(a.Value(i))
	case *array.Timestamp:
		return int64(a.Value(i))
	case *array.Float32:
		return a.Value(i)
	case *array.Float64:
		return a.Value(i)
	case *array.Decimal128:
		return a.Value(i)
	case *array.String:
		return a.Value(i)
	case *array.Binary:
		return a.Value(i)
	case *array.FixedSizeBinary:
		return a.Value(i)
	}
	return nil
}

// integer returns a cell of an integer or a time.
func (c *column) integer(cell int32) int64 {
	if cell >= 0 {
		switch a, i := c.at(cell); a := a.(type) {
		case *array.Int64:
			return a.Value(i)
		case *array.Int32:
			return int64(a.Value(i))
		}
	}
	switch v := c.value(cell).(type) {
	case int32:
		return int64(v)
	case int64:
		return v
	}
	return 0
}

// equal reports whether two cells hold the same value, bit for bit: NaN is equal
// to NaN, and 0.0 not to -0.0.
func (c *column) equal(a, b int32) bool {
	if a == b {
		return true
	}
	if c.null(a) || c.null(b) {
		return c.null(a) && c.null(b)
	}
	if a < null || b < null {
		return equalValues(c.field.Type, c.value(a), c.value(b))
	}
	x, i := c.at(a)
	y, j := c.at(b)
	return equalAt(x, i, y, j)
}

func equalAt(x arrow.Array, i int, y arrow.Array, j int) bool {
	switch x := x.(type) {
	case *array.Int64:
		return x.Value(i) == y.(*array.Int64).Value(j) //nolint:forcetypeassert // of one column
	case *array.Int32:
		return x.Value(i) == y.(*array.Int32).Value(j) //nolint:forcetypeassert // of one column
	case *array.String:
		return x.Value(i) == y.(*array.String).Value(j) //nolint:forcetypeassert // of one column
	case *array.Binary:
		return bytes.Equal(x.Value(i), y.(*array.Binary).Value(j)) //nolint:forcetypeassert // of one column
	case *array.Boolean:
		return x.Value(i) == y.(*array.Boolean).Value(j) //nolint:forcetypeassert // of one column
	}
	if width, ok := x.DataType().(arrow.FixedWidthDataType); ok && !arrow.IsNested(x.DataType().ID()) {
		return bytes.Equal(fixedAt(x, i, width.Bytes()), fixedAt(y, j, width.Bytes()))
	}
	// Nested values: the length of the slices differs only with the values.
	return array.SliceEqual(x, int64(i), int64(i+1), y, int64(j), int64(j+1))
}

func fixedAt(a arrow.Array, i, width int) []byte {
	at := (a.Data().Offset() + i) * width
	return a.Data().Buffers()[1].Bytes()[at : at+width]
}

func equalValues(t segments.Type, a, b any) bool {
	x, err := segments.ToIcebergValue(a, t)
	if err != nil {
		return false
	}
	y, err := segments.ToIcebergValue(b, t)
	return err == nil && bytes.Equal(x, y)
}

// gather makes an array of cells.
func (c *column) gather(cells []int32) (arrow.Array, error) {
	parts := []arrow.Array{c.rows}
	total := c.rows.Len()
	if c.old != nil {
		parts = append(parts, c.old)
		total += c.old.Len()
	}
	extra := total // where computed values begin; NULL follows them
	if len(c.computed) > 0 || slices.Contains(cells, null) {
		computed, err := c.computedArray()
		if err != nil {
			return nil, err
		}
		parts = append(parts, computed)
	}
	stack := parts[0]
	if len(parts) > 1 {
		var err error
		if stack, err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			return nil, errs.Wrap(errs.TooLarge, "merge column "+c.field.Name, err)
		}
	}
	rows := make([]int32, len(cells))
	for i, cell := range cells {
		switch {
		case cell == null:
			cell = int32(extra + len(c.computed)) //nolint:gosec // a batch is far smaller
		case cell < null:
			cell = int32(extra) + null - cell - 1 //nolint:gosec // a batch is far smaller
		}
		rows[i] = cell
	}
	schema := arrow.NewSchema([]arrow.Field{{Name: c.field.Name, Type: stack.DataType(), Nullable: true}}, nil)
	taken, err := segments.Take(array.NewRecordBatch(schema, []arrow.Array{stack}, int64(stack.Len())), rows)
	if err != nil {
		return nil, errs.In("merge column "+c.field.Name, err)
	}
	return taken.Column(0), nil
}

// computedArray holds the computed values and, last, a NULL.
func (c *column) computedArray() (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, c.rows.DataType())
	for _, v := range c.computed {
		if err := segments.AppendValue(b, v); err != nil {
			return nil, errs.In("merge column "+c.field.Name, err)
		}
	}
	b.AppendNull()
	return b.NewArray(), nil
}

// compare orders two cells that are not NULL, as Iceberg orders values.
func (c *column) compare(a, b int32) int {
	switch x := c.value(a).(type) {
	case string:
		y, _ := c.value(b).(string)
		return bytes.Compare([]byte(x), []byte(y))
	case decimal128.Num:
		y, _ := c.value(b).(decimal128.Num)
		return x.Cmp(y)
	}
	x, _ := segments.ToIcebergValue(c.value(a), c.field.Type)
	y, _ := segments.ToIcebergValue(c.value(b), c.field.Type)
	n, _ := segments.CompareValues(c.field.Type, x, y)
	return n
}
