package lakehouse

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

// rounds is how often a randomised test runs: n times, or FIRN_TEST_ROUNDS times as often.
func rounds(n int) int {
	if more, err := strconv.Atoi(os.Getenv("FIRN_TEST_ROUNDS")); err == nil {
		n *= more
	}
	return n
}

// scanFixture is a table whose files the test writes itself.
type scanFixture struct {
	t     testing.TB
	store objstore.Store
	lake  *Lake
	def   TableDef
	files []DataFile
	ends  map[int32]int64
}

func newScanFixture(t testing.TB, schemas ...*segments.Schema) *scanFixture {
	t.Helper()
	store := objstore.NewMem()
	return &scanFixture{
		t: t, store: store, lake: Open(store, Options{Location: "mem://lake"}), ends: map[int32]int64{},
		def: TableDef{
			ID: 1, Database: "db", Name: "t", Prefix: "lake/db/t-1", Schemas: schemas, Buckets: 4,
			CurrentSchema: schemas[len(schemas)-1].ID,
		},
	}
}

// snapshot returns a snapshot whose own file list is not to be read: tests pass Files.
func (x *scanFixture) snapshot() *Snapshot {
	return &Snapshot{Table: x.def, lake: x.lake, Offsets: x.ends}
}

// write puts one data file with the given runs; the row groups hold at most groupRows rows.
func (x *scanFixture) write(bucket int32, s *segments.Schema, rec arrow.RecordBatch, runs []Run, groupRows int64) {
	x.t.Helper()
	first, last := runs[0].FirstOffset, runs[len(runs)-1]
	name := dataName{bucket: bucket, base: first, end: last.FirstOffset + last.Count}
	name.id[15] = byte(len(x.files))
	key := x.def.Prefix + "/data/" + name.String()
	body := encodeParquet(x.t, s, rec, runs, groupRows)
	if err := x.store.Put(context.Background(), key, body); err != nil {
		x.t.Fatal(err)
	}
	x.files = append(x.files, DataFile{
		Key: key, Bucket: bucket, BaseOffset: name.base, EndOffset: name.end, Rows: rec.NumRows(), Size: int64(len(body)),
	})
	x.ends[bucket] = max(x.ends[bucket], name.end)
}

func encodeParquet(t testing.TB, s *segments.Schema, rec arrow.RecordBatch, runs []Run, groupRows int64) []byte {
	t.Helper()
	var buf bytes.Buffer
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithMaxRowGroupLength(groupRows), parquet.WithBatchSize(1024))
	w, err := pqarrow.NewFileWriter(s.Arrow(), &buf, props, pqarrow.DefaultWriterProps())
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < rec.NumRows(); at += groupRows {
		if err := w.Write(rec.NewSlice(at, min(at+groupRows, rec.NumRows()))); err != nil {
			t.Fatal(err)
		}
	}
	if runs != nil {
		if err := w.AppendKeyValueMetadata(RunsKey, EncodeRuns(runs)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// runsOf makes one run with a timestamp of its own for each stretch of offsets.
func runsOf(offsets []int64) []Run {
	var runs []Run
	for row, offset := range offsets {
		if n := len(runs); n > 0 && runs[n-1].FirstOffset+runs[n-1].Count == offset {
			runs[n-1].Count++
			continue
		}
		runs = append(runs, Run{FirstRow: int64(row), FirstOffset: offset, Count: 1, Timestamp: 1_000_000 + offset*10})
	}
	return runs
}

func span(from, to int64) []int64 {
	out := make([]int64, 0, to-from)
	for i := from; i < to; i++ {
		out = append(out, i)
	}
	return out
}

func mustType(t testing.TB, text string) segments.Type {
	t.Helper()
	typ, err := segments.ParseType(text)
	if err != nil {
		t.Fatal(err)
	}
	return typ
}

// simpleSchema has an id that equals the row's offset in these tests, and a name.
func simpleSchema(t testing.TB) *segments.Schema {
	return &segments.Schema{ID: 0, Fields: []segments.Field{
		{ID: 1, Name: "id", Type: mustType(t, "int"), Required: true},
		{ID: 2, Name: "name", Type: mustType(t, "string")},
	}}
}

func simpleRows(t testing.TB, s *segments.Schema, ids []int64) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for _, id := range ids {
		b.Field(0).(*array.Int32Builder).Append(int32(id))
		if id%7 == 0 {
			b.Field(1).AppendNull()
		} else {
			b.Field(1).(*array.StringBuilder).Append(fmt.Sprint("row ", id))
		}
	}
	return b.NewRecordBatch()
}

func collect(t testing.TB, s *Snapshot, opts ScanOptions) []ScanBatch {
	t.Helper()
	var out []ScanBatch
	for b, err := range s.Scan(context.Background(), opts) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, b)
	}
	return out
}

