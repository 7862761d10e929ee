package agent

import (
	"context"
	"iter"
	"net/http"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/merge"
)

// Start says where a stream begins in every bucket.
type Start struct {
	Mode      StartMode
	Timestamp int64           // µs, with StartTimestamp
	Offsets   map[int32]int64 // with StartOffsets; buckets that are missing begin at the earliest offset
}

// StartMode is the kind of a stream's start.
type StartMode uint8

// The start modes of log tables.
const (
	StartEarliest StartMode = iota
	StartLatest
	StartTimestamp
	StartOffsets
	StartSnapshot // of a primary-key table: its rows as INSERT, then the changes behind them
)

// ChangesRequest asks for a table's log as a stream.
type ChangesRequest struct {
	Database, Table string
	Start           Start
	Buckets         []int32 // nil = all
	Columns         []string
	Where           string
	Limit           int64         // rows; 0 = no limit
	Follow          bool          // go on at the end of the log
	Idle            time.Duration // longest silence of a follower; then a batch with progress only
}

// ChangeBatch is rows of one bucket, in offset order, and how far the bucket is
// consumed: every offset below Next was delivered or filtered out.
type ChangeBatch struct {
	Bucket     int32
	Rows       arrow.RecordBatch // table columns; nil for progress alone
	Offsets    []int64           // of each row
	Timestamps []int64           // µs, of each row
	Types      []int32           // merge.Insert and so on, of each row; nil: all are INSERT
	Next       int64
}

// ChangeStream is the result of Changes. Progress holds, at any time, the
// consumed-up-to offset of each bucket in the stream.
type ChangeStream struct {
	Schema   *segments.Schema
	Batches  iter.Seq2[ChangeBatch, error]
	Progress map[int32]int64 // written by the iterator, for its reader alone
	reader   *streamReader
}

// Close frees what a stream holds that is not iterated; after the iteration it does nothing.
func (s *ChangeStream) Close() {
	if p := s.reader.first; p != nil {
		s.reader.first = nil
		p.close()
	}
}

// streamReader follows one table for one reader.
type streamReader struct {
	n     *incarnation
	t     *table
	def   *metastore.Table
	proj  projection
	req   ChangesRequest
	order []int32
	pos   map[int32]int64
	first *readPlan       // of StartSnapshot, until its rows are delivered
	stop  map[int32]int64 // without Follow: the high watermarks at the start
	quiet *ChangeBatch    // newest progress that no row told about
	fits  int32           // newest schema whose rows are known to fit the stream's columns
}

// Changes opens a stream. Errors: OutOfRange with the valid range when a start
// offset is outside the log, Invalid for unknown buckets or columns.
func (n *incarnation) Changes(ctx context.Context, def *metastore.Table, req ChangesRequest) (*ChangeStream, error) {
	proj, err := newProjection(def.Current(), req.Columns, req.Where)
	if err != nil {
		return nil, err
	}
	if def.Keyed() {
		proj.read = merge.WithChangeType(proj.read)
	}
	t, err := n.tableFor(def)
	if err != nil {
		return nil, err
	}
	if err := n.confirmLease(ctx); err != nil {
		return nil, err
	}
	r := &streamReader{n: n, t: t, def: def, proj: proj, req: req, pos: map[int32]int64{}, stop: map[int32]int64{}, fits: def.Current().ID}
	if err := r.chooseBuckets(); err != nil {
		return nil, err
	}
	if err := r.position(ctx); err != nil {
		return nil, err
	}
	return &ChangeStream{Schema: proj.out, Progress: r.pos, Batches: r.batches(ctx), reader: r}, nil
}

func (r *streamReader) chooseBuckets() error {
	count := int32(len(r.t.buckets)) //nolint:gosec // at most 4096
	if r.req.Buckets == nil {
		for b := range count {
			r.order = append(r.order, b)
		}
		return nil
	}
	seen := map[int32]bool{}
	for _, b := range r.req.Buckets {
		if b < 0 || b >= count {
			return errs.New(errs.Invalid, "bucket %d: table %s.%s has buckets 0 to %d", b, r.def.Database, r.def.Name, count-1)
		}
		if !seen[b] {
			seen[b] = true
			r.order = append(r.order, b)
		}
	}
	return nil
}

