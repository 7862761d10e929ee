package agent

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/wal"
	"github.com/firn-data/firn/wal/producers"
)

// Producer names an exactly-once source and the sequence range of a request:
// row i of the body has sequence FirstSequence + i.
type Producer struct {
	ID            string
	FirstSequence int64
	AckedBelow    int64 // everything below is done; default FirstSequence
	Idempotency   bool  // ID is an Idempotency-Key, FirstSequence the request's fingerprint
}

// AppendRequest is rows for one log table. Chunks hold rows of the table's
// current schema with their positions in the request's body.
type AppendRequest struct {
	Table    *metastore.Table
	Schema   *segments.Schema
	Chunks   []rows.Chunk
	BodyRows int64     // rows of the body, rejected ones included
	Sticky   *int32    // bucket of a keyless table's rows; nil = the producer's, or any
	Producer *Producer // nil without exactly-once
}

// BucketResult tells where a request's rows of one bucket lie.
type BucketResult struct {
	Bucket     int32
	BaseOffset int64
	Count      int64
	EndOffset  int64 // log end after them
}

// AppendResult is the answer to an append whose rows are durable.
type AppendResult struct {
	Rows      int64 // applied now
	Skipped   int64 // applied by an earlier request of the same producer
	Duplicate bool  // an idempotent request that had been applied
	Buckets   []BucketResult
}

// share is the part of a request that goes to one bucket.
type share struct {
	bucket   *bucket
	rows     arrow.RecordBatch
	ordinals []int64 // position of each row in the body, ascending
	entry    wal.Entry
	ticket   *ticket // the entry's, or the bucket's tail where every row was skipped
	base     int64
	applied  int64
	skipped  int64
	recalled int64 // rows at base that an earlier request with the same key wrote
}

const backpressureWait = 5 * time.Second // longest wait for room before a writer is told to slow down

// pendingAppend is a request whose rows have their offsets and are on their way.
type pendingAppend struct {
	req      AppendRequest
	shares   []*share
	release  func()
	begun    time.Time
	patience time.Duration // longest wait for the store
	metrics  *metrics
}

// begin hands a request's rows to the WAL. Requests that begin one after the
// other keep that order in each bucket. The caller must await what it began.
// Errors: NotFound, Invalid (producer), Exhausted (slow down), Unavailable
// (retry), Canceled.
func (n *incarnation) begin(ctx context.Context, req AppendRequest) (*pendingAppend, error) {
	begun := n.agent.clock()
	t, err := n.tableFor(req.Table)
	if err != nil {
		return nil, err
	}
	shares, err := splitRequest(t, req)
	if err != nil {
		return nil, err
	}
	var bytes int64
	for _, s := range shares {
		bytes += segments.SizeOf(s.rows)
	}
	release, err := n.reserve(ctx, bytes)
	if err != nil {
		return nil, err
	}
	claimed, err := t.claimKey(req.Producer, req.BodyRows)
	if err == nil {
		err = n.hand(ctx, req, shares)
		claimed()
	}
	if err != nil {
		release()
		return nil, err
	}
	return &pendingAppend{req: req, shares: shares, release: release, begun: begun, patience: n.agent.cfg.AckTimeout, metrics: n.agent.metrics}, nil
}

// reserve waits, for a bounded time, until the rows fit the limits on what is
// in flight and on what is not folded yet.
func (n *incarnation) reserve(ctx context.Context, bytes int64) (func(), error) {
	wait, cancel := context.WithTimeout(ctx, backpressureWait)
	defer cancel()
	bytes = min(bytes, n.agent.cfg.MaxPendingBytes)
	if err := n.pending.Acquire(wait, bytes); err != nil {
		return nil, n.exhausted(ctx, "max_pending_bytes", n.agent.cfg.MaxPendingBytes, "rows that wait for the object store")
	}
	release := func() { n.pending.Release(bytes) }
	for n.unfolded.Load() > n.agent.cfg.MaxUnfoldedBytes {
		n.folder.wake()
		select {
		case <-wait.Done():
			release()
			return nil, n.exhausted(ctx, "max_unfolded_bytes", n.agent.cfg.MaxUnfoldedBytes, "rows that wait to be folded into the lake")
		case <-n.stopped:
			release()
			return nil, n.failure()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return release, nil
}

func (n *incarnation) exhausted(ctx context.Context, name string, limit int64, what string) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(errs.Canceled, "append rows", err)
	}
	e := errs.New(errs.Exhausted, "the limit %s (%d bytes) on %s is reached; slow down and retry", name, limit, what)
	e.RetryAfter = time.Second
	return e
}

