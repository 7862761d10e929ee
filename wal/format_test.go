package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
	"github.com/firn-data/firn/segments"
)

// makeGolden writes golden files that are missing. Files that exist are never
// rewritten: a format version's bytes do not change.
var makeGolden = flag.Bool("make-golden", false, "write missing golden files")

func golden(t *testing.T, name string, make func() []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) && *makeGolden {
		b = make()
		require.NoError(t, os.WriteFile(path, b, 0o644))
		err = nil
	}
	require.NoError(t, err)
	return b
}

// goldenOptions make an object's bytes reproducible.
func goldenOptions() Options {
	return Options{
		Incarnation: "inc-1", NextSeq: 42, Codec: segments.CodecNone, Store: objstore.NewMem(),
		Now:  func() time.Time { return time.UnixMicro(1_700_000_000_000_000) },
		Rand: bytes.NewReader([]byte("0123456789abcdef")),
	}
}

func goldenEntries() []Entry {
	a := entry(bucketA, 100, 1, 2, 7)
	a.Producers = []ProducerDelta{{ID: "app-1", First: 10, Count: 3, AckedBelow: 10}, {ID: "k", Count: 3, Idempotency: true}}
	return []Entry{a, entry(bucketB, 0, -5)}
}

func TestGoldenDataObjectV1(t *testing.T) {
	fresh := func() []byte { return writeObject(t, goldenOptions(), goldenEntries()...) }
	b := golden(t, "wal-v1-data.bin", fresh)
	require.Equal(t, b, fresh(), "this build writes other bytes under format version 1")

	f, err := ParseObject(b)
	require.NoError(t, err)
	require.Equal(t, ObjectID{"inc-1", 42}, f.ID)
	require.EqualValues(t, 1_700_000_000_000_000, f.Timestamp)
	require.Len(t, f.Segments, 2)
	require.Equal(t, goldenEntries()[0].Producers, f.Segments[0].Producers)
	rec, err := DecodeSegment(f.ID, b, &f.Segments[0], testSchema(), nil)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2, 7}, idsOf(rec))
	require.Equal(t, 1, rec.Column(1).NullN())
}

func TestGoldenFenceV1(t *testing.T) {
	fresh := func() []byte {
		b, err := fenceObject(ObjectID{"inc-1", 43}, "inc-2", 1_700_000_000_000_000, strings.NewReader("0123456789abcdef"))
		require.NoError(t, err)
		return b
	}
	b := golden(t, "wal-v1-fence.bin", fresh)
	require.Equal(t, b, fresh())
	f, err := ParseObject(b)
	require.NoError(t, err)
	require.True(t, f.IsFence())
	require.Equal(t, "inc-2", f.FencedBy)
	require.Less(t, len(b), maxFenceBytes)
}

func TestLargestFenceIsRecognizedBySize(t *testing.T) {
	id := ObjectID{strings.Repeat("i", MaxIncarnationBytes), 1 << 63}
	b, err := fenceObject(id, barrierMark+strings.Repeat("b", maxFenceBy), 1<<62, zeroReader{})
	require.NoError(t, err)
	require.Less(t, len(b), maxFenceBytes)
}

func TestObjectKeysSortAsNumbersAndParseBack(t *testing.T) {
	id := ObjectID{"host:7070-abc", 18446744073709551615}
	require.Equal(t, "wal/host:7070-abc/18446744073709551615", id.Key())
	back, ok := ParseObjectKey(id.Key())
	require.True(t, ok)
	require.Equal(t, id, back)
	require.Equal(t, "wal/a/00000000000000000007", ObjectID{"a", 7}.Key())
	for _, bad := range []string{"", "wal/a", "wal/a/7", "wal//00000000000000000007", "wal/a/+0000000000000000007",
		"wal/a/b/00000000000000000007", "wal/a/99999999999999999999", "checkpoint/a/00000000000000000007"} {
		_, ok := ParseObjectKey(bad)
		require.False(t, ok, bad)
	}
}

