package wal

import (
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// batcher gathers entries and cuts them into objects. It is pure; the log's lock
// guards it.
type batcher struct {
	flushBytes int64
	flushAge   time.Duration
	floor      time.Duration

	entries []waiting
	bytes   int64
	tails   map[BucketID]tail // of the entries held
}

type waiting struct {
	Entry
	since time.Time
}

// tail is where a bucket's next entry must begin while earlier ones are held.
type tail struct {
	end   int64
	count int
}

// group is entries of one bucket and schema that become one segment.
type group struct {
	bucket  BucketID
	schema  *segments.Schema
	base    int64
	rows    int64
	bytes   int64
	batches []arrow.RecordBatch
	deltas  []ProducerDelta

	encoded *segments.Encoded
}

// cut is the entries of one object-to-be, in order.
type cut struct {
	entries []Entry
	groups  []*group
	bytes   int64

	encoding bool   // an encoder still works on it
	seq      uint64 // once dispatched
	footer   Footer
	object   []byte
}

// check refuses entries that do not continue their buckets. It changes nothing.
func (b *batcher) check(entries []Entry) error {
	var ends map[BucketID]int64 // within this call
	for i := range entries {
		e := &entries[i]
		want, known := ends[e.Bucket]
		if !known {
			if t, ok := b.tails[e.Bucket]; ok {
				want, known = t.end, true
			}
		}
		if known && want != e.BaseOffset {
			return errs.New(errs.Internal, "entry of bucket %s begins at offset %d, but the one before ends at %d", e.Bucket, e.BaseOffset, want)
		}
		if len(entries) > 1 {
			if ends == nil {
				ends = make(map[BucketID]int64, len(entries))
			}
			ends[e.Bucket] = e.BaseOffset + e.rows()
		}
	}
	return nil
}

// rows counts an entry's rows; an entry may hold producer deltas only.
func (e *Entry) rows() int64 {
	if e.Rows == nil {
		return 0
	}
	n := e.Rows.NumRows()
	for _, rec := range e.More {
		n += rec.NumRows()
	}
	return n
}

// checkEntry refuses what could never be written.
func checkEntry(e *Entry) error {
	switch {
	case e.Schema == nil:
		return errs.New(errs.Internal, "entry of bucket %s has no schema", e.Bucket)
	case e.rows() == 0 && len(e.Producers) == 0:
		return errs.New(errs.Internal, "entry of bucket %s has neither rows nor producers", e.Bucket)
	case e.BaseOffset < 0 || e.BaseOffset+e.rows() < 0 || e.Bytes < 0 || e.Bucket.Bucket < 0:
		return errs.New(errs.Internal, "entry of bucket %s: offset %d, %d rows, %d bytes", e.Bucket, e.BaseOffset, e.rows(), e.Bytes)
	case len(e.Schema.Fields) > MaxColumnChunks:
		return errs.New(errs.Invalid, "table of %d columns: at most %d", len(e.Schema.Fields), MaxColumnChunks)
	case len(e.Producers) > maxDeltas:
		return errs.New(errs.Invalid, "entry with %d producer ranges: at most %d", len(e.Producers), maxDeltas)
	}
	return nil
}

func (b *batcher) add(entries []Entry, now time.Time) {
	if b.tails == nil {
		b.tails = make(map[BucketID]tail)
	}
	for _, e := range entries {
		b.entries = append(b.entries, waiting{e, now})
		b.bytes += e.Bytes
		t := b.tails[e.Bucket]
		b.tails[e.Bucket] = tail{e.BaseOffset + e.rows(), t.count + 1}
	}
}

// due says whether an object should be cut now, and if not, when to ask again
// (zero: only after another event). idle means that nothing is in flight, room
// that a cut would be dispatched at once, ahead that one may be encoded ahead.
func (b *batcher) due(now time.Time, idle, room, ahead, forced bool) (bool, time.Time) {
	if len(b.entries) == 0 {
		return false, time.Time{}
	}
	if b.bytes >= b.flushBytes {
		return ahead, time.Time{}
	}
	if !room {
		return false, time.Time{} // the next outcome wakes us; meanwhile the object grows
	}
	if forced {
		return true, time.Time{}
	}
	at := b.entries[0].since.Add(b.flushAge)
	if idle {
		at = b.entries[0].since.Add(b.floor)
	}
	return !now.Before(at), at
}

// cut takes entries from the front: at least one, about flushBytes, and never
// more than an object may hold.
func (b *batcher) cut() *cut {
	c := &cut{}
	g := grouper{byBucket: make(map[BucketID]*group)}
	n := 0
	for n < len(b.entries) && (n == 0 || c.bytes < b.flushBytes) {
		e := &b.entries[n].Entry
		if !g.add(e) {
			break
		}
		c.entries = append(c.entries, *e)
		c.bytes += e.Bytes
		if t := b.tails[e.Bucket]; t.count == 1 {
			delete(b.tails, e.Bucket)
		} else {
			b.tails[e.Bucket] = tail{t.end, t.count - 1}
		}
		n++
	}
	c.groups = g.groups
	b.bytes -= c.bytes
	if n == len(b.entries) {
		b.entries = nil
	} else {
		b.entries = b.entries[n:]
	}
	return c
}

// grouper joins entries of one bucket and schema into segments.
type grouper struct {
	groups   []*group
	byBucket map[BucketID]*group // the newest of each bucket
	columns  int
	deltas   int
}

// add reports false when the entry must go to the next object.
func (g *grouper) add(e *Entry) bool {
	if g.deltas+len(e.Producers) > maxDeltas && len(g.groups) > 0 {
		return false
	}
	cur := g.byBucket[e.Bucket]
	if cur == nil || cur.schema.ID != e.Schema.ID {
		n := countFields(e.Schema.Fields)
		if len(g.groups) > 0 && (len(g.groups) >= MaxSegments || g.columns+n > maxCutColumns) {
			return false
		}
		cur = &group{bucket: e.Bucket, schema: e.Schema, base: e.BaseOffset}
		g.groups = append(g.groups, cur)
		g.byBucket[e.Bucket] = cur
		g.columns += n
	}
	g.deltas += len(e.Producers)
	cur.add(e)
	return true
}

// countFields counts the fields of all levels: what a segment's part of the footer grows with.
func countFields(fields []segments.Field) int {
	n := len(fields)
	for i := range fields {
		n += countFields(fields[i].Type.Children)
	}
	return n
}

func (g *group) add(e *Entry) {
	if n := e.rows(); n > 0 {
		g.batches = append(append(g.batches, e.Rows), e.More...)
		g.rows += n
	}
	g.bytes += e.Bytes
	for _, d := range e.Producers {
		if n := len(g.deltas); n > 0 {
			if joined, ok := g.deltas[n-1].Join(d); ok {
				g.deltas[n-1] = joined
				continue
			}
		}
		g.deltas = append(g.deltas, d)
	}
}
