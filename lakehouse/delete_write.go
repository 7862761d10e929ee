package lakehouse

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/puffin"
	"github.com/apache/iceberg-go/table/dv"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
)

// deletePositionsSlice is how many positions are handed to the encoder at once.
const deletePositionsSlice = 64 << 10

// newDelete is a delete file that stands in the store, not committed yet.
type newDelete struct {
	entry    iceberg.DataFile
	dataURI  string
	replaces string // URI of the delete file that the data file has; empty is none
}

// deleteName is what a delete file's name says: "d00003-<uuid>.parquet" or ".puffin".
type deleteName struct {
	bucket int32
	id     fmt.Stringer
	vector bool
}

func (n deleteName) String() string {
	ext := "parquet"
	if n.vector {
		ext = "puffin"
	}
	return fmt.Sprintf("d%05d-%s.%s", n.bucket, n.id, ext)
}

// parseDeleteKey returns the bucket of a delete file's key.
func parseDeleteKey(key string) (bucket int32, ok bool) {
	name := key[strings.LastIndexByte(key, '/')+1:]
	head, _, found := strings.Cut(name, "-")
	if !found || len(head) < 6 || head[0] != 'd' || !strings.HasSuffix(name, ".parquet") && !strings.HasSuffix(name, ".puffin") {
		return 0, false
	}
	n, err := strconv.ParseInt(head[1:], 10, 32)
	return int32(n), err == nil && n >= 0
}

// deletePlan is the deletions of one commit: for each data file all positions,
// old and new, or the file itself when nothing of it is left.
type deletePlan struct {
	files  []fileDeletes
	remove []string // URIs
}

type fileDeletes struct {
	data DataFile
	rows *roaring.Bitmap
}

// planDeletes joins new positions, by data file key, with what the snapshot deletes
// already.
func (l *Lake) planDeletes(ctx context.Context, files []DataFile, add map[string]*roaring.Bitmap) (deletePlan, error) {
	var plan deletePlan
	found := 0
	for _, f := range files {
		rows := add[f.Key]
		if rows == nil {
			continue
		}
		found++
		if rows.IsEmpty() {
			continue
		}
		if int64(rows.Maximum()) >= f.Rows {
			return plan, errs.New(errs.Internal, "row %d is to be deleted of data file %s with %d", rows.Maximum(), f.Key, f.Rows)
		}
		old, err := l.deletedRows(ctx, &f)
		if err != nil {
			return plan, err
		}
		if old != nil {
			rows = roaring.Or(old, rows)
			if rows.GetCardinality() == old.GetCardinality() {
				continue
			}
		}
		if int64(rows.GetCardinality()) == f.Rows { //nolint:gosec // at most 2^32
			plan.remove = append(plan.remove, f.URI)
			continue
		}
		plan.files = append(plan.files, fileDeletes{f, rows})
	}
	if found != len(add) {
		return plan, errs.New(errs.Conflict, "%d of %d data files with rows to delete are no longer in the table: another commit replaced them", len(add)-found, len(add))
	}
	slices.SortFunc(plan.files, func(a, b fileDeletes) int { return cmp.Compare(a.data.Key, b.data.Key) })
	return plan, nil
}

// writeDeletes puts one new delete file for each data file of a plan. The keys of
// all that it began to put are added to the writer's, so that discard covers them.
func (w *tableWriter) writeDeletes(ctx context.Context, plan deletePlan, specs func(int) *iceberg.PartitionSpec, version int) ([]newDelete, error) {
	out := make([]newDelete, len(plan.files))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxUploads)
	for i, f := range plan.files {
		g.Go(func() (err error) {
			out[i], err = w.writeDelete(ctx, f, specs, version)
			return err
		})
	}
	return out, errs.In("write delete file", g.Wait())
}

