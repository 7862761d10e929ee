package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/apache/arrow-go/v18/arrow"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// Start says where a stream of changes begins; make one with [Earliest],
// [Latest], [At] or [From].
type Start string

// The two ends of a log, and the rows of a primary-key table: a stream from
// Snapshot begins with the table's rows at one moment as INSERT, in no order, and
// goes on with the changes from exactly there. The rows of the snapshot have the
// offset -1.
const (
	Earliest Start = "earliest"
	Latest   Start = "latest"
	Snapshot Start = "snapshot"
)

// At starts with the first row committed at or after a moment.
func At(t time.Time) Start { return Start("timestamp:" + t.UTC().Format(time.RFC3339Nano)) }

// From starts at an offset in each of some buckets; buckets that are not named
// start at their earliest.
func From(offsets map[int32]int64) Start { return Start("offsets:" + FormatOffsets(offsets)) }

// FormatOffsets returns "0=12,1=40", as [From], the command line and the HTTP
// routes read it.
func FormatOffsets(offsets map[int32]int64) string {
	parts := make([]string, 0, len(offsets))
	for _, b := range slices.Sorted(maps.Keys(offsets)) {
		parts = append(parts, fmt.Sprintf("%d=%d", b, offsets[b]))
	}
	return strings.Join(parts, ",")
}

// ParseOffsets reads what FormatOffsets writes.
func ParseOffsets(s string) (map[int32]int64, error) {
	out := map[int32]int64{}
	for part := range strings.SplitSeq(s, ",") {
		b, o, ok := strings.Cut(strings.TrimSpace(part), "=")
		bucket, err1 := strconv.ParseInt(b, 10, 32)
		offset, err2 := strconv.ParseInt(o, 10, 64)
		if !ok || err1 != nil || err2 != nil || bucket < 0 || offset < 0 {
			return nil, invalid("offsets %q: they must look like 0=12,1=40", s)
		}
		out[int32(bucket)] = offset
	}
	return out, nil
}

// ChangesOptions selects a part of a table's log. Zero values mean all of it.
type ChangesOptions struct {
	Start   Start // default Earliest
	Buckets []int32
	Columns []string
	Where   string
	Limit   int64 // rows; 0 means no limit
	// Follow waits for new rows; without it the stream ends at the high watermark.
	Follow bool
	// OnProgress is told of every advance, also when a filter dropped every row.
	OnProgress func(map[int32]int64)
}

// Changes reads a table's log. After a break it resumes at the exact row. It
// belongs to one goroutine.
type Changes struct {
	t        *Table
	o        ChangesOptions
	ctx      context.Context
	cancel   context.CancelFunc
	stream   *connect.ServerStreamForClient[firnv1.ChangesResponse]
	decoder  pieces
	pending  []arrow.RecordBatch // of the last message, not yet returned
	progress map[int32]int64     // after the pending ones
	cursor   map[int32]int64     // after what was returned
	returned int64               // rows
	failures int
	err      error // final
}

// Changes streams the table's log. Rows carry _bucket, _offset, _timestamp and
// _change_type before the table's columns. It sends nothing before Next.
func (t *Table) Changes(ctx context.Context, o ChangesOptions) *Changes {
	ctx, cancel := context.WithCancel(ctx)
	return &Changes{t: t, o: o, ctx: ctx, cancel: cancel, cursor: map[int32]int64{}}
}

// Next returns the next rows, which the caller releases; io.EOF at the end of a
// stream that does not follow, or at its limit. OutOfRange means that the start is
// before the log's earliest offset, which the details name.
func (s *Changes) Next() (arrow.RecordBatch, error) {
	for s.err == nil {
		if rec := s.pop(); rec != nil {
			return rec, nil
		}
		if err := s.receive(); err != nil {
			s.err = err
		}
	}
	return nil, s.err
}

