package merge

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Kind is a merge engine.
type Kind uint8

// The merge engines.
const (
	LastRow     Kind = iota + 1 // the newest write wins
	FirstRow                    // the first write wins
	Versioned                   // the write with the largest version wins, of equal ones the newest
	Aggregation                 // each column has a function
)

// DeleteBehavior is what a delete does.
type DeleteBehavior uint8

// The behaviors.
const (
	DeleteAllow  DeleteBehavior = iota + 1
	DeleteIgnore                // nothing
	DeleteReject                // an error of the row
)

// Definition is what an engine must know of a table. Columns are named by field id.
type Definition struct {
	Schema        *segments.Schema
	PrimaryKey    []int32
	Kind          Kind
	VersionColumn int32 // of Versioned
	Deletes       DeleteBehavior
	AfterOnly     bool // changelog_image=after: no UPDATE_BEFORE
	KeepNoops     bool // noop_updates=keep
}

// Engine applies writes to the rows of one table under one schema.
type Engine struct {
	def     Definition
	schema  *segments.Schema // with the change type
	key     []bool           // by column
	version int              // column; -1 = none
	funcs   []aggregate      // by column; of Aggregation
}

// New returns the engine of a definition, which metastore has checked. Errors of
// class Invalid name what is wrong.
func New(def Definition) (*Engine, error) {
	s := def.Schema
	e := &Engine{def: def, schema: WithChangeType(s), key: make([]bool, len(s.Fields)), version: -1}
	for _, id := range def.PrimaryKey {
		at := s.IndexOfID(id)
		if at < 0 {
			return nil, errs.New(errs.Invalid, "merge engine: schema %d has no key column with field id %d", s.ID, id)
		}
		e.key[at] = true
	}
	switch def.Kind {
	case Versioned:
		if e.version = s.IndexOfID(def.VersionColumn); e.version < 0 {
			return nil, errs.New(errs.Invalid, "merge engine: schema %d has no version column with field id %d", s.ID, def.VersionColumn)
		}
	case Aggregation:
		e.funcs = make([]aggregate, len(s.Fields))
		for i, f := range s.Fields {
			if e.key[i] {
				continue
			}
			var err error
			if e.funcs[i], err = parseAggregate(f); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

// Schema returns the schema of the changes: the table's and the change type.
func (e *Engine) Schema() *segments.Schema { return e.schema }

// NeedsOld reports whether a write needs the values of the row that it replaces,
// not only whether there is one. deletes and partial say what is in the request.
func (e *Engine) NeedsOld(deletes, partial bool) bool {
	return !e.def.AfterOnly || !e.def.KeepNoops || deletes || partial || e.def.Kind == Versioned || e.def.Kind == Aggregation
}

// ChangeTypeID is the field id of the change type in the log of a primary-key
// table: the one that Iceberg reserves for it.
const ChangeTypeID = 2147483543

// ChangeTypeColumn is its name.
const ChangeTypeColumn = "_change_type"

// Change types, as the log holds them.
const (
	Insert       int32 = iota
	UpdateBefore       // the row before an update
	UpdateAfter        // the row after it
	Delete             // the row that was deleted
)

// WithChangeType returns the schema of a table's log: the table's columns, then
// the change type, under the same schema id.
func WithChangeType(s *segments.Schema) *segments.Schema {
	return &segments.Schema{ID: s.ID, Fields: append(slices.Clone(s.Fields),
		segments.Field{ID: ChangeTypeID, Name: ChangeTypeColumn, Type: segments.Type{Kind: segments.Int}, Required: true})}
}

// Present in Request.OldRow says that a key has a row whose values were not read.
const Present = -2

// Absent says that it has none.
const Absent = -1

// Request is the writes of one request to one bucket, in order.
type Request struct {
	// Rows have the table's schema. Of a partial write the columns that it does not
	// name hold anything; of a delete all but the key.
	Rows arrow.RecordBatch
	// Deletes marks the rows that are deletes; nil: none is.
	Deletes []bool
	// Columns are the positions of the columns that a partial write names; nil: all.
	Columns []int
	// Before is, for each row, the row before it in Rows with the same key, or -1.
	Before []int32
	// Old holds the rows that keys have, in the table's schema, and OldRow the row in
	// it for each row of Rows whose Before is -1: or Absent, or Present.
	Old    arrow.RecordBatch
	OldRow []int32
}

// Result is the changes that a request makes.
type Result struct {
	Changes arrow.RecordBatch // of Engine.Schema; nil if there are none
	// Ends holds, for each row of the request, the end of its changes in Changes;
	// they begin where those of the row before end.
	Ends []int32
	// Errors are the rows that were not applied, in order.
	Errors []RowError
}

// RowError says why a row was not applied.
type RowError struct {
	Row    int
	Column string // may be empty
	Reason string
}
