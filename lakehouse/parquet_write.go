package lakehouse

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/internal/errs"
)

// Parameters of the Parquet files.
const (
	parquetPageBytes = 1 << 20
	// parquetDictionaryBytes is where a column chunk's dictionary is given up:
	// measured on flights, 1 MiB loses columns that still gain much.
	parquetDictionaryBytes = 4 << 20
	// parquetSliceRows and parquetSliceBytes bound what is handed to the encoder
	// at once, so that files and row groups end near their bounds.
	parquetSliceRows  = 64 << 10
	parquetSliceBytes = 8 << 20
	parquetCreator    = "firn"
)

// Parameters of the files of keyed tables, whose rows are fetched one by one.
const (
	keyedRowGroupBytes   = 2 << 20 // of Arrow memory
	keyedPageBytes       = 16 << 10
	keyedDictionaryBytes = 64 << 10
	keyedPageBatch       = 128 // values between two looks at a page's size
)

// forLookups returns the options for a keyed table.
func (o fileOptions) forLookups() fileOptions {
	o.lookups, o.pageBytes, o.rowGroupBytes = true, keyedPageBytes, min(o.rowGroupBytes, keyedRowGroupBytes)
	return o
}

func (o fileOptions) dictionaryBytes() int64 {
	if o.lookups {
		return keyedDictionaryBytes
	}
	return parquetDictionaryBytes
}

// fileOptions are the choices of one fold that all of its files share.
type fileOptions struct {
	delta                       bool // DELTA_BINARY_PACKED for integers without a dictionary
	codec                       compress.Compression
	rowGroupRows, rowGroupBytes int64
	pageBytes                   int64
	// lookups says that rows will be fetched one by one: short dictionaries, and
	// pages that end near their bound also where values are wide.
	lookups bool
}

// fileWriter encodes one Parquet file in memory. It is used by one goroutine at
// a time.
type fileWriter struct {
	schema *fileSchema
	opts   fileOptions
	buf    bytes.Buffer
	out    *pqarrow.FileWriter // nil until the first rows
	runs   []Run
	nans   []int64 // by leaf; only of floating-point leaves outside of lists and maps

	rows       int64
	groupRows  int64 // in the open row group
	groupBytes int64 // of Arrow memory in the open row group
	rawBytes   int64 // of Arrow memory in all
}

func newFileWriter(s *fileSchema, o fileOptions) *fileWriter {
	return &fileWriter{schema: s, opts: o, nans: make([]int64, len(s.leaves))}
}

// size estimates the bytes of the file as it would be if it were closed now.
func (w *fileWriter) size() int64 {
	if w.out == nil {
		return 0
	}
	return w.out.TotalCompressedBytes()
}

// memory estimates the memory that the writer holds: finished row groups, and
// the open one at its Arrow size, which is more than its encoded pages take.
func (w *fileWriter) memory() int64 {
	return int64(w.buf.Cap()) + w.groupBytes + int64(len(w.runs))*32
}

// write appends a batch of the file's schema whose Arrow memory is bytes. It does
// not keep rec.
func (w *fileWriter) write(rec arrow.RecordBatch, bytes int64) error {
	if w.out == nil {
		if err := w.open(rec); err != nil {
			return err
		}
	}
	rows := rec.NumRows()
	step, most := int64(parquetSliceRows), int64(parquetSliceBytes)
	if w.opts.lookups {
		most = min(most, w.opts.rowGroupBytes/4)
	}
	if bytes > most {
		step = max(1, min(step, rows*most/bytes))
	}
	for at := int64(0); at < rows; at += step {
		n := min(step, rows-at)
		part := rec
		if n != rows {
			part = rec.NewSlice(at, at+n)
		}
		if err := w.writeSlice(part, bytes*n/rows); err != nil {
			return err
		}
		if n != rows {
			part.Release()
		}
	}
	return nil
}

func (w *fileWriter) writeSlice(rec arrow.RecordBatch, bytes int64) error {
	if w.groupRows > 0 && (w.groupRows+rec.NumRows() > w.opts.rowGroupRows || w.groupBytes >= w.opts.rowGroupBytes) {
		if err := w.out.NewBufferedRowGroupChecked(); err != nil {
			return errs.Wrap(errs.Internal, "start parquet row group", err)
		}
		w.groupRows, w.groupBytes = 0, 0
	}
	if err := w.out.WriteBuffered(rec); err != nil {
		return errs.Wrap(errs.Internal, "encode parquet", err)
	}
	for i, l := range w.schema.leaves {
		if floating(l.typ.Kind) && !l.repeated {
			w.nans[i] += countNaNs(rec.Column(l.column), l, w.schema.schema.Fields[l.column])
		}
	}
	w.rows += rec.NumRows()
	w.groupRows += rec.NumRows()
	w.groupBytes += bytes
	w.rawBytes += bytes
	return nil
}

