package lakehouse

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

const (
	// footerGuessBytes is read from a Parquet file's end at once; a longer
	// footer (many row groups, scattered runs) costs a second read.
	footerGuessBytes = 64 << 10
	// maxFooterBytes bounds a Parquet footer.
	maxFooterBytes = 64 << 20
	// parquetTailBytes are the footer's length and the magic at the end.
	parquetTailBytes = 8
	// smallestParquet is what no Parquet file is shorter than: two magics and the tail's length.
	smallestParquet = 2*4 + parquetTailBytes
)

// maxCachedFooterBytes bounds the parsed footers that one Lake keeps. A footer
// that fell out costs one or two reads when its file is opened again.
const maxCachedFooterBytes = 32 << 20

// sizeUnknown is the size of a data file that a caller knows by its key alone.
const sizeUnknown = -1

var parquetMagic = []byte("PAR1")

// parquetFile is a Parquet file whose footer was read and checked: every range
// that it names lies inside the file. It is immutable.
type parquetFile struct {
	key    string
	size   int64
	meta   *metadata.FileMetaData // without its key-value pairs
	schema *segments.Schema       // top-level columns that have field ids, in file order
	leaves [][]int                // leaf column indices of each column of schema
	fields []int                  // position of each column of schema in the file's own schema
	groups []parquetGroup
	values map[string]string // the footer's key-value metadata
	weight int               // bytes that the footer takes in memory, about
}

// parquetGroup is one row group.
type parquetGroup struct {
	firstRow int64 // in the file
	rows     int64
}

// parquetProps are the properties of every read: columns come out of our own
// source, which has them in memory already or fetches them block by block.
func parquetProps() *parquet.ReaderProperties {
	props := parquet.NewReaderProperties(memory.DefaultAllocator)
	props.BufferedStreamEnabled = true
	props.BufferSize = 16 << 10
	return props
}

// openParquet returns a data file's footer, cached: data files never change, and
// their keys are never used again.
func (l *Lake) openParquet(ctx context.Context, key string, size int64) (*parquetFile, error) {
	if f, ok := l.footers.get(key); ok && (f.size == size || size == sizeUnknown) {
		return f, nil
	}
	f, err := openParquet(ctx, l.store, key, size)
	if err != nil {
		return nil, err
	}
	l.footers.put(key, f, f.weight)
	return f, nil
}

// openParquet reads and checks a file's footer: one read from the end, and one
// more when the footer is long. A file that is not what the lake's metadata
// says is Corrupt.
func openParquet(ctx context.Context, store objstore.Store, key string, size int64) (*parquetFile, error) {
	footer, size, err := readParquetFooter(ctx, store, key, size)
	if err != nil {
		return nil, err
	}
	f := &parquetFile{key: key, size: size, weight: len(footer) * 4}
	if err := guardParquet(key, func() error { return f.parse(footer) }); err != nil {
		return nil, err
	}
	return f, nil
}

// readParquetFooter returns the footer and the size of the file.
func readParquetFooter(ctx context.Context, store objstore.Store, key string, size int64) (footer []byte, _ int64, err error) {
	start, guess := int64(-footerGuessBytes), int64(footerGuessBytes)
	if size != sizeUnknown {
		guess = min(guess, size)
		start = size - guess
	}
	if size != sizeUnknown && size < smallestParquet {
		return nil, 0, corruptFile(key, fmt.Errorf("%d bytes are no Parquet file", size))
	}
	tail, info, err := store.GetRange(ctx, key, start, guess)
	if err != nil {
		return nil, 0, missingFile(key, err)
	}
	if size == sizeUnknown {
		if size = info.Size; size < smallestParquet {
			return nil, 0, corruptFile(key, fmt.Errorf("%d bytes are no Parquet file", size))
		}
	}
	footer, err = cutFooter(ctx, store, key, size, tail, info)
	return footer, size, err
}

func cutFooter(ctx context.Context, store objstore.Store, key string, size int64, tail []byte, info objstore.Info) ([]byte, error) {
	guess := min(int64(footerGuessBytes), size)
	if info.Size != size || int64(len(tail)) != guess {
		return nil, corruptFile(key, fmt.Errorf("it has %d bytes, the iceberg manifest says %d", info.Size, size))
	}
	if string(tail[len(tail)-len(parquetMagic):]) != string(parquetMagic) {
		return nil, corruptFile(key, errors.New("no Parquet magic at its end"))
	}
	n := int64(binary.LittleEndian.Uint32(tail[len(tail)-parquetTailBytes:]))
	if n > maxFooterBytes || n+parquetTailBytes+int64(len(parquetMagic)) > size {
		return nil, corruptFile(key, fmt.Errorf("its footer claims %d bytes", n))
	}
	if end := int64(len(tail)) - parquetTailBytes; n <= end {
		return tail[end-n : end], nil
	}
	footer, _, err := store.GetRange(ctx, key, size-parquetTailBytes-n, n)
	if err != nil {
		return nil, missingFile(key, err)
	}
	if int64(len(footer)) != n {
		return nil, corruptFile(key, fmt.Errorf("read %d of %d footer bytes", len(footer), n))
	}
	return footer, nil
}

