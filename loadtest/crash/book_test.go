package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/loadtest"
)

// rowID names a row: which writer's, and which of its rows. Zero is no row.
type rowID struct {
	writer int32
	seq    int64
}

// request is one request of a writer that promises nothing: it is there whole or
// not at all, and once.
type request struct {
	first, rows int64
	acked       bool
}

// book is all that must be true of one table: what was acknowledged, what may be
// there, and at which offset each row was ever seen.
type book struct {
	table *client.Table
	gen   *loadtest.Generator

	mu      sync.Mutex
	acked   map[int32]map[int64]struct{} // rows acknowledged
	sent    map[int32]int64              // rows below were handed out, and may be there
	plain   map[int32][]request          // of writers without a promise
	places  map[int32][]rowID            // bucket → offset → row, as far as known
	acks    int64                        // rows acknowledged, over all writers
	skipped int64                        // rows answered as applied before
	wrong   error                        // first contradiction

	tail *loadtest.Checker // what the follower saw
}

func newBook(table *client.Table, gen *loadtest.Generator) *book {
	return &book{table: table, gen: gen, acked: map[int32]map[int64]struct{}{}, sent: map[int32]int64{}, plain: map[int32][]request{}, places: map[int32][]rowID{}, tail: loadtest.NewChecker(gen)}
}

// handOut notes that a writer may send rows below end.
func (b *book) handOut(writer int32, end int64) {
	b.mu.Lock()
	b.sent[writer] = max(b.sent[writer], end)
	b.mu.Unlock()
}

// bucketAnswer is the part of an answer that places rows.
type bucketAnswer struct {
	Bucket     int32 `json:"bucket"`
	BaseOffset int64 `json:"base_offset"`
	Count      int64 `json:"count"`
	EndOffset  int64 `json:"end_offset"`
}

// ack notes an answer to rows [first, first+n) of a writer. When it applied all
// rows to one bucket, their offsets are known from it.
func (b *book) ack(writer int32, first, n, skipped int64, buckets []bucketAnswer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	rows := b.acked[writer]
	if rows == nil {
		rows = map[int64]struct{}{}
		b.acked[writer] = rows
	}
	before := len(rows)
	for seq := first; seq < first+n; seq++ {
		rows[seq] = struct{}{}
	}
	b.acks += int64(len(rows) - before)
	b.skipped += skipped
	if skipped != 0 || len(buckets) != 1 {
		return
	}
	at := buckets[0]
	if at.Count != n || at.EndOffset < at.BaseOffset+n {
		b.fault("writer %d, rows %d to %d: answered with %+v", writer, first, first+n-1, at)
	}
	for i := range n {
		b.place(at.Bucket, at.BaseOffset+i, rowID{writer, first + i}, "an acknowledgement")
	}
}

func (b *book) fault(format string, args ...any) {
	if b.wrong == nil {
		b.wrong = fmt.Errorf(format, args...)
	}
}

// place notes that a row stands at an offset; it must never stand elsewhere.
func (b *book) place(bucket int32, offset int64, row rowID, who string) {
	places := b.places[bucket]
	for int64(len(places)) <= offset {
		places = append(places, rowID{writer: -1})
	}
	if old := places[offset]; old.writer >= 0 && old != row {
		b.fault("bucket %d, offset %d: %s says row %d of writer %d, earlier it was row %d of writer %d",
			bucket, offset, who, row.seq, row.writer, old.seq, old.writer)
	}
	places[offset] = row
	b.places[bucket] = places
}

// witness notes where rows of a stream stand.
func (b *book) witness(rec arrow.RecordBatch, who string) error {
	col := func(name string) arrow.Array { return rec.Column(rec.Schema().FieldIndices(name)[0]) }
	buckets, offsets := col("_bucket").(*array.Int32), col("_offset").(*array.Int64)
	writers, seqs := col("writer").(*array.Int32), col("seq").(*array.Int64)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range int(rec.NumRows()) {
		b.place(buckets.Value(i), offsets.Value(i), rowID{writers.Value(i), seqs.Value(i)}, who)
	}
	return b.wrong
}

