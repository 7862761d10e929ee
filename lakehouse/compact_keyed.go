package lakehouse

import (
	"context"
	"slices"
	"sort"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// compactDeleted is the share of deleted rows, in percent, from which a file is
// rewritten whatever its size: a scan reads them all.
const compactDeleted = 30

// MovedFile is a data file that a compaction wrote: From says, by row, where the row
// stood before.
type MovedFile struct {
	Key  string
	Rows int64
	From []RowRef
}

// CompactKeyed joins small data files of a primary-key table and rewrites those with
// many deleted rows; the delete files of what it rewrites go. The order of the rows
// and their offsets stay. Before the commit it calls moved once for each bucket that
// it touches, in ascending order, also when no row is left; moved writes the bucket's
// index for the generation that the commit makes, and returns the name of its manifest.
//
// A change of any of the buckets meanwhile makes it fail with Conflict; then nothing
// has changed. Other errors are those of Fold.
func (l *Lake) CompactKeyed(ctx context.Context, def TableDef, o CompactOptions, moved func(ctx context.Context, bucket int32, generation uint64, files []MovedFile) (indexName string, err error)) (CompactResult, error) {
	op := "compact " + def.String()
	snap, err := l.Load(ctx, def)
	if err != nil {
		return CompactResult{}, errs.In(op, err)
	}
	files, err := snap.Files(ctx)
	if err != nil {
		return CompactResult{}, errs.In(op, err)
	}
	target, err := def.intProperty(PropTargetFileBytes, l.opts.TargetFileBytes)
	if err != nil {
		return CompactResult{}, errs.In(op, err)
	}
	groups := planKeyedCompaction(files, target, o)
	if len(groups) == 0 {
		return CompactResult{}, nil
	}
	r, err := l.compactKeyed(ctx, &def, snap, groups, moved)
	return r, errs.In(op, err)
}

// planKeyedCompaction chooses groups as planCompaction does, by the bytes of the rows
// that are left, and adds the files with many deleted rows.
func planKeyedCompaction(files []DataFile, target int64, o CompactOptions) [][]DataFile {
	if o.MaxBytes <= 0 {
		o.MaxBytes = compactMaxBytes
	}
	whole := make(map[string]DataFile, len(files))
	sized := slices.Clone(files)
	for i, f := range files {
		whole[f.Key] = f
		sized[i].Size = max(1, int64(float64(f.Size)*float64(f.LiveRows())/float64(max(f.Rows, 1))))
	}
	groups := planCompaction(sized, target, o)
	budget := o.MaxBytes
	for _, g := range groups {
		for i := range g {
			g[i] = whole[g[i].Key]
			delete(whole, g[i].Key)
			budget -= g[i].Size
		}
	}
	var rest []DataFile
	for _, f := range whole {
		if f.Bucket >= 0 && (o.Buckets == nil || slices.Contains(o.Buckets, f.Bucket)) && (f.Rows-f.LiveRows())*100 >= f.Rows*compactDeleted && f.Deletes != nil {
			rest = append(rest, f)
		}
	}
	slices.SortFunc(rest, func(a, b DataFile) int { // most deleted first
		return int((b.Rows-b.LiveRows())*100/b.Rows - (a.Rows-a.LiveRows())*100/a.Rows)
	})
	for _, f := range rest {
		if f.Size <= budget || len(groups) == 0 {
			groups = append(groups, []DataFile{f})
			budget -= f.Size
		}
	}
	return groups
}

func (l *Lake) compactKeyed(ctx context.Context, def *TableDef, snap *Snapshot, groups [][]DataFile, moved func(context.Context, int32, uint64, []MovedFile) (string, error)) (CompactResult, error) {
	c := change{id: l.opts.NewID(), operation: table.OpReplace, remove: map[string]bool{}, indexes: map[int32]string{}}
	var r CompactResult
	touched := map[int32]bool{}
	sources := map[int32][]DataFile{}
	for _, f := range slices.Concat(groups...) {
		c.remove[f.URI] = true
		r.FilesBefore++
		r.BytesBefore += f.Size
		r.Rows += f.LiveRows()
		touched[f.Bucket] = true
		sources[f.Bucket] = append(sources[f.Bucket], f)
	}
	c.moves = standing(snap, touched)
	written, discard, err := l.rewrite(ctx, def, snap, groups, true)
	if err != nil {
		return CompactResult{}, err
	}
	var rows int64
	for _, f := range written {
		c.add = append(c.add, f.entry)
		r.FilesAfter++
		r.BytesAfter += f.entry.FileSizeBytes()
		rows += f.entry.Count()
	}
	fail := func(err error) (CompactResult, error) {
		if !errs.Is(err, errs.Unknown) {
			discard()
		}
		return CompactResult{}, err
	}
	if rows != r.Rows {
		return fail(errs.New(errs.Internal, "%d rows were read from files with %d", rows, r.Rows))
	}
	for _, m := range c.moves {
		files, err := l.movedFiles(ctx, sources[m.bucket], written, m.bucket)
		if err == nil {
			c.indexes[m.bucket], err = moved(ctx, m.bucket, m.generation+1, files)
		}
		if err != nil {
			discard() // nothing was committed, whatever the error says
			return CompactResult{}, err
		}
	}
	committed, err := l.commit(ctx, def, c)
	if err != nil {
		return fail(err)
	}
	r.SnapshotID = committed.ID
	return r, nil
}

// movedFiles tells for each row of the bucket's new files where it stood: a bucket has
// each offset at most once among rows that are not deleted.
func (l *Lake) movedFiles(ctx context.Context, sources []DataFile, written []writtenFile, bucket int32) ([]MovedFile, error) {
	from := make([]rowSource, len(sources))
	for i := range sources {
		runs, err := l.fileRuns(ctx, &sources[i])
		if err != nil {
			return nil, err
		}
		deleted, err := l.deletedRows(ctx, &sources[i])
		if err != nil {
			return nil, err
		}
		from[i] = rowSource{sources[i].Key, runs, deleted}
	}
	var out []MovedFile
	for _, f := range written {
		if f.bucket != bucket {
			continue
		}
		m := MovedFile{Key: f.key, Rows: f.entry.Count(), From: make([]RowRef, 0, f.entry.Count())}
		at := 0 // the source of the row before: neighbours come from one file
		for _, r := range f.runs {
			for offset := r.FirstOffset; offset < r.FirstOffset+r.Count; offset++ {
				ref, ok := from[at].find(offset)
				for i := 0; !ok && i < len(from); i++ {
					if ref, ok = from[i].find(offset); ok {
						at = i
					}
				}
				if !ok {
					return nil, errs.New(errs.Internal, "offset %d of file %s is in none of the files that were rewritten", offset, f.key)
				}
				m.From = append(m.From, ref)
			}
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b MovedFile) int { return slices.Compare([]byte(a.Key), []byte(b.Key)) })
	return out, nil
}

// rowSource finds the rows of a file that was rewritten by their offsets.
type rowSource struct {
	key     string
	runs    []Run
	deleted *roaring.Bitmap
}

func (s *rowSource) find(offset int64) (RowRef, bool) {
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i].FirstOffset > offset }) - 1
	if i < 0 || offset >= s.runs[i].FirstOffset+s.runs[i].Count {
		return RowRef{}, false
	}
	row := uint32(s.runs[i].FirstRow + offset - s.runs[i].FirstOffset) //nolint:gosec // positions are below 2^32
	if s.deleted != nil && s.deleted.Contains(row) {
		return RowRef{}, false
	}
	return RowRef{s.key, row}, true
}
