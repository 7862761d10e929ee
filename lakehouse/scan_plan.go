package lakehouse

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
)

// scanPlan is what a scan wants, resolved against the table. It is immutable
// once the scan runs.
type scanPlan struct {
	lake    *Lake
	store   objstore.Store
	wanted  *segments.Schema // of the result
	decoded *segments.Schema // wanted, then the columns that only the filter reads
	filter  *filter.Expr
	// absent is what the statistics of a column say in a file that lacks it:
	// every value is the column's default. By field id, for the filter's columns.
	absent     map[int32]columnDefault
	partition  *partitionPruner
	batchBytes int64

	hidden      map[string]*roaring.Bitmap // by data file key: positions that are left out
	withOffsets bool
	from, to    int64 // with offsets: only rows in [from, to)
}

type columnDefault struct {
	value []byte // Iceberg single-value binary; nil is NULL
	typ   segments.Type
}

func (s *Snapshot) planScan(columns *segments.Schema, f *filter.Expr) (*scanPlan, error) {
	current, err := s.Table.Current()
	if err != nil {
		return nil, err
	}
	if columns == nil {
		columns = current
	}
	for _, field := range columns.Fields {
		if current.IndexOfID(field.ID) < 0 {
			return nil, errs.New(errs.Invalid, "scan table %s: it has no column %q (field id %d)", s.Table.String(), field.Name, field.ID)
		}
	}
	p := &scanPlan{
		lake: s.lake, store: s.lake.store, wanted: columns, decoded: columns, filter: f,
		batchBytes: defaultBatchBytes, to: math.MaxInt64, absent: map[int32]columnDefault{},
	}
	if f == nil {
		return p, nil
	}
	p.decoded = &segments.Schema{ID: columns.ID, Fields: slices.Clone(columns.Fields)}
	for _, id := range f.Columns() {
		i := current.IndexOfID(id)
		if i < 0 {
			return nil, errs.New(errs.Invalid, "scan table %s: the filter reads field id %d, which the table does not have", s.Table.String(), id)
		}
		field := current.Fields[i]
		if p.decoded.IndexOfID(id) < 0 {
			p.decoded.Fields = append(p.decoded.Fields, field)
		}
		if err := p.addDefault(field); err != nil {
			return nil, err
		}
	}
	p.partition = newPartitionPruner(s, f)
	return p, nil
}

func (p *scanPlan) addDefault(field segments.Field) error {
	value, err := field.DefaultValue()
	if err != nil {
		return err
	}
	d := columnDefault{typ: field.Type}
	if value != nil {
		if d.value, err = segments.ToIcebergValue(value, field.Type); err != nil {
			return err
		}
	}
	p.absent[field.ID] = d
	return nil
}

// columnSet is the columns to decode from one file and what they become.
type columnSet struct {
	columns []int            // positions in the file's schema
	from    *segments.Schema // as decoded
	to      *segments.Schema // as delivered
}

// fileScan is one opened file and what a scan reads of it.
type fileScan struct {
	plan   *scanPlan
	data   *DataFile
	pq     *parquetFile
	full   columnSet // with the filter's columns
	bare   columnSet // without: for row groups of which the filter keeps every row
	runs   []Run
	skip   *roaring.Bitmap // positions that are left out; nil is none
	groups []int
	exact  []bool // by position in groups: the filter keeps all its rows
}

