package lakehouse

import (
	"bytes"
	"context"
	"slices"

	"github.com/apache/iceberg-go"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
)

// manifestReads bounds the manifests that are fetched at once.
const manifestReads = 8

// DataFile is one live data file of a snapshot. Everything that it points to is
// shared with a cache: read only.
type DataFile struct {
	Key string // in the store
	URI string // as the Iceberg manifest spells it

	// Bucket and the half-open offset range come from the file's name. Bucket is
	// -1 for a file that Firn did not write. Within the range, rows of other
	// partitions are in other files: the range may have holes.
	Bucket                int32
	BaseOffset, EndOffset int64

	Rows, Size int64
	SpecID     int32
	Partition  map[int]any // Iceberg partition field id → value; nil is NULL

	Columns        []ColumnMetrics // leaves, ascending by FieldID
	SplitOffsets   []int64
	SequenceNumber int64 // Iceberg data sequence number
	SnapshotID     int64 // that added it

	Deletes *DeleteFile // its deleted rows; nil is none
}

// LiveRows returns how many of the file's rows are not deleted.
func (f *DataFile) LiveRows() int64 {
	if f.Deletes == nil {
		return f.Rows
	}
	return f.Rows - f.Deletes.Rows
}

// ColumnMetrics are the Iceberg metrics of one leaf column in one data file.
type ColumnMetrics struct {
	FieldID int32
	Bytes   int64 // encoded
	// Values counts NULL and NaN too; -1 is unknown, as for the other counts.
	Values, Nulls, NaNs int64
	// Lower and Upper are Iceberg single-value binaries, perhaps truncated; nil is unknown.
	Lower, Upper []byte
}

// Column returns the metrics of a leaf column.
func (f *DataFile) Column(fieldID int32) (ColumnMetrics, bool) {
	i, ok := slices.BinarySearchFunc(f.Columns, fieldID, func(c ColumnMetrics, id int32) int { return int(c.FieldID) - int(id) })
	if !ok {
		return ColumnMetrics{}, false
	}
	return f.Columns[i], true
}