// position resolves the start of every bucket at one moment.
func (r *streamReader) position(ctx context.Context) error {
	p, err := r.n.plan(ctx, r.def)
	if err != nil {
		return err
	}
	defer func() {
		if r.first == nil { // else the stream goes on with it
			p.close()
		}
	}()
	if r.req.Start.Mode == StartSnapshot {
		return r.positionSnapshot(p)
	}
	for b := range r.req.Start.Offsets {
		if int(b) >= len(r.t.buckets) || b < 0 {
			return errs.New(errs.Invalid, "start offsets name bucket %d: table %s.%s has buckets 0 to %d", b, r.def.Database, r.def.Name, len(r.t.buckets)-1)
		}
	}
	for _, b := range r.order {
		rng := p.buckets[b]
		r.stop[b] = rng.to
		switch r.req.Start.Mode {
		case StartEarliest:
			r.pos[b] = rng.earliest
		case StartLatest:
			r.pos[b] = rng.to
		case StartTimestamp:
			if r.pos[b], err = r.n.offsetAt(ctx, p, rng, r.req.Start.Timestamp); err != nil {
				return err
			}
		case StartOffsets:
			at, ok := r.req.Start.Offsets[b]
			if !ok {
				at = rng.earliest
			}
			if at < rng.earliest || at > rng.to {
				return outOfRange(r.def, b, at, rng)
			}
			r.pos[b] = at
		}
	}
	return nil
}

func outOfRange(def *metastore.Table, bucket int32, at int64, rng bucketRange) error {
	e := errs.New(errs.OutOfRange, "offset %d of bucket %d is outside the log of table %s.%s: the earliest offset is %d, the end is %d",
		at, bucket, def.Database, def.Name, rng.earliest, rng.to)
	e.Details = []any{map[string]any{"bucket": bucket, "offset": at, "earliest": rng.earliest, "end": rng.to}}
	if at > rng.to { // not gone, but not there yet: most likely the cursor of another table
		return finerError{e, http.StatusBadRequest}
	}
	return e
}

// offsetAt returns the first offset whose commit timestamp is at or after ts.
func (n *incarnation) offsetAt(ctx context.Context, p *readPlan, rng bucketRange, ts int64) (int64, error) {
	if rng.from > rng.earliest {
		at, ok, err := p.snap.OffsetAtTime(ctx, rng.bucket, ts)
		if err != nil {
			return 0, err
		}
		if ok {
			return max(at, rng.earliest), nil
		}
	}
	for _, s := range rng.segs {
		if s.ref.Timestamp >= ts {
			return max(s.ref.BaseOffset, rng.from), nil
		}
	}
	return rng.to, nil
}

// batches reads round by round: each round takes one plan, delivers what is
// between the positions and the plan's end, lake first, then live, and then
// waits for the next publication.
func (r *streamReader) batches(ctx context.Context) iter.Seq2[ChangeBatch, error] {
	return func(yield func(ChangeBatch, error) bool) {
		left := r.req.Limit
		silent := r.req.Follow // nothing was told yet: a follower of a quiet table hears at once where it stands
		deliver := func(b ChangeBatch, err error) bool {
			if err != nil {
				yield(b, err)
				return false
			}
			b, done := cutBatch(b, r.req.Limit, &left)
			r.pos[b.Bucket] = b.Next
			if b.Rows == nil {
				r.quiet = &b
				return true
			}
			r.quiet, silent = nil, false
			return yield(b, nil) && !done
		}
		if !r.snapshotRows(ctx, deliver) {
			return
		}
		for {
			changed := r.t.changed()
			if !r.round(ctx, deliver) {
				return
			}
			if r.quiet == nil && silent {
				b := r.order[0]
				r.quiet = &ChangeBatch{Bucket: b, Next: r.pos[b]}
			}
			if r.quiet != nil && !yield(*r.quiet, nil) {
				return
			}
			r.quiet, silent = nil, false
			if !r.req.Follow {
				return
			}
			if !r.wait(ctx, changed, yield) {
				return
			}
		}
	}
}

