package lakehouse

import (
	"context"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/segments"
)

// streamed is what a stream delivered.
type streamed struct {
	offsets  []int64
	consumed int64
	batches  int
}

func (x *scanFixture) stream(opts StreamOptions) streamed {
	t := x.t
	t.Helper()
	opts.Files = x.files
	if opts.Files == nil {
		opts.Files = []DataFile{}
	}
	out := streamed{consumed: -1}
	for b, err := range x.snapshot().StreamBucket(context.Background(), opts) {
		if err != nil {
			t.Fatal(err)
		}
		out.batches++
		if b.ConsumedTo < out.consumed {
			t.Fatalf("progress went back from %d to %d", out.consumed, b.ConsumedTo)
		}
		out.consumed = b.ConsumedTo
		if int(b.Rows.NumRows()) != len(b.Offsets) || len(b.Offsets) != len(b.Timestamps) {
			t.Fatalf("%d rows, %d offsets, %d timestamps", b.Rows.NumRows(), len(b.Offsets), len(b.Timestamps))
		}
		ids := b.Rows.Column(0).(*array.Int32)
		for i, offset := range b.Offsets {
			if int64(ids.Value(i)) != offset || offset >= b.ConsumedTo {
				t.Fatalf("row %d at offset %d, consumed to %d", ids.Value(i), offset, b.ConsumedTo)
			}
		}
		out.offsets = append(out.offsets, b.Offsets...)
	}
	return out
}

// writePartitioned writes [from, to) of a bucket as one file for each partition
// of a random assignment, as a fold of a partitioned table does.
func (x *scanFixture) writePartitioned(s *segments.Schema, bucket int32, from, to int64, partitions int, rng *rand.Rand) {
	x.t.Helper()
	x.writePartitionedGroups(s, bucket, from, to, partitions, int64(50+rng.Intn(200)), rng)
}

func (x *scanFixture) writePartitionedGroups(s *segments.Schema, bucket int32, from, to int64, partitions int, groupRows int64, rng *rand.Rand) {
	x.t.Helper()
	parts := make([][]int64, partitions)
	for o := from; o < to; {
		p := rng.Intn(partitions)
		for range 1 + rng.Intn(20) {
			if o < to {
				parts[p] = append(parts[p], o)
				o++
			}
		}
	}
	for _, offsets := range parts {
		if len(offsets) > 0 {
			x.write(bucket, s, simpleRows(x.t, s, offsets), runsOf(offsets), groupRows)
		}
	}
}

func TestStreamDeliversExactOffsetsInOrder(t *testing.T) {
	s := simpleSchema(t)
	for seed := range int64(rounds(4)) {
		rng := rand.New(rand.NewSource(seed))
		x := newScanFixture(t, s)
		for from := int64(0); from < 1600; from += 400 {
			x.writePartitioned(s, 1, from, from+400, 1+rng.Intn(6), rng)
			x.writePartitioned(s, 2, from, from+400, 1, rng)
		}
		rng.Shuffle(len(x.files), func(i, j int) { x.files[i], x.files[j] = x.files[j], x.files[i] })
		for range 5 {
			from := rng.Int63n(1600)
			to := from + 1 + rng.Int63n(1600-from)
			opts := StreamOptions{Bucket: int32(1 + rng.Intn(2)), From: from, To: to, BatchBytes: 1 << (6 + rng.Intn(16)), ReadaheadBytes: 1 << (6 + rng.Intn(20))}
			got := x.stream(opts)
			if !slices.Equal(got.offsets, span(from, to)) || got.consumed != to {
				t.Fatalf("seed %d, %+v: got %d offsets, consumed to %d", seed, opts, len(got.offsets), got.consumed)
			}
		}
	}
}

func TestStreamEndsAtTheLakeOffset(t *testing.T) {
	s := simpleSchema(t)
	x := newScanFixture(t, s)
	x.write(0, s, simpleRows(t, s, span(0, 100)), runsOf(span(0, 100)), 64)
	for _, to := range []int64{0, 100, 1 << 40} {
		if got := x.stream(StreamOptions{From: 90, To: to}); !slices.Equal(got.offsets, span(90, 100)) || got.consumed != 100 {
			t.Errorf("to %d: %v", to, got)
		}
	}
	if got := x.stream(StreamOptions{From: 100}); got.batches != 0 {
		t.Errorf("from the end: %v", got)
	}
	if got := x.stream(StreamOptions{Bucket: 3}); got.batches != 0 {
		t.Errorf("empty bucket: %v", got)
	}
}

func TestStreamReportsProgressOverOffsetsThatAreGone(t *testing.T) {
	s := simpleSchema(t)
	x := newScanFixture(t, s)
	x.write(0, s, simpleRows(t, s, span(50, 60)), runsOf(span(50, 60)), 64)
	x.ends[0] = 200 // retention dropped what was below 50; nothing is left from 60 on
	got := x.stream(StreamOptions{})
	if !slices.Equal(got.offsets, span(50, 60)) || got.consumed != 200 {
		t.Errorf("got %v", got)
	}
	x.files = nil
	if got := x.stream(StreamOptions{}); got.consumed != 200 || got.batches != 1 {
		t.Errorf("nothing left: %v", got)
	}
}

func TestOffsetAtTimeFindsTheFirstRowAtOrAfter(t *testing.T) {
	s := simpleSchema(t)
	x := newScanFixture(t, s)
	for from := int64(0); from < 100; from += 10 { // timestamps 1,000,000 + 10 × the file's first offset
		x.write(0, s, simpleRows(t, s, span(from, from+10)), runsOf(span(from, from+10)), 64)
	}
	for _, c := range []struct {
		t, offset int64
		found     bool
	}{{0, 0, true}, {1_000_000, 0, true}, {1_000_001, 10, true}, {1_000_100, 10, true}, {1_000_899, 90, true}, {1_000_900, 90, true}, {1_000_901, 0, false}} {
		offset, found, err := x.lake.offsetAtTime(context.Background(), bucketFiles(x.files, 0, 0, 100), c.t)
		if err != nil || offset != c.offset || found != c.found {
			t.Errorf("at %d: %d %v %v, want %d %v", c.t, offset, found, err, c.offset, c.found)
		}
	}
}

func TestStoppingAMergedStreamEarlyEndsIt(t *testing.T) {
	s := simpleSchema(t)
	x := newScanFixture(t, s)
	x.writePartitioned(s, 0, 0, 1500, 5, rand.New(rand.NewSource(1)))
	seen := 0
	for _, err := range x.snapshot().StreamBucket(context.Background(), StreamOptions{Files: x.files, BatchBytes: 2000}) {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 2 {
			break
		}
	}
}

func BenchmarkStreamMergeOfPartitions(b *testing.B) {
	s := simpleSchema(b)
	for _, partitions := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(partitions), func(b *testing.B) {
			x := newScanFixture(b, s)
			x.writePartitionedGroups(s, 0, 0, 400_000, partitions, 1<<20, rand.New(rand.NewSource(1)))
			for b.Loop() {
				if got := x.stream(StreamOptions{}); len(got.offsets) != 400_000 {
					b.Fatal(len(got.offsets))
				}
			}
			b.ReportMetric(400_000*float64(b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}
