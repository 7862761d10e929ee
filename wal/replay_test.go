package wal

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

func TestReplayCallsInOrderAndReadsAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMem()
		fill(t, store, 0, 100)
		var now, most atomic.Int64
		slow := readerFunc(func(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
			most.Store(max(most.Load(), now.Add(1)))
			defer now.Add(-1)
			time.Sleep(10 * time.Millisecond)
			return store.GetRange(ctx, key, start, n)
		})
		begin := time.Now()
		var got []uint64
		require.NoError(t, Replay(t.Context(), slow, "inc-1", 5, 100, func(id ObjectID, f *Footer) error {
			require.EqualValues(t, id.Seq, f.Segments[0].BaseOffset)
			got = append(got, id.Seq)
			return nil
		}))
		require.Len(t, got, 95)
		for i, seq := range got {
			require.EqualValues(t, i+5, seq)
		}
		require.EqualValues(t, replayAhead, most.Load())
		require.Less(t, time.Since(begin), 100*time.Millisecond)
	})
}

type readerFunc func(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error)

func (f readerFunc) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	return f(ctx, key, start, n)
}

func TestReplayNamesWhatIsMissing(t *testing.T) {
	store := objstore.NewMem()
	fill(t, store, 0, 10)
	count := 0
	fn := func(ObjectID, *Footer) error { count++; return nil }
	require.NoError(t, Replay(t.Context(), store, "inc-1", 0, ToEnd, fn))
	require.Equal(t, 10, count)
	require.NoError(t, Replay(t.Context(), store, "inc-1", 10, 10, fn))

	require.NoError(t, store.Delete(t.Context(), walKey(4)))
	count = 0
	err := Replay(t.Context(), store, "inc-1", 0, 10, fn)
	require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
	require.ErrorContains(t, err, "position 4 is missing")
	require.Equal(t, 4, count)

	end, err := Fence(t.Context(), store, "inc-1", 5, "x")
	require.NoError(t, err)
	require.EqualValues(t, 10, end)
	err = Replay(t.Context(), store, "inc-1", 5, 11, fn)
	require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
	require.NoError(t, Replay(t.Context(), store, "inc-1", 5, ToEnd, fn))

	stop := errors.New("enough")
	require.ErrorIs(t, Replay(t.Context(), store, "inc-1", 5, end, func(ObjectID, *Footer) error { return stop }), stop)
}

// TestRecoveryOutlastsRefusals refuses three of ten reads, and flips a bit or cuts the answer of one in ten.
func TestRecoveryOutlastsRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMem()
		fill(t, store, 0, 200)
		rng := rand.New(rand.NewPCG(1, 2))
		draw := make(chan int)
		go func() {
			for {
				select {
				case draw <- rng.IntN(100):
				case <-t.Context().Done():
					return
				}
			}
		}()
		bad := readerFunc(func(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
			d := <-draw
			b, info, err := store.GetRange(ctx, key, start, n)
			switch {
			case d < 30:
				return nil, objstore.Info{}, errs.New(errs.Unavailable, "503")
			case d < 35 && len(b) > 0:
				return b[:len(b)/2], info, err
			}
			return b, info, err
		})
		var ids []int64
		require.NoError(t, Replay(t.Context(), bad, "inc-1", 0, 200, func(id ObjectID, f *Footer) error {
			rec, err := ReadSegment(t.Context(), bad, id, &f.Segments[0], testSchema(), []int32{1})
			if err == nil {
				ids = append(ids, idsOf(rec)...)
			}
			return err
		}))
		require.Equal(t, seqIDs(0, 200), ids)
	})
}

func TestDamagedAnswerIsReadAgain(t *testing.T) {
	store := objstore.NewMem()
	fill(t, store, 0, 1)
	flips := 1
	r := readerFunc(func(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
		b, info, err := store.GetRange(ctx, key, start, n)
		if flips > 0 {
			flips--
			b[len(b)/2] ^= 4
		}
		return b, info, err
	})
	_, err := ReadFooter(t.Context(), r, ObjectID{"inc-1", 0})
	require.NoError(t, err)
	flips = maxReadBacks
	_, err = ReadFooter(t.Context(), r, ObjectID{"inc-1", 0})
	require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
}