// hand assigns offsets and hands all entries of a request to the WAL at once,
// under the locks of its buckets, so that offsets and WAL order agree.
func (n *incarnation) hand(ctx context.Context, req AppendRequest, shares []*share) error {
	for _, s := range shares {
		s.bucket.mu.Lock()
	}
	defer func() {
		for _, s := range shares {
			s.bucket.mu.Unlock()
		}
	}()
	for _, s := range shares {
		if s.bucket.closed {
			return errs.New(errs.NotFound, "table %s.%s was dropped", req.Table.Database, req.Table.Name)
		}
		if !n.owned[s.bucket.slot].Load() {
			return n.notOwner(req.Table, s.bucket)
		}
		if err := s.admit(req.Producer, req.BodyRows); err != nil {
			return err
		}
	}
	var entries []wal.Entry
	for _, s := range shares {
		if s.applied > 0 {
			entries = append(entries, s.prepare(req))
		} else {
			s.ticket, s.base = s.bucket.tail, s.bucket.next
			s.notePlace(req.Producer)
		}
	}
	if len(entries) == 0 {
		return nil
	}
	if err := n.log.Append(ctx, entries); err != nil {
		return err
	}
	now := n.agent.clock().UnixMicro()
	for _, s := range shares {
		if s.applied == 0 {
			continue
		}
		s.bucket.next = s.base + s.applied
		s.bucket.tail = s.ticket
		for _, d := range s.entry.Producers {
			s.bucket.admitted.Record(d, now)
		}
		s.notePlace(req.Producer)
	}
	return nil
}

// notOwner is the error for a bucket whose slot this incarnation does not own.
func (n *incarnation) notOwner(def *metastore.Table, b *bucket) error {
	who := "nobody yet"
	if owner, ok := n.agent.meta.State().Owner(b.id.Table, b.id.Bucket); ok && owner.Incarnation != n.id {
		who = "agent " + owner.AgentID + " at " + owner.Address
	}
	e := errs.New(errs.Unavailable, "bucket %d of table %s is served by %s; retry, or go there", b.id.Bucket, def, who)
	e.RetryAfter = time.Second
	return e
}

// admit decides which rows of a share are new. The bucket is locked.
func (s *share) admit(p *Producer, bodyRows int64) error {
	s.applied = s.rows.NumRows()
	if p == nil {
		return nil
	}
	fresh, err := s.bucket.admitted.Admit(p.delta(bodyRows))
	if err != nil {
		return err
	}
	if len(fresh) == 1 && fresh[0].First <= p.FirstSequence && fresh[0].End >= p.FirstSequence+bodyRows {
		return nil
	}
	kept := keepFresh(s.ordinals, p.FirstSequence, fresh)
	s.skipped = s.applied - int64(len(kept))
	s.applied = int64(len(kept))
	if s.applied > 0 && s.skipped > 0 {
		if s.rows, err = segments.Take(s.rows, kept); err != nil {
			return err
		}
	}
	return nil
}

// delta is what a request of so many rows adds to a bucket's producer state.
func (p *Producer) delta(bodyRows int64) wal.ProducerDelta {
	return wal.ProducerDelta{ID: p.ID, First: p.FirstSequence, Count: bodyRows, AckedBelow: p.AckedBelow, Idempotency: p.Idempotency}
}

// keepFresh returns the row numbers whose sequence lies in one of the ranges.
func keepFresh(ordinals []int64, first int64, fresh []producers.Range) []int32 {
	var kept []int32
	for row, o := range ordinals {
		seq := first + o
		i := sort.Search(len(fresh), func(i int) bool { return fresh[i].End > seq })
		if i < len(fresh) && fresh[i].First <= seq {
			kept = append(kept, int32(row)) //nolint:gosec // a request holds far fewer rows
		}
	}
	return kept
}

// prepare makes the WAL entry of a share. The bucket is locked.
func (s *share) prepare(req AppendRequest) wal.Entry {
	s.base = s.bucket.next
	s.ticket = newTicket()
	s.entry = wal.Entry{
		Bucket: s.bucket.id, Schema: req.Schema, Rows: s.rows, Bytes: segments.SizeOf(s.rows),
		BaseOffset: s.base, Done: s.ticket.settle,
	}
	if p := req.Producer; p != nil {
		s.entry.Producers = []wal.ProducerDelta{p.delta(req.BodyRows)}
	}
	return s.entry
}

