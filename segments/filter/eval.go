package filter

import (
	"context"
	"math/bits"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Apply returns the rows of a batch for which the predicate is true, in order.
// The batch must hold the columns of Columns, found by field id, else by name.
// When every row matches the batch itself is returned, retained.
func (e *Expr) Apply(ctx context.Context, rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	if err := ctx.Err(); err != nil {
		return nil, errs.In("filter rows", err)
	}
	m, err := e.eval(rec)
	if err != nil {
		return nil, err
	}
	switch n := m.count(); {
	case n == m.rows:
		rec.Retain()
		return rec, nil
	case n == 0:
		return rec.NewSlice(0, 0), nil
	}
	return segments.Take(rec, m.indices())
}

// Mask returns for every row of a batch whether the predicate is true.
func (e *Expr) Mask(rec arrow.RecordBatch) ([]bool, error) {
	m, err := e.eval(rec)
	if err != nil {
		return nil, err
	}
	out := make([]bool, m.rows)
	for i := range out {
		out[i] = m.words[i>>6]>>(i&63)&1 != 0
	}
	return out, nil
}

// Rows returns the positions of the rows for which the predicate is true, ascending.
func (e *Expr) Rows(rec arrow.RecordBatch) ([]int32, error) {
	m, err := e.eval(rec)
	if err != nil {
		return nil, err
	}
	return m.indices(), nil
}

// mask is a bitmap over the rows of a batch. Bits beyond them are zero.
type mask struct {
	rows  int
	words []uint64
}

func newMask(rows int) mask { return mask{rows, make([]uint64, (rows+63)/64)} }

// tail clears the bits beyond the rows.
func (m mask) tail() mask {
	if rest := m.rows & 63; rest > 0 {
		m.words[len(m.words)-1] &= 1<<rest - 1
	}
	return m
}

func (m mask) fill() mask {
	for i := range m.words {
		m.words[i] = ^uint64(0)
	}
	return m.tail()
}

func (m mask) not() mask {
	for i, w := range m.words {
		m.words[i] = ^w
	}
	return m.tail()
}

// and intersects with a mask that may be absent, which is all rows.
func (m mask) and(o []uint64) mask {
	for i, w := range o {
		m.words[i] &= w
	}
	return m
}

func (m mask) or(o []uint64) mask {
	for i, w := range o {
		m.words[i] |= w
	}
	return m
}

func (m mask) count() int {
	n := 0
	for _, w := range m.words {
		n += bits.OnesCount64(w)
	}
	return n
}

func (m mask) empty() bool {
	for _, w := range m.words {
		if w != 0 {
			return false
		}
	}
	return true
}

func (m mask) indices() []int32 {
	out := make([]int32, 0, m.count())
	for i, w := range m.words {
		for ; w != 0; w &= w - 1 {
			out = append(out, int32(i<<6+bits.TrailingZeros64(w)))
		}
	}
	return out
}

// batch is what a predicate is evaluated on: columns are looked up once.
type batch struct {
	rec  arrow.RecordBatch
	rows int
	cols map[int32]*vector // by field id
}

func (e *Expr) eval(rec arrow.RecordBatch) (mask, error) {
	b := &batch{rec: rec, rows: int(rec.NumRows()), cols: map[int32]*vector{}}
	return b.eval(e.root)
}

// eval returns the rows for which a node is true. Since no NOT stands above a
// leaf, what is false and what is unknown need not be told apart.
func (b *batch) eval(n Node) (mask, error) {
	switch n := n.(type) {
	case *And:
		return b.all(n.Args)
	case *Or:
		out := newMask(b.rows)
		for _, arg := range n.Args {
			m, err := b.eval(arg)
			if err != nil {
				return mask{}, err
			}
			out.or(m.words)
		}
		return out, nil
	case *Const:
		if n.Truth == True {
			return newMask(b.rows).fill(), nil
		}
		return newMask(b.rows), nil
	}
	return b.leaf(n)
}

func (b *batch) all(args []Node) (mask, error) {
	out, err := b.eval(args[0])
	if err != nil {
		return mask{}, err
	}
	for _, arg := range args[1:] {
		if out.empty() {
			return out, nil
		}
		m, err := b.eval(arg)
		if err != nil {
			return mask{}, err
		}
		out.and(m.words)
	}
	return out, nil
}

func (b *batch) leaf(n Node) (mask, error) {
	if n, ok := n.(*CompareColumns); ok {
		left, err := b.column(n.Left)
		if err != nil {
			return mask{}, err
		}
		right, err := b.column(n.Right)
		if err != nil {
			return mask{}, err
		}
		m := compareVectors(n.Op, left, right)
		if n.Not {
			m = m.not()
		}
		return m.and(left.valid).and(right.valid), nil
	}
	v, err := b.column(columnOf(n))
	if err != nil {
		return mask{}, err
	}
	switch n := n.(type) {
	case *IsNull:
		m := newMask(b.rows).fill().and(v.valid)
		if !n.Not {
			m = m.not()
		}
		return m, nil
	case *Known:
		if !n.Value {
			return newMask(b.rows), nil
		}
		return newMask(b.rows).fill().and(v.valid), nil
	case *Compare:
		return v.compare(n.Op, n.Value).and(v.valid), nil
	case *In:
		if n.Not && n.Null {
			return newMask(b.rows), nil
		}
		return v.in(n.Values).notIf(n.Not).and(v.valid), nil
	case *Like:
		return v.like(n.Pattern).notIf(n.Not).and(v.valid), nil
	case *IsNaN:
		return v.nan().notIf(n.Not).and(v.valid), nil
	}
	return mask{}, errs.New(errs.Internal, "filter: no evaluation for %T", n)
}

func (m mask) notIf(not bool) mask {
	if not {
		return m.not()
	}
	return m
}

func columnOf(n Node) *Column {
	switch n := n.(type) {
	case *IsNull:
		return n.Col
	case *Known:
		return n.Col
	case *Compare:
		return n.Col
	case *In:
		return n.Col
	case *Like:
		return n.Col
	case *IsNaN:
		return n.Col
	}
	return &Column{}
}

// column finds a column of the batch and the rows where it is not NULL.
func (b *batch) column(c *Column) (*vector, error) {
	if v, ok := b.cols[c.ID]; ok {
		return v, nil
	}
	at := b.find(c)
	if at < 0 {
		return nil, errs.New(errs.Internal, "filter: the batch lacks column %q", c.Name)
	}
	v, err := newVector(b.rec.Column(at), c)
	if err != nil {
		return nil, err
	}
	b.cols[c.ID] = v
	return v, nil
}

func (b *batch) find(c *Column) int {
	schema := b.rec.Schema()
	id := strconv.Itoa(int(c.Root))
	named := -1
	for i := range schema.NumFields() {
		f := schema.Field(i)
		if got, ok := f.Metadata.GetValue(segments.FieldIDKey); ok {
			if got == id {
				return i
			}
		} else if f.Name == c.rootName() {
			named = i
		}
	}
	return named
}

// rootName is the name of the top-level column.
func (c *Column) rootName() string {
	name := c.Name
	for i := len(c.path) - 1; i >= 0; i-- {
		name = name[:len(name)-len(c.path[i])-1]
	}
	return name
}
