package agent

import (
	"sync"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/wal"
	"github.com/firn-data/firn/wal/producers"
)

// liveSegment is a durable segment that a fold has not taken over yet.
type liveSegment struct {
	ref wal.SegmentRef
}

// liveMemory is what a live segment takes in memory, rows and footer aside. It counts
// against max_unfolded_bytes, so that very many small ones slow writers down too.
const liveMemory = 512

// weight is what a live segment counts against max_unfolded_bytes.
func weight(storedBytes int64) int64 { return storedBytes + liveMemory }

func (s *liveSegment) end() int64 { return s.ref.BaseOffset + s.ref.Rows }

// ticket stands for an entry on its way to the store. done is closed when err is set.
type ticket struct {
	done chan struct{}
	err  error
	ts   int64 // µs, the commit timestamp
}

func newTicket() *ticket { return &ticket{done: make(chan struct{})} }

func (t *ticket) settle(r wal.Result) {
	t.err, t.ts = r.Err, r.Timestamp
	close(t.done)
}

// bucket is the owner's state of one bucket. All fields are guarded by mu,
// which is never held over I/O.
type bucket struct {
	id   wal.BucketID
	slot int

	mu       sync.Mutex
	next     int64 // next offset to assign
	hw       int64 // high watermark: first offset that is not durable
	earliest int64 // start of the log
	lake     int64 // every offset below is in the lake
	gen      uint64
	live     []*liveSegment // ascending, [lake, hw) without a gap
	bytes    int64          // stored bytes of live
	closed   bool           // the table was dropped, or the slot is not ours any more
	tail     *ticket        // newest entry handed to the WAL

	// admitted includes what is in flight; durable does not (INVARIANT(agent-3)).
	admitted *producers.Set
	durable  *producers.Set
	places   keyPlaces // of requests under an Idempotency-Key

	keyed *keyedBucket // nil in a log table
}

func newBucket(id wal.BucketID, slot int) *bucket {
	return &bucket{id: id, slot: slot, admitted: &producers.Set{}, durable: &producers.Set{}}
}

// publish makes one durable segment visible; the caller holds publishMu.
func (b *bucket) publish(object wal.ObjectID, index int, seg *wal.Segment) (*liveSegment, error) {
	ls := &liveSegment{ref: wal.SegmentRef{
		Object: object, Index: int32(index), BaseOffset: seg.BaseOffset, Rows: seg.Rows, //nolint:gosec // a WAL object holds far fewer than 2^31 segments
		Bytes: seg.BodyLen, Timestamp: seg.Timestamp, SchemaID: seg.SchemaID,
	}}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil
	}
	if seg.BaseOffset != b.hw {
		return nil, errs.New(errs.Internal, "bucket %v: segment at offset %d published over high watermark %d", b.id, seg.BaseOffset, b.hw)
	}
	b.hw = ls.end()
	b.next = max(b.next, b.hw)
	for _, d := range seg.Producers {
		b.durable.Record(d, seg.Timestamp)
	}
	if seg.Rows == 0 { // a write that changed nothing
		return nil, nil
	}
	b.live = append(b.live, ls)
	b.bytes += ls.ref.Bytes
	b.publishKeyed()
	return ls, nil
}

// replay applies a segment found in the WAL's tail. Segments that the
// checkpoint already holds are skipped; a gap is corruption.
func (b *bucket) replay(object wal.ObjectID, index int, seg *wal.Segment) (added bool, err error) {
	b.mu.Lock()
	hw := b.hw
	b.mu.Unlock()
	if seg.BaseOffset < hw {
		return false, nil
	}
	if seg.BaseOffset > hw {
		return false, errs.New(errs.Corrupt, "%s: bucket %v has offset %d where %d is next", object.Key(), b.id, seg.BaseOffset, hw)
	}
	_, err = b.publish(object, index, seg)
	return err == nil, err
}

// restore sets the state from a checkpoint's manifest.
func (b *bucket) restore(m wal.BucketManifest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.next, b.hw, b.earliest, b.lake, b.gen = m.NextOffset, m.NextOffset, m.EarliestOffset, m.LakeOffset, m.Generation
	b.live, b.bytes = nil, 0
	for _, ref := range m.Segments {
		b.live = append(b.live, &liveSegment{ref: ref})
		b.bytes += ref.Bytes
	}
	b.durable = producers.NewSet(m.Producers)
}

// admitDurable copies the durable producer states to the admitted ones, once a
// recovery is complete and before the first append.
func (b *bucket) admitDurable() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admitted = producers.NewSet(b.durable.States())
}

// manifest captures what a checkpoint holds: durable state only.
func (b *bucket) manifest() wal.BucketManifest {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := wal.BucketManifest{Bucket: b.id, NextOffset: b.hw, LakeOffset: b.lake, Generation: b.gen, EarliestOffset: b.earliest}
	m.Segments = make([]wal.SegmentRef, len(b.live))
	for i, s := range b.live {
		m.Segments[i] = s.ref
	}
	m.Producers = b.durable.States()
	return m
}

// advanceLake takes over what a lake snapshot holds and returns the segments
// that are not live any more, and whether anything changed.
func (b *bucket) advanceLake(offset int64, gen uint64) (gone []*liveSegment, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if offset < b.lake || offset == b.lake && gen == b.gen {
		return nil, false
	}
	b.lake, b.gen = offset, gen
	// A lake that is ahead of the log belongs to rows that were durable before
	// they were folded; only a lost WAL object could explain it.
	b.hw, b.next = max(b.hw, offset), max(b.next, offset)
	n := 0
	for n < len(b.live) && b.live[n].end() <= offset {
		b.bytes -= b.live[n].ref.Bytes
		n++
	}
	gone = b.live[:n:n]
	b.live = append([]*liveSegment(nil), b.live[n:]...)
	return gone, true
}

// raiseEarliest moves the log's start after retention dropped what came before.
func (b *bucket) raiseEarliest(offset int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.earliest = max(b.earliest, offset)
}

// view is a consistent copy of the bucket's readable state.
type view struct {
	earliest, lake, hw int64
	gen                uint64
	live               []*liveSegment
	bytes              int64
}

func (b *bucket) view() view {
	b.mu.Lock()
	defer b.mu.Unlock()
	return view{earliest: b.earliest, lake: b.lake, hw: b.hw, gen: b.gen, live: b.live[:len(b.live):len(b.live)], bytes: b.bytes}
}

// expireProducers forgets states unused since before a cutoff (µs; 0 = none) and reports whether any went.
func (b *bucket) expireProducers(producersBefore, keysBefore int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.admitted.Expire(producersBefore, keysBefore)
	return b.durable.Expire(producersBefore, keysBefore) > 0
}
