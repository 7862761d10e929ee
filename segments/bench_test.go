package segments_test

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/klauspost/compress/zstd"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// flights are rows like those of the demo: a time that grows, an airport of a
// few hundred, a delay, a distance and a tail number of a few thousand.
func flights(n int) (*segments.Schema, arrow.RecordBatch) {
	s := segtest.Schema("ts timestamp", "delay int", "distance int", "origin string", "tail string")
	r := segtest.NewRand(1)
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	ts := int64(1_700_000_000_000_000)
	for range n {
		ts += r.Int64N(60) * 1_000_000
		b.Field(0).(*array.TimestampBuilder).Append(arrow.Timestamp(ts))
		b.Field(1).(*array.Int32Builder).Append(int32(r.NormFloat64() * 20))
		b.Field(2).(*array.Int32Builder).Append(int32(100 + r.IntN(2500)))
		b.Field(3).(*array.StringBuilder).Append(fmt.Sprintf("%c%c%c", 'A'+r.IntN(7), 'A'+r.IntN(7), 'A'+r.IntN(7)))
		b.Field(4).(*array.StringBuilder).Append(fmt.Sprintf("N%04dX", r.IntN(4000)))
	}
	return s, b.NewRecordBatch()
}

func report(b *testing.B, rows int, bytes int64) {
	b.SetBytes(bytes)
	b.ReportMetric(float64(rows)*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkEncode(b *testing.B) {
	for _, rows := range []int{1000, 20000} {
		s, rec := flights(rows)
		for _, c := range codecs {
			b.Run(fmt.Sprintf("%s/%d", c, rows), func(b *testing.B) {
				b.ReportAllocs()
				size := 0
				for b.Loop() {
					e, err := segments.Encode(rec, s, c)
					if err != nil {
						b.Fatal(err)
					}
					size = len(e.Body)
				}
				report(b, rows, segments.SizeOf(rec))
				b.ReportMetric(float64(segments.SizeOf(rec))/float64(size), "ratio")
			})
		}
	}
}

// BenchmarkEncodeCeiling only compresses the same buffers.
func BenchmarkEncodeCeiling(b *testing.B) {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false), zstd.WithEncoderConcurrency(1))
	if err != nil {
		b.Fatal(err)
	}
	for _, rows := range []int{1000, 20000} {
		_, rec := flights(rows)
		b.Run(fmt.Sprintf("zstd/%d", rows), func(b *testing.B) {
			b.ReportAllocs()
			out := make([]byte, 0, 1<<20)
			for b.Loop() {
				out = out[:0]
				for _, c := range rec.Columns() {
					for _, buf := range c.Data().Buffers()[1:] {
						out = enc.EncodeAll(buf.Bytes(), out)
					}
				}
			}
			report(b, rows, segments.SizeOf(rec))
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, rows := range []int{1000, 20000} {
		s, rec := flights(rows)
		for _, c := range codecs {
			e, err := segments.Encode(rec, s, c)
			if err != nil {
				b.Fatal(err)
			}
			src := func(off, n int64) ([]byte, error) { return e.Body[off : off+n], nil }
			b.Run(fmt.Sprintf("%s/%d", c, rows), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := segments.Decode(s, e.Columns, e.Rows, nil, src); err != nil {
						b.Fatal(err)
					}
				}
				report(b, rows, segments.SizeOf(rec))
			})
		}
	}
}

func BenchmarkStats(b *testing.B) {
	s, rec := flights(20000)
	for i, f := range s.Fields {
		b.Run(f.Name, func(b *testing.B) {
			for b.Loop() {
				segments.ComputeStats(rec.Column(i), f.Type)
			}
			report(b, 20000, 0)
		})
	}
}

func BenchmarkSplitByBucket(b *testing.B) {
	s, rec := flights(20000)
	for b.Loop() {
		if _, err := segments.SplitByBucket(rec, []int32{5}, s, 4); err != nil {
			b.Fatal(err)
		}
	}
	report(b, 20000, segments.SizeOf(rec))
}