// expectation is what a read must hold at least, taken before it begins.
type expectation struct {
	acked map[int32]int       // rows acknowledged
	ends  map[int32]int64     // bucket → offsets known to be taken
	plain map[int32][]request // acknowledged plain requests and others
}

func (b *book) expect() expectation {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := expectation{acked: map[int32]int{}, ends: map[int32]int64{}, plain: map[int32][]request{}}
	for w, rows := range b.acked {
		e.acked[w] = len(rows)
	}
	for k, places := range b.places {
		e.ends[k] = int64(len(places))
	}
	for w, reqs := range b.plain {
		e.plain[w] = append([]request(nil), reqs...)
	}
	return e
}

// verify reads the whole log and checks it against the book. Writers may go on
// meanwhile.
func (b *book) verify(ctx context.Context) (*loadtest.Checker, error) {
	b.mu.Lock()
	acked := map[int32][]int64{}
	for w, rows := range b.acked {
		list := make([]int64, 0, len(rows))
		for seq := range rows {
			list = append(list, seq)
		}
		acked[w] = list
	}
	b.mu.Unlock()
	want := b.expect()
	check := loadtest.NewChecker(b.gen)
	if err := b.readLog(ctx, check); err != nil {
		return nil, err
	}
	for w, list := range acked {
		for _, seq := range list {
			if !check.Has(w, seq) {
				return nil, fmt.Errorf("LOST: row %d of writer %d was acknowledged and is not in the log", seq, w)
			}
		}
	}
	for bucket, end := range want.ends {
		if got := check.Ends()[bucket]; got < end {
			return nil, fmt.Errorf("LOST: bucket %d ends at offset %d, and offset %d was acknowledged or read before", bucket, got, end-1)
		}
	}
	if err := b.checkPlain(check, want.plain); err != nil {
		return nil, err
	}
	return check, b.err()
}

func (b *book) err() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.wrong
}

// checkPlain checks that requests without a promise are there whole or not at all.
func (b *book) checkPlain(check *loadtest.Checker, plain map[int32][]request) error {
	for w, reqs := range plain {
		for _, r := range reqs {
			there := int64(0)
			for seq := r.first; seq < r.first+r.rows; seq++ {
				if check.Has(w, seq) {
					there++
				}
			}
			if there != 0 && there != r.rows || r.acked && there == 0 {
				return fmt.Errorf("request of writer %d at row %d: %d of %d rows are there (acknowledged: %v)", w, r.first, there, r.rows, r.acked)
			}
		}
	}
	return nil
}

// readLog reads the log from its start, checks each row, and that it was sent.
func (b *book) readLog(ctx context.Context, check *loadtest.Checker) error {
	changes := b.table.Changes(ctx, client.ChangesOptions{})
	defer changes.Close()
	first := map[int32]bool{}
	for {
		rec, err := changes.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read log: %w", err)
		}
		bucket := rec.Column(rec.Schema().FieldIndices("_bucket")[0]).(*array.Int32).Value(0)
		offset := rec.Column(rec.Schema().FieldIndices("_offset")[0]).(*array.Int64).Value(0)
		if !first[bucket] && offset != 0 {
			return fmt.Errorf("bucket %d begins at offset %d", bucket, offset)
		}
		first[bucket] = true
		if err := check.Stream(rec); err != nil {
			return fmt.Errorf("log: %w", err)
		}
		if err := b.witness(rec, "the log"); err != nil {
			return err
		}
		if err := b.checkSent(rec); err != nil {
			return err
		}
		rec.Release()
	}
}

func (b *book) checkSent(rec arrow.RecordBatch) error {
	writers := rec.Column(rec.Schema().FieldIndices("writer")[0]).(*array.Int32)
	seqs := rec.Column(rec.Schema().FieldIndices("seq")[0]).(*array.Int64)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range int(rec.NumRows()) {
		if seqs.Value(i) >= b.sent[writers.Value(i)] {
			return fmt.Errorf("row %d of writer %d is in the log and was never sent", seqs.Value(i), writers.Value(i))
		}
	}
	return nil
}

