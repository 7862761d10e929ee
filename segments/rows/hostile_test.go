package rows_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

func decimalOf(v int64) decimal128.Num { return decimal128.FromI64(v) }

// checkHostile decodes whatever bytes and checks what must hold of any body:
// no panic, an error of a class for the caller, and batches that keep the
// schema's promises.
func checkHostile(t testing.TB, body []byte, f rows.Format, compression string, s *segments.Schema) {
	t.Helper()
	for _, skip := range []bool{false, true} {
		d, err := rows.NewDecoder(bytes.NewReader(body), rows.DecodeOptions{
			Schema: s, Format: f, Compression: compression, SkipBadRows: skip, IgnoreUnknown: skip, MaxBytes: 1 << 20, ChunkRows: 7,
		})
		require.NoError(t, err)
		var good int64
		for {
			c, err := d.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				require.Contains(t, []errs.Class{errs.Invalid, errs.TooLarge}, errs.ClassOf(err), "%v", err)
				break
			}
			good += c.Rows.NumRows()
			_, err = segments.Encode(c.Rows, s, segments.CodecNone) // checks types, NULLs and lengths
			require.NoError(t, err)
			for i := range c.Rows.Columns() {
				segtest.Format(c.Rows.Column(i), int(c.Rows.NumRows())-1)
			}
		}
		rejected, _ := d.Rejected()
		require.LessOrEqual(t, good+rejected, d.Rows())
		require.NoError(t, d.Close())
	}
}

func hostileSchema() *segments.Schema {
	return segtest.Schema("a int required", "l long", "s string", "d decimal(9,2)", "ts timestamptz", "b boolean",
		"li list<string>", "m map<string,int>", "st struct<x:int,y:list<binary>>", "u uuid", "t time")
}

// seedBodies returns a small valid body of a format.
func seedBodies(t testing.TB, f rows.Format, s *segments.Schema) [][]byte {
	rec := segtest.Batch(segtest.NewRand(11), s, 12, segtest.Options{NullPercent: 20})
	out := [][]byte{encode(t, s, rows.EncodeOptions{Format: f}, rec)}
	if f == rows.ArrowStream {
		wide := segtest.Schema("a long", "s string", "d decimal(12,4)", "li list<string>")
		other := segtest.Batch(segtest.NewRand(12), wide, 9, segtest.Options{})
		out = append(out, stream(t, []arrow.RecordBatch{rec}, ipc.WithLZ4()), stream(t, []arrow.RecordBatch{other}, ipc.WithZstd()),
			stream(t, []arrow.RecordBatch{foreign(t, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}, `["a","b"]`)}))
	}
	return out
}

// TestMutatedBodiesNeverPanic flips bits and bytes, cuts and repeats pieces of
// valid bodies. FIRN_HOSTILE_ROUNDS makes it longer.
func TestMutatedBodiesNeverPanic(t *testing.T) {
	rounds := 120
	if n, err := strconv.Atoi(os.Getenv("FIRN_HOSTILE_ROUNDS")); err == nil {
		rounds = n
	}
	s := hostileSchema()
	for _, f := range allFormats {
		seeds := seedBodies(t, f, s)
		for round := range rounds {
			r := segtest.NewRand(uint64(round))
			body := bytes.Clone(seeds[r.IntN(len(seeds))])
			for range 1 + r.IntN(4) {
				if len(body) == 0 {
					break
				}
				at := r.IntN(len(body))
				switch r.IntN(6) {
				case 0:
					body[at] ^= 1 << r.IntN(8)
				case 1:
					body[at] = byte(r.IntN(256))
				case 2:
					body = body[:at]
				case 3:
					end := min(len(body), at+r.IntN(16))
					body = append(body[:at:at], body[end:]...)
				case 4:
					end := min(len(body), at+r.IntN(16))
					body = append(body[:end:end], body[at:]...)
				case 5:
					for i := range min(8, len(body)-at) {
						body[at+i] = []byte{0, 0xff, 0x7f, 0x80}[r.IntN(4)]
					}
				}
			}
			func() {
				defer func() {
					if p := recover(); p != nil {
						t.Fatalf("%s, round %d: panic: %v", f, round, p)
					}
				}()
				checkHostile(t, body, f, "", s)
			}()
		}
	}
}

