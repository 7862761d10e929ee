package lakehouse

import (
	"context"
	"iter"
	"runtime"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
)

// Bounds of one scan; ScanOptions may set others.
const (
	defaultReadaheadBytes = 64 << 20
	defaultBatchBytes     = 4 << 20
	// openAhead bounds the files whose footers are read before their turn.
	openAhead = 8
	// unitsAhead bounds the row groups that wait, fetched or being fetched, for a decoder.
	unitsAhead = 4
	// batchesAhead bounds the decoded batches that wait for the consumer, per decoder.
	batchesAhead = 2
)

// ScanOptions says what a scan reads. The zero value reads every row and
// column of the current schema.
type ScanOptions struct {
	// Columns are the wanted columns, chosen by field id: some of the table's
	// current schema (see segments.Schema.Select), in the order wanted. Nil
	// wants all; no fields at all wants row counts only.
	Columns *segments.Schema
	// Filter drops rows; it was parsed against the table's current schema.
	Filter *filter.Expr
	// Files are the data files to read instead of the snapshot's own.
	Files []DataFile
	// Hidden are rows to leave out beside the deleted ones: by data file key, the
	// positions. The bitmaps must not change while the scan runs.
	Hidden map[string]*roaring.Bitmap
	// Ordered delivers rows file by file, in the order of Files and of their
	// rows. Without it, batches come as they are decoded.
	Ordered bool
	// WithOffsets fills Offsets and Timestamps of each batch.
	WithOffsets bool
	// Parallel is how many row groups are decoded at once (default: the CPUs).
	Parallel int
	// ReadaheadBytes bounds the encoded bytes in memory (default 64 MiB);
	// BatchBytes is about how large a decoded batch is (default 4 MiB).
	ReadaheadBytes int64
	BatchBytes     int64
}

func (o ScanOptions) withDefaults() ScanOptions {
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	if o.ReadaheadBytes <= 0 {
		o.ReadaheadBytes = defaultReadaheadBytes
	}
	if o.BatchBytes <= 0 {
		o.BatchBytes = defaultBatchBytes
	}
	return o
}

// ScanBatch is some rows of one bucket, in the wanted columns. Batches without
// rows are not delivered.
type ScanBatch struct {
	Rows   arrow.RecordBatch
	Bucket int32 // -1 for rows of a file that Firn did not write
	// Offsets and Timestamps (commit time, µs) of each row, when asked for.
	Offsets, Timestamps []int64
}

// Scan reads the snapshot's rows. Files and row groups that the filter excludes
// by their statistics are not read; what is left is filtered exactly. Columns
// that a file lacks hold their default. The first error ends the scan: Corrupt
// names the data file. When the consumer stops early, everything that was
// started is waited for before Scan returns.
//
// Memory is bounded by ReadaheadBytes (less while other scans run) plus, for each decoder, one decoded row
// group window and batchesAhead batches.
func (s *Snapshot) Scan(ctx context.Context, opts ScanOptions) iter.Seq2[ScanBatch, error] {
	return func(yield func(ScanBatch, error) bool) {
		opts = opts.withDefaults()
		plan, err := s.planScan(opts.Columns, opts.Filter)
		if err != nil {
			yield(ScanBatch{}, err)
			return
		}
		files := opts.Files
		if files == nil {
			if files, err = s.Files(ctx); err != nil {
				yield(ScanBatch{}, err)
				return
			}
		}
		opts, done := s.lake.share(opts)
		defer done()
		plan.withOffsets, plan.hidden = opts.WithOffsets, opts.Hidden
		plan.batchBytes = opts.BatchBytes
		engine := scanEngine{plan: plan, parallel: opts.Parallel, budget: opts.ReadaheadBytes, ordered: opts.Ordered}
		err = engine.run(ctx, plan.prune(files), func(p scanPiece) bool {
			if p.batch.Rows.NumRows() == 0 {
				return true
			}
			return yield(p.batch, nil)
		})
		if err != nil {
			yield(ScanBatch{}, errs.In("scan table "+s.Table.String(), err))
		}
	}
}

// Count returns how many of the snapshot's rows the filter keeps; a nil filter
// keeps all and reads nothing. Files and row groups that are wholly in or out
// by their statistics are counted from metadata.
func (s *Snapshot) Count(ctx context.Context, f *filter.Expr) (int64, error) {
	if f == nil {
		return s.Rows, nil
	}
	plan, err := s.planScan(&segments.Schema{}, f)
	if err != nil {
		return 0, err
	}
	files, err := s.Files(ctx)
	if err != nil {
		return 0, err
	}
	var total int64
	rest := files[:0:0]
	for i := range files {
		switch plan.verdict(&files[i]) {
		case filter.All:
			total += files[i].LiveRows()
		case filter.Some:
			rest = append(rest, files[i])
		case filter.None:
		}
	}
	for batch, err := range s.Scan(ctx, ScanOptions{Columns: &segments.Schema{}, Filter: f, Files: rest}) {
		if err != nil {
			return 0, err
		}
		total += batch.Rows.NumRows()
	}
	return total, nil
}
