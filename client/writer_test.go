package client

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// anyFault breaks a third of the requests.
func anyFault(r *rand.Rand) fault {
	if r.IntN(3) > 0 {
		return none
	}
	return []fault{refuse, loseAnswer, breakFirst, twice}[r.IntN(4)]
}

// writeAll hands [0, n) over in batches of odd sizes, then closes.
func writeAll(t *testing.T, w *Writer, rng *rand.Rand, n int64) {
	t.Helper()
	for at := int64(0); at < n; {
		end := min(n, at+1+rng.Int64N(40))
		rec := values(sequence(at, end)...)
		require.NoError(t, w.Write(t.Context(), rec))
		rec.Release()
		at = end
	}
	require.NoError(t, w.Close(t.Context()))
}

func TestOrderedWriterAppliesEveryRowOnceAndInOrderWhateverBreaks(t *testing.T) {
	for _, producer := range []string{"p", ""} {
		for seed := range uint64(8) {
			p, c := newPeer(t, seed, anyFault)
			var mu sync.Mutex
			acked := int64(0)
			w, err := c.Table("d", "t").NewWriter(WriterOptions{
				ProducerID: producer, BatchRows: 17, Linger: time.Millisecond, InFlight: 5,
				OnResult: func(r BatchResult) { mu.Lock(); acked += r.Rows; mu.Unlock() },
			})
			require.NoError(t, err)
			writeAll(t, w, rand.New(rand.NewPCG(seed, 2)), 900)
			require.Equal(t, sequence(0, 900), p.log, "seed %d, producer %q", seed, producer)
			require.Equal(t, int64(900), acked, "each batch is told once")
			require.Equal(t, int64(900), w.Acked())
		}
	}
}

func TestUnorderedWriterAppliesEveryRowOnceWhateverBreaks(t *testing.T) {
	for _, producer := range []string{"p", ""} {
		for seed := range uint64(4) {
			p, c := newPeer(t, seed, anyFault)
			w, err := c.Table("d", "t").NewWriter(WriterOptions{ProducerID: producer, BatchRows: 17, InFlight: 8, Unordered: true})
			require.NoError(t, err)
			writeAll(t, w, rand.New(rand.NewPCG(seed, 2)), 900)
			got := slices.Sorted(slices.Values(p.log))
			require.Equal(t, sequence(0, 900), got, "seed %d, producer %q", seed, producer)
		}
	}
}

func TestReplayFromAnOlderPositionInOtherBatchSizesAppliesNothingTwice(t *testing.T) {
	p, c := newPeer(t, 1, nil)
	for _, run := range []struct{ from, rows int64 }{{0, 300}, {120, 380}, {0, 700}} {
		w, err := c.Table("d", "t").NewWriter(WriterOptions{ProducerID: "p", FirstSequence: run.from, BatchRows: 7 + run.from})
		require.NoError(t, err)
		require.NoError(t, w.Write(t.Context(), values(sequence(run.from, run.from+run.rows)...)))
		require.Equal(t, run.from+run.rows, w.Sequence())
		require.NoError(t, w.Close(t.Context()))
	}
	require.Equal(t, sequence(0, 700), p.log)
}

func TestSkippedRowsKeepTheSequencesOfTheOthers(t *testing.T) {
	p, c := newPeer(t, 1, nil)
	w, err := c.Table("d", "t").NewWriter(WriterOptions{ProducerID: "p", FirstSequence: 5})
	require.NoError(t, err)
	require.NoError(t, w.Skip(t.Context(), 2))
	require.Equal(t, int64(7), w.Acked())
	require.NoError(t, w.Write(t.Context(), values(70, 80)))
	require.NoError(t, w.Skip(t.Context(), 10))
	require.NoError(t, w.Write(t.Context(), values(190)))
	require.NoError(t, w.Close(t.Context()))
	require.Equal(t, map[int64]int64{7: 70, 8: 80, 19: 190}, p.bySeq)
	require.Equal(t, int64(20), w.Acked())
}