// cutBatch applies the row limit. The consumed offset of a cut batch ends behind its last row.
func cutBatch(b ChangeBatch, limit int64, left *int64) (ChangeBatch, bool) {
	if limit <= 0 || b.Rows == nil {
		return b, false
	}
	if n := b.Rows.NumRows(); n > *left {
		b.Rows, b.Offsets, b.Timestamps = b.Rows.NewSlice(0, *left), b.Offsets[:*left], b.Timestamps[:*left]
		if b.Types != nil {
			b.Types = b.Types[:*left]
		}
		if b.Next != snapshotOffset {
			b.Next = b.Offsets[*left-1] + 1
		}
	}
	*left -= b.Rows.NumRows()
	return b, *left == 0
}

// wait blocks until something was published. A follower that hears nothing for
// the idle time gets a batch without rows, so that it knows it is alive.
func (r *streamReader) wait(ctx context.Context, changed <-chan struct{}, yield func(ChangeBatch, error) bool) bool {
	var idle <-chan time.Time
	if r.req.Idle > 0 {
		timer := time.NewTimer(r.req.Idle)
		defer timer.Stop()
		idle = timer.C
	}
	select {
	case <-changed:
		return true
	case <-idle:
		b := r.order[0]
		return yield(ChangeBatch{Bucket: b, Next: r.pos[b]}, nil)
	case <-r.n.streamsEnd:
		yield(ChangeBatch{}, errs.New(errs.Unavailable, "this agent is shutting down; resume from the last offsets at another one"))
		return false
	case <-r.n.stopped:
		yield(ChangeBatch{}, r.n.failure())
		return false
	case <-ctx.Done():
		yield(ChangeBatch{}, errs.Wrap(errs.Canceled, "follow table", ctx.Err()))
		return false
	}
}

// round delivers everything between the positions and one plan's end.
func (r *streamReader) round(ctx context.Context, deliver func(ChangeBatch, error) bool) bool {
	if r.n.lookupTable(r.t.id) != r.t {
		return deliver(ChangeBatch{}, errs.New(errs.NotFound, "table %s.%s was dropped", r.def.Database, r.def.Name))
	}
	if !r.behind() {
		return true
	}
	p, err := r.n.plan(ctx, r.def)
	if err != nil {
		return deliver(ChangeBatch{}, err)
	}
	defer p.close()
	if err := r.checkAltered(); err != nil {
		return deliver(ChangeBatch{}, err)
	}
	for _, b := range r.order {
		rng := p.buckets[b]
		if !r.req.Follow {
			rng.to = min(rng.to, r.stop[b])
		}
		if r.pos[b] >= rng.to {
			continue
		}
		if r.pos[b] < rng.earliest {
			return deliver(ChangeBatch{}, outOfRange(r.def, b, r.pos[b], rng))
		}
		if !r.fromLake(ctx, p.snap, rng, deliver) || !r.fromLive(ctx, rng, deliver) {
			return false
		}
	}
	return true
}

