package lakehouse

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
)

// StreamOptions says what StreamBucket reads.
type StreamOptions struct {
	Bucket int32
	// From and To bound the offsets, half-open. To is cut to the snapshot's lake
	// offset of the bucket; zero means that offset.
	From, To int64
	// Columns, Filter, Files, Parallel, ReadaheadBytes and BatchBytes are as in ScanOptions.
	Columns        *segments.Schema
	Filter         *filter.Expr
	Files          []DataFile
	Parallel       int
	ReadaheadBytes int64
	BatchBytes     int64
}

// StreamBatch is the next rows of a bucket, offsets ascending.
type StreamBatch struct {
	// Rows may have no rows: then the batch only reports progress.
	Rows arrow.RecordBatch
	// Offsets and Timestamps (commit time, µs) are those of each row.
	Offsets, Timestamps []int64
	// ConsumedTo is progress: every offset below it was delivered, or dropped by
	// the filter, or does not exist any more. It never goes back.
	ConsumedTo int64
}

// StreamBucket reads the rows of one bucket in exact offset order. Rows of one
// bucket are spread over several files with overlapping ranges when the table
// is partitioned; they are merged. Files and row groups outside [From, To), or
// excluded by the filter's statistics, are not read. The last batch of a whole
// read has ConsumedTo = To, also when every row was filtered.
func (s *Snapshot) StreamBucket(ctx context.Context, opts StreamOptions) iter.Seq2[StreamBatch, error] {
	return func(yield func(StreamBatch, error) bool) {
		end := s.Offset(opts.Bucket)
		if opts.To <= 0 || opts.To > end {
			opts.To = end
		}
		if opts.From >= opts.To {
			return
		}
		scan, done := s.lake.share(ScanOptions{Parallel: opts.Parallel, ReadaheadBytes: opts.ReadaheadBytes, BatchBytes: opts.BatchBytes}.withDefaults())
		defer done()
		stream, err := s.newBucketStream(ctx, opts, scan)
		if err == nil {
			err = stream.run(ctx, yield)
		}
		if err != nil {
			yield(StreamBatch{}, errs.In("stream table "+s.Table.String(), err))
		}
	}
}

// bucketStream is one StreamBucket call.
type bucketStream struct {
	plan     *scanPlan
	opts     ScanOptions
	lanes    [][]DataFile
	empty    arrow.RecordBatch
	consumed int64 // progress reported so far
	stopped  bool
}

func (s *Snapshot) newBucketStream(ctx context.Context, opts StreamOptions, scan ScanOptions) (*bucketStream, error) {
	plan, err := s.planScan(opts.Columns, opts.Filter)
	if err != nil {
		return nil, err
	}
	plan.withOffsets, plan.from, plan.to, plan.batchBytes = true, opts.From, opts.To, scan.BatchBytes
	files := opts.Files
	if files == nil {
		if files, err = s.Files(ctx); err != nil {
			return nil, err
		}
	}
	files = plan.prune(bucketFiles(files, opts.Bucket, opts.From, opts.To))
	return &bucketStream{plan: plan, opts: scan, lanes: cutLanes(files), empty: emptyBatch(plan.wanted), consumed: opts.From}, nil
}

// bucketFiles returns the files that hold rows of the bucket in [from, to), by
// base offset.
func bucketFiles(files []DataFile, bucket int32, from, to int64) []DataFile {
	kept := files[:0:0]
	for i := range files {
		if f := &files[i]; f.Bucket == bucket && f.Rows > 0 && f.BaseOffset < to && f.EndOffset > from {
			kept = append(kept, *f)
		}
	}
	slices.SortFunc(kept, func(a, b DataFile) int {
		return cmp.Or(cmp.Compare(a.BaseOffset, b.BaseOffset), cmp.Compare(a.EndOffset, b.EndOffset), cmp.Compare(a.Key, b.Key))
	})
	return kept
}

// cutLanes splits files that are sorted by base offset into as few lanes as
// overlap, so that the files of a lane follow each other without overlap.
func cutLanes(files []DataFile) [][]DataFile {
	var lanes [][]DataFile
next:
	for _, f := range files {
		for i, lane := range lanes {
			if lane[len(lane)-1].EndOffset <= f.BaseOffset {
				lanes[i] = append(lane, f)
				continue next
			}
		}
		lanes = append(lanes, []DataFile{f})
	}
	return lanes
}

