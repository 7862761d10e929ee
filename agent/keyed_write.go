package agent

import (
	"context"
	"slices"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/merge"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/wal"
)

// WriteRequest is upserts and deletes for one primary-key table. Chunks hold rows
// of the table's current schema; columns that a partial write or a delete does not
// name hold anything.
type WriteRequest struct {
	Table    *metastore.Table
	Schema   *segments.Schema
	Chunks   []rows.Chunk
	Deletes  [][]bool // by chunk and row; nil: no row is a delete
	Columns  []int    // positions of the columns that a partial write names, key columns left out; nil: all
	BodyRows int64    // rows of the body, rejected ones included
	Producer *Producer
	SkipBad  bool // rows that cannot be applied are reported, the others applied
}

// WriteResult is the answer to a write whose changes are durable. Rows counts the
// rows that were applied, whether they changed anything or not; Buckets tells where
// their changes lie.
type WriteResult struct {
	AppendResult
	Errors []rows.RowError
}

// keyedShare is the part of a write that goes to one bucket, as one batch.
type keyedShare struct {
	*share
	deletes []bool // nil: none
	keys    []index.Key

	// What decide made of it.
	changes arrow.RecordBatch // nil: nothing changes
	ends    []int32
	errors  []rows.RowError
	located *located
}

// logSchemaOf is the schema of a primary-key table's log.
func logSchemaOf(def *metastore.Table) *segments.Schema { return merge.WithChangeType(def.Current()) }

// beginWrite applies a write to the state of its buckets and hands its changes to
// the WAL. Requests that begin one after the other keep that order in each bucket.
// The caller must await what it began. Errors are those of begin; a row that cannot
// be applied makes the whole request Invalid, unless SkipBad.
func (n *incarnation) beginWrite(ctx context.Context, req WriteRequest) (*pendingAppend, []rows.RowError, error) {
	begun := n.agent.clock()
	t, err := n.tableFor(req.Table)
	if err != nil {
		return nil, nil, err
	}
	if err := n.openKeyed(ctx, t, req.Table); err != nil {
		return nil, nil, err
	}
	rules, err := t.keyed.rulesOf(req.Table)
	if err != nil {
		return nil, nil, err
	}
	shares, bytes, err := splitWrite(t, req, rules)
	if err != nil {
		return nil, nil, err
	}
	release, err := n.reserve(ctx, bytes)
	if err != nil {
		return nil, nil, err
	}
	appendReq := AppendRequest{Table: req.Table, Schema: logSchemaOf(req.Table), BodyRows: req.BodyRows, Producer: req.Producer}
	claimed, err := t.claimKey(req.Producer, req.BodyRows)
	var bad []rows.RowError
	if err == nil {
		bad, err = n.applyWrite(ctx, req, appendReq, rules, shares)
		claimed()
	}
	if err != nil {
		release()
		return nil, bad, err
	}
	p := &pendingAppend{req: appendReq, release: release, begun: begun, patience: n.agent.cfg.AckTimeout, metrics: n.agent.metrics}
	for _, s := range shares {
		p.shares = append(p.shares, s.share)
	}
	return p, bad, nil
}

// write is beginWrite and await.
func (n *incarnation) write(ctx context.Context, req WriteRequest) (WriteResult, error) {
	p, bad, err := n.beginWrite(ctx, req)
	if err != nil {
		return WriteResult{Errors: bad}, err
	}
	res, err := p.await(ctx)
	return WriteResult{AppendResult: res, Errors: bad}, err
}