// TestEveryFlippedByteIsNoticed flips each byte of an object in turn.
func TestEveryFlippedByteIsNoticed(t *testing.T) {
	for _, codec := range []segments.Codec{segments.CodecNone, segments.CodecZSTD} {
		o := goldenOptions()
		o.Codec = codec
		object := writeObject(t, o, goldenEntries()...)
		padding := 0
		for i := range object {
			bad := bytes.Clone(object)
			bad[i] ^= 0x41
			_, err := ParseObject(bad)
			if err == nil {
				padding++
				continue
			}
			require.True(t, errs.Is(err, errs.Corrupt), "byte %d: %v", i, err)
			require.NotEmpty(t, errs.Details(err))
		}
		require.Zero(t, padding, "bytes that no checksum covers")
	}
}

func TestEveryCutIsNoticed(t *testing.T) {
	object := writeObject(t, goldenOptions(), goldenEntries()...)
	for n := range object {
		_, err := ParseObject(object[:n])
		require.True(t, errs.Is(err, errs.Corrupt), "cut at %d: %v", n, err)
		_, err = ParseObject(object[n+1:])
		require.True(t, errs.Is(err, errs.Corrupt), "begun at %d: %v", n+1, err)
	}
}

// reseal replaces an object's footer, with a right checksum.
func reseal(t testing.TB, object []byte, change func(*pb.WalFooter)) []byte {
	t.Helper()
	n := int(binary.LittleEndian.Uint32(object[len(object)-trailerBytes:]))
	at := len(object) - trailerBytes - n
	var m pb.WalFooter
	require.NoError(t, proto.Unmarshal(object[at:at+n], &m))
	change(&m)
	raw, err := proto.Marshal(&m)
	require.NoError(t, err)
	return sealFooter(bytes.Clone(object[:at]), raw)
}

func sealFooter(b, footer []byte) []byte {
	begin := len(b)
	b = append(b, footer...)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(footer)))
	b = binary.LittleEndian.AppendUint32(b, crc32c(b[begin:]))
	return append(b, tailMagic...)
}

func TestFooterThatLiesIsCorrupt(t *testing.T) {
	object := writeObject(t, goldenOptions(), goldenEntries()...)
	lies := map[string]func(*pb.WalFooter){
		"other incarnation":    func(m *pb.WalFooter) { m.Incarnation = "inc-2" },
		"other sequence":       func(m *pb.WalFooter) { m.Sequence++ },
		"other nonce":          func(m *pb.WalFooter) { m.Nonce[0]++ },
		"short nonce":          func(m *pb.WalFooter) { m.Nonce = m.Nonce[:15] },
		"header length":        func(m *pb.WalFooter) { m.HeaderLength += 8 },
		"codec":                func(m *pb.WalFooter) { m.Codec = 2 },
		"is a fence":           func(m *pb.WalFooter) { m.Segments, m.Fence = nil, &pb.Fence{By: "x"} },
		"fence with segments":  func(m *pb.WalFooter) { m.Fence = &pb.Fence{By: "x"} },
		"body before header":   func(m *pb.WalFooter) { m.Segments[0].BodyOffset = 0 },
		"negative body":        func(m *pb.WalFooter) { m.Segments[0].BodyLength = -1 },
		"body past the footer": func(m *pb.WalFooter) { m.Segments[1].BodyLength = 1 << 40 },
		"bodies overlap":       func(m *pb.WalFooter) { m.Segments[1].BodyOffset = m.Segments[0].BodyOffset },
		"no rows":              func(m *pb.WalFooter) { m.Segments[1].Rows = 0 },
		"negative rows":        func(m *pb.WalFooter) { m.Segments[1].Rows = -4 },
		"offset overflow":      func(m *pb.WalFooter) { m.Segments[1].BaseOffset = 1<<63 - 1 },
		"negative bucket":      func(m *pb.WalFooter) { m.Segments[1].Bucket = -1 },
		"column past the body": func(m *pb.WalFooter) { m.Segments[0].Columns[1].Length = 1 << 62 },
		"column checksum":      func(m *pb.WalFooter) { m.Segments[0].Columns[1].Crc32C++ },
		"columns overlap":      func(m *pb.WalFooter) { m.Segments[0].Columns[1].Offset = 0 },
		"too many segments": func(m *pb.WalFooter) {
			for range MaxSegments {
				m.Segments = append(m.Segments, &pb.Segment{})
			}
		},
	}
	for name, lie := range lies {
		_, err := ParseObject(reseal(t, object, lie))
		require.True(t, errs.Is(err, errs.Corrupt), "%s: %v", name, err)
	}
	_, err := ParseObject(reseal(t, object, func(*pb.WalFooter) {}))
	require.NoError(t, err, "the harness itself is right")
}

