package lakehouse

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

const (
	// fetchGap is how many unwanted bytes between two column chunks are read along
	// to save a request: the rows of a lookup wait for the slowest of them.
	fetchGap = 512 << 10
	// fetchWindow bounds the encoded bytes that one call holds at once.
	fetchWindow = 32 << 20
)

// RowRef is a row of a data file.
type RowRef struct {
	Key string // of the data file in the store
	Row uint32 // position in the file
}

// FetchRows returns rows of data files by their positions, in the order of refs, with
// the wanted columns (field ids, in the order wanted; nil is all) of a schema of the
// table. What a file lacks is filled in by the schema's defaults. It does not ask
// whether a row is deleted.
//
// Row groups are read by their wanted column chunks, chunks that lie near each other
// in one request, and are kept decoded within a bound.
func (l *Lake) FetchRows(ctx context.Context, def TableDef, schema *segments.Schema, refs []RowRef, columns []int32) (arrow.RecordBatch, error) {
	op := "fetch rows of " + def.String()
	wanted, err := schema.SelectIDs(columns)
	if err != nil {
		return nil, errs.In(op, err)
	}
	if len(refs) == 0 {
		return emptyBatch(wanted), nil
	}
	units, err := l.fetchUnits(ctx, refs, wanted)
	if err != nil {
		return nil, errs.In(op, err)
	}
	for start := 0; start < len(units); {
		end, bytes := start, int64(0)
		for end < len(units) && (end == start || bytes+units[end].bytes <= fetchWindow) {
			bytes += units[end].bytes
			end++
		}
		if err := l.fetchWindow(ctx, units[start:end]); err != nil {
			return nil, errs.In(op, err)
		}
		start = end
	}
	rows, err := joinUnits(units, len(refs))
	return rows, errs.In(op, err)
}

// fetchUnit is the rows that one call wants of one row group.
type fetchUnit struct {
	file    *parquetFile
	group   int
	set     *columnSet
	rows    []int32 // in the group, ascending as the refs come
	outputs []int32 // where they stand in the result
	missing []int   // positions in set.columns that are not cached
	arrays  []arrow.Array
	bytes   int64 // encoded, of what is missing
	out     arrow.RecordBatch
}

// chunkKey names a decoded column chunk.
type chunkKey struct {
	file          string
	group, column int
}

// fetchUnits sorts the refs by row group, and looks up what is cached.
func (l *Lake) fetchUnits(ctx context.Context, refs []RowRef, wanted *segments.Schema) ([]*fetchUnit, error) {
	files, err := l.openRefs(ctx, refs)
	if err != nil {
		return nil, err
	}
	sets := make(map[string]*columnSet, len(files))
	type place struct {
		file  string
		group int
	}
	byPlace := map[place]*fetchUnit{}
	var units []*fetchUnit
	for i, ref := range refs {
		pq := files[ref.Key]
		row := int64(ref.Row)
		if row >= pq.meta.NumRows {
			return nil, errs.New(errs.Corrupt, "the key index names row %d of data file %s, which has %d", row, ref.Key, pq.meta.NumRows)
		}
		group := sort.Search(len(pq.groups), func(g int) bool { return pq.groups[g].firstRow > row }) - 1
		at := place{ref.Key, group}
		u := byPlace[at]
		if u == nil {
			if sets[ref.Key] == nil {
				set := pq.columnSet(wanted)
				sets[ref.Key] = &set
			}
			u = &fetchUnit{file: pq, group: group, set: sets[ref.Key]}
			l.lookUp(u)
			byPlace[at] = u
			units = append(units, u)
		}
		u.rows = append(u.rows, int32(row-pq.groups[group].firstRow)) //nolint:gosec // row groups are short
		u.outputs = append(u.outputs, int32(i))                       //nolint:gosec // a call's rows
	}
	slices.SortFunc(units, func(a, b *fetchUnit) int {
		return cmp.Or(cmp.Compare(a.file.key, b.file.key), cmp.Compare(a.group, b.group))
	})
	return units, nil
}