// Files returns the snapshot's data files in no meaningful order. Manifests are
// immutable and cached.
func (s *Snapshot) Files(ctx context.Context) ([]DataFile, error) {
	if s.ID == 0 {
		return nil, nil
	}
	snap := s.Metadata.SnapshotByID(s.ID)
	manifests, err := s.lake.manifestList(ctx, snap.ManifestList)
	if err != nil {
		return nil, errs.In("read files of "+s.Table.String(), err)
	}
	parts := make([][]DataFile, len(manifests))
	deletes := make([][]DeleteFile, len(manifests))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(manifestReads)
	for i, m := range manifests {
		g.Go(func() (err error) {
			if m.ManifestContent() == iceberg.ManifestContentDeletes {
				deletes[i], err = s.lake.liveDeletes(ctx, m)
				return err
			}
			parts[i], err = s.lake.liveFiles(ctx, m)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, errs.In("read files of "+s.Table.String(), err)
	}
	files := slices.Concat(parts...)
	return files, errs.In("read files of "+s.Table.String(), attach(files, slices.Concat(deletes...)))
}

// manifestList reads an Iceberg manifest list.
func (l *Lake) manifestList(ctx context.Context, uri string) ([]iceberg.ManifestFile, error) {
	if files, ok := l.lists.get(uri); ok {
		return files, nil
	}
	body, err := l.fetch(ctx, uri)
	if err != nil {
		return nil, err
	}
	files, err := iceberg.ReadManifestList(bytes.NewReader(body))
	if err != nil {
		return nil, errs.New(errs.Corrupt, "iceberg manifest list %s: %v", uri, err)
	}
	l.lists.put(uri, files, len(files)+1)
	return files, nil
}

// entries reads an Iceberg manifest, live and deleted entries, uncached.
func (l *Lake) entries(ctx context.Context, m iceberg.ManifestFile) ([]iceberg.ManifestEntry, error) {
	body, err := l.fetch(ctx, m.FilePath())
	if err != nil {
		return nil, err
	}
	entries, err := iceberg.ReadManifest(m, bytes.NewReader(body), false)
	if err != nil {
		return nil, errs.New(errs.Corrupt, "iceberg manifest %s: %v", m.FilePath(), err)
	}
	return entries, nil
}

// liveFiles returns a manifest's live data files, cached. A manifest's inherited
// sequence number is fixed once its first snapshot is committed, so the URI
// alone names the result.
func (l *Lake) liveFiles(ctx context.Context, m iceberg.ManifestFile) ([]DataFile, error) {
	if files, ok := l.manifests.get(m.FilePath()); ok {
		return files, nil
	}
	entries, err := l.entries(ctx, m)
	if err != nil {
		return nil, err
	}
	files := make([]DataFile, 0, len(entries))
	for _, e := range entries {
		if e.Status() == iceberg.EntryStatusDELETED {
			continue
		}
		f, err := l.dataFileOf(e)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	l.manifests.put(m.FilePath(), files, len(files)+1)
	return files, nil
}

func (l *Lake) dataFileOf(e iceberg.ManifestEntry) (DataFile, error) {
	d := e.DataFile()
	key, ok := l.key(d.FilePath())
	if !ok {
		return DataFile{}, errs.New(errs.Unsupported, "data file %s lies outside of the store at %s", d.FilePath(), l.opts.Location)
	}
	f := DataFile{
		Key: key, URI: d.FilePath(), Bucket: -1, Rows: d.Count(), Size: d.FileSizeBytes(),
		SpecID: d.SpecID(), Partition: d.Partition(), SplitOffsets: d.SplitOffsets(),
		SequenceNumber: e.SequenceNum(), SnapshotID: e.SnapshotID(), Columns: columnMetrics(d),
	}
	if name, ok := parseDataKey(key); ok {
		f.Bucket, f.BaseOffset, f.EndOffset = name.bucket, name.base, name.end
	}
	return f, nil
}

func columnMetrics(d iceberg.DataFile) []ColumnMetrics {
	sizes, values, nulls, nans := d.ColumnSizes(), d.ValueCounts(), d.NullValueCounts(), d.NaNValueCounts()
	lower, upper := d.LowerBoundValues(), d.UpperBoundValues()
	ids := make(map[int]struct{}, len(values))
	for _, m := range []map[int]int64{sizes, values, nulls} {
		for id := range m {
			ids[id] = struct{}{}
		}
	}
	out := make([]ColumnMetrics, 0, len(ids))
	for id := range ids {
		c := ColumnMetrics{FieldID: int32(id), Bytes: sizes[id], Values: -1, Nulls: -1, NaNs: -1, Lower: boundOf(lower, id), Upper: boundOf(upper, id)}
		for _, p := range []struct {
			to   *int64
			from map[int]int64
		}{{&c.Values, values}, {&c.Nulls, nulls}, {&c.NaNs, nans}} {
			if v, ok := p.from[id]; ok {
				*p.to = v
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b ColumnMetrics) int { return int(a.FieldID) - int(b.FieldID) })
	return out
}

// boundOf keeps an empty bound apart from a missing one.
func boundOf(bounds map[int][]byte, id int) []byte {
	v, ok := bounds[id]
	if ok && v == nil {
		return []byte{}
	}
	return v
}

// fetch reads a whole object by its URI.
func (l *Lake) fetch(ctx context.Context, uri string) ([]byte, error) {
	key, ok := l.key(uri)
	if !ok {
		return nil, errs.New(errs.Unsupported, "file %s lies outside of the store at %s", uri, l.opts.Location)
	}
	body, _, err := l.store.Get(ctx, key)
	if errs.Is(err, errs.NotFound) {
		return nil, errs.Wrap(errs.NotFound, "read "+key+" (expired, or lost)", err)
	}
	return body, err
}
