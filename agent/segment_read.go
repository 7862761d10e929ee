package agent

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
	"github.com/firn-data/firn/segments/merge"
	"github.com/firn-data/firn/wal"
)

// projection is what a read wants of each row: the columns it returns, and
// those that its filter needs besides.
type projection struct {
	out    *segments.Schema // returned columns, in order
	read   *segments.Schema // out and the filter's columns
	filter *filter.Expr     // nil = all rows
}

// newProjection resolves column names and a predicate against a table's schema.
func newProjection(s *segments.Schema, columns []string, where string) (projection, error) {
	p := projection{out: s, read: s}
	var err error
	if len(columns) > 0 {
		if p.out, err = s.Select(columns); err != nil {
			return p, err
		}
		p.read = p.out
	}
	if where == "" {
		return p, nil
	}
	if p.filter, err = filter.Parse(where, s); err != nil {
		return p, err
	}
	if len(columns) == 0 {
		return p, nil
	}
	have := map[int32]bool{}
	for _, f := range p.out.Fields {
		have[f.ID] = true
	}
	read := &segments.Schema{ID: s.ID, Fields: append([]segments.Field(nil), p.out.Fields...)}
	for _, id := range p.filter.Columns() {
		if f, ok := s.FieldByID(id); ok && !have[id] {
			have[id] = true
			read.Fields = append(read.Fields, f)
		}
	}
	p.read = read
	return p, nil
}

// finish filters rows of the read schema and returns them in the output schema.
func (p projection) finish(ctx context.Context, rec arrow.RecordBatch) (arrow.RecordBatch, error) {
	if p.filter != nil {
		var err error
		if rec, err = p.filter.Apply(ctx, rec); err != nil {
			return nil, err
		}
	}
	return p.trim(rec), nil
}

// trim drops the columns that only the filter needed; they are the last ones.
func (p projection) trim(rec arrow.RecordBatch) arrow.RecordBatch {
	if len(p.out.Fields) == int(rec.NumCols()) {
		return rec
	}
	return array.NewRecordBatch(p.out.Arrow(), rec.Columns()[:len(p.out.Fields)], rec.NumRows())
}

// footerEntry returns a segment's footer entry, which must not be kept: it keeps
// its whole footer.
func (n *incarnation) footerEntry(ctx context.Context, s *liveSegment) (*wal.Segment, error) {
	footer, err := n.agent.footers.get(ctx, s.ref.Object)
	if err != nil {
		return nil, err
	}
	if int(s.ref.Index) >= len(footer.Segments) {
		return nil, errs.New(errs.Corrupt, "%s: segment %d is referenced, the footer has %d", s.ref.Object.Key(), s.ref.Index, len(footer.Segments))
	}
	return &footer.Segments[s.ref.Index], nil
}

// readLive returns rows [from, to) of a live segment in the read schema, or nil
// when the statistics show that the filter matches none of them.
func (n *incarnation) readLive(ctx context.Context, def *metastore.Table, s *liveSegment, p projection, from, to int64) (arrow.RecordBatch, error) {
	return n.readEntry(ctx, def, s, p, from, to, n.footerEntry)
}

// readEntry is readLive with another source of footer entries.
func (n *incarnation) readEntry(ctx context.Context, def *metastore.Table, s *liveSegment, p projection, from, to int64,
	entry func(context.Context, *liveSegment) (*wal.Segment, error)) (arrow.RecordBatch, error) {
	written, err := n.writtenSchema(def, s)
	if err != nil {
		return nil, err
	}
	if def.Keyed() {
		written = merge.WithChangeType(written)
	}
	some, columns := narrowed(written, p.read)
	rec, ok := n.buffer.get(segmentKey{s.ref.Object, s.ref.Index}, columns)
	if !ok {
		meta, err := entry(ctx, s)
		if err != nil {
			return nil, err
		}
		if p.filter != nil && prunes(p.filter, meta, written, p.read) {
			return nil, nil
		}
		if rec, err = wal.ReadSegment(ctx, n.agent.store, s.ref.Object, meta, written, fieldIDs(some)); err != nil {
			return nil, err
		}
	}
	base := s.ref.BaseOffset
	if from > base || to < s.end() {
		rec = rec.NewSlice(max(from-base, 0), min(to, s.end())-base)
	}
	return segments.Project(rec, some, p.read)
}

// writtenSchema is the schema of a segment's rows. A reader keeps the definition
// that it began with, and rows may come that were written after a later change.
func (n *incarnation) writtenSchema(def *metastore.Table, s *liveSegment) (*segments.Schema, error) {
	if written, err := def.Schema(s.ref.SchemaID); err == nil {
		return written, nil
	}
	written, err := n.agent.meta.State().Schema(def.ID, s.ref.SchemaID)
	if err == nil {
		return written, nil
	}
	if _, ok := n.agent.meta.State().Table(def.ID); !ok {
		return nil, errs.New(errs.NotFound, "table %s.%s was dropped", def.Database, def.Name)
	}
	return nil, errs.New(errs.Corrupt, "%s: segment has schema %d, which table %s.%s never had", s.ref.Object.Key(), s.ref.SchemaID, def.Database, def.Name)
}

// narrowed is the part of a segment's schema that a read wants, and the positions
// of its columns; nil positions when that is all of it.
func narrowed(written, read *segments.Schema) (*segments.Schema, []int) {
	s := &segments.Schema{ID: written.ID}
	columns := make([]int, 0, len(read.Fields))
	for i, f := range written.Fields {
		if read.IndexOfID(f.ID) >= 0 {
			s.Fields = append(s.Fields, f)
			columns = append(columns, i)
		}
	}
	if len(columns) == len(written.Fields) {
		return written, nil
	}
	return s, columns
}

// fieldIDs returns the ids of a schema's top-level columns.
func fieldIDs(s *segments.Schema) []int32 {
	ids := make([]int32, len(s.Fields))
	for i, f := range s.Fields {
		ids[i] = f.ID
	}
	return ids
}

// prunes reports whether statistics prove that no row of a segment matches.
// Statistics of a column whose type was widened since are left aside.
func prunes(e *filter.Expr, meta *wal.Segment, written, current *segments.Schema) bool {
	verdict := e.Prune(func(id int32) (segments.ColumnStats, int64, bool) {
		was, ok1 := written.FieldByID(id)
		is, ok2 := current.FieldByID(id)
		if !ok1 || !ok2 || !was.Type.Same(is.Type) {
			return segments.ColumnStats{}, 0, false
		}
		for i := range meta.Columns {
			if meta.Columns[i].FieldID == id {
				return meta.Columns[i].Stats, meta.Rows, true
			}
		}
		return segments.ColumnStats{}, 0, false
	})
	return verdict == filter.None
}