// countingReader counts requests and the bytes they return.
type countingReader struct {
	RangeReader
	mu           sync.Mutex
	calls, bytes int
}

func (c *countingReader) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	b, info, err := c.RangeReader.GetRange(ctx, key, start, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls++
	c.bytes += len(b)
	return b, info, err
}

func TestFooterTakesOneReadAndALongOneTwo(t *testing.T) {
	for _, tables := range []int{1, 300, 3000} {
		o := goldenOptions()
		o.Store = objstore.NewMem()
		var entries []Entry
		for i := range tables {
			entries = append(entries, entry(BucketID{Table: uint64(i)}, 0, int64(i)))
		}
		writeObject(t, o, entries...)
		r := &countingReader{RangeReader: o.Store}
		f, err := ReadFooter(t.Context(), r, ObjectID{"inc-1", 42})
		require.NoError(t, err)
		require.Len(t, f.Segments, tables)
		want := 1
		if f.footerLen > suffixBytes {
			want = 2
		}
		require.Equal(t, want, r.calls, "%d tables, footer of %d bytes", tables, f.footerLen)
		require.EqualValues(t, tables == 3000, want == 2)
	}
}

func TestFooterUnderAnotherNameIsCorrupt(t *testing.T) {
	o := goldenOptions()
	object := writeObject(t, o, goldenEntries()...)
	require.NoError(t, o.Store.Put(t.Context(), ObjectID{"inc-1", 43}.Key(), object))
	_, err := ReadFooter(t.Context(), o.Store, ObjectID{"inc-1", 43})
	require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
	_, err = ReadFooter(t.Context(), o.Store, ObjectID{"inc-1", 44})
	require.True(t, errs.Is(err, errs.NotFound), "%v", err)
}

func TestProjectionReadsOnlyTheWantedColumns(t *testing.T) {
	s := &segments.Schema{ID: 1}
	for i := range int32(20) {
		s.Fields = append(s.Fields, segments.Field{ID: i + 1, Name: fmt.Sprintf("c%d", i), Type: segments.Type{Kind: segments.Long}})
	}
	const rows = 40_000
	store := objstore.NewMem()
	o := goldenOptions()
	o.Store = store
	e := Entry{Bucket: bucketA, Schema: s, Rows: longColumns(s, rows), Bytes: rows * 20 * 8}
	object := writeObject(t, o, e)
	id := ObjectID{"inc-1", 42}
	f, err := ReadFooter(t.Context(), store, id)
	require.NoError(t, err)

	r := &countingReader{RangeReader: store}
	rec, err := ReadSegment(t.Context(), r, id, &f.Segments[0], s, []int32{18, 2})
	require.NoError(t, err)
	require.EqualValues(t, rows, rec.NumRows())
	require.Equal(t, "c17", rec.ColumnName(0))
	require.Equal(t, []int64{rows - 1 + 17}, idsOf(rec.NewSlice(rows-1, rows)))
	require.Equal(t, 2, r.calls)
	require.Less(t, r.bytes, len(object)/8)

	r = &countingReader{RangeReader: store}
	_, err = ReadSegment(t.Context(), r, id, &f.Segments[0], s, []int32{1, 2, 4})
	require.NoError(t, err)
	require.Equal(t, 2, r.calls, "1 and 2 touch; the gap to 4 is larger than a request is worth")

	r = &countingReader{RangeReader: store}
	_, err = ReadSegment(t.Context(), r, id, &f.Segments[0], s, nil)
	require.NoError(t, err)
	require.Equal(t, 1, r.calls)
}

