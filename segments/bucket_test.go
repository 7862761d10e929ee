package segments_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/twmb/murmur3"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// value is one value in both forms: as a column and as single-value binary.
func column(t *testing.T, typ string, values ...any) (*segments.Schema, arrow.RecordBatch) {
	t.Helper()
	s := segtest.Schema("c " + typ)
	var parts []arrow.Array
	for _, v := range values {
		a, err := segments.ConstantArray(s.Fields[0].Type, s.Arrow().Field(0).Type, v, 1)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, a)
	}
	a, err := array.Concatenate(parts, memory.DefaultAllocator)
	if err != nil {
		t.Fatal(err)
	}
	return s, array.NewRecordBatch(s.Arrow(), []arrow.Array{a}, int64(len(values)))
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// icebergHashes are Appendix B of the Iceberg table specification.
var icebergHashes = []struct {
	typ  string
	v    any
	hash int32
}{
	{"int", int32(34), 2017239379},
	{"long", int64(34), 2017239379},
	{"decimal(9,2)", decimal128.FromI64(1420), -500754589},
	{"date", int32(17486), -653330422},
	{"time", int64(81068000000), -662762989},
	{"timestamp", int64(1510871468000000), -2047944441},
	{"timestamptz", int64(1510871468000000), -2047944441},
	{"timestamp", int64(1510871468000001), -1207196810},
	{"string", "iceberg", 1210000089},
	{"uuid", unhex("f79c3e09677c4bbda4793f349cb785e7"), 1488055340},
	{"fixed(4)", []byte{0, 1, 2, 3}, -188683207},
	{"binary", []byte{0, 1, 2, 3}, -188683207},
}

func TestHashesAreThoseOfTheIcebergSpecification(t *testing.T) {
	for _, c := range icebergHashes {
		s, rec := column(t, c.typ, c.v)
		bin, null := segments.IcebergValue(rec.Column(0), 0, s.Fields[0].Type)
		if null {
			t.Fatal("NULL")
		}
		h, err := segments.HashValue(s.Fields[0].Type, bin)
		if err != nil || int32(h) != c.hash {
			t.Errorf("%s %v: hash %d, %v; want %d", c.typ, c.v, int32(h), err, c.hash)
		}
		for _, n := range []int32{1, 2, 16, 1000, math.MaxInt32} {
			got, err := segments.BucketRows(rec, []int32{1}, s, n)
			if want := (c.hash & math.MaxInt32) % n; err != nil || got[0] != want {
				t.Errorf("%s %v: bucket %d of %d, %v; want %d", c.typ, c.v, got[0], n, err, want)
			}
			one, err := segments.BucketOfValue(s.Fields[0].Type, bin, n)
			if err != nil || one != got[0] {
				t.Errorf("%s %v: the value alone is in bucket %d of %d, %v", c.typ, c.v, one, n, err)
			}
		}
	}
}