func jsonRows(t testing.TB, recs ...arrow.RecordBatch) []string {
	t.Helper()
	var out []string
	for _, rec := range recs {
		data, err := rec.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var rows []json.RawMessage
		if err := json.Unmarshal(data, &rows); err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			out = append(out, string(r))
		}
	}
	return out
}

func TestScanReturnsEveryRowOnceInAnyParallelism(t *testing.T) {
	s := simpleSchema(t)
	x := newScanFixture(t, s)
	for i := range int64(5) {
		ids := span(i*1000, i*1000+1000)
		x.write(int32(i%4), s, simpleRows(t, s, ids), runsOf(ids), 230)
	}
	for _, opts := range []ScanOptions{
		{Parallel: 1}, {Parallel: 4}, {Parallel: 3, Ordered: true}, {Parallel: 2, ReadaheadBytes: 1}, {BatchBytes: 1000, Ordered: true, WithOffsets: true},
	} {
		opts.Files = x.files
		var ids []int64
		for _, b := range collect(t, x.snapshot(), opts) {
			col := b.Rows.Column(0).(*array.Int32)
			for i := range col.Len() {
				ids = append(ids, int64(col.Value(i)))
				if opts.WithOffsets && (b.Offsets[i] != int64(col.Value(i)) || b.Timestamps[i] != 1_000_000+b.Offsets[i]/1000*10000) {
					t.Fatalf("row %d has offset %d, timestamp %d", col.Value(i), b.Offsets[i], b.Timestamps[i])
				}
			}
		}
		if !opts.Ordered {
			slices.Sort(ids)
		}
		if !slices.Equal(ids, span(0, 5000)) {
			t.Errorf("%+v: %d rows, wrong or out of order", opts, len(ids))
		}
	}
}

func TestScanMapsOldFilesToTheCurrentSchemaByFieldID(t *testing.T) {
	old := simpleSchema(t)
	now := &segments.Schema{ID: 1, Fields: []segments.Field{
		{ID: 3, Name: "note", Type: mustType(t, "string"), Default: json.RawMessage(`"none"`)},
		{ID: 2, Name: "title", Type: mustType(t, "string")},
		{ID: 1, Name: "key", Type: mustType(t, "long")},
		{ID: 4, Name: "tags", Type: mustType(t, "list<string>")},
	}}
	now.Fields[3].Type.Children[0].ID = 5
	x := newScanFixture(t, old, now)
	x.write(0, old, simpleRows(t, old, span(0, 3)), runsOf(span(0, 3)), 2)
	got := jsonRows(t, recordsOf(collect(t, x.snapshot(), ScanOptions{Files: x.files, Ordered: true}))...)
	want := []string{
		`{"key":0,"note":"none","tags":null,"title":null}`,
		`{"key":1,"note":"none","tags":null,"title":"row 1"}`,
		`{"key":2,"note":"none","tags":null,"title":"row 2"}`,
	}
	for i := range want {
		if i >= len(got) || !sameJSON(t, got[i], want[i]) {
			t.Errorf("row %d: %v, want %s", i, got, want[i])
		}
	}
	wanted, err := now.Select([]string{"tags", "note"})
	if err != nil {
		t.Fatal(err)
	}
	batches := collect(t, x.snapshot(), ScanOptions{Files: x.files, Columns: wanted})
	if rows := countRows(batches); rows != 3 || !batches[0].Rows.Schema().Equal(wanted.Arrow()) {
		t.Errorf("only columns that the file lacks: %d rows, schema %v", rows, batches[0].Rows.Schema())
	}
	if rows := countRows(collect(t, x.snapshot(), ScanOptions{Files: x.files, Columns: &segments.Schema{}})); rows != 3 {
		t.Errorf("no columns: %d rows", rows)
	}
}

func recordsOf(batches []ScanBatch) []arrow.RecordBatch {
	var out []arrow.RecordBatch
	for _, b := range batches {
		out = append(out, b.Rows)
	}
	return out
}

func countRows(batches []ScanBatch) (n int64) {
	for _, b := range batches {
		n += b.Rows.NumRows()
	}
	return n
}

func sameJSON(t testing.TB, a, b string) bool {
	t.Helper()
	var x, y any
	if err := json.Unmarshal([]byte(a), &x); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(b), &y); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(x) == fmt.Sprint(y)
}

