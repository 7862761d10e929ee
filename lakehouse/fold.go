package lakehouse

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go/table"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
)

// FoldInput is the durable rows of some buckets of one table, to be committed to
// the lake together.
type FoldInput struct {
	Buckets []BucketFold
}

// BucketFold is one bucket's rows: every offset in [From, To).
type BucketFold struct {
	Bucket   int32
	From, To int64
	// Generation is the bucket's generation in the snapshot that From comes from.
	Generation uint64
	// Next returns the rows in offset order, without holes, and io.EOF after the
	// last. Fold releases the batches, and calls Next from one goroutine, one
	// batch ahead of what it writes. Batches are in the current schema.
	Next func(ctx context.Context) (FoldBatch, error)
	// Keyed is set for the buckets of a primary-key table: then Next returns the rows
	// that are left of [From, To), which have holes, with the offset of each.
	Keyed *KeyedFold
}

// FoldBatch is some consecutive rows of a bucket with one commit timestamp.
type FoldBatch struct {
	Rows       arrow.RecordBatch
	BaseOffset int64
	Timestamp  int64 // µs since the epoch
	// Offsets (ascending) and Timestamps are by row, in a keyed fold; then
	// BaseOffset and Timestamp mean nothing.
	Offsets, Timestamps []int64
}

// FoldResult says what a fold committed. When there was nothing to fold,
// SnapshotID is the table's current snapshot and the counts are zero.
type FoldResult struct {
	SnapshotID int64
	Rows       int64
	Files      int
	Bytes      int64
	// Offsets and Generations are those of the whole table, as in Snapshot.
	Offsets     map[int32]int64
	Generations map[int32]uint64
}

// discardTime bounds the deletion of files that were not committed, also when
// the caller's context has ended.
const discardTime = 30 * time.Second

// Fold writes the rows to data files and commits them as one Iceberg snapshot,
// which moves each bucket's lake offset from From to To. Exactly once: when the
// lake is not where the input starts, also because another fold won meanwhile,
// it fails with Conflict and has changed nothing. After Unknown it may have been
// committed; a Load tells. An empty input commits nothing.
func (l *Lake) Fold(ctx context.Context, def TableDef, in FoldInput) (FoldResult, error) {
	op := "fold " + def.String()
	base, err := l.newest(ctx, def, verifyLater)
	if err != nil {
		return FoldResult{}, errs.In(op, err)
	}
	snap, err := l.snapshotOf(def, base, base.meta.CurrentSnapshot())
	if err != nil {
		return FoldResult{}, errs.In(op, err)
	}
	c := change{id: l.opts.NewID(), operation: table.OpAppend}
	var work []BucketFold
	for _, b := range in.Buckets {
		if b.To > b.From {
			work = append(work, b)
			c.moves = append(c.moves, bucketMove{bucket: b.Bucket, from: b.From, to: b.To, generation: b.Generation})
		}
	}
	// Refused early when it could not be committed anyway; the commit decides again.
	if _, err := decide(lakeState{offsets: snap.Offsets, generations: snap.Generations}, c.moves); err != nil {
		return FoldResult{}, errs.In(op, err)
	}
	if len(work) == 0 {
		return resultOf(snap, nil), nil
	}
	w, err := l.newTableWriter(ctx, &def, base)
	if err != nil {
		return FoldResult{}, errs.In(op, err)
	}
	keyed := anyKeyed(work)
	if keyed {
		w.opts = w.opts.forLookups()
	}
	err = foldBuckets(ctx, w, work)
	files, err := w.finish(err)
	if err != nil {
		return FoldResult{}, errs.In(op, err)
	}
	for _, f := range files {
		c.add = append(c.add, f.entry)
	}
	if keyed {
		if err := l.addKeyed(ctx, w, snap, work, files, &c); err != nil {
			w.discard()
			return FoldResult{}, errs.In(op, err)
		}
	}
	committed, err := l.commit(ctx, &def, c)
	if err != nil {
		if !errs.Is(err, errs.Unknown) {
			w.discard()
		}
		return FoldResult{}, errs.In(op, err)
	}
	return resultOf(committed, files), nil
}

func resultOf(s *Snapshot, files []writtenFile) FoldResult {
	r := FoldResult{SnapshotID: s.ID, Files: len(files), Offsets: s.Offsets, Generations: s.Generations}
	for _, f := range files {
		r.Rows += f.entry.Count()
		r.Bytes += f.entry.FileSizeBytes()
	}
	return r
}

// foldBuckets writes the rows of all buckets, a bounded number at a time.
func foldBuckets(ctx context.Context, w *tableWriter, work []BucketFold) error {
	lanes := min(len(work), w.lake.opts.Parallel)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(lanes)
	for _, b := range work {
		g.Go(func() error { return foldBucket(ctx, w.bucket(b.Bucket, lanes), b) })
	}
	return g.Wait()
}

// foldBucket writes one bucket's rows, reading one batch ahead.
func foldBucket(ctx context.Context, w *bucketWriter, b BucketFold) error {
	ctx, cancel := context.WithCancel(ctx)
	type item struct {
		batch FoldBatch
		err   error
	}
	ahead := make(chan item)
	go func() {
		defer close(ahead)
		for {
			batch, err := b.Next(ctx)
			select {
			case ahead <- item{batch, err}:
				if err != nil {
					return
				}
			case <-ctx.Done():
				if err == nil && batch.Rows != nil {
					batch.Rows.Release()
				}
				return
			}
		}
	}()
	defer func() { // the reader is always waited for
		cancel()
		for it := range ahead {
			if it.err == nil && it.batch.Rows != nil {
				it.batch.Rows.Release()
			}
		}
	}()
	next := b.From
	for it := range ahead {
		if errors.Is(it.err, io.EOF) {
			break
		}
		if it.err != nil {
			return errs.In("read rows to fold", it.err)
		}
		n := it.batch.Rows.NumRows()
		var err error
		if b.Keyed != nil {
			next, err = foldKeyed(ctx, w, &b, it.batch, next)
			it.batch.Rows.Release()
			if err != nil {
				return err
			}
			continue
		}
		if it.batch.BaseOffset != next || next+n > b.To {
			err = errs.New(errs.Internal, "bucket %d: rows [%d, %d) were handed to the fold at %d of [%d, %d)",
				b.Bucket, it.batch.BaseOffset, it.batch.BaseOffset+n, next, b.From, b.To)
		} else if n > 0 {
			err = w.add(ctx, rowBatch{rows: it.batch.Rows, base: next, timestamp: it.batch.Timestamp})
		}
		it.batch.Rows.Release()
		if err != nil {
			return err
		}
		next += n
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if next != b.To && b.Keyed == nil {
		return errs.New(errs.Internal, "bucket %d: rows to fold ended at %d and not at %d", b.Bucket, next, b.To)
	}
	return w.closeAll(ctx)
}
