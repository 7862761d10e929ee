package producers

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// The model: producers with eight requests in flight write rows that a hash
// spreads over buckets. Requests overtake each other, arrive twice, arrive at
// some of their buckets only, and are sent again until every bucket answered.
// A producer may stop, forget what it knew, and begin again from an older
// position in other batch sizes. A bucket may stop and rebuild its state from
// the deltas that it logged. In the end every bucket holds each of its rows once.

const (
	modelBuckets  = 3
	modelInFlight = 8
	modelRows     = 150 // rows of each producer
)

func bucketOf(producer int, seq int64) int {
	h := uint64(seq)*0x9E3779B97F4A7C15 + uint64(producer)
	return int(h >> 33 % modelBuckets)
}

// modelBucket is one bucket: its log of rows and its durable deltas.
type modelBucket struct {
	set    Set
	rows   []string
	deltas []Delta
}

func (b *modelBucket) apply(t *testing.T, index, producer int, r request) {
	id := fmt.Sprint("p", producer)
	d := Delta{ID: id, First: r.first, Count: r.count, AckedBelow: r.acked}
	fresh, err := b.set.Admit(d)
	if err != nil {
		t.Fatalf("admit: %v", err)
	}
	for _, part := range fresh {
		for seq := part.First; seq < part.End; seq++ {
			if bucketOf(producer, seq) == index {
				b.rows = append(b.rows, fmt.Sprintf("%s/%d", id, seq))
			}
		}
	}
	b.set.Record(d, int64(len(b.rows)))
	b.deltas = append(b.deltas, d)
}

// restart rebuilds the state from a manifest of the first deltas and the rest, as recovery does.
func (b *modelBucket) restart(rng *rand.Rand) {
	covered := rng.IntN(len(b.deltas) + 1)
	var s Set
	for _, d := range b.deltas[:covered] {
		s.Record(d, 0)
	}
	s = *NewSet(s.States())
	for _, d := range b.deltas[covered:] {
		s.Record(d, 0)
	}
	b.set = s
}

type request struct {
	first, count, acked int64
	answered            [modelBuckets]bool
}

// modelProducer sends rows [low, modelRows) until all are acknowledged.
type modelProducer struct {
	id       int
	next     int64 // next row to send
	inFlight []*request
}

// low is the first row that is not acknowledged.
func (p *modelProducer) low() int64 {
	low := p.next
	for _, r := range p.inFlight {
		low = min(low, r.first)
	}
	return low
}

func (p *modelProducer) step(t *testing.T, rng *rand.Rand, buckets []*modelBucket) {
	switch n := rng.IntN(1000); {
	case n < 4 && p.next > 0: // forget everything, begin again at or below the first unacknowledged row
		p.next = rng.Int64N(p.low() + 1)
		p.inFlight = nil
	case n < 350 && len(p.inFlight) < modelInFlight && p.next < modelRows:
		count := min(1+rng.Int64N(20), modelRows-p.next)
		r := &request{first: p.next, count: count}
		p.next += count
		p.inFlight = append(p.inFlight, r)
		r.acked = p.low()
	case len(p.inFlight) > 0: // a request arrives at one of its buckets, for the first time or again
		r := p.inFlight[rng.IntN(len(p.inFlight))]
		b := rng.IntN(modelBuckets)
		if rng.IntN(2) == 0 {
			r.acked = max(r.acked, min(p.low(), r.first)) // a retry may carry newer news
		}
		if r.touches(p.id, b) {
			buckets[b].apply(t, b, p.id, *r)
		}
		r.answered[b] = r.answered[b] || rng.IntN(3) > 0 // the answer may be lost
	}
	p.inFlight = slices.DeleteFunc(p.inFlight, func(r *request) bool {
		return r.answered == [modelBuckets]bool{true, true, true}
	})
}

func (r *request) touches(producer, bucket int) bool {
	for seq := r.first; seq < r.first+r.count; seq++ {
		if bucketOf(producer, seq) == bucket {
			return true
		}
	}
	return false
}

func TestEveryRowIsAppliedExactlyOnce(t *testing.T) {
	seeds := 200
	if v, err := strconv.Atoi(os.Getenv("FIRN_SIM_SEEDS")); err == nil {
		seeds = v
	}
	for seed := range uint64(seeds) {
		if !t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { runModel(t, seed) }) {
			return
		}
	}
}

func runModel(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	buckets := []*modelBucket{{}, {}, {}}
	ps := []*modelProducer{{id: 0}, {id: 1}}
	for open := true; open; {
		open = false
		for _, p := range ps {
			p.step(t, rng, buckets)
			open = open || p.next < modelRows || len(p.inFlight) > 0
		}
		if rng.IntN(50) == 0 {
			buckets[rng.IntN(modelBuckets)].restart(rng)
		}
	}
	for i, b := range buckets {
		want := 0
		for p := range ps {
			for seq := range int64(modelRows) {
				if bucketOf(p, seq) == i {
					want++
				}
			}
		}
		sorted := slices.Clone(b.rows)
		slices.Sort(sorted)
		if unique := len(slices.Compact(sorted)); unique != want || len(b.rows) != want {
			t.Fatalf("bucket %d: %d rows, %d of them distinct, want %d", i, len(b.rows), unique, want)
		}
	}
}