func TestAnAgentThatFallsSilentIsAskedAgain(t *testing.T) {
	muted := false
	p, c := newPeer(t, 1, func(*rand.Rand) fault {
		if !muted {
			muted = true
			return mute
		}
		return none
	})
	w, err := c.Table("d", "t").NewWriter(WriterOptions{ProducerID: "p", AckTimeout: 30 * time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, w.Write(t.Context(), values(1, 2, 3)))
	require.NoError(t, w.Close(t.Context()))
	require.Equal(t, []int64{1, 2, 3}, p.log)
}

func TestWithoutStreamsTheWriterKeepsOrderWithOneRequestInFlight(t *testing.T) {
	p, c := newPeer(t, 3, anyFault)
	p.noBidi = true
	w, err := c.Table("d", "t").NewWriter(WriterOptions{ProducerID: "p", BatchRows: 10})
	require.NoError(t, err)
	writeAll(t, w, rand.New(rand.NewPCG(3, 2)), 300)
	require.Equal(t, sequence(0, 300), p.log)
}

func TestARefusalIsFinalAndNamesItsBatch(t *testing.T) {
	for _, unordered := range []bool{false, true} {
		p, c := newPeer(t, 1, nil)
		p.final = &firnv1.StreamError{Code: "invalid_argument", Message: "column v: no", Info: &firnv1.ErrorInfo{Class: "invalid"}}
		results := make(chan BatchResult, 9)
		w, err := c.Table("d", "t").NewWriter(WriterOptions{Unordered: unordered, InFlight: 1, OnResult: func(r BatchResult) { results <- r }})
		require.NoError(t, err)
		require.NoError(t, w.Write(t.Context(), values(1, 2, 3)))
		require.Equal(t, Invalid, ClassOf(w.Flush(t.Context())))
		r := <-results
		require.Equal(t, int64(3), r.Rows)
		require.Equal(t, Invalid, ClassOf(r.Err))
		require.Equal(t, Invalid, ClassOf(w.Write(t.Context(), values(4))))
		require.ErrorContains(t, w.Close(t.Context()), "column v: no")
		require.Empty(t, p.log)
	}
}

func TestRowsGoOutAfterLingerWithoutFlush(t *testing.T) {
	done := make(chan BatchResult, 1)
	_, c := newPeer(t, 1, nil)
	w, err := c.Table("d", "t").NewWriter(WriterOptions{Linger: time.Millisecond, OnResult: func(r BatchResult) { done <- r }})
	require.NoError(t, err)
	require.NoError(t, w.Write(t.Context(), values(1)))
	require.Equal(t, int64(1), (<-done).Rows)
	require.NoError(t, w.Close(t.Context()))
	require.Equal(t, Closed, ClassOf(w.Write(t.Context(), values(2))))
	require.NoError(t, w.Close(t.Context()), "closing again is no error")
}

func TestWriteWaitsWhileTooMuchIsPending(t *testing.T) {
	gate := make(chan struct{})
	p, c := newPeer(t, 1, nil)
	p.onReply = func() { <-gate }
	w, err := c.Table("d", "t").NewWriter(WriterOptions{BatchRows: 10, MaxPendingBytes: 2000})
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for err == nil {
		err = w.Write(ctx, values(sequence(0, 10)...))
	}
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, w.Sequence(), int64(200), "memory is bounded")
	close(gate)
	require.NoError(t, w.Flush(t.Context()), "the end of a caller's patience leaves the writer usable")
	require.NoError(t, w.Close(t.Context()))
}

func TestCloseSaysHowManyRowsAreNotAcknowledged(t *testing.T) {
	_, c := newPeer(t, 1, func(*rand.Rand) fault { return mute })
	w, err := c.Table("d", "t").NewWriter(WriterOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Write(t.Context(), values(1, 2, 3)))
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = w.Close(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "3 rows")
}

func TestAnUnreachableAgentIsReportedAfterTheLastAttempt(t *testing.T) {
	c, err := New("http://127.0.0.1:1", WithRetry(RetryPolicy{Attempts: 3, MinPause: time.Millisecond, MaxPause: time.Millisecond}))
	require.NoError(t, err)
	for _, unordered := range []bool{false, true} {
		w, err := c.Table("d", "t").NewWriter(WriterOptions{Unordered: unordered})
		require.NoError(t, err)
		require.NoError(t, w.Write(t.Context(), values(1)))
		require.Equal(t, Unavailable, ClassOf(w.Close(t.Context())))
	}
	_, err = c.Databases(t.Context())
	require.Equal(t, Unavailable, ClassOf(err))
	_, err = c.Table("d", "t").Scan(t.Context(), ScanOptions{})
	require.Equal(t, Unavailable, ClassOf(err))
}

func TestWindowForgetsNothingInAnyOrderOfAcknowledgements(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newWindow(100)
		rows := map[int64]int64{}
		acked := map[int64]bool{}
		for range 200 {
			switch rng.IntN(4) {
			case 0:
				b := w.push(1+rng.Int64N(5), []byte("x"), "")
				rows[b.first] = b.rows
			case 1:
				w.take(5)
			case 2:
				if b := w.find(1 + rng.Int64N(w.nextID)); b != nil && b.sent {
					acked[b.first] = true
					require.True(t, w.ack(b.id))
					require.False(t, w.ack(b.id), "a duplicate changes nothing")
				}
			case 3:
				if rng.IntN(5) == 0 {
					w.rewind()
				}
			}
			at := int64(100)
			for acked[at] {
				at += rows[at]
			}
			require.Equal(t, at, w.ackedBelow, "seed %d", seed)
			flying, bytes := 0, int64(0)
			for _, b := range w.batches {
				if b.sent && !b.acked {
					flying++
				}
				bytes += int64(len(b.body))
			}
			require.Equal(t, flying, w.inFlight, "seed %d", seed)
			require.Equal(t, bytes, w.bytes, "seed %d", seed)
		}
	}
}
