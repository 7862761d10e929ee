package wal

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/wal/producers"
)

// BucketID names one bucket of one table, the unit of order.
type BucketID struct {
	Table  uint64
	Bucket int32
}

// Compare orders buckets by table, then bucket.
func (b BucketID) Compare(o BucketID) int {
	return cmp.Or(cmp.Compare(b.Table, o.Table), cmp.Compare(b.Bucket, o.Bucket))
}

// String returns "table/bucket".
func (b BucketID) String() string { return fmt.Sprintf("%d/%d", b.Table, b.Bucket) }

// ObjectID names one WAL object: a position in the log of an incarnation.
type ObjectID struct {
	Incarnation string
	Seq         uint64
}

// Key returns the object's key in the store.
func (o ObjectID) Key() string { return seqKey("wal", o.Incarnation, o.Seq) }

// String returns the key.
func (o ObjectID) String() string { return o.Key() }

// ParseObjectKey is the inverse of Key; ok is false for any other key.
func ParseObjectKey(key string) (id ObjectID, ok bool) {
	inc, seq, ok := parseSeqKey("wal", key)
	return ObjectID{inc, seq}, ok
}

// seqDigits is the width of a sequence number in a key: enough for any uint64,
// so that lexical order is numeric order.
const seqDigits = 20

func seqKey(root, incarnation string, seq uint64) string {
	return fmt.Sprintf("%s/%s/%0*d", root, incarnation, seqDigits, seq)
}

func parseSeqKey(root, key string) (incarnation string, seq uint64, ok bool) {
	rest, ok := strings.CutPrefix(key, root+"/")
	if !ok {
		return "", 0, false
	}
	incarnation, digits, ok := strings.Cut(rest, "/")
	if !ok || len(digits) != seqDigits || CheckIncarnation(incarnation) != nil {
		return "", 0, false
	}
	seq, err := strconv.ParseUint(digits, 10, 64)
	return incarnation, seq, err == nil && digits[0] != '+'
}

// MaxIncarnationBytes bounds the id of an incarnation.
const MaxIncarnationBytes = 128

// CheckIncarnation returns an Invalid error unless id can be one element of a key.
func CheckIncarnation(id string) error {
	bad := id == "" || len(id) > MaxIncarnationBytes || id == "." || id == ".."
	for i := range len(id) {
		c := id[i]
		bad = bad || c <= ' ' || c >= 0x7f || c == '/' || c == '\\'
	}
	if bad {
		return errs.New(errs.Invalid, "incarnation %q: it needs 1 to %d printable ASCII characters without slashes", id, MaxIncarnationBytes)
	}
	return nil
}

// ProducerDelta says which rows of a producer a segment applied.
type ProducerDelta = producers.Delta

// ProducerState is what a bucket knows about one producer, with its id.
type ProducerState = producers.Named

// Segment is the rows of one bucket in one WAL object, without the rows.
type Segment struct {
	Bucket     BucketID
	SchemaID   int32
	BaseOffset int64
	Rows       int64
	Timestamp  int64 // commit time in µs; never decreases within an incarnation
	BodyOff    int64 // position in the object
	BodyLen    int64
	RawBytes   int64 // of the rows in memory, as their owner counted them
	Columns    []segments.ColumnChunk
	Producers  []ProducerDelta
}

// EndOffset returns the first offset after the segment.
func (s *Segment) EndOffset() int64 { return s.BaseOffset + s.Rows }

// Entry is rows that a bucket's owner hands over to the log. The owner assigned
// BaseOffset under the bucket's lock and hands entries over in that order. The
// log keeps Rows until Done has returned and neither retains nor releases them.
type Entry struct {
	Bucket     BucketID
	Schema     *segments.Schema
	Rows       arrow.RecordBatch
	More       []arrow.RecordBatch // rows behind Rows, of the same schema
	Bytes      int64               // what the rows count against limits
	BaseOffset int64
	Producers  []ProducerDelta
	// Done hears the outcome once, on the log's completion goroutine, in the
	// order of hand-over. It must not block. Nil is allowed.
	Done func(Result)
}

// Result is the outcome of one entry. Err is nil when the rows are durable. Else
// it is of class Unavailable when they are surely not and never will be, and
// Unknown when they may be; both are safe to retry only with a producer id, or
// where a duplicate is harmless.
type Result struct {
	Object    ObjectID
	Timestamp int64 // commit time in µs
	Err       error
}

// Committed is one durable object, as OnCommit hears of it. All of it is shared
// and must not be changed.
type Committed struct {
	ID       ObjectID
	Size     int64
	Segments []Segment
	// Rows holds the batches of each segment, in offset order.
	Rows [][]arrow.RecordBatch
	// Object is the whole object as stored.
	Object []byte
}
