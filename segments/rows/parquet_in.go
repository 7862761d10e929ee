package rows

import (
	"bytes"
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/internal/errs"
)

// alloc is for memory that our own code asks for.
func (d *decoder) alloc() memory.Allocator { return memory.DefaultAllocator }

// newParquetSource reads a Parquet file, which is held in memory: its metadata
// is at the end, and an agent has no disk.
func newParquetSource(d *decoder) (source, error) {
	limit := int64(spoolBytes)
	if d.opts.MaxBytes > 0 {
		limit = d.opts.MaxBytes
	}
	// A batch of ChunkRows may decode to much more than the file that it comes
	// from: values repeat.
	alloc := &limitedAllocator{limit: 4 * max(limit, spoolBytes)}
	var records pqarrow.RecordReader
	open := func() (*arrow.Schema, error) {
		body, err := spool(d.body, limit)
		if err != nil {
			return nil, err
		}
		var empty bool
		if records, empty, err = openParquet(body, d, alloc); err != nil {
			return nil, err
		}
		if empty {
			return nil, io.EOF
		}
		return records.Schema(), nil
	}
	read := func() (arrow.RecordBatch, error) {
		alloc.used = 0
		if records.Next() {
			return records.RecordBatch(), nil
		}
		if err := records.Err(); err != nil {
			if alloc.refused {
				return nil, tooLarge("Parquet", alloc.limit)
			}
			return nil, err
		}
		return nil, io.EOF
	}
	return &batchSource{d: d, what: "Parquet", open: open, read: read}, nil
}

// spool reads the whole body.
func spool(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, limitError(limit, "the Parquet body is larger than the limit of %d bytes: Parquet is held in memory", limit)
	}
	if len(body) < 12 || !bytes.HasPrefix(body, []byte("PAR1")) || !bytes.HasSuffix(body, []byte("PAR1")) {
		return nil, errs.New(errs.Invalid, "the body is not a whole Parquet file: the magic PAR1 is missing at its start or end")
	}
	return body, nil
}

// openParquet opens the columns that the table has.
func openParquet(body []byte, d *decoder, alloc *limitedAllocator) (pqarrow.RecordReader, bool, error) {
	if err := checkFooter(body); err != nil {
		return nil, false, err
	}
	pf, err := file.NewParquetReader(bytes.NewReader(body), file.WithReadProps(parquet.NewReaderProperties(alloc)))
	if err != nil {
		return nil, false, err
	}
	// Some writers leave the Arrow schema that a file was written from in here.
	// It could say anything; Parquet's own types are enough.
	pf.MetaData().FileMetaData.KeyValueMetadata = nil
	fr, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: int64(d.opts.ChunkRows)}, alloc)
	if err != nil {
		return nil, false, err
	}
	schema, err := fr.Schema()
	if err != nil {
		return nil, false, err
	}
	leaves, err := parquetLeaves(pf, d)
	if err != nil {
		return nil, false, err
	}
	if len(leaves) == 0 || pf.NumRows() == 0 {
		// Without a column or a row there is nothing to read; the schema counts.
		if _, err := newConverter(d, schema); err != nil {
			return nil, false, err
		}
		if pf.NumRows() == 0 {
			return nil, true, nil
		}
		return nil, false, errs.New(errs.Invalid, "the Parquet body has none of the columns asked for")
	}
	if err := checkPages(body, pf, leaves); err != nil {
		return nil, false, err
	}
	// The library opens the children of structs on goroutines of its own,
	// where a panic could not be caught. What breaks there breaks here first.
	for g := range pf.NumRowGroups() {
		for _, leaf := range leaves {
			if _, err := pf.RowGroup(g).GetColumnPageReader(leaf); err != nil {
				return nil, false, err
			}
		}
	}
	records, err := fr.GetRecordReader(context.Background(), leaves, nil)
	if err != nil {
		return nil, false, err
	}
	return records, false, nil
}

// parquetLeaves returns the leaf columns below the top-level columns to read.
// Unknown ones are refused by the converter, unless they are ignored.
func parquetLeaves(pf *file.Reader, d *decoder) ([]int, error) {
	var out []int
	s := pf.MetaData().Schema
	for i := range s.NumColumns() {
		name := s.ColumnRoot(i).Name()
		if d.schema.Index(name) >= 0 || !d.passes(name) {
			out = append(out, i)
		}
	}
	return out, nil
}
