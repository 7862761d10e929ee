package agent

import (
	"context"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
)

// rowsMode is how the rows of a request are read and applied to their table.
type rowsMode struct {
	op       string // append, upsert or delete; of change events empty
	debezium bool
	columns  []int    // positions that a partial write names, key columns left out; nil: all
	read     []string // columns that rows hold, in the order of the table; nil: all
	key      []string
}

// modeOf checks what a request says of its rows against its table.
func modeOf(def *metastore.Table, op string, columns []string, envelope string) (rowsMode, error) {
	if !slices.Contains([]string{"", "append", "upsert", "delete"}, op) {
		return rowsMode{}, errs.New(errs.Invalid, "op %q: must be append, upsert or delete", op)
	}
	if !def.Keyed() {
		return rowsMode{op: "append"}, checkLogOp(def, op, columns, envelope)
	}
	m := rowsMode{op: op, key: def.ColumnNames(def.PrimaryKey)}
	switch {
	case op == "append":
		return m, errs.New(errs.Invalid, "op=append needs a log table: table %s has a primary key and takes op=upsert (the default) or op=delete", def)
	case envelope != "" && envelope != "debezium":
		return m, errs.New(errs.Invalid, "envelope %q: must be debezium", envelope)
	case envelope != "" && (op != "" || columns != nil):
		return m, errs.New(errs.Invalid, "envelope=debezium: each event says itself what it does; leave out op and columns")
	case envelope != "":
		m.debezium = true
		return m, nil
	case op == "":
		m.op = "upsert"
	}
	if err := m.name(def.Current(), columns); err != nil {
		return m, err
	}
	if m.op == "delete" {
		m.read = m.inOrder(def.Current(), nil)
	} else if columns != nil {
		m.read = m.inOrder(def.Current(), columns)
	}
	return m, nil
}

func checkLogOp(def *metastore.Table, op string, columns []string, envelope string) error {
	switch {
	case op == "upsert" || op == "delete":
		return errs.New(errs.Invalid, "op=%s needs a primary key: table %s is a log table, which takes op=append", op, def)
	case columns != nil:
		return errs.New(errs.Invalid, "columns= is a partial update and needs a primary key: table %s is a log table", def)
	case envelope != "":
		return errs.New(errs.Invalid, "envelope=%s needs a primary key: table %s is a log table", envelope, def)
	}
	return nil
}

// name resolves the columns of a partial write.
func (m *rowsMode) name(s *segments.Schema, columns []string) error {
	if columns == nil {
		return nil
	}
	if len(columns) == 0 || slices.Contains(columns, "") {
		return errs.New(errs.Invalid, "columns: an empty name; give column names, as in columns=a,b")
	}
	if _, err := s.Select(columns); err != nil {
		return errs.In("columns", err)
	}
	m.columns = []int{}
	for i, f := range s.Fields {
		if slices.Contains(columns, f.Name) && !slices.Contains(m.key, f.Name) {
			m.columns = append(m.columns, i)
		}
	}
	if len(m.columns) == 0 {
		return errs.New(errs.Invalid, "columns=%s names key columns only, which are implied: name a column that is written, or leave columns out", strings.Join(columns, ","))
	}
	return nil
}

// inOrder returns the key columns and others, in the order of the table.
func (m *rowsMode) inOrder(s *segments.Schema, others []string) []string {
	var out []string
	for _, f := range s.Fields {
		if slices.Contains(m.key, f.Name) || slices.Contains(others, f.Name) {
			out = append(out, f.Name)
		}
	}
	return out
}

// prepare says how the rows are decoded.
func (m *rowsMode) prepare(o *rows.DecodeOptions) {
	o.Columns, o.PassOthers = m.read, m.read != nil
	o.Debezium, o.Key = m.debezium, m.key
}

// beginRows hands decoded rows over: appends, or changes of a primary-key table.
// Rows that cannot be applied are returned, also beside the error that refuses the
// request for them.
func (n *incarnation) beginRows(ctx context.Context, m *rowsMode, skipBad bool, req AppendRequest) (*pendingAppend, []rows.RowError, error) {
	if !req.Table.Keyed() {
		p, err := n.begin(ctx, req)
		return p, nil, err
	}
	w := WriteRequest{
		Table: req.Table, Schema: req.Schema, Columns: m.columns, BodyRows: req.BodyRows, Producer: req.Producer, SkipBad: skipBad,
		Chunks: make([]rows.Chunk, len(req.Chunks)), Deletes: m.deletes(req.Chunks),
	}
	for i, c := range req.Chunks {
		c.Rows = widened(c.Rows, req.Schema)
		w.Chunks[i] = c
	}
	p, bad, err := n.beginWrite(ctx, w)
	switch {
	case err == nil:
		return p, bad, nil
	case skipBad || len(bad) == 0:
		return nil, nil, err
	}
	return nil, bad, refusedRows(bad)
}

// deletes marks the rows that are deletes, by chunk; nil when none is.
func (m *rowsMode) deletes(chunks []rows.Chunk) [][]bool {
	out := make([][]bool, len(chunks))
	found := false
	for i, c := range chunks {
		switch {
		case m.op == "delete":
			out[i] = slices.Repeat([]bool{true}, int(c.Rows.NumRows()))
		case c.Deletes != nil:
			out[i] = c.Deletes
		}
		found = found || out[i] != nil
	}
	if !found {
		return nil
	}
	return out
}

// widened returns rows with all columns of a schema: those that they lack are NULL.
func widened(rec arrow.RecordBatch, s *segments.Schema) arrow.RecordBatch {
	if int(rec.NumCols()) == len(s.Fields) {
		return rec
	}
	schema := s.Arrow()
	cols := make([]arrow.Array, schema.NumFields())
	next := 0 // both are in the order of the table
	for i, f := range schema.Fields() {
		if next < int(rec.NumCols()) && rec.ColumnName(next) == f.Name {
			cols[i] = rec.Column(next)
			next++
			continue
		}
		cols[i] = array.MakeArrayOfNull(memory.DefaultAllocator, f.Type, int(rec.NumRows()))
	}
	return array.NewRecordBatch(schema, cols, rec.NumRows())
}

const maxRowErrors = 100 // listed in an answer; all are counted

// refusedRows is the error of a request whose rows cannot be applied.
func refusedRows(bad []rows.RowError) error {
	e := errs.New(errs.Invalid, "%d rows cannot be applied, the first is %s; nothing of the request is applied", len(bad), bad[0])
	if len(bad) == 1 {
		e = errs.New(errs.Invalid, "a row cannot be applied: %s; nothing of the request is applied", bad[0])
	}
	for _, row := range bad[:min(len(bad), maxRowErrors)] {
		e.Details = append(e.Details, row)
	}
	return e
}
