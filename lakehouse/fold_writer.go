package lakehouse

import (
	"context"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/iceberg-go"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// maxUploads bounds the finished data files of one fold that are being put.
const maxUploads = 4

// tableWriter writes the data files of one commit. Buckets are written by
// goroutines of their own; finished files are put in the background.
type tableWriter struct {
	lake   *Lake
	def    *TableDef
	schema *fileSchema
	spec   *iceberg.PartitionSpec
	opts   fileOptions
	target int64 // bytes of a file

	uploads   *errgroup.Group
	uploadCtx context.Context

	mu    sync.Mutex // covers what follows
	files []writtenFile
	keys  []string // of every file whose put was begun
}

// writtenFile is a data file that stands in the store, not committed yet.
type writtenFile struct {
	key    string
	bucket int32
	entry  iceberg.DataFile
	runs   []Run
}

// newTableWriter prepares to write files by the definition's current schema and
// the partition spec that a commit on base makes the default one.
func (l *Lake) newTableWriter(ctx context.Context, def *TableDef, base *version) (*tableWriter, error) {
	schema, err := def.Current()
	if err != nil {
		return nil, err
	}
	spec, err := l.currentSpec(ctx, def, base)
	if err != nil {
		return nil, err
	}
	codec, err := def.compression()
	if err != nil {
		return nil, err
	}
	w := &tableWriter{lake: l, def: def, spec: spec,
		opts: fileOptions{codec: codec, delta: def.Properties[PropEncoding] == "delta", rowGroupRows: l.opts.RowGroupRows, rowGroupBytes: l.opts.RowGroupBytes, pageBytes: parquetPageBytes}}
	if w.target, err = def.intProperty(PropTargetFileBytes, l.opts.TargetFileBytes); err != nil {
		return nil, err
	}
	if w.schema, err = newFileSchema(schema); err != nil {
		return nil, err
	}
	w.uploads, w.uploadCtx = errgroup.WithContext(ctx)
	w.uploads.SetLimit(maxUploads)
	return w, nil
}

// currentSpec returns the partition spec of the definition with the id that it
// has in the lake. A definition that the lake does not follow yet is synced
// first, because files are bound to a spec's id before their commit.
func (l *Lake) currentSpec(ctx context.Context, def *TableDef, base *version) (*iceberg.PartitionSpec, error) {
	wanted, err := wantedSpec(def)
	if err != nil {
		return nil, err
	}
	find := func(v *version) *iceberg.PartitionSpec {
		for _, spec := range v.meta.PartitionSpecs() {
			if sameSpec(spec, wanted) {
				return &spec
			}
		}
		return nil
	}
	if spec := find(base); spec != nil {
		return spec, nil
	}
	if err := l.SyncSchema(ctx, *def); err != nil {
		return nil, err
	}
	if base, err = l.newest(ctx, *def, verifyLater); err != nil {
		return nil, err
	}
	if spec := find(base); spec != nil {
		return spec, nil
	}
	return nil, errs.New(errs.Internal, "table %s has no partition spec like its definition's", def)
}

// finish waits for the uploads and returns the files. When err (of the writing)
// or an upload's error is set, it deletes what was written and returns that error.
func (w *tableWriter) finish(err error) ([]writtenFile, error) {
	if uerr := w.uploads.Wait(); err == nil || errs.Is(err, errs.Canceled) && uerr != nil {
		err = uerr
	}
	if err != nil {
		w.discard()
		return nil, err
	}
	return w.files, nil
}

// discard deletes the files: they were surely never committed.
func (w *tableWriter) discard() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.uploadCtx), discardTime)
	defer cancel()
	w.lake.discard(ctx, w.keys)
}

