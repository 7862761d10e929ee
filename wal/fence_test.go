package wal

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// fill writes n objects of one row each, at [from, from+n).
func fill(t testing.TB, store objstore.Store, from, n uint64) {
	t.Helper()
	l := openLog(t, Options{Store: store, NextSeq: from})
	for i := range n {
		require.NoError(t, l.Append(context.Background(), []Entry{entry(bucketA, int64(from+i), int64(from+i))}))
		require.NoError(t, l.Flush(context.Background()))
	}
	require.NoError(t, l.Close(context.Background()))
}

func TestFenceStandsAtTheFirstAbsentPosition(t *testing.T) {
	for _, n := range []uint64{0, 1, 5, 40} {
		store := objstore.NewMem()
		fill(t, store, 0, n)
		for _, by := range []string{"first", "second"} { // repeating changes nothing
			end, err := Fence(t.Context(), store, "inc-1", 0, by)
			require.NoError(t, err)
			require.Equal(t, n, end)
		}
		f, err := ReadFooter(t.Context(), store, ObjectID{"inc-1", n})
		require.NoError(t, err)
		require.Equal(t, "first", f.FencedBy)
	}
}

func TestFenceIgnoresWhatLiesBehindAGap(t *testing.T) {
	store := objstore.NewMem()
	fill(t, store, 0, 3)
	fill(t, store, 4, 2) // position 3 was in flight when the writer died
	end, err := Fence(t.Context(), store, "inc-1", 1, "taker")
	require.NoError(t, err)
	require.EqualValues(t, 3, end)
}

func TestSecondTakerWithAStaleViewIsRefused(t *testing.T) {
	store := objstore.NewMem()
	fill(t, store, 0, 5)
	end, err := Fence(t.Context(), store, "inc-1", 0, "taker")
	require.NoError(t, err)
	for seq := range end { // collected after the takeover
		require.NoError(t, store.Delete(t.Context(), ObjectID{"inc-1", seq}.Key()))
	}
	_, err = Fence(t.Context(), store, "inc-1", 2, "late taker")
	require.True(t, errs.Is(err, errs.Conflict), "%v", err)
	require.Equal(t, []any{FencedBy{"taker"}}, errs.Details(err))
	_, err = store.Head(t.Context(), ObjectID{"inc-1", 2}.Key())
	require.True(t, errs.Is(err, errs.NotFound), "it put nothing")
}

func TestRacingTakersFindTheSameEnd(t *testing.T) {
	store := objstore.NewMem()
	fill(t, store, 0, 10)
	ends := make([]uint64, 8)
	var wg sync.WaitGroup
	for i := range ends {
		wg.Go(func() {
			end, err := Fence(t.Context(), store, "inc-1", 3, fmt.Sprintf("taker-%d", i))
			require.NoError(t, err)
			ends[i] = end
		})
	}
	wg.Wait()
	for _, end := range ends {
		require.EqualValues(t, 10, end)
	}
}

// TestFastWriterIsFencedAnyway races a fencer that needs as long for a put as a
// writer that has four in flight.
func TestFastWriterIsFencedAnyway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newHookStore()
		store.put = slowly(30 * time.Millisecond)
		fatal := make(chan error, 1)
		var acked uint64
		l := openLog(t, Options{Store: store, FlushBytes: 1, OnFatal: func(err error) { fatal <- err },
			OnCommit: func(c Committed) { acked = c.ID.Seq + 1 }})
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			for i := int64(0); ; i++ {
				if l.Append(context.Background(), []Entry{entry(bucketA, i, i)}) != nil {
					return
				}
				time.Sleep(time.Millisecond)
			}
		}()
		time.Sleep(5 * time.Second)
		end, err := Fence(t.Context(), store, "inc-1", 0, "taker")
		require.NoError(t, err)
		require.True(t, errs.Is(<-fatal, errs.Fenced))
		<-stop
		require.Error(t, l.Close(t.Context()))
		require.LessOrEqual(t, acked, end)
		again, err := Fence(t.Context(), store, "inc-1", 0, "taker")
		require.NoError(t, err)
		require.Equal(t, end, again)
		var n uint64
		require.NoError(t, Replay(t.Context(), store, "inc-1", 0, end, func(ObjectID, *Footer) error { n++; return nil }))
		require.Equal(t, end, n)
	})
}

func TestFenceRefusesBadNames(t *testing.T) {
	store := objstore.NewMem()
	for _, by := range []string{"", barrierMark + "x", string(make([]byte, maxFenceBy+1))} {
		_, err := Fence(t.Context(), store, "inc-1", 0, by)
		require.True(t, errs.Is(err, errs.Invalid))
	}
	_, err := Fence(t.Context(), store, "a/b", 0, "x")
	require.True(t, errs.Is(err, errs.Invalid))
}

// shuffledStore lists in no order at all.
type shuffledStore struct{ objstore.Store }

func (s shuffledStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		byKey := map[string]objstore.Info{}
		for info, err := range s.Store.List(ctx, prefix, after) {
			if err != nil {
				yield(info, err)
				return
			}
			byKey[info.Key] = info
		}
		for _, info := range byKey {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func TestFenceAndCheckpointsNeedNoListOrder(t *testing.T) {
	store := shuffledStore{objstore.NewMem()}
	fill(t, store, 0, 30)
	end, err := Fence(t.Context(), store, "inc-1", 0, "taker")
	require.NoError(t, err)
	require.EqualValues(t, 30, end)
	w, err := NewCheckpointWriter(store, "inc-1")
	require.NoError(t, err)
	for i := range uint64(20) {
		_, err := w.Write(t.Context(), i, []BucketManifest{{Bucket: BucketID{Table: i}}}, nil)
		require.NoError(t, err)
	}
	ref, ok, err := NewestCheckpoint(t.Context(), store, "inc-1")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 20, ref.Seq)
}
