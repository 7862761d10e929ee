package rows_test

import (
	"bytes"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

// foreign makes a batch of one column "c" of an Arrow type from JSON.
func foreign(t testing.TB, dt arrow.DataType, values string) arrow.RecordBatch {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(values))
	require.NoError(t, err)
	return recordOf("c", arr)
}

func recordOf(name string, arr arrow.Array) arrow.RecordBatch {
	s := arrow.NewSchema([]arrow.Field{{Name: name, Type: arr.DataType(), Nullable: true}}, nil)
	return array.NewRecordBatch(s, []arrow.Array{arr}, int64(arr.Len()))
}

func stream(t testing.TB, recs []arrow.RecordBatch, opts ...ipc.Option) []byte {
	t.Helper()
	var b bytes.Buffer
	w := ipc.NewWriter(&b, append(opts, ipc.WithSchema(recs[0].Schema()))...)
	for _, r := range recs {
		require.NoError(t, w.Write(r))
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func ndjson(t testing.TB, s *segments.Schema, chunks []rows.Chunk) string {
	t.Helper()
	var b strings.Builder
	for _, c := range chunks {
		b.Write(encode(t, s, rows.EncodeOptions{}, c.Rows))
	}
	return b.String()
}

func TestForeignArrowTypesAreCastWithoutLoss(t *testing.T) {
	ts := func(u arrow.TimeUnit, zone string) arrow.DataType {
		return &arrow.TimestampType{Unit: u, TimeZone: zone}
	}
	dict := func(v arrow.DataType) arrow.DataType {
		return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: v}
	}
	for _, c := range []struct {
		typ  string
		from arrow.DataType
		in   string
		want string // of the column, or what the reason says after "!"
	}{
		{"long", arrow.PrimitiveTypes.Int8, "[1,null,-3]", "1 null -3"},
		{"long", arrow.PrimitiveTypes.Uint64, "[1,9223372036854775807]", "1 9223372036854775807"},
		{"long", arrow.PrimitiveTypes.Uint64, "[9223372036854775808]", "!64-bit"},
		{"int", arrow.PrimitiveTypes.Int64, "[2147483647]", "2147483647"},
		{"int", arrow.PrimitiveTypes.Int64, "[2147483648]", "!32-bit"},
		{"int", arrow.PrimitiveTypes.Float64, "[1]", "!cannot become"},
		{"double", arrow.PrimitiveTypes.Float32, "[1.5]", "1.5"},
		{"double", arrow.PrimitiveTypes.Int32, "[7]", "7"},
		{"double", arrow.PrimitiveTypes.Int64, "[9007199254740993]", "!exact"},
		{"float", arrow.PrimitiveTypes.Float64, "[1.5]", "!cannot become"},
		{"decimal(10,2)", arrow.PrimitiveTypes.Int16, "[5]", `"5.00"`},
		{"decimal(10,2)", &arrow.Decimal128Type{Precision: 20, Scale: 4}, `["1.5000"]`, `"1.50"`},
		{"decimal(10,2)", &arrow.Decimal128Type{Precision: 20, Scale: 4}, `["1.5001"]`, "!rounded"},
		{"decimal(10,2)", &arrow.Decimal128Type{Precision: 20, Scale: 0}, `["123456789"]`, "!precision"},
		{"date", arrow.FixedWidthTypes.Date64, `["2001-01-01"]`, `"2001-01-01"`},
		{"time", arrow.FixedWidthTypes.Time32s, `["01:02:03"]`, `"01:02:03"`},
		{"timestamp", ts(arrow.Second, ""), `["2001-01-01 00:00:01"]`, `"2001-01-01T00:00:01"`},
		{"timestamp", ts(arrow.Nanosecond, ""), `["2001-01-01 00:00:01.000001"]`, `"2001-01-01T00:00:01.000001"`},
		{"timestamp", ts(arrow.Nanosecond, ""), `["2001-01-01 00:00:01.0000001"]`, "!microseconds"},
		{"timestamp", ts(arrow.Microsecond, "UTC"), `["2001-01-01 00:00:01Z"]`, "!cannot become"},
		{"timestamptz", ts(arrow.Millisecond, "Europe/Berlin"), `["2001-01-01 00:00:01Z"]`, `"2001-01-01T00:00:01Z"`},
		{"string", arrow.BinaryTypes.LargeString, `["a",null,""]`, `"a" null ""`},
		{"string", arrow.BinaryTypes.StringView, `["a","a long text out of line"]`, `"a" "a long text out of line"`},
		{"string", dict(arrow.BinaryTypes.String), `["a","b","a",null]`, `"a" "b" "a" null`},
		{"long", dict(arrow.PrimitiveTypes.Int32), `[5,null,5]`, `5 null 5`},
		{"binary", arrow.BinaryTypes.LargeBinary, `["AA=="]`, `"AA=="`},
		{"fixed(1)", arrow.BinaryTypes.Binary, `["AA=="]`, `"AA=="`},
		{"fixed(2)", arrow.BinaryTypes.Binary, `["AA=="]`, "!another length"},
		{"uuid", arrow.BinaryTypes.String, `["f81d4fae-7dec-11d0-a765-00a0c91e6bf6"]`, `"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"`},
		{"string", arrow.BinaryTypes.Binary, `["AA=="]`, "!cannot become"},
		{"int", arrow.Null, "[null,null]", "null null"},
		{"list<int>", arrow.Null, "[null]", "null"},
		{"list<int>", arrow.ListOf(arrow.Null), "[[],[null,null],null]", "[] [null,null] null"},
		{"struct<a:int>", arrow.StructOf(arrow.Field{Name: "a", Type: arrow.Null, Nullable: true}), `[{"a":null},null]`, `{"a":null} null`},
		{"list<long>", arrow.LargeListOf(arrow.PrimitiveTypes.Int8), "[[1,2],null,[]]", "[1,2] null []"},
		{"list<int>", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32), "[[1,2],[3,null]]", "[1,2] [3,null]"},
		{"list<int>", arrow.ListOf(arrow.PrimitiveTypes.Int64), "[[1],[2,3000000000]]", "!32-bit"},
		{"map<string,long>", arrow.MapOf(arrow.BinaryTypes.LargeString, arrow.PrimitiveTypes.Int8), `[[{"key":"a","value":1}],null]`, `{"a":1} null`},
		{"struct<a:long,b:int>", arrow.StructOf(arrow.Field{Name: "b", Type: arrow.PrimitiveTypes.Int8, Nullable: true}), `[{"b":1},null]`, `{"a":null,"b":1} null`},
		{"struct<a:long>", arrow.StructOf(arrow.Field{Name: "z", Type: arrow.PrimitiveTypes.Int8}), `[{"z":1}]`, `!has field "z"`},
	} {
		s := segtest.Schema("c " + c.typ)
		for _, opts := range [][]ipc.Option{nil, {ipc.WithLZ4()}, {ipc.WithZstd()}} {
			chunks, _, err := decode(t, stream(t, []arrow.RecordBatch{foreign(t, c.from, c.in)}, opts...),
				rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
			if reason, bad := strings.CutPrefix(c.want, "!"); bad {
				require.True(t, errs.Is(err, errs.Invalid), "%s from %s: %v", c.typ, c.from, err)
				require.ErrorContains(t, err, reason)
				continue
			}
			require.NoError(t, err, "%s from %s", c.typ, c.from)
			var got []string
			for line := range strings.Lines(ndjson(t, s, chunks)) {
				got = append(got, strings.TrimSuffix(strings.TrimPrefix(line, `{"c":`), "}\n"))
			}
			require.Equal(t, c.want, strings.Join(got, " "), "%s from %s", c.typ, c.from)
		}
	}
}

func TestWideDecimalsAreRescaledBeforeTheyAreCut(t *testing.T) {
	s := segtest.Schema("c decimal(10,2)")
	b := array.NewDecimal256Builder(memory.DefaultAllocator, &arrow.Decimal256Type{Precision: 76, Scale: 60})
	v, err := decimal256.FromString("1.5", 76, 60)
	require.NoError(t, err)
	b.Append(v)
	chunks, _, err := decode(t, stream(t, []arrow.RecordBatch{recordOf("c", b.NewArray())}), rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
	require.NoError(t, err)
	require.Equal(t, "{\"c\":\"1.50\"}\n", ndjson(t, s, chunks))
}

// values that Arrow's types hold and the columns' do not
func TestArrowValuesOutsideTheColumnsTypeAreRowErrors(t *testing.T) {
	dec := array.NewDecimal128Builder(memory.DefaultAllocator, &arrow.Decimal128Type{Precision: 4, Scale: 2})
	dec.Append(decimalOf(12345))
	tm := array.NewTime64Builder(memory.DefaultAllocator, &arrow.Time64Type{Unit: arrow.Microsecond})
	tm.Append(arrow.Time64(86_400_000_000))
	str := array.NewStringBuilder(memory.DefaultAllocator)
	str.Append("\xff")
	for typ, arr := range map[string]arrow.Array{"decimal(4,2)": dec.NewArray(), "time": tm.NewArray(), "string": str.NewArray()} {
		s := segtest.Schema("c " + typ)
		_, d, err := decode(t, stream(t, []arrow.RecordBatch{recordOf("c", arr)}), rows.DecodeOptions{Schema: s, Format: rows.ArrowStream, SkipBadRows: true})
		require.NoError(t, err)
		total, _ := d.Rejected()
		require.Equal(t, int64(1), total, typ)
	}
	// a character that is cut by two strings
	str.Append("\xc3")
	str.Append("\xa4")
	s := segtest.Schema("c string")
	_, d, err := decode(t, stream(t, []arrow.RecordBatch{recordOf("c", str.NewArray())}), rows.DecodeOptions{Schema: s, Format: rows.ArrowStream, SkipBadRows: true})
	require.NoError(t, err)
	total, _ := d.Rejected()
	require.Equal(t, int64(2), total)
}

func TestArrowColumnsAreMatchedByName(t *testing.T) {
	theirs := segtest.Schema("x int", "b int", "a int")
	rec := table(t, theirs, `{"x":1,"b":2,"a":3}`)
	body := stream(t, []arrow.RecordBatch{rec})
	s := segtest.Schema("a int", "b int", "d string", "e int")
	s.Fields[2].Default = []byte(`"def"`)
	chunks, _, err := decode(t, body, rows.DecodeOptions{Schema: s, Format: rows.ArrowStream, IgnoreUnknown: true})
	require.NoError(t, err)
	require.Equal(t, `{"a":3,"b":2,"d":"def","e":null}`+"\n", ndjson(t, s, chunks))
	_, _, err = decode(t, body, rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
	require.ErrorContains(t, err, `column "x", which the table does not have`)
	s.Fields[3].Required = true
	_, _, err = decode(t, body, rows.DecodeOptions{Schema: &segments.Schema{Fields: s.Fields}, Format: rows.ArrowStream, IgnoreUnknown: true})
	require.ErrorContains(t, err, `lacks the required column "e"`)
}

func table(t testing.TB, s *segments.Schema, lines ...string) arrow.RecordBatch {
	t.Helper()
	chunks, _, err := decode(t, []byte(strings.Join(lines, "\n")), rows.DecodeOptions{Schema: s})
	require.NoError(t, err)
	return chunks[0].Rows
}

func TestNullsInRequiredArrowColumnsAreRowErrors(t *testing.T) {
	for _, dt := range []arrow.DataType{arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int8,
		&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.PrimitiveTypes.Int32}} {
		body := stream(t, []arrow.RecordBatch{foreign(t, dt, "[1,null,3]")})
		s := segtest.Schema("c int required")
		chunks, d, err := decode(t, body, rows.DecodeOptions{Schema: s, Format: rows.ArrowStream, SkipBadRows: true})
		require.NoError(t, err)
		require.Equal(t, []int64{0, 2}, chunks[0].Ordinals)
		_, bad := d.Rejected()
		require.Equal(t, int64(1), bad[0].Row)
		chunks, _, err = decode(t, body, rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
		require.True(t, errs.Is(err, errs.Invalid))
		require.Equal(t, int64(1), chunks[0].Rows.NumRows())
	}
}

func TestSameTypesArePassedOnWithoutACopy(t *testing.T) {
	s := segtest.Schema("a long", "s string")
	rec := segtest.Batch(segtest.NewRand(1), s, 10_000, segtest.Options{})
	body := encode(t, s, rows.EncodeOptions{Format: rows.ArrowStream}, rec)
	o := rows.DecodeOptions{Schema: s, Format: rows.ArrowStream}
	allocated := func(open func() (rows.Decoder, error)) uint64 {
		const runs = 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range runs {
			d, err := open()
			require.NoError(t, err)
			_, err = drain(d)
			require.NoError(t, err)
		}
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) / runs
	}
	// the message once, and the read buffer
	require.Less(t, allocated(func() (rows.Decoder, error) { return rows.NewDecoder(bytes.NewReader(body), o) }), uint64(len(body)+160<<10))
	// a body that has arrived: neither
	require.Less(t, allocated(func() (rows.Decoder, error) { return rows.NewBodyDecoder(body, o) }), uint64(len(body)/2))
}

func TestArrowFileFormatIsReadAsAStream(t *testing.T) {
	s := segtest.AllTypes()
	rec := segtest.Batch(segtest.NewRand(3), s, 50, segtest.Options{NullPercent: 20})
	var b bytes.Buffer
	w, err := ipc.NewFileWriter(&b, ipc.WithSchema(s.Arrow()))
	require.NoError(t, err)
	require.NoError(t, w.Write(rec))
	require.NoError(t, w.Write(rec))
	require.NoError(t, w.Close())
	chunks, d, err := decode(t, b.Bytes(), rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
	require.NoError(t, err)
	require.Equal(t, int64(100), d.Rows())
	require.Empty(t, segtest.Equal(rec, chunks[1].Rows))
	require.Equal(t, int64(50), chunks[1].First)
	for _, cut := range []int{1, 7, 300} {
		_, _, err := decode(t, b.Bytes()[:b.Len()-cut], rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
		require.True(t, errs.Is(err, errs.Invalid), "%v", err)
	}
}

func TestTruncatedArrowIsInvalid(t *testing.T) {
	s := segtest.Schema("a long", "s string")
	body := encode(t, s, rows.EncodeOptions{Format: rows.ArrowStream}, segtest.Batch(segtest.NewRand(1), s, 100, segtest.Options{}))
	boundaries := 0
	for n := range len(body) {
		_, d, err := decode(t, body[:n], rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
		if err == nil { // between two messages
			boundaries++
			require.Contains(t, []int64{0, 100}, d.Rows())
			continue
		}
		require.True(t, errs.Is(err, errs.Invalid), "%d bytes: %v", n, err)
	}
	require.LessOrEqual(t, boundaries, 2)
	_, _, err := decode(t, append(bytes.Clone(body), "x"...), rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
	require.ErrorContains(t, err, "goes on")
	_, _, err = decode(t, []byte(`{"a":1}`+strings.Repeat(" ", 100)), rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
	require.True(t, errs.Is(err, errs.Invalid), "%v", err)
}

func TestParquetOfOtherWritersIsRead(t *testing.T) {
	theirs := arrow.NewSchema([]arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int16, Nullable: true},
		{Name: "t", Type: &arrow.TimestampType{Unit: arrow.Millisecond, TimeZone: "UTC"}, Nullable: true},
		{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "x", Type: arrow.StructOf(arrow.Field{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true}), Nullable: true},
		{Name: "unknown", Type: arrow.StructOf(arrow.Field{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true}), Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, theirs)
	for _, row := range []string{`{"n":1,"t":"2001-01-01T00:00:00.5Z","s":"a","x":{"l":[1,2]}}`, `{"n":null,"s":"b"}`, `{"n":3,"s":"a","x":{"l":null}}`} {
		require.NoError(t, b.UnmarshalJSON([]byte(row)))
	}
	rec := b.NewRecordBatch()
	for _, props := range []*parquet.WriterProperties{
		parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd)),
		parquet.NewWriterProperties(parquet.WithDictionaryDefault(false), parquet.WithDataPageVersion(parquet.DataPageV2), parquet.WithMaxRowGroupLength(1)),
	} {
		var buf bytes.Buffer
		w, err := pqarrow.NewFileWriter(theirs, &buf, props, pqarrow.DefaultWriterProps())
		require.NoError(t, err)
		require.NoError(t, w.Write(rec))
		require.NoError(t, w.Close())
		s := segtest.Schema("s string", "n long", "t timestamptz", "x struct<l:list<long>>", "missing int")
		chunks, _, err := decode(t, buf.Bytes(), rows.DecodeOptions{Schema: s, Format: rows.Parquet, IgnoreUnknown: true})
		require.NoError(t, err)
		require.Equal(t, `{"s":"a","n":1,"t":"2001-01-01T00:00:00.500000Z","x":{"l":[1,2]},"missing":null}
{"s":"b","n":null,"t":null,"x":null,"missing":null}
{"s":"a","n":3,"t":null,"x":{"l":null},"missing":null}
`, ndjson(t, s, chunks))
		_, _, err = decode(t, buf.Bytes(), rows.DecodeOptions{Schema: s, Format: rows.Parquet})
		require.ErrorContains(t, err, `column "unknown"`)
		for _, cut := range []int{1, 20, buf.Len() - 5} {
			_, _, err = decode(t, buf.Bytes()[:buf.Len()-cut], rows.DecodeOptions{Schema: s, Format: rows.Parquet})
			require.True(t, errs.Is(err, errs.Invalid), "%v", err)
		}
		_, _, err = decode(t, buf.Bytes(), rows.DecodeOptions{Schema: s, Format: rows.Parquet, MaxBytes: 100})
		require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	}
}

func TestBatchWithoutBytesButManyRowsIsRefused(t *testing.T) {
	arr := array.NewNull(math.MaxInt32)
	_, _, err := decode(t, stream(t, []arrow.RecordBatch{recordOf("c", arr)}), rows.DecodeOptions{Schema: segtest.Schema("c long"), Format: rows.ArrowStream})
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	// the same inside a list
	list := array.NewData(arrow.ListOf(arrow.Null), 1, []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes([]int32{0, math.MaxInt32}))},
		[]arrow.ArrayData{arr.Data()}, 0, 0)
	_, _, err = decode(t, stream(t, []arrow.RecordBatch{recordOf("c", array.MakeFromData(list))}), rows.DecodeOptions{Schema: segtest.Schema("c list<long>"), Format: rows.ArrowStream})
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
}