func TestCorruptSegmentNamesObjectAndPosition(t *testing.T) {
	o := goldenOptions()
	object := writeObject(t, o, goldenEntries()...)
	f, err := ParseObject(object)
	require.NoError(t, err)
	object[f.Segments[0].BodyOff+20] ^= 1
	require.NoError(t, o.Store.Put(t.Context(), f.ID.Key(), object))
	_, err = ReadSegment(t.Context(), o.Store, f.ID, &f.Segments[0], testSchema(), nil)
	require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
	require.ErrorContains(t, err, f.ID.Key())
	require.Contains(t, errs.Details(err), Position{f.ID.Key(), f.Segments[0].BodyOff})
	_, err = ReadSegment(t.Context(), o.Store, f.ID, &f.Segments[1], testSchema(), nil)
	require.NoError(t, err, "the other segment is whole")
}

func TestDumpShowsEveryKindOfObject(t *testing.T) {
	object := writeObject(t, goldenOptions(), goldenEntries()...)
	var text, js bytes.Buffer
	require.NoError(t, Dump(&text, object))
	require.NoError(t, DumpJSON(&js, object))
	for _, want := range []string{"data", "wal/inc-1/00000000000000000042", "table 7 bucket 0", "offsets [100, 103)", `producer "app-1"`, "field 2"} {
		require.Contains(t, text.String(), want)
	}
	require.Contains(t, js.String(), `"end_offset": 103`)

	fence, err := fenceObject(ObjectID{"inc-1", 43}, "inc-2", 1, zeroReader{})
	require.NoError(t, err)
	text.Reset()
	require.NoError(t, Dump(&text, fence))
	require.Contains(t, text.String(), "fenced by")

	require.True(t, errs.Is(Dump(&text, []byte("PAR1")), errs.Corrupt))
	require.True(t, errs.Is(DumpJSON(&text, nil), errs.Corrupt))
}

func FuzzParseObject(f *testing.F) {
	object := writeObject(f, goldenOptions(), goldenEntries()...)
	fence, err := fenceObject(ObjectID{"inc-1", 43}, "inc-2", 1, zeroReader{})
	require.NoError(f, err)
	for _, b := range [][]byte{object, fence, object[:40], nil, []byte(tailMagic)} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		checkParse(t, b)
	})
}

// FuzzFooter lets the fuzzer past the checksum.
func FuzzFooter(f *testing.F) {
	object := writeObject(f, goldenOptions(), goldenEntries()...)
	parsed, err := ParseObject(object)
	require.NoError(f, err)
	head := object[:parsed.Size-parsed.footerLen]
	f.Add(object[len(head) : len(object)-trailerBytes])
	f.Add([]byte{7<<3 | 2, 0, 7<<3 | 2, 0})
	f.Fuzz(func(t *testing.T, footer []byte) {
		checkParse(t, sealFooter(bytes.Clone(head), footer))
	})
}

func checkParse(t *testing.T, b []byte) {
	f, err := ParseObject(b)
	if err != nil {
		require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
		return
	}
	for i := range f.Segments {
		rec, err := DecodeSegment(f.ID, b, &f.Segments[i], testSchema(), nil)
		if err == nil {
			require.Equal(t, f.Segments[i].Rows, rec.NumRows())
			continue
		}
		require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
	}
}