// upload puts a finished file in the background; it blocks while too many are on
// their way.
func (w *tableWriter) upload(f *encodedFile, bucket int32, partition map[int]any) {
	w.uploads.Go(func() error {
		last := f.runs[len(f.runs)-1]
		name := dataName{bucket: bucket, base: f.runs[0].FirstOffset, end: last.FirstOffset + last.Count, id: w.lake.opts.NewID()}
		key := w.def.dataPrefix() + name.String()
		w.mu.Lock()
		w.keys = append(w.keys, key)
		w.mu.Unlock()
		if err := w.lake.put(w.uploadCtx, key, f.body); err != nil {
			return errs.In("write data file", err)
		}
		entry, err := w.entry(key, f, partition)
		if err != nil {
			return err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.files = append(w.files, writtenFile{key: key, bucket: bucket, entry: entry, runs: f.runs})
		return nil
	})
}

// entry makes a file's Iceberg manifest entry.
func (w *tableWriter) entry(key string, f *encodedFile, partition map[int]any) (iceberg.DataFile, error) {
	b, err := iceberg.NewDataFileBuilder(*w.spec, iceberg.EntryContentData, w.lake.uri(key), iceberg.ParquetFile,
		partition, nil, nil, f.rows, int64(len(f.body)))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "make manifest entry", err)
	}
	return withMetrics(b, f.columns).SplitOffsets(f.splits).SortOrderID(0).Build(), nil
}

// withMetrics gives an entry the metrics of its columns.
func withMetrics(b *iceberg.DataFileBuilder, columns []ColumnMetrics) *iceberg.DataFileBuilder {
	sizes, values, nulls, nans := map[int]int64{}, map[int]int64{}, map[int]int64{}, map[int]int64{}
	lower, upper := map[int][]byte{}, map[int][]byte{}
	for _, c := range columns {
		id := int(c.FieldID)
		sizes[id], values[id] = c.Bytes, c.Values
		if c.Nulls >= 0 {
			nulls[id] = c.Nulls
		}
		if c.NaNs >= 0 {
			nans[id] = c.NaNs
		}
		if c.Lower != nil {
			lower[id] = c.Lower
		}
		if c.Upper != nil {
			upper[id] = c.Upper
		}
	}
	return b.ColumnSizes(sizes).ValueCounts(values).NullValueCounts(nulls).NaNValueCounts(nans).
		LowerBoundValues(lower).UpperBoundValues(upper)
}

// bucketWriter splits one bucket's rows over the open files of its partitions.
// It is used by one goroutine.
type bucketWriter struct {
	table   *tableWriter
	bucket  int32
	parts   *partitioner
	open    map[int32]*fileWriter // by partition group
	maxOpen int
	memory  int64 // bound over the open files
	workers int   // files encoded at once
}

// bucket starts the writing of one of several buckets that share the bounds.
func (w *tableWriter) bucket(bucket int32, lanes int) *bucketWriter {
	o := w.lake.opts
	return &bucketWriter{
		table: w, bucket: bucket, open: map[int32]*fileWriter{},
		maxOpen: max(1, o.MaxOpenFiles/lanes), memory: o.MaxFoldBytes / int64(lanes), workers: max(1, o.Parallel/lanes),
	}
}

// rowBatch is rows of one bucket in offset order, in the current schema.
type rowBatch struct {
	rows arrow.RecordBatch
	// offsets and timestamps are by row, when the rows are not consecutive (then
	// base and timestamp are not used).
	offsets, timestamps []int64
	base, timestamp     int64
}

// appendRuns adds rows [from, to) of the batch to a file's runs.
func (b *rowBatch) appendRuns(runs []Run, from, to int64) []Run {
	if b.offsets == nil {
		return AppendRun(runs, b.base+from, to-from, b.timestamp)
	}
	for i := from; i < to; i++ {
		runs = AppendRun(runs, b.offsets[i], 1, b.timestamps[i])
	}
	return runs
}

// add writes one batch.
func (w *bucketWriter) add(ctx context.Context, batch rowBatch) error {
	if w.parts == nil || w.parts.full() {
		if err := w.closeAll(ctx); err != nil {
			return err
		}
		parts, err := newPartitioner(w.table.def, w.table.schema.schema, w.table.spec, w.bucket)
		if err != nil {
			return err
		}
		w.parts = parts
	}
	groups, err := w.parts.split(batch.rows)
	if err != nil {
		return err
	}
	bytes := segments.SizeOf(batch.rows)
	// So many partitions at a time that each has an open file.
	for len(groups) > 0 {
		n := min(len(groups), w.maxOpen)
		if err := w.addGroups(ctx, batch, bytes, groups[:n]); err != nil {
			return err
		}
		groups = groups[n:]
	}
	return nil
}

