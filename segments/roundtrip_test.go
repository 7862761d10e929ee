package segments_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

var codecs = []segments.Codec{segments.CodecNone, segments.CodecLZ4, segments.CodecZSTD}

// seeds is how many random cases a property test runs; FIRN_SEEDS raises it.
func seeds(t *testing.T, n int) int {
	if v := os.Getenv("FIRN_SEEDS"); v != "" {
		m, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	return n
}

// body reads ranges of an encoded body and remembers them.
type body struct {
	b     []byte
	reads [][2]int64
}

func (b *body) read(off, n int64) ([]byte, error) {
	b.reads = append(b.reads, [2]int64{off, n})
	if off < 0 || n < 0 || off+n > int64(len(b.b)) {
		return nil, fmt.Errorf("read %d+%d of %d", off, n, len(b.b))
	}
	return b.b[off : off+n], nil
}

// randomSlice cuts a random part out of a batch, often at odd places.
func randomSlice(r *rand.Rand, rec arrow.RecordBatch) arrow.RecordBatch {
	n := rec.NumRows()
	if n == 0 || r.IntN(3) == 0 {
		return rec
	}
	from := r.Int64N(n)
	return rec.NewSlice(from, from+r.Int64N(n-from+1))
}

func randomCase(r *rand.Rand) (*segments.Schema, arrow.RecordBatch) {
	s := segtest.RandomSchema(r)
	n := [...]int{0, 1, 7, 8, 9, 100, 300}[r.IntN(7)]
	rec := segtest.Batch(r, s, n, segtest.Options{NullPercent: [...]int{0, 20, 100}[r.IntN(3)], Extreme: true})
	return s, randomSlice(r, randomSlice(r, rec))
}

func TestEveryBatchDecodesToItself(t *testing.T) {
	for seed := range seeds(t, 120) {
		r := segtest.NewRand(uint64(seed))
		s, rec := randomCase(r)
		c := codecs[r.IntN(3)]
		e, err := segments.Encode(rec, s, c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		src := &body{b: e.Body}
		got, err := segments.Decode(s, e.Columns, e.Rows, nil, src.read)
		if err != nil {
			t.Fatalf("seed %d, %s: %v", seed, c, err)
		}
		if diff := segtest.Equal(rec, got); diff != "" {
			t.Fatalf("seed %d, %s: %s", seed, c, diff)
		}
		if len(src.reads) > 1 {
			t.Fatalf("seed %d: all columns took %d reads", seed, len(src.reads))
		}
		// Encoding again what was decoded gives the same bytes.
		again, err := segments.Encode(got, s, c)
		if err != nil || rec.NumRows() > 0 && string(again.Body) != string(e.Body) {
			t.Fatalf("seed %d: the second encoding differs (%v)", seed, err)
		}
	}
}

func TestWantedColumnsReadOnlyTheirRanges(t *testing.T) {
	for seed := range seeds(t, 120) {
		r := segtest.NewRand(uint64(seed))
		s, rec := randomCase(r)
		e, err := segments.Encode(rec, s, segments.CodecZSTD)
		if err != nil {
			t.Fatal(err)
		}
		var wanted []int32
		want := int64(0)
		for _, i := range r.Perm(len(s.Fields))[:r.IntN(len(s.Fields)+1)] {
			wanted = append(wanted, s.Fields[i].ID)
			want += e.Columns[i].Len
		}
		if wanted == nil {
			wanted = []int32{}
		}
		src := &body{b: e.Body}
		got, err := segments.Decode(s, e.Columns, e.Rows, wanted, src.read)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		sum := int64(0)
		for i, rd := range src.reads {
			sum += rd[1]
			if i > 0 && src.reads[i-1][0]+src.reads[i-1][1] >= rd[0] {
				t.Fatalf("seed %d: reads %v are not joined", seed, src.reads)
			}
		}
		if sum != want {
			t.Fatalf("seed %d: read %d bytes for columns of %d", seed, sum, want)
		}
		for i, id := range wanted {
			at := s.IndexOfID(id)
			for row := range int(rec.NumRows()) {
				if a, b := rec.Column(at).ValueStr(row), got.Column(i).ValueStr(row); a != b {
					t.Fatalf("seed %d: column %d row %d: %s, want %s", seed, id, row, b, a)
				}
			}
		}
	}
}

func TestConcatOfSlicesIsTheWhole(t *testing.T) {
	for seed := range seeds(t, 120) {
		r := segtest.NewRand(uint64(seed))
		_, rec := randomCase(r)
		var parts []arrow.RecordBatch
		for from := int64(0); from < rec.NumRows(); {
			to := min(rec.NumRows(), from+1+r.Int64N(50))
			parts = append(parts, rec.NewSlice(from, to))
			from = to
		}
		if len(parts) == 0 {
			parts = append(parts, rec)
		}
		got, err := segments.Concat(parts)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := segtest.Equal(rec, got); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
		if a, b := segments.SizeOf(rec), segments.SizeOf(got); a != b {
			t.Fatalf("seed %d: a slice of %d bytes becomes a batch of %d", seed, a, b)
		}
	}
}

func TestTakeReturnsTheChosenRows(t *testing.T) {
	for seed := range seeds(t, 120) {
		r := segtest.NewRand(uint64(seed))
		_, rec := randomCase(r)
		var rows []int32
		for range r.IntN(40) {
			if rec.NumRows() > 0 {
				rows = append(rows, int32(r.Int64N(rec.NumRows())))
			}
		}
		got, err := segments.Take(rec, rows)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for i, row := range rows {
			want := rec.NewSlice(int64(row), int64(row)+1)
			if diff := segtest.Equal(want, got.NewSlice(int64(i), int64(i)+1)); diff != "" {
				t.Fatalf("seed %d, row %d: %s", seed, row, diff)
			}
		}
	}
}

func TestLargeBuffersPassEveryCodec(t *testing.T) {
	r := segtest.NewRand(9)
	s := segtest.Schema("noise binary", "text string")
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	block := make([]byte, 1<<20)
	for range 10 { // over LZ4's 4 MiB blocks and zstd's window
		for i := range block {
			block[i] = byte(r.Uint32())
		}
		b.Field(0).(*array.BinaryBuilder).Append(block)
		b.Field(1).(*array.StringBuilder).Append(strings.Repeat("so ein langer Text ", 1<<16))
	}
	rec := b.NewRecordBatch()
	for _, c := range codecs {
		e, err := segments.Encode(rec, s, c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := segments.Decode(s, e.Columns, e.Rows, nil, (&body{b: e.Body}).read)
		if err != nil || segtest.Equal(rec, got) != "" {
			t.Errorf("%s: %v", c, err)
		}
		if c != segments.CodecNone && int64(len(e.Body)) > segments.SizeOf(rec)*6/10 {
			t.Errorf("%s: %d bytes become %d", c, segments.SizeOf(rec), len(e.Body))
		}
	}
}

func TestConcurrentUseOfOneSchema(t *testing.T) {
	r := segtest.NewRand(4)
	s := segtest.AllTypes()
	rec := segtest.RandomBatch(r, s, 100)
	copied := *s
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 10 {
				e, err := segments.Encode(rec, s, segments.CodecZSTD)
				if err != nil {
					t.Error(err)
					return
				}
				got, err := segments.Decode(s, e.Columns, e.Rows, nil, (&body{b: e.Body}).read)
				if err != nil || segtest.Equal(rec, got) != "" {
					t.Errorf("wrong rows: %v", err)
				}
			}
		})
	}
	wg.Wait()
	copied.Fields = copied.Fields[:1]
	if copied.Arrow().NumFields() != 1 || s.Arrow().NumFields() == 1 {
		t.Error("a changed copy shares the cached Arrow schema")
	}
}