func (w *tableWriter) writeDelete(ctx context.Context, f fileDeletes, specs func(int) *iceberg.PartitionSpec, version int) (newDelete, error) {
	spec := specs(int(f.data.SpecID))
	if spec == nil {
		return newDelete{}, errs.New(errs.Corrupt, "data file %s has partition spec %d, which the table does not have", f.data.Key, f.data.SpecID)
	}
	key := w.def.dataPrefix() + deleteName{bucket: max(f.data.Bucket, 0), id: w.lake.opts.NewID(), vector: version >= 3}.String()
	encode := w.encodePositions
	if version >= 3 {
		encode = encodeVector
	}
	body, entry, err := encode(f, *spec, w.lake.uri(key))
	if err != nil {
		return newDelete{}, err
	}
	w.mu.Lock()
	w.keys = append(w.keys, key)
	w.mu.Unlock()
	if err := w.lake.put(ctx, key, body); err != nil {
		return newDelete{}, err
	}
	d := newDelete{entry: entry, dataURI: f.data.URI}
	if f.data.Deletes != nil {
		d.replaces = f.data.Deletes.URI
	}
	return d, nil
}

// encodePositions makes a Parquet position-delete file: sorted, of one data file.
func (w *tableWriter) encodePositions(f fileDeletes, spec iceberg.PartitionSpec, uri string) ([]byte, iceberg.DataFile, error) {
	schema, err := newFileSchema(deleteSchema)
	if err != nil {
		return nil, nil, err
	}
	out := newFileWriter(schema, fileOptions{codec: w.opts.codec, rowGroupRows: w.lake.opts.RowGroupRows, rowGroupBytes: w.lake.opts.RowGroupBytes, pageBytes: parquetPageBytes})
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema.file)
	defer b.Release()
	paths, positions := b.Field(0).(*array.StringBuilder), b.Field(1).(*array.Int64Builder)
	flush := func() error {
		if positions.Len() == 0 {
			return nil
		}
		bytes := int64(positions.Len() * (len(f.data.URI) + 12))
		rec := b.NewRecordBatch()
		defer rec.Release()
		return out.write(rec, bytes)
	}
	for it := f.rows.Iterator(); it.HasNext(); {
		paths.Append(f.data.URI)
		positions.Append(int64(it.Next()))
		if positions.Len() == deletePositionsSlice {
			if err := flush(); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := flush(); err != nil {
		return nil, nil, err
	}
	done, err := out.close()
	if err != nil {
		return nil, nil, err
	}
	// The whole path, never a truncated one: readers tell by equal bounds that the
	// deletions are of this data file alone.
	for i := range done.columns {
		if done.columns[i].FieldID == deletePathID {
			done.columns[i].Lower, done.columns[i].Upper = []byte(f.data.URI), []byte(f.data.URI)
		}
	}
	e, err := iceberg.NewDataFileBuilder(spec, iceberg.EntryContentPosDeletes, uri, iceberg.ParquetFile, f.data.Partition, nil, nil, done.rows, int64(len(done.body)))
	if err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "make manifest entry", err)
	}
	return done.body, withMetrics(e, done.columns).SplitOffsets(done.splits).ReferencedDataFile(f.data.URI).Build(), nil
}

// encodeVector makes a Puffin file with one deletion vector.
func encodeVector(f fileDeletes, spec iceberg.PartitionSpec, uri string) ([]byte, iceberg.DataFile, error) {
	vector := dv.NewRoaringPositionBitmap()
	for it := f.rows.Iterator(); it.HasNext(); {
		vector.Set(uint64(it.Next()))
	}
	blob, err := dv.SerializeDV(vector)
	if err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "encode deletion vector", err)
	}
	var body bytes.Buffer
	out, err := puffin.NewWriter(&body)
	if err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "open puffin writer", err)
	}
	meta, err := out.AddBlob(puffin.BlobMetadataInput{
		Type: puffin.BlobTypeDeletionVector, SnapshotID: -1, SequenceNumber: -1, Fields: []int32{},
		Properties: map[string]string{"cardinality": itoa(vector.Cardinality()), "referenced-data-file": f.data.URI},
	}, blob)
	if err = firstError(
		func() error { return err },
		func() error { return out.SetCreatedBy(parquetCreator) },
		out.Finish,
	); err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "write puffin file", err)
	}
	e, err := iceberg.NewDataFileBuilder(spec, iceberg.EntryContentPosDeletes, uri, iceberg.PuffinFile, f.data.Partition, nil, nil, vector.Cardinality(), int64(body.Len()))
	if err != nil {
		return nil, nil, errs.Wrap(errs.Internal, "make manifest entry", err)
	}
	return body.Bytes(), e.ReferencedDataFile(f.data.URI).ContentOffset(meta.Offset).ContentSizeInBytes(meta.Length).Build(), nil
}