func (f *parquetFile) parse(footer []byte) error {
	meta, err := metadata.NewFileMetaData(footer, nil)
	if err != nil {
		return err
	}
	f.meta = meta
	meta.SetSourceFileSize(f.size)
	f.values = map[string]string{}
	for _, kv := range meta.FileMetaData.KeyValueMetadata {
		if kv != nil && kv.Value != nil {
			f.values[kv.Key] = *kv.Value
		}
	}
	// Arrow's own copy of the schema in there must not override the file's.
	meta.FileMetaData.KeyValueMetadata = nil
	if err := f.checkGroups(); err != nil {
		return err
	}
	reader, err := file.NewParquetReader(&chunkSource{size: f.size}, file.WithMetadata(meta), file.WithReadProps(parquetProps()))
	if err != nil {
		return err
	}
	arrowReader, err := pqarrow.NewFileReader(reader, pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	return f.mapColumns(arrowReader.Manifest)
}

// checkGroups refuses a footer whose row groups do not add up or point outside
// the file: what comes later allocates by these numbers.
func (f *parquetFile) checkGroups() error {
	var row int64
	columns := f.meta.Schema.NumColumns()
	for i, group := range f.meta.RowGroups {
		if group == nil || group.NumRows < 0 || len(group.Columns) != columns {
			return fmt.Errorf("row group %d is malformed", i)
		}
		f.groups = append(f.groups, parquetGroup{firstRow: row, rows: group.NumRows})
		if row += group.NumRows; row < 0 {
			return errors.New("row count overflows")
		}
		for c, chunk := range group.Columns {
			if chunk == nil || chunk.MetaData == nil || chunk.FilePath != nil || chunk.CryptoMetadata != nil {
				return fmt.Errorf("row group %d, column %d: no plain column chunk", i, c)
			}
			if r := f.chunkRange(i, c); r.start < int64(len(parquetMagic)) || r.length < 0 || r.length > f.size || r.start > f.size-r.length {
				return fmt.Errorf("row group %d, column %d: bytes [%d, +%d) are outside the file", i, c, r.start, r.length)
			}
			if chunk.MetaData.NumValues < 0 || chunk.MetaData.TotalUncompressedSize < 0 {
				return fmt.Errorf("row group %d, column %d: negative size", i, c)
			}
		}
	}
	if row != f.meta.NumRows {
		return fmt.Errorf("row groups hold %d rows, the footer says %d", row, f.meta.NumRows)
	}
	return nil
}

// chunkRange returns where a column chunk lies, as the Parquet reader will ask for it.
func (f *parquetFile) chunkRange(group, leaf int) byteRange {
	chunk := f.meta.RowGroups[group].Columns[leaf].MetaData
	start := chunk.DataPageOffset
	if dict := chunk.DictionaryPageOffset; dict != nil && *dict > 0 && *dict < start {
		start = *dict
	}
	return byteRange{start: start, length: chunk.TotalCompressedSize}
}

// mapColumns finds the file's columns by their field ids. A column without an
// id is not the table's and is left out.
func (f *parquetFile) mapColumns(manifest *pqarrow.SchemaManifest) error {
	f.schema = &segments.Schema{}
	for i := range manifest.Fields {
		field, ok, err := fieldOf(*manifest.Fields[i].Field)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if f.schema.IndexOfID(field.ID) >= 0 {
			return fmt.Errorf("field id %d stands twice in its schema", field.ID)
		}
		f.schema.Fields = append(f.schema.Fields, field)
		f.fields = append(f.fields, i)
		f.leaves = append(f.leaves, leavesOf(&manifest.Fields[i], nil))
	}
	return nil
}

func leavesOf(field *pqarrow.SchemaField, leaves []int) []int {
	if len(field.Children) == 0 {
		return append(leaves, field.ColIndex)
	}
	for i := range field.Children {
		leaves = leavesOf(&field.Children[i], leaves)
	}
	return leaves
}

// fieldOf turns a column as Parquet describes it into a segments.Field; ok is
// false when it has no field id.
func fieldOf(af arrow.Field) (field segments.Field, ok bool, err error) {
	text, ok := af.Metadata.GetValue(segments.FieldIDKey)
	if !ok {
		return field, false, nil
	}
	id, err := strconv.ParseInt(text, 10, 32)
	if err != nil || id < 0 {
		return field, false, nil // arrow-go says -1 where there is none
	}
	field = segments.Field{ID: int32(id), Name: af.Name, Required: !af.Nullable}
	field.Type, err = typeOf(af.Type)
	if err != nil {
		return field, false, fmt.Errorf("column %s: %w", af.Name, err)
	}
	return field, true, nil
}

func typeOf(t arrow.DataType) (segments.Type, error) {
	if ext, ok := t.(arrow.ExtensionType); ok {
		if ext.ExtensionName() == "arrow.uuid" {
			return segments.Type{Kind: segments.UUID}, nil
		}
		return typeOf(ext.StorageType())
	}
	switch t := t.(type) {
	case *arrow.BooleanType:
		return segments.Type{Kind: segments.Boolean}, nil
	case *arrow.Int32Type:
		return segments.Type{Kind: segments.Int}, nil
	case *arrow.Int64Type:
		return segments.Type{Kind: segments.Long}, nil
	case *arrow.Float32Type:
		return segments.Type{Kind: segments.Float}, nil
	case *arrow.Float64Type:
		return segments.Type{Kind: segments.Double}, nil
	case *arrow.Decimal128Type:
		return segments.Type{Kind: segments.Decimal, Precision: int(t.Precision), Scale: int(t.Scale)}, nil
	case *arrow.Date32Type:
		return segments.Type{Kind: segments.Date}, nil
	case *arrow.Time64Type:
		if t.Unit == arrow.Microsecond {
			return segments.Type{Kind: segments.Time}, nil
		}
	case *arrow.TimestampType:
		if t.Unit == arrow.Microsecond {
			if t.TimeZone == "" {
				return segments.Type{Kind: segments.Timestamp}, nil
			}
			return segments.Type{Kind: segments.TimestampTZ}, nil
		}
	case *arrow.StringType:
		return segments.Type{Kind: segments.String}, nil
	case *arrow.BinaryType:
		return segments.Type{Kind: segments.Binary}, nil
	case *arrow.FixedSizeBinaryType:
		return segments.Type{Kind: segments.Fixed, Length: t.ByteWidth}, nil
	case *arrow.MapType:
		return nestedTypeOf(segments.Map, t.KeyField(), t.ItemField())
	case *arrow.ListType:
		return nestedTypeOf(segments.List, t.ElemField())
	case *arrow.StructType:
		return nestedTypeOf(segments.Struct, t.Fields()...)
	}
	return segments.Type{}, fmt.Errorf("type %s is none of an Iceberg table", t)
}

// childNames are what Iceberg calls the children of lists and maps, whatever the file does.
var childNames = map[segments.Kind][]string{segments.List: {"element"}, segments.Map: {"key", "value"}}

func nestedTypeOf(kind segments.Kind, fields ...arrow.Field) (segments.Type, error) {
	t := segments.Type{Kind: kind}
	for i, af := range fields {
		child, ok, err := fieldOf(af)
		if err != nil {
			return t, err
		}
		if !ok {
			return t, fmt.Errorf("nested field %s has no field id", af.Name)
		}
		if names := childNames[kind]; names != nil {
			child.Name = names[i]
		}
		t.Children = append(t.Children, child)
	}
	return t, nil
}

// guardParquet runs fn and turns what the Parquet library throws at bad bytes,
// an error or a panic, into Corrupt naming the file. Errors that have a class
// (the store's, a context's end) keep it.
func guardParquet(key string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = corruptFile(key, fmt.Errorf("decoding panicked: %v", p))
		}
	}()
	err = fn()
	var classified *errs.Error
	if err == nil || errors.As(err, &classified) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return corruptFile(key, err)
}

func corruptFile(key string, cause error) error {
	return &errs.Error{Class: errs.Corrupt, Op: "read data file " + key, Cause: cause}
}

// missingFile keeps a store error's class, but a file that is not there is
// Corrupt: the lake's metadata names it, and files of live snapshots stay.
func missingFile(key string, err error) error {
	if errs.Is(err, errs.NotFound) {
		return &errs.Error{
			Class: errs.Corrupt, Op: "read data file " + key,
			Msg: "the iceberg snapshot names it but it is not in the store; firn fsck lists what is missing", Cause: err,
		}
	}
	return errs.In("read data file "+key, err)
}

// runs returns the offsets of the file's rows.
func (f *parquetFile) runs() ([]Run, error) {
	text, ok := f.values[RunsKey]
	if !ok {
		return nil, corruptFile(f.key, fmt.Errorf("its footer has no %s: the offsets of its rows are unknown", RunsKey))
	}
	runs, err := ParseRuns(text, f.meta.NumRows)
	if err != nil {
		return nil, corruptFile(f.key, err)
	}
	return runs, nil
}