// TestSchemaThatPointsAtOneFieldManyTimesIsRefused: a flatbuffer of a few
// hundred bytes that unfolds to 2^40 fields.
func TestSchemaThatPointsAtOneFieldManyTimesIsRefused(t *testing.T) {
	b := flatbuffers.NewBuilder(1024)
	name := b.CreateString("f")
	field := func(children flatbuffers.UOffsetT) flatbuffers.UOffsetT {
		b.StartObject(2)
		b.PrependUint8(1) // little more than a table
		typ := b.EndObject()
		b.StartObject(7)
		b.PrependUOffsetTSlot(0, name, 0)
		b.PrependByteSlot(2, 13, 0) // struct
		b.PrependUOffsetTSlot(3, typ, 0)
		b.PrependUOffsetTSlot(5, children, 0)
		return b.EndObject()
	}
	var children flatbuffers.UOffsetT
	for range 40 {
		f := field(children)
		b.StartVector(4, 2, 4)
		b.PrependUOffsetT(f)
		b.PrependUOffsetT(f)
		children = b.EndVector(2)
	}
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, children, 0)
	schema := b.EndObject()
	b.StartObject(5)
	b.PrependInt16Slot(0, 4, 0)
	b.PrependByteSlot(1, 1, 0)
	b.PrependUOffsetTSlot(2, schema, 0)
	b.Finish(b.EndObject())
	meta := b.FinishedBytes()
	body := append([]byte{0xff, 0xff, 0xff, 0xff, byte(len(meta)), byte(len(meta) >> 8), 0, 0}, meta...)
	_, _, err := decode(t, body, rows.DecodeOptions{Schema: segtest.Schema("a int"), Format: rows.ArrowStream})
	require.True(t, errs.Is(err, errs.Invalid), "%v", err)
	require.ErrorContains(t, err, "malformed")
}

func TestClaimedSizesAreNotAllocated(t *testing.T) {
	s := segtest.Schema("a int")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, body := range [][]byte{
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3},
		{0xff, 0xff, 0xff, 0xff, 0, 0, 0x70, 0, 1, 2, 3, 4, 5, 6, 7, 8},
		{0, 0, 0x7f, 0, 1, 2, 3, 4, 5, 6, 7, 8},
	} {
		_, _, err := decode(t, body, rows.DecodeOptions{Schema: s, Format: rows.ArrowStream})
		require.True(t, errs.Is(err, errs.Invalid), "%v", err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(8<<20))
}

// TestDeepParquetSchemaIsRefused: the library follows a schema by recursion.
func TestDeepParquetSchemaIsRefused(t *testing.T) {
	const depth = 200_000
	footer := []byte{0x15, 2, 0x19, 0xfc} // version: 1, schema: a list of structs
	footer = binary.AppendUvarint(footer, depth+1)
	for range depth {
		footer = append(footer, 0x48, 1, 'g', 0x15, 2, 0) // name: g, num_children: 1
	}
	footer = append(footer, 0x15, 2, 0x38, 1, 'l', 0, 0x16, 0, 0x19, 0x0c, 0)
	body := append([]byte("PAR1"), footer...)
	body = append(binary.LittleEndian.AppendUint32(body, uint32(len(footer))), "PAR1"...)
	_, _, err := decode(t, body, rows.DecodeOptions{Schema: segtest.Schema("a int"), Format: rows.Parquet})
	require.True(t, errs.Is(err, errs.Invalid), "%v", err)
	require.ErrorContains(t, err, "malformed")
}

// TestParquetFooterThatClaimsManyElementsIsRefused: a count without its bytes.
func TestParquetFooterThatClaimsManyElementsIsRefused(t *testing.T) {
	footer := binary.AppendUvarint([]byte{0x15, 2, 0x19, 0xfc}, 1<<31-1)
	body := append([]byte("PAR1"), footer...)
	body = append(binary.LittleEndian.AppendUint32(body, uint32(len(footer))), "PAR1"...)
	_, _, err := decode(t, body, rows.DecodeOptions{Schema: segtest.Schema("a int"), Format: rows.Parquet})
	require.ErrorContains(t, err, "malformed")
}

func fuzzFormat(f *testing.F, format rows.Format, compression string) {
	s := hostileSchema()
	for _, body := range seedBodies(f, format, s) {
		if compression == "gzip" {
			body = gzipped(f, body)
		}
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body []byte) { checkHostile(t, body, format, compression, s) })
}

func FuzzNDJSON(f *testing.F)  { fuzzFormat(f, rows.NDJSON, "") }
func FuzzJSON(f *testing.F)    { fuzzFormat(f, rows.JSON, "") }
func FuzzCSV(f *testing.F)     { fuzzFormat(f, rows.CSV, "") }
func FuzzArrow(f *testing.F)   { fuzzFormat(f, rows.ArrowStream, "") }
func FuzzParquet(f *testing.F) { fuzzFormat(f, rows.Parquet, "") }
func FuzzGzip(f *testing.F)    { fuzzFormat(f, rows.NDJSON, "gzip") }