// Cursor returns the offset per bucket to resume from after the rows returned so
// far: hand it to [From]. It is empty until the agent told the start, and among the
// rows of a snapshot, where no offset is a place to resume at.
func (s *Changes) Cursor() map[int32]int64 {
	if s.inSnapshot() {
		return map[int32]int64{}
	}
	return maps.Clone(s.cursor)
}

// inSnapshot reports whether the rows of a snapshot are not all returned.
func (s *Changes) inSnapshot() bool {
	for _, at := range s.cursor {
		if at < 0 {
			return true
		}
	}
	return false
}

// Close ends the stream.
func (s *Changes) Close() error {
	if s.err == nil {
		s.err = errClosed
	}
	for _, rec := range s.pending {
		rec.Release()
	}
	s.pending = nil
	s.hangUp()
	s.cancel()
	return nil
}

// pop returns a batch of the last message; with its last one the cursor moves.
func (s *Changes) pop() arrow.RecordBatch {
	if len(s.pending) == 0 {
		return nil
	}
	rec := s.pending[0]
	s.pending = s.pending[1:]
	s.returned += rec.NumRows()
	if len(s.pending) == 0 {
		s.advance()
	}
	return rec
}

func (s *Changes) advance() {
	if len(s.progress) == 0 {
		return
	}
	maps.Copy(s.cursor, s.progress)
	s.progress = nil
	if s.o.OnProgress != nil && !s.inSnapshot() {
		s.o.OnProgress(s.Cursor())
	}
}

// receive takes one message, or mends the stream.
func (s *Changes) receive() error {
	if s.o.Limit > 0 && s.returned >= s.o.Limit {
		return io.EOF
	}
	err := s.receiveOnce()
	switch {
	case err == nil:
		s.failures = 0
		return nil
	case errors.Is(err, io.EOF):
		return io.EOF
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	}
	s.hangUp()
	return s.broke(err)
}

// broke waits before the stream is mended; an error is final.
func (s *Changes) broke(err error) error {
	if !retryable(err, true) {
		return err
	}
	if s.inSnapshot() {
		if s.returned > 0 {
			return &Error{Class: Unavailable, Code: "unavailable", Message: "the stream broke among the rows of its snapshot, which it cannot resume: start anew", cause: err}
		}
		clear(s.cursor) // nothing was returned: a new snapshot is as good
	}
	s.failures++
	return s.t.c.retry.wait(s.ctx, s.failures, err)
}

func (s *Changes) receiveOnce() error {
	if s.stream == nil {
		stream, err := s.t.c.data.Changes(s.ctx, connect.NewRequest(s.request()))
		if err != nil {
			return broken(err)
		}
		s.stream, s.decoder = stream, pieces{}
	}
	if !s.stream.Receive() {
		if err := s.stream.Err(); err != nil {
			return broken(err)
		}
		if s.o.Follow { // an agent that shuts down in good order
			return &Error{Class: Unavailable, Code: "unavailable", Message: "the agent ended the stream"}
		}
		return io.EOF
	}
	msg := s.stream.Msg()
	recs, err := s.decoder.decode(msg.ArrowIpc)
	if err != nil {
		return err
	}
	s.pending, s.progress = recs, msg.Progress
	if len(recs) == 0 {
		s.advance()
	}
	return nil
}

// request starts at the cursor when there is one.
func (s *Changes) request() *firnv1.ChangesRequest {
	r := &firnv1.ChangesRequest{
		Database: s.t.database, Table: s.t.name, Start: string(s.o.Start),
		Buckets: s.o.Buckets, Columns: s.o.Columns, Where: s.o.Where, Follow: s.o.Follow,
	}
	if len(s.cursor) > 0 {
		r.Start = string(From(s.cursor))
	}
	if s.o.Limit > 0 {
		left := s.o.Limit - s.returned
		r.Limit = &left
	}
	return r
}

func (s *Changes) hangUp() {
	if s.stream != nil {
		_ = s.stream.Close() // it is given up
		s.stream = nil
	}
}
