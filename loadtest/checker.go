package loadtest

import (
	"fmt"
	"maps"
	"math/bits"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Checker recognises a generator's rows: each must come once, with the values
// that the generator gives it, and, in a stream, at the next offset of its bucket.
// The first thing that is wrong stays its error.
type Checker struct {
	gen *Generator

	mu   sync.Mutex
	next map[int32]int64  // bucket → offset that must come next
	seen map[int32]bitset // writer → sequences
	rows int64
	err  error
}

// NewChecker returns a checker that has seen nothing.
func NewChecker(gen *Generator) *Checker {
	return &Checker{gen: gen, next: map[int32]int64{}, seen: map[int32]bitset{}}
}

// Stream checks rows of a stream: _bucket, _offset, _timestamp, _change_type,
// then the table's columns.
func (c *Checker) Stream(rec arrow.RecordBatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = c.stream(rec)
	}
	return c.err
}

func (c *Checker) stream(rec arrow.RecordBatch) error {
	buckets, ok1 := column(rec, "_bucket").(*array.Int32)
	offsets, ok2 := column(rec, "_offset").(*array.Int64)
	if !ok1 || !ok2 {
		return fmt.Errorf("a stream's batch lacks _bucket or _offset: %v", rec.Schema())
	}
	for i := range int(rec.NumRows()) {
		b, at := buckets.Value(i), offsets.Value(i)
		if want, known := c.next[b]; known && want != at {
			return fmt.Errorf("bucket %d: offset %d where %d is next", b, at, want)
		}
		c.next[b] = at + 1
	}
	return c.table(rec)
}

// Table checks rows in any order.
func (c *Checker) Table(rec arrow.RecordBatch) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = c.table(rec)
	}
	return c.err
}

func (c *Checker) table(rec arrow.RecordBatch) error {
	writers, ok1 := column(rec, "writer").(*array.Int32)
	seqs, ok2 := column(rec, "seq").(*array.Int64)
	if !ok1 || !ok2 {
		return fmt.Errorf("a batch lacks writer or seq: %v", rec.Schema())
	}
	n := int(rec.NumRows())
	for at := 0; at < n; {
		w, first := writers.Value(at), seqs.Value(at)
		end := at + 1
		for end < n && writers.Value(end) == w && seqs.Value(end) == first+int64(end-at) {
			end++
		}
		if err := c.run(rec, at, end, w, first); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// run checks rows [at, end) of a batch, which claim to be consecutive rows of a writer.
func (c *Checker) run(rec arrow.RecordBatch, at, end int, writer int32, first int64) error {
	if first < 0 {
		return fmt.Errorf("writer %d: sequence %d", writer, first)
	}
	want := c.gen.Batch(writer, first, end-at)
	defer want.Release()
	for i, f := range want.Schema().Fields() {
		got := column(rec, f.Name)
		if got == nil {
			return fmt.Errorf("column %q is missing", f.Name)
		}
		if !array.SliceEqual(got, int64(at), int64(end), want.Column(i), 0, int64(end-at)) {
			return fmt.Errorf("writer %d, sequences %d to %d: column %q does not hold what was written", writer, first, first+int64(end-at)-1, f.Name)
		}
	}
	seen := c.seen[writer]
	for seq := first; seq < first+int64(end-at); seq++ {
		if !seen.add(seq) {
			c.seen[writer] = seen
			return fmt.Errorf("writer %d: row %d came twice", writer, seq)
		}
	}
	c.seen[writer] = seen
	c.rows += int64(end - at)
	return nil
}

// Rows returns how many rows were seen.
func (c *Checker) Rows() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rows
}

// Ends returns the offset after the last row of each bucket of a stream.
func (c *Checker) Ends() map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.next)
}

// Has reports whether a row was seen.
func (c *Checker) Has(writer int32, seq int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[writer].has(seq)
}

// Err returns what was wrong first, or nil.
func (c *Checker) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Complete checks that of each writer exactly the rows [0, count) were seen.
func (c *Checker) Complete(counts map[int32]int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	var total int64
	for w, n := range counts {
		total += n
		if missing := c.seen[w].firstMissing(); missing < n {
			return fmt.Errorf("writer %d: row %d of %d was acknowledged and is not there", w, missing, n)
		}
	}
	if total != c.rows {
		return fmt.Errorf("%d rows where %d were acknowledged", c.rows, total)
	}
	return nil
}

// Covers checks that the rows [0, count) of each writer were seen; more may be
// there, sent and not acknowledged yet.
func (c *Checker) Covers(counts map[int32]int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	for w, n := range counts {
		if missing := c.seen[w].firstMissing(); missing < n {
			return fmt.Errorf("writer %d: row %d was acknowledged before the read began and is not in it", w, missing)
		}
	}
	return nil
}

func column(rec arrow.RecordBatch, name string) arrow.Array {
	at := rec.Schema().FieldIndices(name)
	if len(at) != 1 {
		return nil
	}
	return rec.Column(at[0])
}

// bitset is a set of small numbers.
type bitset []uint64

// maxSequence bounds a writer's rows, and with them a bitset (1 GiB).
const maxSequence = 1 << 33

// add reports whether v is new.
func (b *bitset) add(v int64) bool {
	if v >= maxSequence {
		return false
	}
	word := int(v / 64)
	if word >= len(*b) {
		grown := make(bitset, max(word+1, 2*len(*b)))
		copy(grown, *b)
		*b = grown
	}
	bit := uint64(1) << (v % 64)
	if (*b)[word]&bit != 0 {
		return false
	}
	(*b)[word] |= bit
	return true
}

func (b bitset) has(v int64) bool {
	word := int(v / 64)
	return word < len(b) && b[word]&(1<<(v%64)) != 0
}

func (b bitset) firstMissing() int64 {
	for i, w := range b {
		if w != ^uint64(0) {
			return int64(64*i + bits.TrailingZeros64(^w))
		}
	}
	return int64(64 * len(b))
}