// openFile opens a data file and decides what to read of it.
func (p *scanPlan) openFile(ctx context.Context, data *DataFile) (*fileScan, error) {
	pq, err := p.lake.openParquet(ctx, data.Key, data.Size)
	if err != nil {
		return nil, err
	}
	if pq.meta.NumRows != data.Rows {
		return nil, corruptFile(data.Key, fmt.Errorf("it holds %d rows, the iceberg manifest says %d", pq.meta.NumRows, data.Rows))
	}
	f := &fileScan{plan: p, data: data, pq: pq}
	f.bare = pq.columnSet(p.wanted)
	f.full = f.bare
	if p.filter != nil {
		f.full = pq.columnSet(p.decoded)
	}
	if p.withOffsets {
		if f.runs, err = pq.runs(); err != nil {
			return nil, err
		}
	}
	if f.skip, err = p.skipped(ctx, data); err != nil {
		return nil, err
	}
	for g := range pq.groups {
		if pq.groups[g].rows == 0 || !f.groupInRange(g) || f.groupSkipped(g) {
			continue
		}
		switch p.groupVerdict(f, g) {
		case filter.None:
		case filter.All:
			f.groups, f.exact = append(f.groups, g), append(f.exact, true)
		case filter.Some:
			f.groups, f.exact = append(f.groups, g), append(f.exact, false)
		}
	}
	return f, nil
}

// columnSet matches wanted columns with the file's by field id. What the file
// lacks is filled in by the projection.
func (f *parquetFile) columnSet(wanted *segments.Schema) columnSet {
	set := columnSet{from: &segments.Schema{ID: wanted.ID}, to: wanted}
	for _, field := range wanted.Fields {
		i := f.schema.IndexOfID(field.ID)
		if i < 0 {
			continue
		}
		have := f.schema.Fields[i]
		if field.Type.Kind == segments.UUID && have.Type.Kind == segments.Fixed && have.Type.Length == 16 {
			have.Type = field.Type // the annotation is missing, the bytes are the same
		}
		set.columns = append(set.columns, i)
		set.from.Fields = append(set.from.Fields, have)
	}
	return set
}

// groupInRange reports whether a row group holds offsets that are wanted.
func (f *fileScan) groupInRange(group int) bool {
	if !f.plan.withOffsets {
		return true
	}
	first := f.pq.groups[group].firstRow
	last := first + f.pq.groups[group].rows - 1
	return f.offsetAt(last) >= f.plan.from && f.offsetAt(first) < f.plan.to
}

// offsetAt returns the offset of a row of the file.
func (f *fileScan) offsetAt(row int64) int64 {
	r := f.runs[runAt(f.runs, row)]
	return r.FirstOffset + row - r.FirstRow
}

// runAt returns the position of the run that holds a row.
func runAt(runs []Run, row int64) int {
	return sort.Search(len(runs), func(i int) bool { return runs[i].FirstRow > row }) - 1
}

// units cuts the file into what workers decode.
func (f *fileScan) units() []*scanUnit {
	units := make([]*scanUnit, len(f.groups))
	for i, g := range f.groups {
		units[i] = &scanUnit{file: f, group: g, exact: f.exact[i]}
	}
	return units
}

func (u *scanUnit) set() *columnSet {
	if u.exact {
		return &u.file.bare
	}
	return &u.file.full
}

// decode reads one unit batch by batch: decode, cut to the wanted offsets,
// project, filter, emit.
func (p *scanPlan) decode(ctx context.Context, unit *scanUnit, emit func(scanPiece) error) error {
	f := unit.file
	set := unit.set()
	reader, err := f.pq.openGroup(ctx, unit.source, unit.group, set.columns, p.batchBytes)
	if err != nil {
		return err
	}
	defer reader.close()
	row := f.pq.groups[unit.group].firstRow
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		rec, err := reader.next()
		if err != nil || rec == nil {
			return err
		}
		n := rec.NumRows()
		piece, err := p.piece(unit, rec, row)
		if err != nil {
			return err
		}
		row += n
		if piece.batch.Rows == nil {
			continue // wholly outside the wanted offsets
		}
		if err := emit(piece); err != nil {
			return err
		}
	}
}

