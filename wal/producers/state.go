package producers

import (
	"math"
	"slices"
	"sort"

	"github.com/firn-data/firn/internal/errs"
)

// MaxRanges bounds the separate ranges above the watermark of one producer in
// one bucket. A producer needs one for each request in flight at the most; the
// rest is head room for buckets that see only some of its requests.
const MaxRanges = 1024

// Range is a half-open range of sequences.
type Range struct{ First, End int64 }

// Len returns the number of sequences in the range.
func (r Range) Len() int64 { return r.End - r.First }

// State is what one bucket knows about one producer. The zero State knows
// nothing.
type State struct {
	// Watermark is the largest AckedBelow seen: every row below it is done, in
	// every bucket.
	Watermark int64
	// Ranges are the requests applied at or above the watermark.
	Ranges []Range
	// LastSeen is the commit timestamp of the newest delta, in microseconds.
	LastSeen int64
	// Idempotency marks the key of a single request, not a producer.
	Idempotency bool
}

// Clone returns a copy that shares nothing.
func (s *State) Clone() State {
	c := *s
	c.Ranges = slices.Clone(s.Ranges)
	return c
}

// Contiguous returns the first sequence at or above the watermark that this
// bucket has not applied.
func (s *State) Contiguous() int64 {
	if len(s.Ranges) > 0 && s.Ranges[0].First <= s.Watermark {
		return s.Ranges[0].End
	}
	return s.Watermark
}

// Admit returns the parts of [first, first+count) that are new here, ascending;
// none when all of it was applied before. It changes nothing. Errors are of class
// Invalid: numbers out of range, or more than MaxRanges separate ranges because
// the producer does not advance acked_below.
func (s *State) Admit(first, count, ackedBelow int64) ([]Range, error) {
	if err := check(first, count, ackedBelow); err != nil {
		return nil, err
	}
	want := Range{max(first, s.Watermark, ackedBelow), first + count}
	if want.First >= want.End {
		return nil, nil
	}
	fresh := s.gaps(want)
	if len(fresh) > 0 && s.rangesAfter(want, ackedBelow) > MaxRanges {
		return nil, errs.New(errs.Invalid,
			"producer has more than %d separate ranges above its watermark %d: send acked_below with each request, "+
				"and advance it to the first sequence that is not yet acknowledged", MaxRanges, s.Watermark)
	}
	return fresh, nil
}

func check(first, count, ackedBelow int64) error {
	switch {
	case first < 0:
		return errs.New(errs.Invalid, "first_sequence %d is negative", first)
	case count < 0:
		return errs.New(errs.Invalid, "row count %d is negative", count)
	case first > math.MaxInt64-count:
		return errs.New(errs.Invalid, "first_sequence %d with %d rows exceeds the largest sequence", first, count)
	case ackedBelow < 0:
		return errs.New(errs.Invalid, "acked_below %d is negative", ackedBelow)
	}
	return nil
}

// gaps returns the parts of want that no range covers.
func (s *State) gaps(want Range) []Range {
	var fresh []Range
	at := want.First
	for _, r := range s.Ranges[s.firstEndingAfter(want.First):] {
		if r.First >= want.End {
			break
		}
		if r.First > at {
			fresh = append(fresh, Range{at, r.First})
		}
		at = max(at, r.End)
	}
	if at < want.End {
		fresh = append(fresh, Range{at, want.End})
	}
	return fresh
}

// firstEndingAfter returns the index of the first range that ends after seq.
func (s *State) firstEndingAfter(seq int64) int {
	return sort.Search(len(s.Ranges), func(i int) bool { return s.Ranges[i].End > seq })
}

// rangesAfter counts the ranges that Record would leave.
func (s *State) rangesAfter(want Range, ackedBelow int64) int {
	low := s.firstEndingAfter(max(s.Watermark, ackedBelow))
	from, to := s.touching(want)
	from = max(from, low)
	return len(s.Ranges) - low - max(0, to-from) + 1
}

// touching returns the half-open index range of ranges that overlap r or are adjacent to it.
func (s *State) touching(r Range) (from, to int) {
	from = sort.Search(len(s.Ranges), func(i int) bool { return s.Ranges[i].End >= r.First })
	to = from + sort.Search(len(s.Ranges)-from, func(i int) bool { return s.Ranges[from+i].First > r.End })
	return from, to
}

// Record notes that [first, first+count) was applied and that everything below
// ackedBelow is done, as of a commit timestamp in microseconds. Numbers out of
// range are cut, not refused (INVARIANT(producers-3)).
func (s *State) Record(first, count, ackedBelow, timestamp int64) {
	s.LastSeen = max(s.LastSeen, timestamp)
	s.Watermark = max(s.Watermark, ackedBelow)
	s.trim()
	first, count = max(first, 0), max(count, 0)
	add := Range{max(first, s.Watermark), first + min(count, math.MaxInt64-first)}
	if add.First >= add.End {
		return
	}
	from, to := s.touching(add)
	if from < to {
		add.First = min(add.First, s.Ranges[from].First)
		add.End = max(add.End, s.Ranges[to-1].End)
	}
	s.Ranges = slices.Replace(s.Ranges, from, to, add)
}

// trim drops what the watermark covers.
func (s *State) trim() {
	s.Ranges = slices.Delete(s.Ranges, 0, s.firstEndingAfter(s.Watermark))
	if len(s.Ranges) > 0 {
		s.Ranges[0].First = max(s.Ranges[0].First, s.Watermark)
	}
}

// Valid reports whether the state keeps INVARIANT(producers-2); decoders ask it
// of what they read.
func (s *State) Valid() bool {
	if s.Watermark < 0 {
		return false
	}
	low := s.Watermark
	for i, r := range s.Ranges {
		if r.First < low || r.End <= r.First || (i > 0 && r.First == low) {
			return false
		}
		low = r.End
	}
	return true
}