// splitWrite divides a write by bucket, each part one batch with its keys.
func splitWrite(t *table, req WriteRequest, rules *keyedRules) ([]*keyedShare, int64, error) {
	shares, err := splitRequest(t, AppendRequest{Table: req.Table, Schema: req.Schema, Chunks: req.Chunks})
	if err != nil {
		return nil, 0, err
	}
	var out []*keyedShare
	var bytes int64
	for _, s := range shares {
		k := &keyedShare{share: s}
		if err := k.join(req); err != nil {
			return nil, 0, err
		}
		if k.keys, err = rules.hasher.KeysOf(k.parts[0].rows, req.Schema); err != nil {
			return nil, 0, err
		}
		// An update holds the row before and the row after.
		bytes += 2 * k.bytes()
		out = append(out, k)
	}
	return out, bytes, nil
}

// deletes reports whether a row of the body is a delete. Parts of a share may be
// joined already: the position in the body is what is left of where they came from.
func (r *WriteRequest) deletes(ordinal int64) bool {
	i := sort.Search(len(r.Chunks), func(i int) bool { return r.Chunks[i].First > ordinal }) - 1
	if i < 0 || r.Deletes[i] == nil {
		return false
	}
	c := r.Chunks[i]
	if c.Ordinals == nil {
		return r.Deletes[i][ordinal-c.First]
	}
	at, found := slices.BinarySearch(c.Ordinals, ordinal)
	return found && r.Deletes[i][at]
}

// join makes the parts of a share one batch, with the positions of its rows.
func (k *keyedShare) join(req WriteRequest) error {
	var batches []arrow.RecordBatch
	var ordinals []int64
	for _, p := range k.parts {
		batches = append(batches, p.rows)
		for row := range int(p.rows.NumRows()) {
			ordinals = append(ordinals, p.ordinal(row))
			if req.Deletes != nil {
				k.deletes = append(k.deletes, req.deletes(p.ordinal(row)))
			}
		}
	}
	all, err := segments.Concat(batches)
	k.parts = []sharePart{{rows: all, chunk: rows.Chunk{Rows: all, Ordinals: ordinals}}}
	return err
}

const writeAttempts = 64 // folds that a write may meet between deciding and handing over

// applyWrite decides a write in the lanes of its buckets and hands it over.
func (n *incarnation) applyWrite(ctx context.Context, req WriteRequest, log AppendRequest, rules *keyedRules, shares []*keyedShare) ([]rows.RowError, error) {
	known := make([]*oldRows, len(shares))
	for i, s := range shares { // before the lanes: whatever is read from the store is read here, as a rule
		old, err := n.oldRows(ctx, req, rules, s, nil)
		if err != nil {
			return nil, err
		}
		known[i] = old
	}
	for _, s := range shares {
		if err := s.bucket.keyed.lane.enter(ctx); err != nil {
			return nil, err
		}
		defer s.bucket.keyed.lane.leave()
	}
	for range writeAttempts {
		var bad []rows.RowError
		for i, s := range shares {
			if err := s.admitKeyed(req); err != nil {
				return nil, err
			}
			old, err := n.oldRows(ctx, req, rules, s, known[i])
			if err != nil {
				return nil, err
			}
			known[i] = old
			if err := s.decide(req, rules, old); err != nil {
				return nil, err
			}
			bad = append(bad, s.errors...)
		}
		if len(bad) > 0 && !req.SkipBad {
			return bad, errs.New(errs.Invalid, "%d rows cannot be applied; nothing of the request is", len(bad))
		}
		done, err := n.handWrite(ctx, log, shares)
		if done || err != nil {
			return bad, err
		}
	}
	return nil, errs.New(errs.Unavailable, "table %s is folded faster than it can be written; retry", req.Table)
}