// piece turns a decoded batch, whose first row is row of the file, into what
// the consumer gets.
func (p *scanPlan) piece(unit *scanUnit, rec arrow.RecordBatch, row int64) (scanPiece, error) {
	f, set := unit.file, unit.set()
	piece := scanPiece{batch: ScanBatch{Bucket: f.data.Bucket}}
	var first int64 // row of the decoded batch that rec starts at
	if p.withOffsets {
		lo, hi := f.cut(row, rec.NumRows())
		if lo >= hi {
			return scanPiece{}, nil
		}
		if lo > 0 || hi < rec.NumRows() {
			rec = rec.NewSlice(lo, hi)
		}
		first = lo
		piece.batch.Offsets, piece.batch.Timestamps = expandRuns(f.runs, row+lo, hi-lo)
		piece.first, piece.next = piece.batch.Offsets[0], piece.batch.Offsets[hi-lo-1]+1
	}
	live := f.liveRows(row+first, rec.NumRows())
	rec, err := segments.Project(rec, set.from, set.to)
	if err != nil { // every schema of the table can be projected: the file has another one
		return scanPiece{}, corruptFile(f.data.Key, err)
	}
	switch {
	case p.filter != nil && !unit.exact:
		err = p.applyFilter(rec, live, &piece.batch)
	case live != nil:
		err = p.keepRows(rec, live, &piece.batch)
	default:
		piece.batch.Rows = rec
	}
	return piece, err
}

// cut returns which of n rows from row on have wanted offsets: [lo, hi).
func (f *fileScan) cut(row, n int64) (lo, hi int64) {
	at := func(offset int64) int64 { // rows of the batch below offset; offsets ascend
		return int64(sort.Search(int(n), func(i int) bool { return f.offsetAt(row+int64(i)) >= offset }))
	}
	lo, hi = 0, n
	if f.offsetAt(row) < f.plan.from {
		lo = at(f.plan.from)
	}
	if f.offsetAt(row+n-1) >= f.plan.to {
		hi = at(f.plan.to)
	}
	return lo, hi
}

// expandRuns returns the offset and the timestamp of n rows from row on.
func expandRuns(runs []Run, row, n int64) (offsets, timestamps []int64) {
	offsets, timestamps = make([]int64, 0, n), make([]int64, 0, n)
	for i := runAt(runs, row); n > 0; i++ {
		r := runs[i]
		skip := row - r.FirstRow
		count := min(r.Count-skip, n)
		for k := range count {
			offsets = append(offsets, r.FirstOffset+skip+k)
			timestamps = append(timestamps, r.Timestamp)
		}
		row, n = row+count, n-count
	}
	return offsets, timestamps
}

// applyFilter drops the rows that the filter does not keep, those that are not
// live (nil: all are), and the columns that only the filter reads.
func (p *scanPlan) applyFilter(rec arrow.RecordBatch, live []int32, batch *ScanBatch) error {
	kept, err := p.filter.Rows(rec)
	if err != nil {
		return errs.In("filter rows", err)
	}
	if live != nil {
		kept = intersect(kept, live)
	}
	return p.keepRows(rec, kept, batch)
}

// keepRows makes a batch of some rows of rec.
func (p *scanPlan) keepRows(rec arrow.RecordBatch, kept []int32, batch *ScanBatch) (err error) {
	// The wanted columns stand first.
	wanted := array.NewRecordBatch(p.wanted.Arrow(), rec.Columns()[:len(p.wanted.Fields)], rec.NumRows())
	switch {
	case int64(len(kept)) == rec.NumRows():
		batch.Rows = wanted
		return nil
	case len(kept) == 0:
		batch.Rows = wanted.NewSlice(0, 0)
	default:
		if batch.Rows, err = segments.Take(wanted, kept); err != nil {
			return errs.In("filter rows", err)
		}
	}
	if p.withOffsets {
		for i, row := range kept { // in place: kept ascends
			batch.Offsets[i], batch.Timestamps[i] = batch.Offsets[row], batch.Timestamps[row]
		}
		batch.Offsets, batch.Timestamps = batch.Offsets[:len(kept)], batch.Timestamps[:len(kept)]
	}
	return nil
}
