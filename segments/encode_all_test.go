package segments_test

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// cutUp returns the rows of a batch as several batches, some of them empty.
func cutUp(r *rand.Rand, rec arrow.RecordBatch) []arrow.RecordBatch {
	parts := []arrow.RecordBatch{rec.NewSlice(0, 0)}
	for from := int64(0); from < rec.NumRows(); {
		to := min(rec.NumRows(), from+r.Int64N(50))
		parts = append(parts, rec.NewSlice(from, to))
		from = to
	}
	return parts
}

func TestRowsInManyBatchesMakeTheSegmentThatTheyMakeInOne(t *testing.T) {
	for seed := range seeds(t, 200) {
		r := segtest.NewRand(uint64(seed))
		s, rec := randomCase(r)
		c := codecs[r.IntN(3)]
		want, err := segments.Encode(rec, s, c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		got, err := segments.EncodeAll(cutUp(r, rec), s, c)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !bytes.Equal(got.Body, want.Body) || got.Rows != want.Rows || !reflect.DeepEqual(got.Columns, want.Columns) {
			t.Fatalf("seed %d: the segment of the parts differs\n%+v\n%+v", seed, got.Columns, want.Columns)
		}
	}
}

func TestARecycledBodyIsNotSharedByTwoSegments(t *testing.T) {
	r := segtest.NewRand(1)
	s := segtest.RandomSchema(r)
	rec := segtest.Batch(r, s, 20_000, segtest.Options{})
	want, err := segments.Encode(rec, s, segments.CodecNone)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 20 {
				e, err := segments.Encode(rec, s, segments.CodecNone)
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(e.Body, want.Body) {
					t.Error("another segment's bytes are in the body")
				}
				e.Recycle()
				e.Recycle()
			}
		})
	}
	wg.Wait()
}