func TestBucketsOfSlicesAndNulls(t *testing.T) {
	for seed := range uint64(60) {
		r := segtest.NewRand(seed)
		s := segtest.AllTypes()
		rec := randomSlice(r, segtest.RandomBatch(r, s, 50))
		for i, f := range s.Fields {
			got, err := segments.BucketRows(rec, []int32{f.ID}, s, 16)
			if segments.CheckBucketKey(f.Type) != nil {
				if !errs.Is(err, errs.Invalid) {
					t.Fatalf("%s was hashed: %v", f.Type, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			for row, b := range got {
				v, null := segments.IcebergValue(rec.Column(i), row, f.Type)
				want := int32(0)
				if !null {
					want, _ = segments.BucketOfValue(f.Type, v, 16)
				}
				if b != want {
					t.Fatalf("seed %d, %s row %d: bucket %d, want %d", seed, f.Type, row, b, want)
				}
			}
		}
	}
}

func TestCompositeKeysHashTheirMarkedEncodings(t *testing.T) {
	s := segtest.Schema("a string", "b string", "n int", "d decimal(5,1)")
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	add := func(a, c any, n any) {
		for i, v := range []any{a, c} {
			if v == nil {
				b.Field(i).AppendNull()
			} else {
				b.Field(i).(*array.StringBuilder).Append(v.(string))
			}
		}
		if n == nil {
			b.Field(2).AppendNull()
		} else {
			b.Field(2).(*array.Int32Builder).Append(n.(int32))
		}
		b.Field(3).(*array.Decimal128Builder).Append(decimal128.FromI64(-1))
	}
	add("ab", "c", int32(-1))
	add("a", "bc", int32(-1))
	add("", nil, nil)
	add(nil, "", nil)
	rec := b.NewRecordBatch()
	const n = math.MaxInt32
	got, err := segments.BucketRows(rec, []int32{1, 2, 3, 4}, s, n)
	if err != nil {
		t.Fatal(err)
	}
	piece := func(b []byte) []byte {
		return append(binary.LittleEndian.AppendUint32([]byte{1}, uint32(len(b))), b...)
	}
	minusOne := piece(bytes.Repeat([]byte{0xff}, 8))
	dec := piece([]byte{0xff})
	for i, want := range [][]byte{
		bytes.Join([][]byte{piece([]byte("ab")), piece([]byte("c")), minusOne, dec}, nil),
		bytes.Join([][]byte{piece([]byte("a")), piece([]byte("bc")), minusOne, dec}, nil),
		bytes.Join([][]byte{piece(nil), {0}, {0}, dec}, nil),
		bytes.Join([][]byte{{0}, piece(nil), {0}, dec}, nil),
	} {
		if w := int32(murmur3.Sum32(want)&math.MaxInt32) % n; got[i] != w {
			t.Errorf("row %d: bucket %d, want %d", i, got[i], w)
		}
	}
}

func TestSplitByBucketKeepsRowsAndOrder(t *testing.T) {
	for seed := range uint64(50) {
		r := segtest.NewRand(seed)
		s := segtest.Schema("k string", "v long", "t list<int>")
		rec := randomSlice(r, segtest.RandomBatch(r, s, 200))
		parts, err := segments.SplitByBucket(rec, []int32{1}, s, 7)
		if err != nil {
			t.Fatal(err)
		}
		seen, last := 0, int32(-1)
		for _, p := range parts {
			if p.Bucket <= last || len(p.Rows) == 0 || int64(len(p.Rows)) != p.Batch.NumRows() {
				t.Fatalf("seed %d: bucket %d after %d with %d rows", seed, p.Bucket, last, len(p.Rows))
			}
			last = p.Bucket
			seen += len(p.Rows)
			got, _ := segments.BucketRows(p.Batch, []int32{1}, s, 7)
			for i, row := range p.Rows {
				if got[i] != p.Bucket || i > 0 && p.Rows[i-1] >= row {
					t.Fatalf("seed %d: row %d is in bucket %d", seed, row, got[i])
				}
			}
			want, _ := segments.Take(rec, p.Rows)
			if diff := segtest.Equal(want, p.Batch); diff != "" {
				t.Fatalf("seed %d: %s", seed, diff)
			}
		}
		if int64(seen) != rec.NumRows() {
			t.Fatalf("seed %d: %d rows of %d", seed, seen, rec.NumRows())
		}
	}
}

func TestBadBucketRequestsAreRefused(t *testing.T) {
	s, rec := column(t, "long", int64(1))
	for _, c := range []struct {
		ids []int32
		n   int32
	}{{nil, 4}, {[]int32{9}, 4}, {[]int32{1}, 0}, {[]int32{1}, -1}} {
		if _, err := segments.BucketRows(rec, c.ids, s, c.n); !errs.Is(err, errs.Invalid) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

func BenchmarkBucketRows(b *testing.B) {
	for _, typ := range []string{"long", "string"} {
		s := segtest.Schema("k " + typ)
		rec := segtest.Batch(segtest.NewRand(1), s, 10000, segtest.Options{})
		b.Run(typ, func(b *testing.B) {
			for b.Loop() {
				if _, err := segments.BucketRows(rec, []int32{1}, s, 16); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(10000*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func ExampleBucketRows() {
	s := segtest.Schema("id long")
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{34, 35}, nil)
	buckets, _ := segments.BucketRows(b.NewRecordBatch(), []int32{1}, s, 16)
	fmt.Println(buckets)
	// Output: [3 5]
}