// final is verify once every writer has stopped, with everything sent
// acknowledged (plain writers excepted): the log holds exactly that, and the
// table and the lake hold the same rows.
func (b *book) final(ctx context.Context) (int64, error) {
	check, err := b.verify(ctx)
	if err != nil {
		return 0, err
	}
	if err := b.allAcked(); err != nil {
		return 0, err
	}
	rows := check.Rows()
	if err := b.countIs(ctx, client.Union, rows); err != nil {
		return 0, err
	}
	if err := b.scanIs(ctx, client.Union, rows); err != nil {
		return 0, err
	}
	if _, err := b.table.Fold(ctx); err != nil {
		return 0, fmt.Errorf("fold: %w", err)
	}
	for _, layer := range []client.Layer{client.Lake, client.Union} {
		if err := b.countIs(ctx, layer, rows); err != nil {
			return 0, err
		}
		if err := b.scanIs(ctx, layer, rows); err != nil {
			return 0, err
		}
	}
	again, err := b.verify(ctx) // now out of the lake, at the same offsets
	if err != nil {
		return 0, fmt.Errorf("after the last fold: %w", err)
	}
	if again.Rows() != rows {
		return 0, fmt.Errorf("%d rows after the last fold, %d before", again.Rows(), rows)
	}
	return rows, nil
}

func (b *book) allAcked() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w, end := range b.sent {
		if b.plain[w] == nil && int64(len(b.acked[w])) != end {
			return fmt.Errorf("writer %d: %d of %d rows were acknowledged in the end", w, len(b.acked[w]), end)
		}
	}
	return nil
}

func (b *book) countIs(ctx context.Context, layer client.Layer, want int64) error {
	got, err := b.table.Count(ctx, client.CountOptions{Layer: layer})
	if err != nil {
		return fmt.Errorf("count %s: %w", layer, err)
	}
	if got != want {
		return fmt.Errorf("count of layer %s is %d, the log holds %d rows", layer, got, want)
	}
	return nil
}

func (b *book) scanIs(ctx context.Context, layer client.Layer, want int64) error {
	rows, err := b.table.Scan(ctx, client.ScanOptions{Layer: layer})
	if err != nil {
		return fmt.Errorf("scan %s: %w", layer, err)
	}
	defer rows.Close()
	check := loadtest.NewChecker(b.gen)
	for {
		rec, err := rows.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("scan %s: %w", layer, err)
		}
		if err := check.Table(rec); err != nil {
			return fmt.Errorf("scan %s: %w", layer, err)
		}
		rec.Release()
	}
	if check.Rows() != want {
		return fmt.Errorf("a scan of layer %s has %d rows, the log %d", layer, check.Rows(), want)
	}
	return nil
}

// follow tails the table through all lives of the agent: what a reader saw once
// stands there for ever.
func (b *book) follow(ctx context.Context) error {
	check := b.tail
	for ctx.Err() == nil {
		changes := b.table.Changes(ctx, client.ChangesOptions{Follow: true, Start: startAt(check.Ends())})
		err := b.drain(ctx, changes, check)
		_ = changes.Close()
		if err != nil && (client.ClassOf(err) != client.Unavailable && client.ClassOf(err) != client.Unknown) {
			return err
		}
	}
	return nil
}

// followed waits until the follower has seen as many rows as the log holds.
func (b *book) followed(ctx context.Context, rows int64) error {
	for b.tail.Rows() < rows {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the follower is stuck at %d of %d rows", b.tail.Rows(), rows)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return b.tail.Err()
}

func startAt(ends map[int32]int64) client.Start {
	if len(ends) == 0 {
		return client.Earliest
	}
	return client.From(ends)
}

func (b *book) drain(ctx context.Context, changes *client.Changes, check *loadtest.Checker) error {
	for {
		rec, err := changes.Next()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("follow: %w", err)
		}
		if err := check.Stream(rec); err != nil {
			return fmt.Errorf("follower: %w", err)
		}
		if err := b.witness(rec, "a follower"); err != nil {
			return err
		}
		rec.Release()
	}
}

const verifyLimit = 2 * time.Minute
