package loadtest

import (
	"context"
	"fmt"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/client"
)

// writing is all writers of a run and what was acknowledged to them.
type writing struct {
	r     *run
	limit int64 // rows over all writers; 0 = by time

	mu    sync.Mutex
	acks  *hdr.Histogram  // microseconds
	acked map[int32]int64 // writer → rows acknowledged, from 0 without a gap
	sent  int64           // requests acknowledged
	rows  int64
	bytes int64
}

func newWriting(r *run) *writing {
	return &writing{r: r, acks: newHistogram(), acked: map[int32]int64{}}
}

// acknowledged copies how many rows of each writer are acknowledged.
func (w *writing) acknowledged() map[int32]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[int32]int64, len(w.acked))
	for k, v := range w.acked {
		out[k] = v
	}
	return out
}

func (w *writing) requests() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent
}

// write runs all writers to their end and reports their speed.
func (r *run) write(ctx context.Context) error {
	begun := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for id := range r.o.Writers {
		g.Go(func() error {
			if err := r.writing.writer(ctx, int32(id), begun); err != nil { //nolint:gosec // at most maxWriters
				return fmt.Errorf("writer %d: %w", id, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	w := r.writing
	w.mu.Lock()
	defer w.mu.Unlock()
	r.report.Append = &AppendFigures{
		Rows: w.rows, Requests: w.sent, Bytes: w.bytes, Seconds: took, RowsPerSecond: float64(w.rows) / took,
		MBPerSecond: float64(w.bytes) / 1e6 / took, Ack: summarize(w.acks),
	}
	return nil
}

// due is a writer's requests in flight: when each was due, by its first row.
type due struct {
	slots chan struct{} // one token for each request in flight
	mu    sync.Mutex
	at    map[int64]time.Time
}

func (d *due) put(first int64, at time.Time) { d.mu.Lock(); d.at[first] = at; d.mu.Unlock() }

func (d *due) take(first int64) (time.Time, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, ok := d.at[first]
	delete(d.at, first)
	if ok {
		<-d.slots
	}
	return at, ok
}

// writer sends batches until its time or its share of the limit is used up. At a
// rate, a batch's latency counts from when it was due, not from when a slow agent
// let it through.
func (w *writing) writer(ctx context.Context, id int32, begun time.Time) error {
	o := w.r.o
	at := &due{at: map[int64]time.Time{}, slots: make(chan struct{}, o.InFlight)}
	opt := client.WriterOptions{
		BatchRows: int64(o.BatchRows), BatchBytes: 48 << 20, Linger: time.Second, InFlight: o.InFlight,
		OnResult: func(res client.BatchResult) { w.result(id, at, res) },
	}
	if int(id) < o.Producers {
		opt.ProducerID = fmt.Sprintf("loadtest-%d", id)
	}
	out, err := w.r.table.NewWriter(opt)
	if err != nil {
		return err
	}
	err = w.pump(ctx, out, id, at, begun)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	if cerr := out.Close(closing); err == nil {
		err = cerr
	}
	return err
}

func (w *writing) pump(ctx context.Context, out *client.Writer, id int32, at *due, begun time.Time) error {
	o := w.r.o
	share := (w.limit + int64(o.Writers) - 1) / int64(o.Writers)
	perBatch := time.Duration(0)
	if o.Rate > 0 {
		perBatch = time.Duration(float64(o.BatchRows*o.Writers) / o.Rate * float64(time.Second))
	}
	next := begun.Add(perBatch * time.Duration(id) / time.Duration(o.Writers))
	for first := int64(0); ; first += int64(o.BatchRows) {
		if (w.limit > 0 && first >= share) || (w.limit == 0 && time.Since(begun) >= o.Duration) {
			return nil
		}
		rec := w.r.gen.Batch(id, first, o.BatchRows)
		if perBatch > 0 {
			if err := sleepUntil(ctx, next); err != nil {
				return err
			}
		}
		select {
		case at.slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		start := time.Now()
		if perBatch > 0 {
			start = next
			next = next.Add(perBatch)
		}
		at.put(first, start)
		err := out.Write(ctx, rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

func sleepUntil(ctx context.Context, at time.Time) error {
	t := time.NewTimer(time.Until(at))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// result notes an acknowledgement. They come in order, so that rows below First
// are acknowledged.
func (w *writing) result(id int32, at *due, res client.BatchResult) {
	start, ok := at.take(res.First)
	w.mu.Lock()
	defer w.mu.Unlock()
	if res.Err != nil {
		return
	}
	if ok {
		_ = w.acks.RecordValue(max(1, min(time.Since(start), time.Hour).Microseconds()))
	}
	w.acked[id] = max(w.acked[id], res.First+res.Rows)
	w.rows += res.Rows
	w.bytes += res.Rows * w.r.o.Shape.rowBytes()
	w.sent++
}

// rowBytes is about what a row takes in Arrow form.
func (s Shape) rowBytes() int64 {
	switch s {
	case Wide:
		return 12 + 4*8 + wideTextColumns*(wideTextBytes+4)
	case Tiny:
		return 20
	default:
		return 12 + 3*8 + 2*7
	}
}
