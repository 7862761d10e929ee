package merge

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

// The state of a key while a request is applied is, per column, a reference to a
// cell: of the request's rows, of the old rows, or computed. Whole-row writes share
// one reference for all columns.

const (
	gone   int32 = -1 // the key has no row
	unread int32 = -2 // it has one whose values were not read
)

// output is one change: its type and the row state that it shows.
type output struct{ kind, state int32 }

// run applies one request.
type run struct {
	e       *Engine
	req     *Request
	n       int32
	columns []*column
	partial bool    // some columns only: cells have references of their own
	named   []bool  // by column
	left    []int32 // per row: the state that it left: a row of the request, n + an old row, gone, unread
	outputs []output
	res     Result
}

// Apply decides a request. Errors of class Invalid are of the request as a whole;
// a row's own are in the result.
func (e *Engine) Apply(req *Request) (*Result, error) {
	r, err := e.newRun(req)
	if err != nil {
		return nil, err
	}
	for i := range r.n {
		if req.Deletes != nil && req.Deletes[i] {
			err = r.delete(i)
		} else {
			err = r.upsert(i)
		}
		if err != nil {
			return nil, err
		}
		r.res.Ends[i] = int32(len(r.outputs)) //nolint:gosec // at most two a row
	}
	if r.res.Changes, err = r.build(); err != nil {
		return nil, err
	}
	return &r.res, nil
}

func (e *Engine) newRun(req *Request) (*run, error) {
	n := int(req.Rows.NumRows())
	if len(req.Before) != n || len(req.OldRow) != n || req.Deletes != nil && len(req.Deletes) != n {
		return nil, errs.New(errs.Internal, "merge: a request of %d rows has %d, %d and %d notes on them", n, len(req.Before), len(req.OldRow), len(req.Deletes))
	}
	r := &run{
		e: e, req: req, n: int32(n), partial: req.Columns != nil || e.def.Kind == Aggregation, //nolint:gosec // a batch is far smaller
		left: make([]int32, n), named: make([]bool, len(e.key)), res: Result{Ends: make([]int32, n)},
	}
	for c := range r.named {
		r.named[c] = req.Columns == nil
	}
	for _, c := range req.Columns {
		r.named[c] = true
	}
	for c, f := range e.def.Schema.Fields {
		col := &column{field: f, rows: req.Rows.Column(c), n: r.n}
		if req.Old != nil {
			col.old = req.Old.Column(c)
		}
		if r.partial {
			col.cells = make([]int32, n)
		}
		r.columns = append(r.columns, col)
	}
	return r, nil
}

// before returns the state that row i meets.
func (r *run) before(i int32) int32 {
	if p := r.req.Before[i]; p >= 0 {
		return r.left[p]
	}
	switch o := r.req.OldRow[i]; o {
	case Absent:
		return gone
	case Present:
		return unread
	default:
		return r.n + o
	}
}

// cell returns the reference of column c in a state.
func (r *run) cell(c int, state int32) int32 {
	if state < r.n && r.columns[c].cells != nil {
		return r.columns[c].cells[state]
	}
	return state
}

func (r *run) emit(kind, state int32) { r.outputs = append(r.outputs, output{kind, state}) }

func (r *run) fail(i int32, column, reason string) {
	r.res.Errors = append(r.res.Errors, RowError{int(i), column, reason})
	r.left[i] = r.before(i)
}

func (r *run) upsert(i int32) error {
	was := r.before(i)
	if was != gone && r.loses(i, was) {
		r.left[i] = was
		return nil
	}
	if r.partial {
		if was == unread {
			return errs.New(errs.Internal, "merge: a partial write and an aggregation need the row that they change")
		}
		if ok, err := r.compose(i, was); err != nil || !ok {
			return err
		}
	}
	if was == gone {
		r.emit(Insert, i)
		r.left[i] = i
		return nil
	}
	if !r.e.def.KeepNoops && was != unread && r.same(i, was) {
		r.left[i] = was
		return nil
	}
	r.update(i, was)
	return nil
}

func (r *run) update(i, was int32) {
	if !r.e.def.AfterOnly {
		r.emit(UpdateBefore, was)
	}
	r.emit(UpdateAfter, i)
	r.left[i] = i
}

