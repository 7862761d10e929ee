package lakehouse

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/segments"
)

const (
	// maxBatchRows bounds the rows of one decoded batch.
	maxBatchRows = 64 << 10
	// firstBatchRows is the size of a row group's first batch: it tells how wide
	// rows really are (a dictionary hides it), and the next ones grow from it.
	firstBatchRows = 4 << 10
	// batchGrowth bounds how much longer a batch is than the one before it.
	batchGrowth = 4
)

// groupReader decodes one row group into batches. It is used by one goroutine.
type groupReader struct {
	file       *parquetFile
	columns    *segments.Schema // of the batches: some of the file's columns
	readers    []*pqarrow.ColumnReader
	rows       int64 // left to decode
	nextRows   int64
	batchBytes int64
}

// wantedChunks returns where the given columns (positions in f.schema) of a row group lie.
func (f *parquetFile) wantedChunks(group int, columns []int) []byteRange {
	var chunks []byteRange
	for _, c := range columns {
		for _, leaf := range f.leaves[c] {
			if r := f.chunkRange(group, leaf); r.length > 0 {
				chunks = append(chunks, r)
			}
		}
	}
	return chunks
}

// openGroup starts decoding the given columns (positions in f.schema) of a row
// group out of source. At least one column must be wanted.
func (f *parquetFile) openGroup(ctx context.Context, source *chunkSource, group int, columns []int, batchBytes int64) (*groupReader, error) {
	r := &groupReader{file: f, columns: &segments.Schema{ID: f.schema.ID}, rows: f.groups[group].rows, batchBytes: batchBytes}
	err := guardParquet(f.key, func() error {
		parquetReader, err := file.NewParquetReader(source, file.WithMetadata(f.meta), file.WithReadProps(parquetProps()))
		if err != nil {
			return err
		}
		arrowReader, err := pqarrow.NewFileReader(parquetReader, pqarrow.ArrowReadProperties{BatchSize: maxBatchRows}, memory.DefaultAllocator)
		if err != nil {
			return err
		}
		var plain int64 // uncompressed bytes of the wanted columns
		for _, c := range columns {
			included := make(map[int]bool, len(f.leaves[c]))
			for _, leaf := range f.leaves[c] {
				included[leaf] = true
				plain += f.uncompressedBytes(group, leaf)
			}
			column, err := arrowReader.GetFieldReader(ctx, f.fields[c], included, []int{group})
			if err != nil {
				return err
			}
			r.readers = append(r.readers, column)
			r.columns.Fields = append(r.columns.Fields, f.schema.Fields[c])
		}
		perRow := plain/max(r.rows, 1) + 1
		r.nextRows = max(1, min(batchBytes/perRow, firstBatchRows))
		return nil
	})
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// uncompressedBytes returns how large a column chunk is when decoded, as far as the footer tells.
func (f *parquetFile) uncompressedBytes(group, leaf int) int64 {
	chunk := f.meta.RowGroups[group].Columns[leaf].MetaData
	n := chunk.TotalUncompressedSize
	if s := chunk.SizeStatistics; s != nil && s.UnencodedByteArrayDataBytes != nil {
		n = max(n, *s.UnencodedByteArrayDataBytes)
	}
	return n
}

// next decodes the next batch, or returns nil at the row group's end.
func (r *groupReader) next() (arrow.RecordBatch, error) {
	if r.rows == 0 {
		return nil, nil
	}
	n := min(r.nextRows, r.rows)
	columns := make([]arrow.Array, 0, len(r.readers))
	err := guardParquet(r.file.key, func() error {
		for i, reader := range r.readers {
			column, err := r.column(reader, i, n)
			if err != nil {
				return err
			}
			columns = append(columns, column)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r.rows -= n
	batch := array.NewRecordBatch(r.columns.Arrow(), columns, n)
	perRow := segments.SizeOf(batch)/n + 1
	r.nextRows = max(1, min(maxBatchRows, n*batchGrowth, r.batchBytes/perRow))
	return batch, nil
}

// column decodes n rows of one column into one array of exactly the schema's type.
func (r *groupReader) column(reader *pqarrow.ColumnReader, i int, n int64) (arrow.Array, error) {
	chunked, err := reader.NextBatch(n)
	if err != nil {
		return nil, err
	}
	defer chunked.Release()
	if int64(chunked.Len()) != n {
		return nil, fmt.Errorf("column %s ends %d rows early", r.columns.Fields[i].Name, n-int64(chunked.Len()))
	}
	var data arrow.ArrayData
	switch chunks := chunked.Chunks(); len(chunks) {
	case 1:
		data = chunks[0].Data()
	default:
		joined, err := array.Concatenate(chunks, memory.DefaultAllocator)
		if err != nil {
			return nil, err
		}
		data = joined.Data()
	}
	data, err = exactType(data, r.columns.Fields[i].Type.Arrow())
	if err != nil {
		return nil, err
	}
	return array.MakeFromData(data), nil
}

// exactType gives decoded data the table's own Arrow type: field ids and names on
// every level, and storage types in place of extension types. The layout must
// be the same.
func exactType(data arrow.ArrayData, want arrow.DataType) (arrow.ArrayData, error) {
	have := data.DataType()
	if ext, ok := have.(arrow.ExtensionType); ok {
		have = ext.StorageType()
	}
	if have.ID() != want.ID() {
		return nil, fmt.Errorf("decoded %s where %s stands in the schema", have, want)
	}
	children := data.Children()
	var wanted []arrow.DataType
	switch t := want.(type) {
	case *arrow.MapType: // its one child is the struct of key and value
		wanted = []arrow.DataType{t.Elem()}
	case *arrow.ListType:
		wanted = []arrow.DataType{t.Elem()}
	case *arrow.StructType:
		for _, f := range t.Fields() {
			wanted = append(wanted, f.Type)
		}
	}
	if len(wanted) != len(children) {
		return nil, fmt.Errorf("decoded %d children where %s has %d", len(children), want, len(wanted))
	}
	typed := make([]arrow.ArrayData, len(children))
	for i, child := range children {
		var err error
		if typed[i], err = exactType(child, wanted[i]); err != nil {
			return nil, err
		}
	}
	return array.NewData(want, data.Len(), data.Buffers(), typed, data.NullN(), data.Offset()), nil
}

func (r *groupReader) close() {
	for _, reader := range r.readers {
		reader.Release()
	}
	r.readers = nil
}
