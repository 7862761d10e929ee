package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// WriterOptions says how a writer batches and numbers rows. Zero values mean the
// defaults.
type WriterOptions struct {
	// ProducerID makes rows exactly-once across restarts: row i of the writer is
	// sequence FirstSequence + i, and the same sequence must always be the same
	// row. Where to resume says [Table.Producer].
	ProducerID    string
	FirstSequence int64

	// Op says what the rows do; default: append, of a primary-key table upsert.
	Op Op
	// Columns makes partial writes of a primary-key table: only these and the key are
	// read and written.
	Columns []string
	// SkipBadRows applies the good rows of a batch and reports the others in its
	// answer, numbered within the batch; without it one bad row ends the writer.
	SkipBadRows bool

	BatchRows  int64         // rows of a request at most; default 65,536
	BatchBytes int64         // bytes of a request at most, about; default 4 MiB
	Linger     time.Duration // longest wait for a batch to fill; default 10 ms
	// InFlight is how many requests wait for their acknowledgement; default 32, and 8
	// of an unordered writer, which holds a connection for each.
	InFlight int
	// Unordered sends requests over several connections: a little faster, and rows
	// of different requests may change places in a bucket.
	Unordered bool
	// MaxPendingBytes bounds the rows held until they are acknowledged; Write waits
	// beyond it. Default 64 MiB.
	MaxPendingBytes int64
	// AckTimeout is how long an acknowledgement may take before the request is sent
	// again over a new connection; default 2 minutes.
	AckTimeout time.Duration
	// OnResult is told of each batch, in the order of acknowledgement. It runs on a
	// goroutine of the writer: it must not block, nor call Flush or Close.
	OnResult func(BatchResult)
}

// BatchResult is the fate of rows [First, First+Rows) of a writer, counted from
// FirstSequence.
type BatchResult struct {
	First  int64
	Rows   int64
	Answer *firnv1.AppendResponse // nil after an error
	Err    error                  // final: the writer has stopped
}

func (o *WriterOptions) complete() error {
	if o.BatchRows == 0 {
		o.BatchRows = 64 << 10
	}
	if o.BatchBytes == 0 {
		o.BatchBytes = 4 << 20
	}
	if o.Linger == 0 {
		o.Linger = 10 * time.Millisecond
	}
	if o.InFlight == 0 {
		o.InFlight = 32
		if o.Unordered {
			o.InFlight = 8
		}
	}
	if o.MaxPendingBytes == 0 {
		o.MaxPendingBytes = max(64<<20, 2*o.BatchBytes)
	}
	if o.AckTimeout == 0 {
		o.AckTimeout = 2 * time.Minute
	}
	if o.BatchRows < 0 || o.BatchBytes < 0 || o.Linger < 0 || o.InFlight < 0 || o.MaxPendingBytes < 0 || o.AckTimeout < 0 || o.FirstSequence < 0 {
		return invalid("writer options must not be negative: %+v", *o)
	}
	if o.ProducerID == "" && o.FirstSequence != 0 {
		return invalid("FirstSequence needs a ProducerID")
	}
	return nil
}

// Writer appends rows to one table: it batches them, keeps requests in flight,
// and sends again what was not acknowledged. After its first final error it
// accepts nothing more.
type Writer struct {
	t   *Table
	opt WriterOptions

	// intake is held (one token) by whoever adds to or cuts the batch in hand. It
	// is taken before mu, and may be held while waiting for room.
	intake chan struct{}
	batch  batcher
	timer  *time.Timer // cuts the batch in hand after Linger

	mu struct { // never held over I/O
		sync.Mutex
		win     *window
		err     error // final
		closed  bool
		changed chan struct{} // closed and replaced at every change
	}

	ctx    context.Context // ends with the writer
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// NewWriter starts a writer. It sends nothing before there are rows; Close ends
// it.
func (t *Table) NewWriter(o WriterOptions) (*Writer, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	w := &Writer{
		t: t, opt: o, intake: make(chan struct{}, 1),
		batch: batcher{maxRows: o.BatchRows, maxBytes: o.BatchBytes, linger: o.Linger},
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.mu.win = newWindow(o.FirstSequence)
	w.mu.changed = make(chan struct{})
	w.timer = time.AfterFunc(time.Hour, w.lingered)
	w.timer.Stop()
	if o.Unordered {
		for range o.InFlight {
			w.wg.Go(w.postLoop)
		}
	} else {
		w.wg.Go(w.streamLoop)
	}
	return w, nil
}

// Write hands rows over. It returns when they are held by the writer, not when
// they are durable: Flush and OnResult tell that. It waits while MaxPendingBytes
// are held. A returned error of the writer is final; the end of ctx leaves the
// writer usable, with some of the rows possibly taken (Sequence tells how many).
func (w *Writer) Write(ctx context.Context, rec arrow.RecordBatch) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	per := bytesPerRow(rec)
	for at := int64(0); at < rec.NumRows(); {
		n := w.batch.fits(rec, at, per)
		if n > 0 {
			if err := w.room(ctx); err != nil {
				return err
			}
			if w.batch.rows == 0 {
				w.timer.Reset(w.opt.Linger)
			}
			w.batch.add(rec, at, n, per)
			at += n
		}
		if n == 0 || w.batch.full() {
			if err := w.cut(); err != nil {
				return err
			}
		}
	}
	return w.failed()
}

// Skip leaves out n rows of the sequence, for a source that drops some of its rows
// (bad ones) and must give the others the same sequences every time.
func (w *Writer) Skip(ctx context.Context, n int64) error {
	if n < 0 {
		return invalid("skip %d rows: it must not be negative", n)
	}
	if err := w.enter(ctx); err != nil {
		return err
	}
	defer w.leave()
	if n == 0 {
		return nil
	}
	if err := w.cut(); err != nil {
		return err
	}
	w.mu.Lock()
	w.mu.win.skip(n)
	w.signal()
	w.mu.Unlock()
	return nil
}

// Flush sends what is held and waits until all of it is durable.
func (w *Writer) Flush(ctx context.Context) error {
	if err := w.enter(ctx); err != nil {
		return err
	}
	err := w.cut()
	w.leave()
	if err != nil {
		return err
	}
	w.mu.Lock()
	last := w.mu.win.nextID - 1
	w.mu.Unlock()
	return w.await(ctx, func() bool { return w.mu.win.done(last) })
}

// Close flushes, then ends the writer. When ctx ends first, or the writer has
// failed, it gives up the rows that are not acknowledged, and says how many.
func (w *Writer) Close(ctx context.Context) error {
	w.mu.Lock()
	if w.mu.closed {
		w.mu.Unlock()
		return nil
	}
	w.mu.Unlock()
	err := w.Flush(ctx)
	w.mu.Lock()
	w.mu.closed = true
	pending := w.mu.win.pendingRows()
	w.signal()
	w.mu.Unlock()
	w.timer.Stop()
	w.cancel()
	w.wg.Wait()
	if err != nil && pending > 0 {
		return fmt.Errorf("close writer with %d rows not acknowledged: %w", pending, err)
	}
	return err
}

// Acked returns the sequence below which every row is acknowledged.
func (w *Writer) Acked() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.win.ackedBelow
}

