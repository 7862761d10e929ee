package segments_test

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// touch uses every value of a batch, also through slices, so that a lying
// array panics here.
func touch(rec arrow.RecordBatch) {
	half := rec.NewSlice(rec.NumRows()/2, rec.NumRows())
	for _, r := range []arrow.RecordBatch{rec, half} {
		for _, c := range r.Columns() {
			for i := range c.Len() {
				segtest.Format(c, i)
			}
		}
		segments.SizeOf(r)
	}
	if _, err := segments.Concat([]arrow.RecordBatch{half, rec}); err != nil && errs.Is(err, errs.Internal) {
		panic(err)
	}
}

// seal recomputes the checksums of a damaged segment, so that the damage is
// found by what it is.
func seal(e *segments.Encoded) {
	for i := range e.Columns {
		c := &e.Columns[i]
		if c.Off >= 0 && c.Len >= 0 && c.Off <= int64(len(e.Body)) && c.Len <= int64(len(e.Body))-c.Off {
			c.CRC = crc32.Checksum(e.Body[c.Off:c.Off+c.Len], crc32.MakeTable(crc32.Castagnoli))
		}
	}
}

// checkDecode decodes a damaged segment: an error of class Corrupt, or rows that are safe.
func checkDecode(t *testing.T, s *segments.Schema, e *segments.Encoded) bool {
	t.Helper()
	src := func(off, n int64) ([]byte, error) {
		if off < 0 || n < 0 || off > int64(len(e.Body)) {
			return nil, nil
		}
		return e.Body[off:min(off+n, int64(len(e.Body)))], nil
	}
	rec, err := segments.Decode(s, e.Columns, e.Rows, nil, src)
	if err != nil {
		if !errs.Is(err, errs.Corrupt) {
			t.Fatalf("class %s: %v", errs.ClassOf(err), err)
		}
		return false
	}
	touch(rec)
	return true
}

// damage changes one number or byte of a segment.
func damage(r *rand.Rand, e *segments.Encoded) {
	c := &e.Columns[r.IntN(len(e.Columns))]
	bad := func(v int64) int64 {
		return [...]int64{v + 1, v - 1, -v, 0, v + 8, v * 2, math.MaxInt64, math.MinInt64, math.MaxInt32, r.Int64N(100)}[r.IntN(10)]
	}
	switch r.IntN(8) {
	case 0:
		n := &c.Nodes[r.IntN(len(c.Nodes))]
		n.Length = bad(n.Length)
	case 1:
		n := &c.Nodes[r.IntN(len(c.Nodes))]
		n.NullCount = bad(n.NullCount)
	case 2:
		b := &c.Buffers[r.IntN(len(c.Buffers))]
		*b = bad(*b)
	case 3:
		c.Off = bad(c.Off)
	case 4:
		c.Len = bad(c.Len)
	case 5:
		e.Rows = bad(e.Rows)
	case 6:
		if r.IntN(2) == 0 {
			c.Nodes = c.Nodes[:r.IntN(len(c.Nodes))]
		} else {
			c.Buffers = append(c.Buffers[:r.IntN(len(c.Buffers))], c.Buffers...)
		}
	default:
		for range 1 + r.IntN(4) {
			if len(e.Body) > 0 {
				e.Body[r.IntN(len(e.Body))] = byte(r.Uint32())
			}
		}
	}
}

func TestDamagedSegmentsAreCorruptAndNeverPanic(t *testing.T) {
	refused := 0
	n := seeds(t, 1000)
	for seed := range n {
		r := segtest.NewRand(uint64(seed))
		s, rec := randomCase(r)
		e, err := segments.Encode(rec, s, codecs[r.IntN(3)])
		if err != nil {
			t.Fatal(err)
		}
		for range 1 + r.IntN(3) {
			damage(r, e)
			for i := range e.Columns {
				if len(e.Columns[i].Nodes) == 0 || len(e.Columns[i].Buffers) == 0 {
					e.Columns[i].Nodes = append(e.Columns[i].Nodes, segments.Node{})
					e.Columns[i].Buffers = append(e.Columns[i].Buffers, 0)
				}
			}
		}
		seal(e)
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Fatalf("seed %d: %v", seed, p)
				}
			}()
			if !checkDecode(t, s, e) {
				refused++
			}
		}()
	}
	if refused < n/3 {
		t.Errorf("only %d of %d were refused", refused, n)
	}
}

func TestFlippedBitsFailTheChecksum(t *testing.T) {
	s := segtest.Schema("a long", "b string")
	e, err := segments.Encode(segtest.Batch(segtest.NewRand(1), s, 50, segtest.Options{}), s, segments.CodecZSTD)
	if err != nil {
		t.Fatal(err)
	}
	for at := range e.Body {
		e.Body[at] ^= 1 << (at % 8)
		_, err := segments.Decode(s, e.Columns, e.Rows, nil, (&body{b: e.Body}).read)
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "CRC-32C") {
			t.Fatalf("byte %d: %v", at, err)
		}
		e.Body[at] ^= 1 << (at % 8)
	}
}

