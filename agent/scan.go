package agent

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
)

// Layer says which rows a read sees.
type Layer string

// The layers.
const (
	LayerUnion Layer = "union" // lake and live rows, everything acknowledged
	LayerLake  Layer = "lake"  // the last committed lake snapshot
)

// ScanRequest asks for rows of a table. Snapshot and AsOf read the lake as it
// was; zero means now.
type ScanRequest struct {
	Database, Table string
	Columns         []string // nil = all, in table order
	Where           string
	Limit           int64 // 0 = all
	Layer           Layer
	Snapshot        int64     // an Iceberg snapshot id
	AsOf            time.Time // newest snapshot committed at or before; zero = now
}

// RowStream is the result of a scan: a schema and batches of it. It pins what it
// reads until Close.
type RowStream struct {
	Schema  *segments.Schema
	Batches iter.Seq2[arrow.RecordBatch, error]
	unpin   func()
}

// Close lets go of what the stream pins. It may be called more than once.
func (s *RowStream) Close() { s.unpin() }

// Scan returns an exact result at one moment: the rows of one lake snapshot and
// the live rows from exactly its offsets.
func (n *incarnation) Scan(ctx context.Context, def *metastore.Table, req ScanRequest) (*RowStream, error) {
	schema := def.Current()
	proj, err := newProjection(schema, req.Columns, req.Where)
	if err != nil {
		return nil, err
	}
	if req.Snapshot != 0 || !req.AsOf.IsZero() || req.Layer == LayerLake {
		snap, err := n.lakeSnapshot(ctx, def, req)
		if err != nil {
			return nil, err
		}
		t, err := n.tableFor(def)
		if err != nil {
			return nil, err
		}
		return limited(&RowStream{Schema: proj.out, Batches: lakeBatches(ctx, snap, proj, nil), unpin: t.readers.pin(snap.ID)}, req.Limit), nil
	}
	if req.Layer != "" && req.Layer != LayerUnion {
		return nil, errs.New(errs.Invalid, "layer %q: must be union or lake", req.Layer)
	}
	if err := n.confirmLease(ctx); err != nil {
		return nil, err
	}
	p, err := n.plan(ctx, def)
	if err != nil {
		return nil, err
	}
	hidden, err := p.hidden()
	if err != nil {
		p.close()
		return nil, err
	}
	batches := func(yield func(arrow.RecordBatch, error) bool) {
		for rec, err := range lakeBatches(ctx, p.snap, proj, hidden) {
			if !yield(rec, err) || err != nil {
				return
			}
		}
		if def.Keyed() {
			n.currentBatches(ctx, def, p, proj, yield)
			return
		}
		n.liveBatches(ctx, def, p.liveReads(), proj, yield)
	}
	return limited(&RowStream{Schema: proj.out, Batches: coalesced(batches, req.Limit), unpin: sync.OnceFunc(p.close)}, req.Limit), nil
}

// lakeSnapshot finds the snapshot that a lake-only read asks for.
func (n *incarnation) lakeSnapshot(ctx context.Context, def *metastore.Table, req ScanRequest) (*lakehouse.Snapshot, error) {
	snap, err := n.agent.loadLake(ctx, n.agent.lakeDef(def))
	if err != nil {
		return nil, err
	}
	switch {
	case req.Snapshot != 0:
		return snap.At(req.Snapshot)
	case !req.AsOf.IsZero():
		return snap.AsOf(req.AsOf)
	}
	return snap, nil
}

func lakeBatches(ctx context.Context, snap *lakehouse.Snapshot, proj projection, hidden map[string]*roaring.Bitmap) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		if snap.ID == 0 {
			return
		}
		for b, err := range snap.Scan(ctx, lakehouse.ScanOptions{Columns: proj.out, Filter: proj.filter, Hidden: hidden}) {
			if err != nil {
				yield(nil, err)
				return
			}
			if b.Rows.NumRows() > 0 && !yield(b.Rows, nil) {
				return
			}
		}
	}
}

// liveBatches yields live rows.
func (n *incarnation) liveBatches(ctx context.Context, def *metastore.Table, reads []liveRead, proj projection, yield func(arrow.RecordBatch, error) bool) {
	for rec, err := range n.prefetch(ctx, def, reads, proj) {
		if err != nil {
			yield(nil, err)
			return
		}
		if rec.rows == nil || rec.rows.NumRows() == 0 {
			continue
		}
		out, err := proj.finish(ctx, rec.rows)
		if err != nil {
			yield(nil, err)
			return
		}
		if out.NumRows() > 0 && !yield(out, nil) {
			return
		}
	}
}

// count returns the exact number of rows; without a predicate it reads none.
func (n *incarnation) count(ctx context.Context, def *metastore.Table, req ScanRequest) (int64, error) {
	if req.Where != "" {
		return n.countScanned(ctx, def, req)
	}
	if req.Snapshot != 0 || !req.AsOf.IsZero() || req.Layer == LayerLake {
		snap, err := n.lakeSnapshot(ctx, def, req)
		if err != nil {
			return 0, err
		}
		return snap.Rows, nil
	}
	if req.Layer != "" && req.Layer != LayerUnion {
		return 0, errs.New(errs.Invalid, "layer %q: must be union or lake", req.Layer)
	}
	if err := n.confirmLease(ctx); err != nil {
		return 0, err
	}
	p, err := n.plan(ctx, def)
	if err != nil {
		return 0, err
	}
	defer p.close()
	if def.Keyed() {
		return p.keyedRows(), nil
	}
	return p.snap.Rows + p.liveRows(), nil
}

// countScanned counts the rows that match a predicate, reading its columns alone.
func (n *incarnation) countScanned(ctx context.Context, def *metastore.Table, req ScanRequest) (int64, error) {
	proj, err := newProjection(def.Current(), nil, req.Where)
	if err != nil {
		return 0, err
	}
	for _, id := range proj.filter.Columns() {
		if f, ok := def.Current().FieldByID(id); ok {
			req.Columns = append(req.Columns, f.Name)
		}
	}
	stream, err := n.Scan(ctx, def, req)
	if err != nil {
		return 0, err
	}
	defer stream.Close()
	var rows int64
	for rec, err := range stream.Batches {
		if err != nil {
			return 0, err
		}
		rows += rec.NumRows()
	}
	return rows, nil
}

// limited cuts a stream after a number of rows.
func limited(s *RowStream, limit int64) *RowStream {
	if limit <= 0 {
		return s
	}
	inner := s.Batches
	s.Batches = func(yield func(arrow.RecordBatch, error) bool) {
		left := limit
		for rec, err := range inner {
			if err != nil {
				yield(nil, err)
				return
			}
			if rec.NumRows() >= left {
				yield(rec.NewSlice(0, left), nil)
				return
			}
			left -= rec.NumRows()
			if !yield(rec, nil) {
				return
			}
		}
	}
	return s
}
