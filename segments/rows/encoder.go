package rows

import (
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// EncodeOptions says how rows are written.
type EncodeOptions struct {
	// Schema is the Arrow schema of every batch.
	Schema *arrow.Schema
	Format Format
	// LongAsString writes 64-bit integers as JSON strings.
	LongAsString bool
	// Table tells uuids from other values of 16 bytes, which Arrow does not:
	// its fields are found by field id, at any depth. Nil: 16 bytes are a uuid,
	// unless the field's metadata say so under TypeKey, as those of an Arrow
	// stream do that was encoded with its table.
	Table *segments.Schema
}

// Encoder writes rows to a stream.
type Encoder interface {
	// Write encodes the rows of a batch; the encoder does not keep it.
	Write(rec arrow.RecordBatch) error
	// Flush hands what was encoded to the writer. Parquet, whose rows are
	// readable only at the end, ignores it.
	Flush() error
	// Close ends the format (an empty result is a valid one too). It does not
	// close the writer.
	Close() error
}

// NewEncoder returns an encoder to w.
func NewEncoder(w io.Writer, o EncodeOptions) (Encoder, error) {
	if o.Schema == nil {
		return nil, errs.New(errs.Internal, "encode rows: no schema")
	}
	switch o.Format {
	case NDJSON, JSON, CSV:
		return newTextEncoder(w, o)
	case ArrowStream:
		schema := marked(o.Schema, o.Table)
		return &arrowEncoder{schema: schema, w: ipc.NewWriter(w, ipc.WithSchema(schema))}, nil
	case Parquet:
		return newParquetEncoder(w, o)
	}
	return nil, errs.New(errs.Unsupported, "unknown row format %d", o.Format)
}

// flushBytes is how much text is gathered before it is handed on.
const flushBytes = 64 << 10

// textEncoder writes NDJSON, JSON and CSV.
type textEncoder struct {
	w      io.Writer
	format Format
	cells  []cell
	keys   [][]byte // JSON: what precedes each value
	buf    []byte
	begun  bool
	rows   bool // JSON: a row was written
}

func newTextEncoder(w io.Writer, o EncodeOptions) (*textEncoder, error) {
	e := &textEncoder{w: w, format: o.Format}
	for i, f := range o.Schema.Fields() {
		c, err := newCell(f, o)
		if err != nil {
			return nil, err
		}
		e.cells = append(e.cells, c)
		key := byte(',')
		if i == 0 {
			key = '{'
		}
		e.keys = append(e.keys, append(appendJSONString([]byte{key}, f.Name), ':'))
	}
	if o.Format == CSV {
		for i, f := range o.Schema.Fields() {
			if i > 0 {
				e.buf = append(e.buf, ',')
			}
			e.buf = appendCSV(e.buf, f.Name)
		}
		e.buf = append(e.buf, '\n')
	}
	return e, nil
}

func (e *textEncoder) Write(rec arrow.RecordBatch) error {
	if int(rec.NumCols()) != len(e.cells) {
		return errs.New(errs.Internal, "encode rows: a batch of %d columns, the schema has %d", rec.NumCols(), len(e.cells))
	}
	for i, c := range e.cells {
		if err := c.bind(rec.Column(i)); err != nil {
			return err
		}
	}
	e.begin()
	for row := range int(rec.NumRows()) {
		switch e.format {
		case CSV:
			e.csvRow(row)
		case JSON:
			if e.rows {
				e.buf = append(e.buf, ',', '\n')
			}
			e.rows = true
			e.jsonRow(row)
		default:
			e.jsonRow(row)
			e.buf = append(e.buf, '\n')
		}
		if len(e.buf) >= flushBytes {
			if err := e.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *textEncoder) begin() {
	if !e.begun {
		e.begun = true
		if e.format == JSON {
			e.buf = append(e.buf, '[')
		}
	}
}

func (e *textEncoder) jsonRow(row int) {
	buf := e.buf
	if len(e.cells) == 0 {
		buf = append(buf, '{')
	}
	for i, c := range e.cells {
		buf = append(buf, e.keys[i]...)
		if c.isNull(row) {
			buf = append(buf, "null"...)
		} else {
			buf = c.json(buf, row)
		}
	}
	e.buf = append(buf, '}')
}

func (e *textEncoder) csvRow(row int) {
	buf := e.buf
	for i, c := range e.cells {
		if i > 0 {
			buf = append(buf, ',')
		}
		if !c.isNull(row) {
			buf = c.csv(buf, row)
		}
	}
	e.buf = append(buf, '\n')
}

func (e *textEncoder) Flush() error {
	if len(e.buf) == 0 {
		return nil
	}
	_, err := e.w.Write(e.buf)
	e.buf = e.buf[:0]
	return err
}

func (e *textEncoder) Close() error {
	e.begin()
	if e.format == JSON {
		e.buf = append(e.buf, ']', '\n')
	}
	return e.Flush()
}

// arrowEncoder writes an IPC stream.
type arrowEncoder struct {
	schema *arrow.Schema
	w      *ipc.Writer
}

func (e *arrowEncoder) Write(rec arrow.RecordBatch) error {
	// The writer compares metadata too; the columns are what counts.
	return e.w.Write(array.NewRecordBatch(e.schema, rec.Columns(), rec.NumRows()))
}

func (e *arrowEncoder) Flush() error { return nil }

func (e *arrowEncoder) Close() error { return e.w.Close() }

// rowGroupBytes is where a Parquet row group ends: what is held in memory.
const rowGroupBytes = 16 << 20

type parquetEncoder struct {
	schema *arrow.Schema
	w      *pqarrow.FileWriter
	held   int64
}

// plainWriter hides a Close method, which the Parquet writer would call.
type plainWriter struct{ io.Writer }

func newParquetEncoder(w io.Writer, o EncodeOptions) (*parquetEncoder, error) {
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Snappy))
	fw, err := pqarrow.NewFileWriter(o.Schema, plainWriter{w}, props, pqarrow.NewArrowWriterProperties(pqarrow.WithStoreSchema()))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "open Parquet writer", err)
	}
	return &parquetEncoder{schema: o.Schema, w: fw}, nil
}

func (e *parquetEncoder) Write(rec arrow.RecordBatch) error {
	rec = array.NewRecordBatch(e.schema, rec.Columns(), rec.NumRows())
	if rec.NumRows() == 0 {
		return nil
	}
	if e.held += segments.SizeOf(rec); e.held >= rowGroupBytes {
		e.w.NewBufferedRowGroup()
		e.held = segments.SizeOf(rec)
	}
	return e.w.WriteBuffered(rec)
}

func (e *parquetEncoder) Flush() error { return nil }

func (e *parquetEncoder) Close() error { return e.w.Close() }