// admitKeyed leaves out the rows that an earlier request of the producer applied.
func (k *keyedShare) admitKeyed(req WriteRequest) error {
	if req.Producer == nil || k.applied+k.skipped > 0 {
		k.applied = k.rows()
		return nil
	}
	all := k.rows()
	ordinals, deletes, keys := k.parts[0].chunk.Ordinals, k.deletes, k.keys
	k.bucket.mu.Lock()
	err := k.admit(req.Producer, req.BodyRows)
	k.bucket.mu.Unlock()
	if err != nil || k.applied == all {
		return err
	}
	// keep took rows out: take them out of what stands beside them.
	k.deletes, k.keys = nil, nil
	var left []int64
	fresh, err := k.freshRanges(req)
	if err != nil {
		return err
	}
	for i, o := range ordinals {
		if !fresh(req.Producer.FirstSequence + o) {
			continue
		}
		left, k.keys = append(left, o), append(k.keys, keys[i])
		if deletes != nil {
			k.deletes = append(k.deletes, deletes[i])
		}
	}
	if len(k.parts) > 0 {
		k.parts[0].chunk = rows.Chunk{Rows: k.parts[0].rows, Ordinals: left}
		k.parts[0].at = nil
	}
	return nil
}

// freshRanges tells which sequences of a request are new to the bucket.
func (k *keyedShare) freshRanges(req WriteRequest) (func(seq int64) bool, error) {
	k.bucket.mu.Lock()
	defer k.bucket.mu.Unlock()
	fresh, err := k.bucket.admitted.Admit(req.Producer.delta(req.BodyRows))
	return func(seq int64) bool {
		for _, r := range fresh {
			if r.First <= seq && seq < r.End {
				return true
			}
		}
		return false
	}, err
}

// oldRows is the rows that a share's keys have, as far as the engine needs them.
type oldRows struct {
	*located
	*fetched
}

// oldRows finds where the rows of a share's keys lie and reads those that known
// does not hold.
func (n *incarnation) oldRows(ctx context.Context, req WriteRequest, rules *keyedRules, s *keyedShare, known *oldRows) (*oldRows, error) {
	for range writeAttempts {
		l, err := s.bucket.locate(ctx, s.keys, (*index.State).Find)
		if err != nil {
			return nil, err
		}
		out := &oldRows{located: l, fetched: &fetched{}}
		if !rules.engine.NeedsOld(s.deletes != nil && slices.Contains(s.deletes, true), req.Columns != nil) {
			return out, nil
		}
		if known != nil && known.gen == l.gen && known.covers(l.places) {
			out.fetched = known.fetched
			return out, nil
		}
		wanted := make([]rowPlace, 0, len(l.places))
		for _, p := range l.places {
			wanted = append(wanted, p)
		}
		out.fetched, err = n.fetch(ctx, req.Table, s.bucket, l.lake, wanted, req.Schema)
		if errs.Is(err, errs.Conflict) || errs.Is(err, errs.NotFound) && s.bucket.view().gen != l.gen {
			continue // folded while it was read
		}
		return out, err
	}
	return nil, errs.New(errs.Unavailable, "table %s is folded faster than it can be read; retry", req.Table)
}

// covers reports whether the rows at all places were fetched.
func (o *oldRows) covers(places map[index.Key]rowPlace) bool {
	for _, p := range places {
		if _, ok := o.row[p]; p.exists() && !ok {
			return false
		}
	}
	return true
}

// decide has the merge engine make the share's changes.
func (k *keyedShare) decide(req WriteRequest, rules *keyedRules, old *oldRows) error {
	k.changes, k.ends, k.errors, k.located = nil, nil, nil, old.located
	if len(k.parts) == 0 {
		return nil
	}
	m := &merge.Request{
		Rows: k.parts[0].rows, Deletes: k.deletes, Columns: req.Columns, Old: old.fetched.rows,
		Before: make([]int32, len(k.keys)), OldRow: make([]int32, len(k.keys)),
	}
	last := make(map[index.Key]int32, len(k.keys))
	for i, key := range k.keys {
		m.Before[i], m.OldRow[i] = -1, merge.Absent
		if before, ok := last[key]; ok {
			m.Before[i] = before
		} else if p := old.places[key]; p.exists() {
			m.OldRow[i] = merge.Present
			if row, ok := old.row[p]; ok {
				m.OldRow[i] = row
			}
		}
		last[key] = int32(i) //nolint:gosec // a request has far fewer rows
	}
	res, err := rules.engine.Apply(m)
	if err != nil {
		return err
	}
	k.changes, k.ends = res.Changes, res.Ends
	for _, e := range res.Errors {
		k.errors = append(k.errors, rows.RowError{Row: k.parts[0].chunk.Ordinal(e.Row), Column: e.Column, Reason: e.Reason})
	}
	k.applied = int64(len(k.keys) - len(res.Errors))
	return nil
}