// loses reports whether the row that a key has stands against a newer write.
func (r *run) loses(i, was int32) bool {
	switch r.e.def.Kind {
	case FirstRow:
		return true
	case Versioned:
		v := r.columns[r.e.version]
		theirs, mine := r.cell(r.e.version, was), i
		switch {
		case v.null(mine):
			return true
		case v.null(theirs):
			return false
		}
		return v.integer(mine) < v.integer(theirs)
	}
	return false
}

// same reports whether an upsert changes nothing.
func (r *run) same(i, was int32) bool {
	for c, col := range r.columns {
		if r.e.key[c] {
			continue
		}
		if !col.equal(r.cell(c, i), r.cell(c, was)) {
			return false
		}
	}
	return true
}

// compose sets the cells of a partial write or an aggregation. It reports false
// when the row was refused.
func (r *run) compose(i, was int32) (bool, error) {
	for c, col := range r.columns {
		cell, reason, err := r.composeCell(c, i, was)
		if err != nil {
			return false, err
		}
		if reason != "" {
			r.fail(i, col.field.Name, reason)
			return false, nil
		}
		col.cells[i] = cell
	}
	return true, nil
}

func (r *run) composeCell(c int, i, was int32) (cell int32, reason string, err error) {
	col := r.columns[c]
	switch {
	case r.e.key[c]:
		return i, "", nil
	case !r.named[c] && was != gone:
		return r.cell(c, was), "", nil
	case !r.named[c]:
		return col.initial()
	case r.e.funcs == nil:
		return i, "", nil
	case was == gone:
		cell, reason = r.e.funcs[c].first(col, i)
		return cell, reason, nil
	}
	cell, reason = r.e.funcs[c].merge(col, r.cell(c, was), i)
	return cell, reason, nil
}

func (r *run) delete(i int32) error {
	was := r.before(i)
	r.left[i] = was
	switch {
	case r.e.def.Deletes == DeleteIgnore:
		return nil
	case r.e.def.Deletes == DeleteReject:
		r.fail(i, "", "the table rejects deletes (delete_behavior)")
		return nil
	case was == gone:
		return nil
	case was == unread:
		return errs.New(errs.Internal, "merge: a delete needs the row that it deletes")
	case r.req.Columns == nil:
		r.emit(Delete, was)
		r.left[i] = gone
		return nil
	}
	return r.deleteCells(i, was)
}

// deleteCells sets the named columns to NULL, and deletes the row when no other
// column is left.
func (r *run) deleteCells(i, was int32) error {
	changed, empty := false, true
	for c, col := range r.columns {
		cell := r.cell(c, was)
		if r.named[c] && !r.e.key[c] {
			if col.field.Required {
				r.fail(i, col.field.Name, "the column is required: it cannot be set to NULL")
				return nil
			}
			changed = changed || !col.null(cell)
			cell = null
		}
		col.cells[i] = cell
		empty = empty && (r.e.key[c] || col.null(cell))
	}
	switch {
	case empty:
		r.emit(Delete, was)
		r.left[i] = gone
	case changed || r.e.def.KeepNoops:
		r.update(i, was)
	}
	return nil
}

// build makes the batch of changes.
func (r *run) build() (arrow.RecordBatch, error) {
	if len(r.outputs) == 0 {
		return nil, nil
	}
	kinds := make([]int32, len(r.outputs))
	states := make([]int32, len(r.outputs))
	for j, o := range r.outputs {
		kinds[j], states[j] = o.kind, o.state
	}
	cols := make([]arrow.Array, 0, len(r.columns)+1)
	cells := states
	for _, col := range r.columns {
		if col.cells != nil {
			cells = make([]int32, len(states))
			for j, s := range states {
				cells[j] = s
				if s < r.n {
					cells[j] = col.cells[s]
				}
			}
		}
		a, err := col.gather(cells)
		if err != nil {
			return nil, err
		}
		cols = append(cols, a)
	}
	b := array.NewInt32Builder(memory.DefaultAllocator)
	b.AppendValues(kinds, nil)
	cols = append(cols, b.NewArray())
	return array.NewRecordBatch(r.e.schema.Arrow(), cols, int64(len(states))), nil
}