// openRefs opens the files that refs name, several at a time.
func (l *Lake) openRefs(ctx context.Context, refs []RowRef) (map[string]*parquetFile, error) {
	files := map[string]*parquetFile{}
	var cold []string
	for _, ref := range refs {
		if _, ok := files[ref.Key]; ok {
			continue
		}
		pq, ok := l.footers.get(ref.Key)
		if files[ref.Key] = pq; !ok {
			cold = append(cold, ref.Key)
		}
	}
	opened := make([]*parquetFile, len(cold))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(openAhead)
	for i, key := range cold {
		g.Go(func() (err error) {
			opened[i], err = l.openParquet(ctx, key, sizeUnknown)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, key := range cold {
		files[key] = opened[i]
	}
	return files, nil
}

// lookUp finds what the cache has of a unit's columns.
func (l *Lake) lookUp(u *fetchUnit) {
	u.arrays = make([]arrow.Array, len(u.set.columns))
	for i, c := range u.set.columns {
		if a, ok := l.chunks.get(chunkKey{u.file.key, u.group, c}); ok {
			u.arrays[i] = a
			continue
		}
		u.missing = append(u.missing, i)
		for _, leaf := range u.file.leaves[c] {
			u.bytes += u.file.chunkRange(u.group, leaf).length
		}
	}
}

// fetchWindow reads, decodes and takes the rows of some units, in parallel.
func (l *Lake) fetchWindow(ctx context.Context, units []*fetchUnit) error {
	sources, err := l.fetchChunks(ctx, units)
	if err != nil {
		return err
	}
	if len(units) == 1 {
		return l.finishUnit(ctx, units[0], sources[units[0].file.key])
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, u := range units {
		g.Go(func() error { return l.finishUnit(ctx, u, sources[u.file.key]) })
	}
	return g.Wait()
}

// fetchChunks reads the column chunks that units miss: one source a file.
func (l *Lake) fetchChunks(ctx context.Context, units []*fetchUnit) (map[string]*chunkSource, error) {
	ranges := map[string][]byteRange{}
	files := map[string]*parquetFile{}
	for _, u := range units {
		for _, i := range u.missing {
			files[u.file.key] = u.file
			ranges[u.file.key] = append(ranges[u.file.key], u.file.wantedChunks(u.group, u.set.columns[i:i+1])...)
		}
	}
	sources := make(map[string]*chunkSource, len(files))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(openAhead)
	for key, file := range files {
		source := newChunkSource(ctx, l.store, key, file.size, nil, 0)
		source.read = l.sharedRead(ctx, key)
		for _, r := range coalesce(ranges[key], fetchGap) {
			source.parts = append(source.parts, sourcePart{byteRange: r})
		}
		sources[key] = source
		g.Go(func() error { return source.fetch(gctx) })
	}
	return sources, g.Wait()
}

// sharedRead reads ranges of a data file; callers that want the same one at the same
// time share a request.
func (l *Lake) sharedRead(ctx context.Context, key string) func(start, n int64) ([]byte, error) {
	return func(start, n int64) ([]byte, error) {
		data, _, err := l.ranges.Range(ctx, key, start, n)
		if err != nil {
			return nil, missingFile(key, err)
		}
		if int64(len(data)) != n {
			return nil, corruptFile(key, fmt.Errorf("read %d of %d bytes at %d", len(data), n, start))
		}
		return data, nil
	}
}

// finishUnit decodes what a unit misses and takes its rows.
func (l *Lake) finishUnit(ctx context.Context, u *fetchUnit, source *chunkSource) error {
	if len(u.missing) > 0 {
		own := *source // a source is used by one goroutine; the bytes are shared
		if err := l.decodeMissing(ctx, u, &own); err != nil {
			return err
		}
	}
	rec := array.NewRecordBatch(u.set.from.Arrow(), u.arrays, u.file.groups[u.group].rows)
	rec, err := segments.Take(rec, u.rows)
	if err != nil {
		return err
	}
	if u.out, err = segments.Project(rec, u.set.from, u.set.to); err != nil {
		return corruptFile(u.file.key, err)
	}
	return nil
}

func (l *Lake) decodeMissing(ctx context.Context, u *fetchUnit, source *chunkSource) error {
	columns := make([]int, len(u.missing))
	for i, at := range u.missing {
		columns[i] = u.set.columns[at]
	}
	reader, err := u.file.openGroup(ctx, source, u.group, columns, fetchWindow)
	if err != nil {
		return err
	}
	defer reader.close()
	reader.nextRows = min(reader.rows, maxBatchRows) // groups of keyed tables are short: at once
	var parts []arrow.RecordBatch
	for {
		rec, err := reader.next()
		if err != nil {
			return err
		}
		if rec == nil {
			break
		}
		parts = append(parts, rec)
	}
	whole := parts[0]
	if len(parts) > 1 {
		if whole, err = segments.Concat(parts); err != nil {
			return errs.Wrap(errs.Internal, "join batches", err)
		}
	}
	for i, at := range u.missing {
		a := whole.Column(i)
		u.arrays[at] = a
		one := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{whole.Schema().Field(i)}, nil), []arrow.Array{a}, whole.NumRows())
		l.chunks.put(chunkKey{u.file.key, u.group, columns[i]}, a, int(segments.SizeOf(one))+bitmapOverhead)
	}
	return nil
}

// joinUnits puts the rows of all units into the order of the refs.
func joinUnits(units []*fetchUnit, n int) (arrow.RecordBatch, error) {
	parts := make([]arrow.RecordBatch, len(units))
	order := make([]int32, n)
	ordered, at := true, int32(0)
	for i, u := range units {
		parts[i] = u.out
		for _, to := range u.outputs {
			ordered = ordered && to == at
			order[to] = at
			at++
		}
	}
	joined := parts[0]
	if len(parts) > 1 {
		var err error
		if joined, err = segments.Concat(parts); err != nil {
			return nil, err
		}
	}
	if ordered {
		return joined, nil
	}
	return segments.Take(joined, order)
}
