package lakehouse

import (
	"context"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table/dv"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Field ids that Iceberg reserves for the columns of a position-delete file.
const (
	deletePathID int32 = 2147483546
	deletePosID  int32 = 2147483545
)

const (
	// maxCachedDeletedBytes bounds the bitmaps of deleted rows that one Lake keeps.
	maxCachedDeletedBytes = 64 << 20
	// maxVectorBytes bounds one deletion vector: 2^32 positions take half of it.
	maxVectorBytes = 1 << 30
	// bitmapOverhead is about what a kept bitmap weighs beside its containers.
	bitmapOverhead = 256
)

// deleteSchema is that of a Parquet position-delete file.
var deleteSchema = &segments.Schema{Fields: []segments.Field{
	{ID: deletePathID, Name: "file_path", Type: segments.Type{Kind: segments.String}, Required: true},
	{ID: deletePosID, Name: "pos", Type: segments.Type{Kind: segments.Long}, Required: true},
}}

// DeleteFile names the deleted rows of one data file: a Parquet file of positions
// (format version 2), or a deletion vector in a Puffin file (version 3).
type DeleteFile struct {
	Key, URI string // of the object
	DataURI  string // of the data file
	Size     int64  // of the object
	Rows     int64  // positions that it deletes
	// Vector says that the positions are the bytes [Offset, Offset+Length) of the object.
	Vector         bool
	Offset, Length int64

	SpecID         int32
	Partition      map[int]any
	SequenceNumber int64 // Iceberg data sequence number
}

// deleteFileOf reads a manifest entry. Only deletions of one data file each are
// known: everything that Firn writes.
func (l *Lake) deleteFileOf(e iceberg.ManifestEntry) (DeleteFile, error) {
	d := e.DataFile()
	if d.ContentType() == iceberg.EntryContentEqDeletes {
		return DeleteFile{}, errs.New(errs.Unsupported, "%s: equality deletes of another writer", d.FilePath())
	}
	key, ok := l.key(d.FilePath())
	if !ok {
		return DeleteFile{}, errs.New(errs.Unsupported, "delete file %s lies outside of the store at %s", d.FilePath(), l.opts.Location)
	}
	f := DeleteFile{
		Key: key, URI: d.FilePath(), Size: d.FileSizeBytes(), Rows: d.Count(),
		SpecID: d.SpecID(), Partition: d.Partition(), SequenceNumber: e.SequenceNum(),
	}
	if ref := d.ReferencedDataFile(); ref != nil {
		f.DataURI = *ref
	} else if lower, upper := d.LowerBoundValues()[int(deletePathID)], d.UpperBoundValues()[int(deletePathID)]; string(lower) == string(upper) {
		f.DataURI = string(lower)
	}
	if f.DataURI == "" {
		return f, errs.New(errs.Unsupported, "%s: position deletes of another writer, for more than one data file", d.FilePath())
	}
	if d.FileFormat() == iceberg.PuffinFile {
		offset, length := d.ContentOffset(), d.ContentSizeInBytes()
		if offset == nil || length == nil || *offset < 0 || *length < 1 || *length > maxVectorBytes {
			return f, errs.New(errs.Corrupt, "deletion vector %s: the iceberg manifest does not say where it lies", d.FilePath())
		}
		f.Vector, f.Offset, f.Length = true, *offset, *length
	}
	return f, nil
}

// liveDeletes returns a delete manifest's live entries, cached.
func (l *Lake) liveDeletes(ctx context.Context, m iceberg.ManifestFile) ([]DeleteFile, error) {
	if files, ok := l.deletes.get(m.FilePath()); ok {
		return files, nil
	}
	entries, err := l.entries(ctx, m)
	if err != nil {
		return nil, err
	}
	files := make([]DeleteFile, 0, len(entries))
	for _, e := range entries {
		if e.Status() == iceberg.EntryStatusDELETED {
			continue
		}
		f, err := l.deleteFileOf(e)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	l.deletes.put(m.FilePath(), files, len(files)+1)
	return files, nil
}

// attach gives each data file its delete file. Two for one file are Corrupt:
// engines disagree on what they mean. INVARIANT(key-2).
func attach(files []DataFile, deletes []DeleteFile) error {
	if len(deletes) == 0 {
		return nil
	}
	of := make(map[string]*DeleteFile, len(deletes))
	for i := range deletes {
		d := &deletes[i]
		if other := of[d.DataURI]; other != nil {
			return errs.New(errs.Corrupt, "data file %s has two delete files: %s and %s", d.DataURI, other.URI, d.URI)
		}
		of[d.DataURI] = d
	}
	for i := range files {
		d := of[files[i].URI]
		if d == nil || d.SequenceNumber < files[i].SequenceNumber {
			continue
		}
		if d.Rows > files[i].Rows {
			return errs.New(errs.Corrupt, "delete file %s deletes %d rows of a data file with %d", d.URI, d.Rows, files[i].Rows)
		}
		files[i].Deletes = d
	}
	return nil
}

// DeletedRows returns the positions of a data file that the snapshot it was read
// from deletes; nil is none. The bitmap is shared: read only.
func (s *Snapshot) DeletedRows(ctx context.Context, file DataFile) (*roaring.Bitmap, error) {
	return s.lake.deletedRows(ctx, &file)
}

// deletedRows reads a data file's deletions, through a bounded cache: a delete
// file never changes, and its name is never used again.
func (l *Lake) deletedRows(ctx context.Context, data *DataFile) (*roaring.Bitmap, error) {
	d := data.Deletes
	if d == nil {
		return nil, nil
	}
	id := deletedKey{d.Key, d.Offset, data.Key}
	if b, ok := l.deleted.get(id); ok {
		return b, nil
	}
	read := l.readPositions
	if d.Vector {
		read = l.readVector
	}
	b, err := read(ctx, d)
	if err != nil {
		return nil, err
	}
	if n := int64(b.GetCardinality()); n != d.Rows { //nolint:gosec // at most 2^32
		return nil, corruptFile(d.Key, fmt.Errorf("it deletes %d rows, the iceberg manifest says %d", n, d.Rows))
	}
	if !b.IsEmpty() && int64(b.Maximum()) >= data.Rows {
		return nil, corruptFile(d.Key, fmt.Errorf("it deletes row %d of a data file with %d", b.Maximum(), data.Rows))
	}
	l.deleted.put(id, b, int(b.GetSizeInBytes())+bitmapOverhead) //nolint:gosec // at most 1 GiB
	return b, nil
}

type deletedKey struct {
	key    string
	offset int64
	data   string
}

// readVector reads a deletion vector.
func (l *Lake) readVector(ctx context.Context, d *DeleteFile) (*roaring.Bitmap, error) {
	body, _, err := l.store.GetRange(ctx, d.Key, d.Offset, d.Length)
	if err != nil {
		return nil, missingFile(d.Key, err)
	}
	if int64(len(body)) != d.Length {
		return nil, corruptFile(d.Key, fmt.Errorf("read %d of %d bytes of a deletion vector", len(body), d.Length))
	}
	out := roaring.New()
	err = guardParquet(d.Key, func() error {
		vector, err := dv.DeserializeDV(body, d.Rows)
		if err != nil {
			return err
		}
		for pos := range vector.Positions() {
			if pos > math.MaxUint32 {
				return fmt.Errorf("it deletes row %d", pos)
			}
			out.Add(uint32(pos))
		}
		return nil
	})
	return out, err
}

// readPositions reads a Parquet position-delete file.
func (l *Lake) readPositions(ctx context.Context, d *DeleteFile) (*roaring.Bitmap, error) {
	pq, err := openParquet(ctx, l.store, d.Key, d.Size)
	if err != nil {
		return nil, err
	}
	set := pq.columnSet(deleteSchema)
	if len(set.columns) != len(deleteSchema.Fields) {
		return nil, corruptFile(d.Key, fmt.Errorf("it has no columns file_path and pos"))
	}
	out := roaring.New()
	for g := range pq.groups {
		if pq.groups[g].rows == 0 {
			continue
		}
		source := newChunkSource(ctx, l.store, d.Key, d.Size, pq.wantedChunks(g, set.columns), defaultReadaheadBytes)
		if err := source.fetch(ctx); err != nil {
			return nil, err
		}
		if err := addPositions(ctx, out, d, pq, source, g, set.columns); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func addPositions(ctx context.Context, out *roaring.Bitmap, d *DeleteFile, pq *parquetFile, source *chunkSource, group int, columns []int) error {
	reader, err := pq.openGroup(ctx, source, group, columns, defaultBatchBytes)
	if err != nil {
		return err
	}
	defer reader.close()
	for {
		rec, err := reader.next()
		if err != nil || rec == nil {
			return err
		}
		if err := positionsOf(rec, d, out); err != nil {
			return corruptFile(d.Key, err)
		}
	}
}

func positionsOf(rec arrow.RecordBatch, d *DeleteFile, out *roaring.Bitmap) error {
	paths, ok1 := rec.Column(0).(*array.String)
	positions, ok2 := rec.Column(1).(*array.Int64)
	if !ok1 || !ok2 {
		return fmt.Errorf("file_path and pos are %s and %s", rec.Column(0).DataType(), rec.Column(1).DataType())
	}
	for i := range positions.Len() {
		pos := positions.Value(i)
		if paths.Value(i) != d.DataURI {
			return fmt.Errorf("it deletes rows of %s, the iceberg manifest says of %s", paths.Value(i), d.DataURI)
		}
		if pos < 0 || pos > math.MaxUint32 || !out.CheckedAdd(uint32(pos)) {
			return fmt.Errorf("position %d is impossible, or stands twice", pos)
		}
	}
	return nil
}
