package agent

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
	"github.com/firn-data/firn/wal/producers"
)

// shareOf makes a share whose rows hold their positions in the body.
func shareOf(parts ...[]int64) *share {
	schema := arrow.NewSchema([]arrow.Field{{Name: "at", Type: arrow.PrimitiveTypes.Int64}}, nil)
	s := &share{}
	for i, at := range parts {
		b := array.NewInt64Builder(memory.DefaultAllocator)
		b.AppendValues(at, nil)
		rec := array.NewRecordBatch(schema, []arrow.Array{b.NewArray()}, int64(len(at)))
		p := sharePart{rows: rec, chunk: rows.Chunk{Rows: rec, Ordinals: at}}
		if i%2 == 1 { // every other row of a chunk
			var all []int64
			for _, o := range at {
				p.at = append(p.at, int32(len(all)))
				all = append(all, o, -1)
			}
			p.chunk = rows.Chunk{Ordinals: all}
		}
		s.parts = append(s.parts, p)
	}
	return s
}

func (s *share) positions() (out []int64) {
	for _, p := range s.parts {
		out = append(out, p.rows.Column(0).(*array.Int64).Int64Values()...)
	}
	return out
}

func TestAShareKeepsExactlyTheFreshRowsOfItsParts(t *testing.T) {
	for seed := range uint64(200) {
		r := segtest.NewRand(seed)
		var parts [][]int64
		var all []int64
		at := int64(0)
		for range 1 + r.IntN(4) {
			var part []int64
			for range 1 + r.IntN(20) {
				at += 1 + r.Int64N(3)
				part = append(part, at)
			}
			parts = append(parts, part)
			all = append(all, part...)
		}
		const first = 1000
		var fresh []producers.Range
		for from := int64(first) + r.Int64N(5); from < first+at && len(fresh) < 3; {
			end := from + 1 + r.Int64N(15)
			fresh = append(fresh, producers.Range{First: from, End: end})
			from = end + 1 + r.Int64N(9)
		}
		want := slices.DeleteFunc(slices.Clone(all), func(o int64) bool {
			return !slices.ContainsFunc(fresh, func(f producers.Range) bool { return f.First <= first+o && first+o < f.End })
		})
		for _, joined := range []bool{false, true} {
			s := shareOf(parts...)
			if joined {
				if err := s.join(); err != nil || len(s.parts) != 1 {
					t.Fatalf("seed %d: %d parts, %v", seed, len(s.parts), err)
				}
				if got := s.positions(); !slices.Equal(got, all) {
					t.Fatalf("seed %d: joined %v, want %v", seed, got, all)
				}
			}
			if err := s.keep(first, fresh); err != nil {
				t.Fatal(err)
			}
			if got := s.positions(); fmt.Sprint(got) != fmt.Sprint(want) || s.rows() != int64(len(want)) {
				t.Fatalf("seed %d: kept %v of %v by %v, want %v", seed, got, all, fresh, want)
			}
		}
	}
}
