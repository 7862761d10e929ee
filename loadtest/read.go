package loadtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/client"
)

// together writes, and runs readers meanwhile. Each reader is told when the
// writing has ended by the closing of written.
func (r *run) together(ctx context.Context, readers ...func(context.Context, <-chan struct{}) error) error {
	written := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	for _, read := range readers {
		g.Go(func() error { return read(ctx, written) })
	}
	g.Go(func() error {
		defer close(written)
		return r.write(ctx)
	})
	return g.Wait()
}

// follow runs the followers: each reads the log from its start, and ends when it
// has seen every row that was acknowledged.
func (r *run) follow(ctx context.Context, written <-chan struct{}) error {
	begun := time.Now()
	var mu sync.Mutex
	delays, rows := newHistogram(), int64(0)
	g, ctx := errgroup.WithContext(ctx)
	for id := range r.o.Readers {
		g.Go(func() error {
			check := NewChecker(r.gen)
			local := newHistogram()
			if err := r.followOnce(ctx, check, local, written); err != nil {
				return fmt.Errorf("follower %d: %w", id, err)
			}
			mu.Lock()
			defer mu.Unlock()
			rows += check.Rows()
			delays.Merge(local)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	r.checked += rows
	r.report.Tail = &ReadFigures{Rows: rows, Reads: int64(r.o.Readers), Seconds: took, RowsPerSecond: float64(rows) / took, Delay: summarize(delays)}
	return nil
}

const followLimit = time.Minute // longest wait for rows that were acknowledged

func (r *run) followOnce(ctx context.Context, check *Checker, delays *hdr.Histogram, written <-chan struct{}) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := errors.New("every acknowledged row was seen")
	go func() {
		select {
		case <-written:
		case <-ctx.Done():
			return
		}
		deadline := time.Now().Add(followLimit)
		for check.Covers(r.writing.acknowledged()) != nil {
			if check.Err() != nil || time.Now().After(deadline) || ctx.Err() != nil {
				cancel(fmt.Errorf("follower stuck after %d rows", check.Rows()))
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		cancel(done)
	}()
	changes := r.table.Changes(ctx, client.ChangesOptions{Follow: true})
	defer changes.Close()
	for {
		rec, err := changes.Next()
		if err != nil {
			if errors.Is(context.Cause(ctx), done) {
				return check.Complete(r.writing.acknowledged())
			}
			return errors.Join(err, context.Cause(ctx))
		}
		noteDelays(rec, delays)
		err = check.Stream(rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

// noteDelays measures one row of a batch: all of one WAL object share a commit.
func noteDelays(rec arrow.RecordBatch, delays *hdr.Histogram) {
	stamps, ok := column(rec, "_timestamp").(*array.Timestamp)
	if !ok || rec.NumRows() == 0 {
		return
	}
	d := time.Now().UnixMicro() - int64(stamps.Value(stamps.Len()-1))
	_ = delays.RecordValue(max(1, min(d, time.Hour.Microseconds())))
}

// readLog reads the whole log.
func (r *run) readLog(ctx context.Context, check *Checker) error {
	changes := r.table.Changes(ctx, client.ChangesOptions{})
	defer changes.Close()
	for {
		rec, err := changes.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = check.Stream(rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

// scanOnce reads the whole table as of one moment.
func (r *run) scanOnce(ctx context.Context, check *Checker) error {
	rows, err := r.table.Scan(ctx, client.ScanOptions{})
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		rec, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		err = check.Table(rec)
		rec.Release()
		if err != nil {
			return err
		}
	}
}

// scanUntil scans until the writing has ended.
func (r *run) scanUntil(ctx context.Context, written <-chan struct{}) error {
	return r.scans(ctx, func() bool {
		select {
		case <-written:
			return true
		default:
			return false
		}
	})
}

// scanFor scans for some time, at least once.
func (r *run) scanFor(ctx context.Context, d time.Duration) error {
	end := time.Now().Add(d)
	return r.scans(ctx, func() bool { return time.Now().After(end) })
}

// scans runs the scanners. A scan that began after an acknowledgement holds its
// rows; it may hold later ones.
func (r *run) scans(ctx context.Context, over func() bool) error {
	begun := time.Now()
	var mu sync.Mutex
	delays, rows, reads := newHistogram(), int64(0), int64(0)
	g, ctx := errgroup.WithContext(ctx)
	for id := range r.o.Readers {
		g.Go(func() error {
			for first := true; first || !over(); first = false {
				check, acked, start := NewChecker(r.gen), r.writing.acknowledged(), time.Now()
				err := r.scanOnce(ctx, check)
				if err == nil {
					err = check.Covers(acked)
				}
				if err != nil {
					return fmt.Errorf("scanner %d: %w", id, err)
				}
				mu.Lock()
				_ = delays.RecordValue(max(1, time.Since(start).Microseconds()))
				rows, reads = rows+check.Rows(), reads+1
				mu.Unlock()
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	took := time.Since(begun).Seconds()
	r.checked += rows
	r.report.Scan = &ReadFigures{Rows: rows, Reads: reads, Seconds: took, RowsPerSecond: float64(rows) / took, Delay: summarize(delays)}
	return nil
}

const foldEvery = 500 * time.Millisecond

// foldUntil folds over and over until the writing has ended, so that reads cross
// the border between lake and live rows while it moves.
func (r *run) foldUntil(ctx context.Context, written <-chan struct{}) error {
	for {
		select {
		case <-written:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(foldEvery):
		}
		if _, err := r.table.Fold(ctx); err != nil {
			return fmt.Errorf("fold: %w", err)
		}
	}
}
