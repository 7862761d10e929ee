package agent

import (
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
)

const (
	// A batch below both is small: what it costs to send is its message, not its rows.
	smallRows  = 4096
	smallBytes = 64 << 10
	// Small batches are joined up to these.
	joinedRows  = 16 << 10
	joinedBytes = 512 << 10
)

// coalesced joins small batches that follow each other: a table with a segment
// each row or two would be sent as as many messages. limit is how many rows the
// reader wants at most (0 = all); it gets them as soon as they are there.
func coalesced(in iter.Seq2[arrow.RecordBatch, error], limit int64) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		var held []arrow.RecordBatch
		var rows, size int64
		left := limit
		flush := func() bool {
			if len(held) == 0 {
				return true
			}
			joined, err := segments.Concat(held)
			held, rows, size = nil, 0, 0
			return yield(joined, err) && err == nil
		}
		for rec, err := range in {
			if err != nil {
				if flush() {
					yield(nil, err)
				}
				return
			}
			bytes := int64(smallBytes)
			if rec.NumRows() < smallRows {
				bytes = segments.SizeOf(rec)
			}
			left -= rec.NumRows()
			if bytes >= smallBytes {
				if !flush() || !yield(rec, nil) {
					return
				}
				continue
			}
			held = append(held, rec)
			rows += rec.NumRows()
			size += bytes
			if (rows >= joinedRows || size >= joinedBytes || (limit > 0 && left <= 0)) && !flush() {
				return
			}
		}
		flush()
	}
}
