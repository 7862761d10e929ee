package agent

import (
	"context"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/wal"
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
	Rejected  int64           // rows of a message that were refused
	RowErrors []rows.RowError // the first of them
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
	rejected int64
	errors   []rows.RowError
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
		bytes += s.bytes()
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
	s.applied = s.rows()
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
	all := s.applied
	if err := s.keep(p.FirstSequence, fresh); err != nil {
		return err
	}
	s.applied = s.rows()
	s.skipped = all - s.applied
	return nil
}

// delta is what a request of so many rows adds to a bucket's producer state.
func (p *Producer) delta(bodyRows int64) wal.ProducerDelta {
	return wal.ProducerDelta{ID: p.ID, First: p.FirstSequence, Count: bodyRows, AckedBelow: p.AckedBelow, Idempotency: p.Idempotency}
}

// prepare makes the WAL entry of a share. The bucket is locked.
func (s *share) prepare(req AppendRequest) wal.Entry {
	s.base = s.bucket.next
	s.ticket, s.logged = newTicket(), s.applied
	s.entry = wal.Entry{
		Bucket: s.bucket.id, Schema: req.Schema, Rows: s.parts[0].rows, Bytes: s.bytes(),
		BaseOffset: s.base, Done: s.ticket.settle,
	}
	for _, p := range s.parts[1:] {
		s.entry.More = append(s.entry.More, p.rows)
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
	res := AppendResult{Rejected: p.rejected, RowErrors: p.errors}
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
		count := s.logged + s.recalled
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