func TestScanReturnsEveryTypeAsItWasWritten(t *testing.T) {
	s, rec := everyTypeRows(t, 300, 5)
	x := newScanFixture(t, s)
	x.write(0, s, rec, runsOf(span(0, 300)), 128)
	batches := collect(t, x.snapshot(), ScanOptions{Files: x.files, Ordered: true, BatchBytes: 4000})
	got, err := segments.Concat(recordsOf(batches))
	if err != nil {
		t.Fatal(err)
	}
	if !got.Schema().Equal(s.Arrow()) {
		t.Fatalf("schema\n%v\nwant\n%v", got.Schema(), s.Arrow())
	}
	for i, column := range got.Columns() {
		if !arrow.TypeEqual(column.DataType(), rec.Column(i).DataType(), arrow.CheckMetadata()) {
			t.Errorf("column %s has type %v, want %v", rec.ColumnName(i), column.DataType(), rec.Column(i).DataType())
		}
	}
	if !slices.Equal(jsonRows(t, got), jsonRows(t, rec)) {
		t.Error("rows differ from what was written")
	}
}

// everyTypeRows returns random rows, with NULLs, of a schema with every type.
func everyTypeRows(t testing.TB, n int, seed int64) (*segments.Schema, arrow.RecordBatch) {
	t.Helper()
	s := &segments.Schema{}
	for i, text := range []string{
		"boolean", "int", "long", "float", "double", "decimal(5,2)", "decimal(18,4)", "decimal(38,10)", "date", "time", "timestamp", "timestamptz",
		"string", "uuid", "fixed(5)", "binary", "list<int>", "map<string,long>", "struct<a:int,b:list<struct<c:string,d:double>>>", "list<list<uuid>>",
	} {
		s.Fields = append(s.Fields, segments.Field{Name: fmt.Sprint("c", i), Type: mustType(t, text)})
	}
	s, _ = segments.AssignFieldIDs(s, 0)
	rng := rand.New(rand.NewSource(seed))
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	for range n {
		for i := range s.Fields {
			appendRandom(b.Field(i), rng, true)
		}
	}
	return s, b.NewRecordBatch()
}

func appendRandom(b array.Builder, rng *rand.Rand, nullable bool) {
	if nullable && rng.Intn(5) == 0 {
		b.AppendNull()
		return
	}
	text := func() string { return "αβγ-"[:rng.Intn(3)*2] + fmt.Sprint(rng.Intn(1000)) }
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(rng.Intn(2) == 0)
	case *array.Int32Builder:
		b.Append(int32(rng.Uint32()))
	case *array.Int64Builder:
		b.Append(int64(rng.Uint64()))
	case *array.Float32Builder:
		b.Append(float32(rng.NormFloat64()))
	case *array.Float64Builder:
		b.Append(rng.NormFloat64())
	case *array.Decimal128Builder:
		if err := b.AppendValueFromString(fmt.Sprintf("%d.%02d", rng.Intn(1999)-999, rng.Intn(100))); err != nil {
			panic(err)
		}
	case *array.Date32Builder:
		b.Append(arrow.Date32(rng.Intn(40000) - 10000))
	case *array.Time64Builder:
		b.Append(arrow.Time64(rng.Int63n(86_400_000_000)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(rng.Int63n(4e15) - 1e15))
	case *array.StringBuilder:
		b.Append(text())
	case *array.BinaryBuilder:
		b.Append([]byte(text()))
	case *array.FixedSizeBinaryBuilder:
		v := make([]byte, b.Type().(*arrow.FixedSizeBinaryType).ByteWidth)
		rng.Read(v)
		b.Append(v)
	case *array.MapBuilder:
		b.Append(true)
		for k := range rng.Intn(3) {
			b.KeyBuilder().(*array.StringBuilder).Append(fmt.Sprint("k", k))
			appendRandom(b.ItemBuilder(), rng, true)
		}
	case *array.ListBuilder:
		b.Append(true)
		for range rng.Intn(4) {
			appendRandom(b.ValueBuilder(), rng, true)
		}
	case *array.StructBuilder:
		b.Append(true)
		for i := range b.NumField() {
			appendRandom(b.FieldBuilder(i), rng, true)
		}
	default:
		panic(fmt.Sprintf("no random value for %T", b))
	}
}

func TestStoppingAScanEarlyEndsIt(t *testing.T) {
	s := simpleSchema(t)
	x := newScanFixture(t, s)
	for i := range int64(12) {
		ids := span(i*100, i*100+100)
		x.write(0, s, simpleRows(t, s, ids), runsOf(ids), 25)
	}
	for _, ordered := range []bool{true, false} {
		batches := 0
		for _, err := range x.snapshot().Scan(context.Background(), ScanOptions{Files: x.files, Ordered: ordered}) {
			if err != nil {
				t.Fatal(err)
			}
			if batches++; batches == 3 {
				break
			}
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last error
	for _, err := range x.snapshot().Scan(ctx, ScanOptions{Files: x.files}) {
		cancel()
		last = err
	}
	if !errs.Is(last, errs.Canceled) {
		t.Errorf("a cancelled scan ended with %v", last)
	}
}