// Sequence returns the sequence that the next row of Write gets.
func (w *Writer) Sequence() int64 {
	w.intake <- struct{}{}
	defer w.leave()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.win.nextRow + w.batch.rows
}

// enter takes the intake of a living writer.
func (w *Writer) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	select {
	case w.intake <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if err := w.failed(); err != nil {
		w.leave()
		return err
	}
	return nil
}

func (w *Writer) leave() { <-w.intake }

// failed returns the writer's final error, or that it is closed.
func (w *Writer) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.mu.err != nil:
		return w.mu.err
	case w.mu.closed:
		return errClosed
	}
	return nil
}

// lingered cuts a batch that has waited long enough.
func (w *Writer) lingered() {
	select {
	case w.intake <- struct{}{}:
		_ = w.cut() // kept as the writer's error
		w.leave()
	case <-w.ctx.Done():
	}
}

// cut turns the batch in hand into a request. The caller holds the intake.
func (w *Writer) cut() error {
	w.timer.Stop()
	if w.batch.rows == 0 {
		return w.failed()
	}
	rows, body, err := w.batch.cut()
	if err != nil {
		w.fail(err)
		return err
	}
	key := ""
	if w.opt.ProducerID == "" {
		key = newKey()
	}
	w.mu.Lock()
	w.mu.win.push(rows, body, key)
	w.signal()
	w.mu.Unlock()
	return w.failed()
}

// room waits until the window may grow.
func (w *Writer) room(ctx context.Context) error {
	return w.await(ctx, func() bool {
		return w.mu.win.bytes == 0 || w.mu.win.bytes+w.batch.bytes < w.opt.MaxPendingBytes
	})
}

// await waits until ok, which runs under mu, or until the writer has failed.
func (w *Writer) await(ctx context.Context, ok func() bool) error {
	for {
		w.mu.Lock()
		done, err, changed := ok(), w.mu.err, w.mu.changed
		w.mu.Unlock()
		if done {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// signal wakes all who wait; the caller holds mu.
func (w *Writer) signal() {
	close(w.mu.changed)
	w.mu.changed = make(chan struct{})
}

// fail ends the writer for good.
func (w *Writer) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.err == nil {
		w.mu.err = err
		w.signal()
	}
}

// take waits for a batch to send; nil when the writer or ctx ends.
func (w *Writer) take(ctx context.Context, limit int) *batch {
	var b *batch
	err := w.await(ctx, func() bool {
		b = w.mu.win.take(limit)
		return b != nil
	})
	if err != nil {
		return nil
	}
	return b
}

// acked settles a batch that is durable; it reports false for an answer that was
// not awaited.
func (w *Writer) acked(id int64, answer *firnv1.AppendResponse) bool {
	w.mu.Lock()
	b := w.mu.win.find(id)
	var body []byte
	if b != nil && !b.busy {
		body = b.body
	}
	ok := w.mu.win.ack(id)
	w.signal()
	w.mu.Unlock()
	recycle(body)
	if ok && w.opt.OnResult != nil {
		w.opt.OnResult(BatchResult{First: b.first, Rows: b.rows, Answer: answer})
	}
	return ok
}

// refused settles a batch that will never be applied, and the writer with it.
func (w *Writer) refused(b *batch, err error) {
	w.fail(err)
	if w.opt.OnResult != nil && b != nil {
		w.opt.OnResult(BatchResult{First: b.first, Rows: b.rows, Err: err})
	}
}