func (w *bucketWriter) addGroups(ctx context.Context, batch rowBatch, bytes int64, groups []rowGroup) error {
	if err := w.makeRoom(groups); err != nil {
		return err
	}
	g, _ := errgroup.WithContext(ctx)
	g.SetLimit(w.workers)
	for _, group := range groups {
		f := w.open[group.group]
		if f == nil {
			f = newFileWriter(w.table.schema, w.table.opts)
			w.open[group.group] = f
		}
		g.Go(func() error { return w.write(f, batch, bytes, group.rows) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return w.closeFull()
}

// write appends the given rows of a batch (nil: all) to a file.
func (w *bucketWriter) write(f *fileWriter, batch rowBatch, bytes int64, rows []int32) error {
	rec, all := batch.rows, batch.rows.NumRows()
	if rows == nil {
		f.runs = batch.appendRuns(f.runs, 0, all)
	} else {
		for start := 0; start < len(rows); {
			end := start + 1
			for end < len(rows) && rows[end] == rows[end-1]+1 {
				end++
			}
			f.runs = batch.appendRuns(f.runs, int64(rows[start]), int64(rows[end-1])+1)
			start = end
		}
		bytes = bytes * int64(len(rows)) / all
		var err error
		if first, last := rows[0], rows[len(rows)-1]; int(last-first)+1 == len(rows) {
			rec = rec.NewSlice(int64(first), int64(last)+1)
		} else if rec, err = segments.Take(rec, rows); err != nil {
			return err
		}
		defer rec.Release()
	}
	typed, err := w.table.schema.fileBatch(rec)
	if err != nil {
		return err
	}
	defer typed.Release()
	return f.write(typed, bytes)
}

// makeRoom closes the largest open files until there is room for those that the
// groups still have to open.
func (w *bucketWriter) makeRoom(groups []rowGroup) error {
	needed := map[int32]bool{}
	fresh := 0
	for _, g := range groups {
		needed[g.group] = true
		if w.open[g.group] == nil {
			fresh++
		}
	}
	for len(w.open)+fresh > w.maxOpen {
		if err := w.closeLargest(needed); err != nil {
			return err
		}
	}
	return nil
}

// closeFull closes the files that reached their size, and then the largest ones
// while all together hold too much memory.
func (w *bucketWriter) closeFull() error {
	for group, f := range w.open {
		if f.size() >= w.table.target {
			if err := w.closeFile(group); err != nil {
				return err
			}
		}
	}
	for {
		var memory int64
		for _, f := range w.open {
			memory += f.memory()
		}
		if memory <= w.memory {
			return nil
		}
		if err := w.closeLargest(nil); err != nil {
			return err
		}
	}
}

// closeLargest closes the open file that holds the most memory, not one of keep.
func (w *bucketWriter) closeLargest(keep map[int32]bool) error {
	group, most := int32(-1), int64(-1)
	for g, f := range w.open {
		if m := f.memory(); !keep[g] && (m > most || m == most && g < group) {
			group, most = g, m
		}
	}
	if group < 0 {
		return errs.New(errs.Internal, "fold: no file can be closed of %d open ones", len(w.open))
	}
	return w.closeFile(group)
}

// closeAll closes every open file.
func (w *bucketWriter) closeAll(ctx context.Context) error {
	for group := range w.open {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.closeFile(group); err != nil {
			return err
		}
	}
	return nil
}

func (w *bucketWriter) closeFile(group int32) error {
	f := w.open[group]
	delete(w.open, group)
	done, err := f.close()
	if err != nil {
		return err
	}
	if done.rows > 0 {
		w.table.upload(done, w.bucket, w.parts.groups[group])
	}
	return w.table.uploadCtx.Err()
}