// checkAltered ends a stream whose columns cannot hold the rows of a later schema.
// It looks after the plan was made: whatever the plan holds was written with a
// schema that is known by then.
func (r *streamReader) checkAltered() error {
	newest, ok := r.n.agent.meta.State().Table(r.t.id)
	if !ok || newest.Current().ID == r.fits {
		return nil
	}
	for _, s := range newest.Schemas {
		if s.ID <= r.fits {
			continue
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
		_, err := segments.Project(b.NewRecordBatch(), s, r.proj.read)
		b.Release()
		if err != nil {
			return errs.Wrap(errs.Conflict, "table "+r.def.Database+"."+r.def.Name+
				" was altered since this stream began, and newer rows do not fit its columns; open it again where it ended", err)
		}
		r.fits = s.ID
	}
	return nil
}

// behind reports whether some bucket has durable offsets that were not consumed.
func (r *streamReader) behind() bool {
	for _, b := range r.order {
		if r.pos[b] < r.t.buckets[b].view().hw || (!r.req.Follow && r.pos[b] < r.stop[b]) {
			return true
		}
	}
	return false
}

func (r *streamReader) fromLake(ctx context.Context, snap *lakehouse.Snapshot, rng bucketRange, deliver func(ChangeBatch, error) bool) bool {
	to := min(rng.from, rng.to)
	if r.pos[rng.bucket] >= to {
		return true
	}
	stream := snap.StreamBucket(ctx, lakehouse.StreamOptions{Bucket: rng.bucket, From: r.pos[rng.bucket], To: to, Columns: r.proj.out, Filter: r.proj.filter})
	for b, err := range stream {
		if err != nil {
			return deliver(ChangeBatch{}, err)
		}
		batch := ChangeBatch{Bucket: rng.bucket, Rows: b.Rows, Offsets: b.Offsets, Timestamps: b.Timestamps, Next: b.ConsumedTo}
		if b.Rows != nil && b.Rows.NumRows() == 0 {
			batch.Rows = nil
		}
		if !deliver(batch, nil) {
			return false
		}
	}
	if r.pos[rng.bucket] < to { // the range's last offsets carry no rows
		return deliver(ChangeBatch{Bucket: rng.bucket, Next: to}, nil)
	}
	return true
}

func (r *streamReader) fromLive(ctx context.Context, rng bucketRange, deliver func(ChangeBatch, error) bool) bool {
	if r.pos[rng.bucket] >= rng.to {
		return true
	}
	rng.from = max(rng.from, r.pos[rng.bucket])
	for len(rng.segs) > 0 && rng.segs[0].end() <= rng.from {
		rng.segs = rng.segs[1:]
	}
	// The plan may be newer than the end of a stream that does not follow.
	for len(rng.segs) > 0 && rng.segs[len(rng.segs)-1].ref.BaseOffset >= rng.to {
		rng.segs = rng.segs[:len(rng.segs)-1]
	}
	for got, err := range r.n.prefetch(ctx, r.def, rng.reads(), r.proj) {
		if err != nil {
			return deliver(ChangeBatch{}, err)
		}
		b, err := r.liveBatch(ctx, rng, got)
		if !deliver(b, err) {
			return false
		}
	}
	return true
}

// liveBatch filters one segment's rows and numbers those that are left.
func (r *streamReader) liveBatch(ctx context.Context, rng bucketRange, got segmentRows) (ChangeBatch, error) {
	seg := got.seg
	out := ChangeBatch{Bucket: rng.bucket, Next: min(seg.end(), rng.to)}
	if got.rows == nil || got.rows.NumRows() == 0 {
		return out, nil
	}
	base := max(seg.ref.BaseOffset, rng.from)
	rec := got.rows
	if r.proj.filter == nil {
		out.Offsets = make([]int64, rec.NumRows())
		for i := range out.Offsets {
			out.Offsets[i] = base + int64(i)
		}
	} else {
		mask, err := r.proj.filter.Mask(rec)
		if err != nil {
			return out, err
		}
		var kept []int32
		for i, ok := range mask {
			if ok {
				kept = append(kept, int32(i)) //nolint:gosec // a segment holds far fewer rows
				out.Offsets = append(out.Offsets, base+int64(i))
			}
		}
		if len(kept) == 0 {
			return out, nil
		}
		if rec, err = segments.Take(rec, kept); err != nil {
			return out, err
		}
	}
	out.Timestamps = make([]int64, len(out.Offsets))
	for i := range out.Timestamps {
		out.Timestamps[i] = seg.ref.Timestamp
	}
	if r.def.Keyed() {
		out.Types = changeTypes(rec).Int32Values()
	}
	out.Rows = r.proj.trim(rec)
	return out, ctx.Err()
}
