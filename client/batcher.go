package client

import (
	"bytes"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// batcher collects record batches until one of its limits is reached.
type batcher struct {
	maxRows  int64
	maxBytes int64
	linger   time.Duration

	recs  []arrow.RecordBatch // retained, all of one schema
	rows  int64
	bytes int64
}

// fits returns how many rows of rec, from row at, go into the batch in hand: 0
// when it must be cut first. per is the size of a row.
func (b *batcher) fits(rec arrow.RecordBatch, at, per int64) int64 {
	if len(b.recs) > 0 && !b.recs[0].Schema().Equal(rec.Schema()) {
		return 0
	}
	left := min(b.maxRows-b.rows, rec.NumRows()-at)
	if per > 0 {
		left = min(left, (b.maxBytes-b.bytes)/per)
	}
	if left < 1 && b.rows == 0 {
		return 1 // a row over the limit goes alone
	}
	return max(left, 0)
}

// add takes rows [at, at+n) of rec.
func (b *batcher) add(rec arrow.RecordBatch, at, n, per int64) {
	b.recs = append(b.recs, rec.NewSlice(at, at+n))
	b.rows += n
	b.bytes += n * per
}

func (b *batcher) full() bool { return b.rows >= b.maxRows || b.bytes >= b.maxBytes }

// cut encodes what was collected and starts anew.
func (b *batcher) cut() (rows int64, body []byte, err error) {
	defer func() {
		for _, r := range b.recs {
			r.Release()
		}
		b.recs, b.rows, b.bytes = nil, 0, 0
	}()
	body, err = encodeArrow(b.recs)
	return b.rows, body, err
}

// encodeArrow writes record batches of one schema as one Arrow IPC stream, into
// memory that recycle gave back when there is some.
func encodeArrow(recs []arrow.RecordBatch) ([]byte, error) {
	buf := bytes.NewBuffer(takeBody(encodedBytes(recs)))
	w := ipc.NewWriter(buf, ipc.WithSchema(recs[0].Schema()))
	for _, r := range recs {
		if err := w.Write(r); err != nil {
			_ = w.Close()
			return nil, invalid("encode Arrow: %v", err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, invalid("encode Arrow: %v", err)
	}
	return buf.Bytes(), nil
}

// What a batch and a column cost in a stream beside their values: metadata, and
// the padding of up to four buffers.
const (
	batchOverhead  = 1 << 10
	columnOverhead = 512
)

// encodedBytes is about how long a stream of record batches is, and rarely too little.
func encodedBytes(recs []arrow.RecordBatch) int {
	n := int64(batchOverhead)
	for _, r := range recs {
		n += batchOverhead + columnOverhead*r.NumCols()
		for _, c := range r.Columns() {
			n += sizeOf(c)
		}
	}
	return int(n + n/32)
}

// maxKeptBody is the size up to which a body's memory is used again.
const maxKeptBody = 16 << 20

var bodies = sync.Pool{New: func() any { return new([]byte) }}

// takeBody returns an empty slice with room for n bytes.
func takeBody(n int) []byte {
	b := *bodies.Get().(*[]byte)
	if cap(b) < n {
		b = make([]byte, 0, n)
	}
	return b[:0]
}

// recycle gives a body's memory back; nobody else may hold it.
func recycle(b []byte) {
	if b != nil && cap(b) <= maxKeptBody {
		bodies.Put(&b)
	}
}
