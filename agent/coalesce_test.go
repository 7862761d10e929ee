package agent

import (
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
	"github.com/firn-data/firn/wal"
)

// streamOf yields batches of some sizes, and then an error unless it is nil.
func streamOf(end error, sizes ...int) (iter.Seq2[arrow.RecordBatch, error], arrow.RecordBatch) {
	r := segtest.NewRand(5)
	s := segtest.Schema("id long", "name string")
	recs := make([]arrow.RecordBatch, len(sizes))
	for i, n := range sizes {
		recs[i] = segtest.RandomBatch(r, s, n)
	}
	whole, err := segments.Concat(recs)
	if err != nil {
		panic(err)
	}
	return func(yield func(arrow.RecordBatch, error) bool) {
		for _, rec := range recs {
			if !yield(rec, nil) {
				return
			}
		}
		if end != nil {
			yield(nil, end)
		}
	}, whole
}

func TestSmallBatchesAreSentTogether(t *testing.T) {
	ones := make([]int, 100)
	for i := range ones {
		ones[i] = 1
	}
	for name, c := range map[string]struct {
		sizes []int
		limit int64
		want  int // messages
	}{
		"rows one by one":              {ones, 0, 1},
		"a large batch between":        {[]int{3, 5, smallRows, 1, 1}, 0, 3},
		"a limit is met early":         {ones, 10, 10},
		"one batch":                    {[]int{7}, 0, 1},
		"more than one message's rows": {slices.Repeat([]int{1000}, 18), 0, 3},
	} {
		t.Run(name, func(t *testing.T) {
			in, want := streamOf(nil, c.sizes...)
			var got []arrow.RecordBatch
			for rec, err := range coalesced(in, c.limit) {
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, rec)
			}
			all, err := segments.Concat(got)
			if err != nil {
				t.Fatal(err)
			}
			if diff := segtest.Equal(want, all); diff != "" {
				t.Error(diff)
			}
			if c.limit > 0 && got[0].NumRows() != c.limit {
				t.Errorf("the first message has %d rows, the reader wanted %d", got[0].NumRows(), c.limit)
			}
			if c.limit == 0 && len(got) > c.want {
				t.Errorf("%d messages, want at most %d", len(got), c.want)
			}
		})
	}
}

func TestRowsBeforeAnErrorAreSent(t *testing.T) {
	boom := errors.New("boom")
	in, want := streamOf(boom, 2, 3)
	var rows int64
	var last error
	for rec, err := range coalesced(in, 0) {
		if last = err; err == nil {
			rows += rec.NumRows()
		}
	}
	if rows != want.NumRows() || !errors.Is(last, boom) {
		t.Errorf("%d rows and error %v, want %d and boom", rows, last, want.NumRows())
	}
}

// A reader of one column once waited for all columns of every segment to be joined.
func TestReadingSomeColumnsJoinsOnlyThese(t *testing.T) {
	r := segtest.NewRand(6)
	s := segtest.Schema("id long", "name string", "n int")
	parts := []arrow.RecordBatch{segtest.RandomBatch(r, s, 4), segtest.RandomBatch(r, s, 3)}
	buffer, key := newRowBuffer(1<<20), segmentKey{wal.ObjectID{Incarnation: "a"}, 0}
	buffer.put(key, parts, 1000)
	got, ok := buffer.get(key, []int{2})
	if !ok || got.NumCols() != 1 || got.ColumnName(0) != "n" || got.NumRows() != 7 {
		t.Fatalf("got %v", got)
	}
	if kept := buffer.rows[key].batches; len(kept) != 2 {
		t.Errorf("%d batches are kept: the whole rows were joined", len(kept))
	}
	if none, ok := buffer.get(key, []int{}); !ok || none.NumRows() != 7 || none.NumCols() != 0 {
		t.Errorf("no columns: %v", none)
	}
	whole, ok := buffer.get(key, nil)
	if !ok || whole.NumRows() != 7 || whole.NumCols() != 3 || len(buffer.rows[key].batches) != 1 {
		t.Errorf("whole rows: %v", whole)
	}
}