// handWrite assigns offsets and hands the changes of all shares to the WAL at
// once, if the buckets are still what the write was decided on; else done is false.
func (n *incarnation) handWrite(ctx context.Context, log AppendRequest, shares []*keyedShare) (done bool, err error) {
	for _, s := range shares {
		s.bucket.mu.Lock()
	}
	defer func() {
		for _, s := range shares {
			s.bucket.mu.Unlock()
		}
	}()
	for _, s := range shares {
		switch {
		case s.bucket.closed:
			return false, errs.New(errs.NotFound, "table %s was dropped", log.Table)
		case !n.owned[s.bucket.slot].Load():
			return false, n.notOwner(log.Table, s.bucket)
		case s.bucket.gen != s.located.gen || s.bucket.keyed.lake != s.located.lake:
			return false, nil
		}
	}
	var entries []wal.Entry
	for _, s := range shares {
		s.base, s.ticket = s.bucket.next, s.bucket.tail
		if s.changes == nil && (log.Producer == nil || s.applied == 0) {
			continue
		}
		entries = append(entries, s.entryOf(log))
	}
	if len(entries) > 0 {
		if err := n.log.Append(ctx, entries); err != nil {
			return false, err
		}
	}
	now := n.agent.clock().UnixMicro()
	for _, s := range shares {
		if err := s.handed(now); err != nil {
			go n.fail(err) // the log has what the index has not
			return false, err
		}
	}
	return true, nil
}

// entryOf makes the WAL entry of a share. The bucket is locked.
func (k *keyedShare) entryOf(log AppendRequest) wal.Entry {
	k.ticket = newTicket()
	k.entry = wal.Entry{Bucket: k.bucket.id, Schema: log.Schema, Rows: k.changes, BaseOffset: k.base, Done: k.ticket.settle}
	if k.changes != nil {
		k.entry.Bytes, k.logged = segments.SizeOf(k.changes), k.changes.NumRows()
	}
	if p := log.Producer; p != nil {
		k.entry.Producers = []wal.ProducerDelta{p.delta(log.BodyRows)}
	}
	return k.entry
}

// handed notes what was handed to the WAL. The bucket is locked.
func (k *keyedShare) handed(now int64) error {
	if k.entry.Done == nil {
		return nil
	}
	b := k.bucket
	b.tail = k.ticket
	for _, d := range k.entry.Producers {
		b.admitted.Record(d, now)
	}
	if k.changes == nil {
		return nil
	}
	b.next = k.base + k.changes.NumRows()
	b.keyed.flights = append(b.keyed.flights, flight{k.base, b.next, k.changes})
	return b.keyed.state.Apply(k.indexChanges())
}

// indexChanges are the newest changes of the share's keys.
func (k *keyedShare) indexChanges() []index.Change {
	types := changeTypes(k.changes)
	out := make([]index.Change, 0, len(k.keys))
	begin := int32(0)
	for i, end := range k.ends {
		if end > begin {
			kind := types.Value(int(end) - 1)
			out = append(out, index.Change{
				Key: k.keys[i], Offset: k.base + int64(end) - 1, Deleted: kind == merge.Delete, Lake: k.located.places[k.keys[i]].lake,
			})
		}
		begin = end
	}
	return out
}

// changeTypes is the last column of a log's rows.
func changeTypes(rec arrow.RecordBatch) *array.Int32 {
	return rec.Column(int(rec.NumCols()) - 1).(*array.Int32) //nolint:forcetypeassert // merge made it
}
