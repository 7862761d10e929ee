package producers

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
)

func TestOvertakenRequestIsNotLost(t *testing.T) {
	var s State
	s.Record(10, 10, 0, 1) // the later request came first
	fresh, err := s.Admit(0, 10, 0)
	require.NoError(t, err)
	require.Equal(t, []Range{{0, 10}}, fresh)
	s.Record(0, 10, 0, 2)
	require.Equal(t, []Range{{0, 20}}, s.Ranges, "adjacent ranges are one")
	fresh, err = s.Admit(0, 20, 0)
	require.NoError(t, err)
	require.Empty(t, fresh)
}

func TestReplayInOtherBatchSizesSkipsWhatIsKnown(t *testing.T) {
	var s State
	s.Record(100, 10, 100, 1)
	s.Record(120, 10, 100, 1)
	fresh, err := s.Admit(90, 60, 50)
	require.NoError(t, err)
	require.Equal(t, []Range{{110, 120}, {130, 150}}, fresh, "below 100 the producer said that all is done")
}

func TestWatermarkTrimsRanges(t *testing.T) {
	var s State
	s.Record(0, 10, 0, 1)
	s.Record(20, 10, 0, 1)
	s.Record(40, 10, 25, 7)
	require.Equal(t, State{Watermark: 25, Ranges: []Range{{25, 30}, {40, 50}}, LastSeen: 7}, s)
	require.EqualValues(t, 30, s.Contiguous())
	s.Record(0, 5, 3, 2)
	require.EqualValues(t, 25, s.Watermark, "it never goes back")
	require.EqualValues(t, 7, s.LastSeen)
	s.Record(0, 0, 100, 8)
	require.Equal(t, State{Watermark: 100, Ranges: []Range{}, LastSeen: 8}, s)
	require.EqualValues(t, 100, s.Contiguous())
}

func TestProducerThatNeverAdvancesGetsAClearError(t *testing.T) {
	var s State
	for i := range int64(MaxRanges) {
		_, err := s.Admit(2*i, 1, 0)
		require.NoError(t, err)
		s.Record(2*i, 1, 0, 1)
	}
	_, err := s.Admit(2*MaxRanges, 1, 0)
	require.True(t, errs.Is(err, errs.Invalid))
	require.ErrorContains(t, err, "advance it")
	_, err = s.Admit(2*MaxRanges, 1, 5)
	require.NoError(t, err, "advancing helps at once")
	_, err = s.Admit(1, 1, 0)
	require.NoError(t, err, "filling a gap needs no range")
	fresh, err := s.Admit(4, 1, 0)
	require.NoError(t, err, "a repeat is always answered")
	require.Empty(t, fresh)
}

func TestNumbersOutOfRangeAreRefusedButReplayed(t *testing.T) {
	var s State
	for _, bad := range [][3]int64{{-1, 1, 0}, {0, -1, 0}, {math.MaxInt64, 1, 0}, {0, 1, -1}} {
		_, err := s.Admit(bad[0], bad[1], bad[2])
		require.True(t, errs.Is(err, errs.Invalid))
		s.Record(bad[0], bad[1], bad[2], 1)
		require.True(t, s.Valid())
	}
	fresh, err := s.Admit(math.MaxInt64-1, 1, 0)
	require.NoError(t, err)
	require.Equal(t, []Range{{math.MaxInt64 - 1, math.MaxInt64}}, fresh)
}

func TestSetKeepsProducersAndIdempotencyKeysApart(t *testing.T) {
	var s Set
	s.Record(Delta{ID: "x", First: 5, Count: 5, AckedBelow: 5}, 100)
	key := Delta{ID: "x", Count: 3, Idempotency: true}
	fresh, err := s.Admit(key)
	require.NoError(t, err)
	require.Equal(t, []Range{{0, 3}}, fresh)
	s.Record(key, 50)
	fresh, err = s.Admit(key)
	require.NoError(t, err)
	require.Empty(t, fresh, "the repeat is known")

	back := NewSet(s.States())
	require.Equal(t, s.States(), back.States())
	require.Equal(t, 1, back.Expire(100, 51))
	_, ok := back.Get("x", true)
	require.False(t, ok)
	state, ok := back.Get("x", false)
	require.True(t, ok)
	require.EqualValues(t, 5, state.Watermark)
	require.Equal(t, 2, s.Len(), "the copy shares nothing")
}

func TestSetIsBounded(t *testing.T) {
	var s Set
	for i := range MaxProducers {
		s.Record(Delta{ID: string(rune(i + 0x10000)), Count: 1}, 1)
	}
	_, err := s.Admit(Delta{ID: "one more", Count: 1})
	require.True(t, errs.Is(err, errs.Exhausted), "%v", err)
	_, err = s.Admit(Delta{ID: string(rune(0x10000)), First: 1, Count: 1})
	require.NoError(t, err, "known producers go on")
	for _, id := range []string{"", string(make([]byte, MaxIDBytes+1))} {
		_, err = s.Admit(Delta{ID: id, Count: 1})
		require.True(t, errs.Is(err, errs.Invalid))
	}
}

func TestJoinedDeltaRecordsTheSame(t *testing.T) {
	a, b := Delta{ID: "p", First: 3, Count: 4, AckedBelow: 2}, Delta{ID: "p", First: 7, Count: 1, AckedBelow: 3}
	joined, ok := a.Join(b)
	require.True(t, ok)
	var one, two Set
	one.Record(a, 9)
	one.Record(b, 9)
	two.Record(joined, 9)
	require.Equal(t, one.States(), two.States())
	for _, other := range []Delta{{ID: "q", First: 7, Count: 1}, {ID: "p", First: 8, Count: 1}, {ID: "p", First: 7, Count: 1, Idempotency: true}} {
		_, ok := a.Join(other)
		require.False(t, ok)
	}
}

func FuzzState(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Fuzz(func(t *testing.T, ops []byte) {
		var s State
		var done [600]bool // the model: a flag for each sequence
		low := int64(0)
		for ; len(ops) >= 3; ops = ops[3:] {
			first, count, acked := int64(ops[0]), int64(ops[1]), int64(ops[2])
			fresh, err := s.Admit(first, count, acked)
			if err != nil {
				t.Fatal(err)
			}
			var want []int64
			for seq := max(first, low, acked); seq < first+count; seq++ {
				if !done[seq] {
					want = append(want, seq)
				}
			}
			var got []int64
			for _, r := range fresh {
				for seq := r.First; seq < r.End; seq++ {
					got = append(got, seq)
				}
			}
			if !slices.Equal(want, got) {
				t.Fatalf("admit [%d, +%d) acked %d: got %v, want %v", first, count, acked, got, want)
			}
			s.Record(first, count, acked, 0)
			low = max(low, acked)
			for seq := first; seq < first+count; seq++ {
				done[seq] = true
			}
			if !s.Valid() {
				t.Fatalf("state is not valid: %+v", s)
			}
		}
	})
}