// open starts the file. The encodings are chosen from the first batch.
func (w *fileWriter) open(sample arrow.RecordBatch) error {
	props := []parquet.WriterProperty{
		parquet.WithVersion(parquet.V2_LATEST),
		parquet.WithDataPageVersion(parquet.DataPageV1),
		parquet.WithDataPageSize(w.opts.pageBytes),
		parquet.WithDictionaryPageSizeLimit(w.opts.dictionaryBytes()),
		parquet.WithCompression(w.opts.codec),
		parquet.WithStats(true),
		parquet.WithPageIndexEnabled(true),
		parquet.WithBloomFilterEnabled(false),
		parquet.WithStoreDecimalAsInteger(true),
		parquet.WithMaxRowGroupLength(w.opts.rowGroupRows),
		parquet.WithCreatedBy(parquetCreator),
		parquet.WithRootRepetition(parquet.Repetitions.Required),
	}
	if w.opts.lookups {
		props = append(props, parquet.WithBatchSize(keyedPageBatch))
	}
	if w.opts.codec == compress.Codecs.Zstd {
		props = append(props, parquet.WithCompressionLevel(parquetZstdLevel))
	}
	for _, l := range w.schema.leaves {
		dictionary := useDictionary(sample.Column(l.column), l)
		props = append(props, parquet.WithDictionaryFor(l.path, dictionary))
		if w.opts.delta && !dictionary && integerEncoded(l.typ) {
			props = append(props, parquet.WithEncodingFor(l.path, parquet.Encodings.DeltaBinaryPacked))
		}
	}
	out, err := pqarrow.NewFileWriter(w.schema.file, &w.buf, parquet.NewWriterProperties(props...), pqarrow.DefaultWriterProps())
	if err != nil {
		return errs.Wrap(errs.Internal, "open parquet writer", err)
	}
	w.out = out
	return nil
}

// encodedFile is a finished data file.
type encodedFile struct {
	body    []byte
	rows    int64
	runs    []Run
	columns []ColumnMetrics
	splits  []int64
}

// close ends the file.
func (w *fileWriter) close() (*encodedFile, error) {
	if len(w.runs) > 0 { // delete files have none
		if err := w.out.AppendKeyValueMetadata(RunsKey, EncodeRuns(w.runs)); err != nil {
			return nil, errs.Wrap(errs.Internal, "close parquet writer", err)
		}
	}
	if err := w.out.Close(); err != nil {
		return nil, errs.Wrap(errs.Internal, "close parquet writer", err)
	}
	meta, err := w.out.FileMetadata()
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "close parquet writer", err)
	}
	columns, splits, err := w.metrics(meta)
	if err != nil {
		return nil, err
	}
	body, err := plainIntegers(w.buf.Bytes())
	if err != nil {
		return nil, err
	}
	return &encodedFile{body: body, rows: w.rows, runs: w.runs, columns: columns, splits: splits}, nil
}

// metrics gathers the Iceberg metrics from the footer that was just written.
func (w *fileWriter) metrics(meta *metadata.FileMetaData) ([]ColumnMetrics, []int64, error) {
	builders := make([]metricsBuilder, len(w.schema.leaves))
	for i, l := range w.schema.leaves {
		builders[i] = metricsBuilder{leaf: l, out: ColumnMetrics{FieldID: l.id, NaNs: -1}}
		if floating(l.typ.Kind) && !l.repeated {
			builders[i].out.NaNs = w.nans[i]
		}
	}
	var splits []int64
	for g := range meta.NumRowGroups() {
		group := meta.RowGroup(g)
		for i := range builders {
			chunk, err := group.ColumnChunk(i)
			if err != nil {
				return nil, nil, errs.Wrap(errs.Internal, "read parquet footer", err)
			}
			if i == 0 {
				start := chunk.DataPageOffset()
				if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 {
					start = min(start, chunk.DictionaryPageOffset())
				}
				splits = append(splits, start)
			}
			if err := builders[i].add(chunk); err != nil {
				return nil, nil, err
			}
		}
	}
	out := make([]ColumnMetrics, len(builders))
	for i := range builders {
		out[i] = builders[i].finish()
	}
	return out, splits, nil
}