func TestShortReadsAndReadErrorsAreTold(t *testing.T) {
	s := segtest.Schema("a long")
	e, _ := segments.Encode(segtest.Batch(segtest.NewRand(1), s, 50, segtest.Options{}), s, segments.CodecZSTD)
	boom := errs.New(errs.Unavailable, "boom")
	if _, err := segments.Decode(s, e.Columns, e.Rows, nil, func(int64, int64) ([]byte, error) { return nil, boom }); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	if _, err := segments.Decode(s, e.Columns, e.Rows, nil, func(_, n int64) ([]byte, error) { return make([]byte, n-1), nil }); !errs.Is(err, errs.Corrupt) {
		t.Errorf("got %v", err)
	}
	other := segtest.Schema("z int", "a long")
	if _, err := segments.Decode(other, e.Columns, e.Rows, []int32{2}, nil); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a missing column: %v", err)
	}
	if _, err := segments.Decode(s, e.Columns, e.Rows, []int32{7}, nil); !errs.Is(err, errs.Invalid) {
		t.Errorf("an unknown column: %v", err)
	}
}

// TestLyingSizesCostNoMemory asks for petabytes in a few bytes.
func TestLyingSizesCostNoMemory(t *testing.T) {
	s := segtest.Schema("a long", "b string")
	for _, claim := range []uint64{1 << 50, 1 << 30, 1 << 29, 1<<63 - 1} {
		e, _ := segments.Encode(segtest.Batch(segtest.NewRand(1), s, 2000, segtest.Options{}), s, segments.CodecZSTD)
		e.Rows = int64(claim / 8)
		for i := range e.Columns {
			e.Columns[i].Nodes[0].Length = e.Rows
			at := e.Columns[i].Off
			for _, n := range e.Columns[i].Buffers {
				if n > 0 {
					binary.LittleEndian.PutUint64(e.Body[at:], claim)
				}
				at += (n + 7) &^ 7
			}
		}
		seal(e)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if checkDecode(t, s, e) {
			t.Fatal("it was decoded")
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 8<<20 && claim > 1<<30 {
			t.Errorf("claim %d: %d bytes allocated", claim, used)
		}
	}
}

func TestForeignArrowTypesAreRefused(t *testing.T) {
	s := segtest.Schema("a string")
	dict := array.NewDictionaryBuilder(memory.DefaultAllocator, &arrow.DictionaryType{
		IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String})
	dict.AppendNull()
	for _, col := range []arrow.Array{dict.NewArray(), array.MakeArrayOfNull(memory.DefaultAllocator, arrow.BinaryTypes.LargeString, 1)} {
		rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "a", Type: col.DataType(), Nullable: true}}, nil), []arrow.Array{col}, 1)
		if _, err := segments.Encode(rec, s, segments.CodecZSTD); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "column a") {
			t.Errorf("%s: %v", col.DataType(), err)
		}
	}
	rec := segtest.RandomBatch(segtest.NewRand(1), segtest.Schema("b string"), 1)
	if _, err := segments.Encode(rec, s, segments.CodecZSTD); !errs.Is(err, errs.Invalid) {
		t.Errorf("another column: %v", err)
	}
}

// TestMalformedArrowIsNotEncoded: what Decode would refuse must not become durable.
func TestMalformedArrowIsNotEncoded(t *testing.T) {
	s := segtest.Schema("a string")
	offsets := func(o ...int32) *memory.Buffer { return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(o)) }
	for _, o := range [][]int32{{0, 2, 1, 3}, {-1, 0, 1, 2}, {0, 1, 2, 99}} {
		d := array.NewData(arrow.BinaryTypes.String, 3, []*memory.Buffer{nil, offsets(o...), memory.NewBufferBytes([]byte("abc"))}, nil, 0, 0)
		func() {
			defer func() { _ = recover() }() // some are refused by Arrow itself
			rec := array.NewRecordBatch(s.Arrow(), []arrow.Array{array.MakeFromData(d)}, 3)
			if _, err := segments.Encode(rec, s, segments.CodecZSTD); !errs.Is(err, errs.Invalid) {
				t.Errorf("offsets %v: %v", o, err)
			}
		}()
	}
}

// FuzzDecode lets the fuzzer write the bytes of a body, and a seed damage what
// describes them.
func FuzzDecode(f *testing.F) {
	for seed := range uint64(20) {
		r := segtest.NewRand(seed)
		s, rec := randomCase(r)
		e, err := segments.Encode(rec, s, codecs[seed%3])
		if err != nil {
			f.Fatal(err)
		}
		f.Add(seed, uint64(0), e.Body)
		f.Add(seed, seed+1, e.Body)
	}
	f.Fuzz(func(t *testing.T, seed, harm uint64, bytes []byte) {
		r := segtest.NewRand(seed)
		s, rec := randomCase(r)
		e, err := segments.Encode(rec, s, codecs[seed%3])
		if err != nil {
			t.Fatal(err)
		}
		e.Body = append([]byte(nil), bytes...)
		if harm != 0 {
			damage(segtest.NewRand(harm), e)
		}
		seal(e)
		checkDecode(t, s, e)
	})
}