// await returns when every row of the request is in the store, or an error when
// none may be counted on: Unavailable or Unknown (retry), Canceled. Skipped rows may still
// be on their way in an earlier entry of the bucket, so they wait for its tail.
func (p *pendingAppend) await(ctx context.Context) (AppendResult, error) {
	defer p.settleLater()
	res := AppendResult{}
	late := time.NewTimer(p.patience)
	defer late.Stop()
	for _, s := range p.shares {
		if s.ticket == nil {
			continue
		}
		select {
		case <-s.ticket.done:
		case <-late.C: // the WAL tries on: the rows may still come
			return res, p.late()
		case <-ctx.Done():
			return res, errs.Wrap(errs.Canceled, "append rows: the outcome is not known, retry with the same producer sequence", ctx.Err())
		}
		if s.ticket.err != nil {
			return res, s.ticket.err
		}
	}
	for _, s := range p.shares {
		res.Rows += s.applied
		res.Skipped += s.skipped
		count := s.applied + s.recalled
		res.Buckets = append(res.Buckets, BucketResult{Bucket: s.bucket.id.Bucket, BaseOffset: s.base, Count: count, EndOffset: s.base + count})
	}
	res.Duplicate = p.req.Producer != nil && p.req.Producer.Idempotency && res.Rows == 0 && res.Skipped > 0
	p.metrics.appended(res, time.Since(p.begun))
	return res, nil
}

// late is the error of a request whose rows the store has not taken in time.
func (p *pendingAppend) late() error {
	e := errs.New(errs.Unknown, "the object store did not take the rows within ack_timeout (%s): whether they are applied is not known yet; "+
		"repeat the request with the same producer sequence or Idempotency-Key", p.patience)
	e.RetryAfter = 5 * time.Second
	return e
}

// settleLater gives the reserved bytes back once the WAL is done with the rows,
// also when the caller stopped waiting.
func (p *pendingAppend) settleLater() {
	for _, s := range p.shares {
		if s.ticket == nil || s.applied == 0 {
			continue
		}
		select {
		case <-s.ticket.done:
		default:
			go func() {
				for _, s := range p.shares {
					if s.ticket != nil {
						<-s.ticket.done
					}
				}
				p.release()
			}()
			return
		}
	}
	p.release()
}

// splitRequest divides a request's rows by bucket, in bucket order.
func splitRequest(t *table, req AppendRequest) ([]*share, error) {
	if len(req.Table.BucketKey) == 0 || len(t.buckets) == 1 {
		return splitKeyless(t, req)
	}
	byBucket := map[int32][]arrow.RecordBatch{}
	ordinals := map[int32][]int64{}
	for _, c := range req.Chunks {
		parts, err := segments.SplitByBucket(c.Rows, req.Table.BucketKey, req.Schema, int32(len(t.buckets))) //nolint:gosec // at most 4096 buckets
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			byBucket[p.Bucket] = append(byBucket[p.Bucket], p.Batch)
			for _, row := range p.Rows {
				ordinals[p.Bucket] = append(ordinals[p.Bucket], c.Ordinal(int(row)))
			}
		}
	}
	var shares []*share
	for b, batches := range byBucket {
		all, err := segments.Concat(batches)
		if err != nil {
			return nil, err
		}
		shares = append(shares, &share{bucket: t.buckets[b], rows: all, ordinals: ordinals[b]})
	}
	sort.Slice(shares, func(i, j int) bool { return shares[i].bucket.id.Bucket < shares[j].bucket.id.Bucket })
	return shares, nil
}

// splitKeyless sends all rows of a request to one bucket: the producer's, or any.
func splitKeyless(t *table, req AppendRequest) ([]*share, error) {
	var batches []arrow.RecordBatch
	var ordinals []int64
	for _, c := range req.Chunks {
		if c.Rows.NumRows() == 0 {
			continue
		}
		batches = append(batches, c.Rows)
		if req.Producer != nil {
			for row := range int(c.Rows.NumRows()) {
				ordinals = append(ordinals, c.Ordinal(row))
			}
		}
	}
	if len(batches) == 0 {
		return nil, nil
	}
	all, err := segments.Concat(batches)
	if err != nil {
		return nil, err
	}
	b := 0
	if len(t.buckets) > 1 {
		b = rand.IntN(len(t.buckets)) //nolint:gosec // spreads load, guards nothing
		if req.Producer != nil {
			b = int(producerBucket(req.Producer.ID, len(t.buckets))) //nolint:gosec // below the number of buckets
		} else if req.Sticky != nil {
			b = int(*req.Sticky) % len(t.buckets)
		}
	}
	return []*share{{bucket: t.buckets[b], rows: all, ordinals: ordinals}}, nil
}

// producerBucket is a function of the producer alone, so that a replayed row
// meets the bucket that knows it. FNV-1a is stable for ever.
func producerBucket(id string, buckets int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64() % uint64(buckets) //nolint:gosec // positive
}