func (b *bucketStream) run(ctx context.Context, yield func(StreamBatch, error) bool) error {
	var err error
	if len(b.lanes) == 1 {
		err = b.engine(1).run(ctx, b.lanes[0], func(p scanPiece) bool { return b.deliver(p.batch, p.next, yield) })
	} else {
		err = b.merge(ctx, yield)
	}
	if err == nil && !b.stopped && b.consumed < b.plan.to {
		b.deliver(ScanBatch{Rows: b.empty}, b.plan.to, yield)
	}
	return err
}

// engine returns the engine of one of n lanes: alone it decodes row groups in
// parallel, beside others it shares the memory with them.
func (b *bucketStream) engine(lanes int) *scanEngine {
	plan := *b.plan
	e := &scanEngine{plan: &plan, parallel: b.opts.Parallel, budget: b.opts.ReadaheadBytes, ordered: true}
	if lanes > 1 {
		e.parallel = 1
		e.budget = max(e.budget/int64(lanes), minWindowBytes)
		plan.batchBytes = max(plan.batchBytes/int64(lanes), minWindowBytes)
	}
	return e
}

func (b *bucketStream) deliver(batch ScanBatch, consumedTo int64, yield func(StreamBatch, error) bool) bool {
	b.consumed = consumedTo
	out := StreamBatch{Rows: batch.Rows, Offsets: batch.Offsets, Timestamps: batch.Timestamps, ConsumedTo: consumedTo}
	b.stopped = !yield(out, nil)
	return !b.stopped
}

func emptyBatch(s *segments.Schema) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	return b.NewRecordBatch()
}

// OffsetAtTime returns the bucket's first offset in the lake whose commit
// timestamp (µs) is at or after t, by the footers of a few files; false when
// all are older. Timestamps ascend with offsets, except after a takeover
// between agents whose clocks disagree: then it may be off by that much time.
func (s *Snapshot) OffsetAtTime(ctx context.Context, bucket int32, t int64) (int64, bool, error) {
	files, err := s.Files(ctx)
	if err != nil {
		return 0, false, err
	}
	offset, found, err := s.lake.offsetAtTime(ctx, bucketFiles(files, bucket, 0, s.Offset(bucket)), t)
	return offset, found, errs.In("find offset in table "+s.Table.String(), err)
}

// offsetAtTime searches a bucket's files, sorted by base offset.
func (l *Lake) offsetAtTime(ctx context.Context, files []DataFile, t int64) (best int64, found bool, err error) {
	for _, lane := range cutLanes(files) {
		offset, ok, err := l.laneOffsetAtTime(ctx, lane, t)
		if err != nil {
			return 0, false, err
		}
		if ok && (!found || offset < best) {
			best, found = offset, true
		}
	}
	return best, found, nil
}

// laneOffsetAtTime searches files that follow each other.
func (l *Lake) laneOffsetAtTime(ctx context.Context, files []DataFile, t int64) (offset int64, found bool, err error) {
	first := sort.Search(len(files), func(i int) bool {
		if err != nil {
			return true
		}
		var runs []Run
		if runs, err = l.fileRuns(ctx, &files[i]); err != nil {
			return true
		}
		return runs[len(runs)-1].Timestamp >= t
	})
	if err != nil || first == len(files) {
		return 0, false, err
	}
	runs, err := l.fileRuns(ctx, &files[first])
	if err != nil {
		return 0, false, err
	}
	i := sort.Search(len(runs), func(i int) bool { return runs[i].Timestamp >= t })
	if i == len(runs) { // timestamps that do not ascend: the file's last run is still new enough
		i--
	}
	return runs[i].FirstOffset, true, nil
}

// fileRuns returns a file's runs; never empty, as bucketFiles leaves out files without rows.
func (l *Lake) fileRuns(ctx context.Context, data *DataFile) ([]Run, error) {
	pq, err := l.openParquet(ctx, data.Key, data.Size)
	if err != nil {
		return nil, err
	}
	return pq.runs()
}
