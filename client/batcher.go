package client

import (
	"bytes"
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

// encodeArrow writes record batches of one schema as one Arrow IPC stream.
func encodeArrow(recs []arrow.RecordBatch) ([]byte, error) {
	var buf bytes.Buffer
	w := ipc.NewWriter(&buf, ipc.WithSchema(recs[0].Schema()))
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
