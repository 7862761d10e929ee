package wal

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

func TestStalledStoreBoundsMemoryAndTellsCallersToSlowDown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		release := make(chan struct{})
		store.put = func(ctx context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
			<-release
			return apply()
		}
		const limit = 64 << 10
		l := openLog(t, Options{Store: store, MaxPendingBytes: limit})
		var accepted, next int64
		for range 10_000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := l.Append(ctx, []Entry{entry(bucketA, next, next)})
			cancel()
			if err != nil {
				require.True(t, errs.Is(err, errs.Exhausted), "%v", err)
				require.Positive(t, errs.RetryAfter(err))
				require.ErrorContains(t, err, "max pending bytes")
				break
			}
			next++
			accepted += 32 + entryOverhead
		}
		require.Greater(t, accepted, int64(limit-32-entryOverhead))
		require.LessOrEqual(t, l.Stats().PendingBytes, int64(limit))

		waiting := make(chan error, 1)
		go func() { waiting <- l.Append(context.Background(), []Entry{entry(bucketA, next, next)}) }()
		synctest.Wait()
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		require.True(t, errs.Is(l.Append(canceled, []Entry{entry(bucketB, 0, 1)}), errs.Canceled))
		err := l.Append(t.Context(), []Entry{{Bucket: bucketB, Schema: testSchema(), Rows: rowsOf(1), Bytes: limit + 1}})
		require.True(t, errs.Is(err, errs.TooLarge), "%v", err)

		close(release)
		require.NoError(t, <-waiting)
		closeLog(t, l)
		require.Zero(t, l.Stats().PendingBytes)
		require.EqualValues(t, next+1, l.Stats().Rows)
	})
}

func TestOffsetsThatDoNotContinueAreRefused(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := openLog(t, Options{})
		mustAppend(t, l, entry(bucketA, 0, 1, 2))
		for _, bad := range [][]Entry{
			{entry(bucketA, 3, 3)},
			{entry(bucketA, 1, 3)},
			{entry(bucketA, 2, 3), entry(bucketB, 0, 1), entry(bucketA, 4, 4)},
			{entry(bucketB, -1, 1)},
			{{Bucket: bucketB, Rows: rowsOf(1)}},
			{{Bucket: bucketB, Schema: testSchema()}},
		} {
			require.True(t, errs.Is(l.Append(t.Context(), bad), errs.Internal))
		}
		mustAppend(t, l, entry(bucketA, 2, 3), entry(bucketB, 0, 1), entry(bucketA, 3, 4))
		closeLog(t, l)
		require.EqualValues(t, 5, l.Stats().Rows, "a refused call left nothing behind")
		require.Zero(t, l.Stats().PendingBytes)
	})
}

func TestCloseGivesUpAtItsDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		store.put = func(ctx context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
			<-ctx.Done()
			return objstore.Unknown, ctx.Err()
		}
		var got outcomes
		l := openLog(t, Options{Store: store, InFlight: 1, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
		for i := range int64(2) {
			e := entry(bucketA, i, i)
			e.Done = got.done(fmt.Sprint(i))
			mustAppend(t, l, e)
			time.Sleep(time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Close(ctx)
		require.True(t, errs.Is(err, errs.Canceled) && errors.Is(err, context.DeadlineExceeded), "%v", err)
		all := got.all()
		require.Equal(t, errs.Unknown, errs.ClassOf(all[0].Err))
		require.Equal(t, errs.Unavailable, errs.ClassOf(all[1].Err))
		require.True(t, errs.Is(l.Append(t.Context(), []Entry{entry(bucketB, 0, 1)}), errs.Closed))
	})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{}, {Store: objstore.NewMem()}, {Store: objstore.NewMem(), Incarnation: "a/b"},
		{Store: objstore.NewMem(), Incarnation: "a", InFlight: MaxInFlight + 1}} {
		_, err := New(o)
		require.True(t, errs.Is(err, errs.Invalid))
	}
	l, err := New(Options{Store: objstore.NewMem(), Incarnation: "a"})
	require.NoError(t, err)
	require.True(t, errs.Is(l.Append(t.Context(), []Entry{entry(bucketA, 0, 1)}), errs.Closed), "not opened yet")
	require.NoError(t, l.Close(t.Context()))
}

func TestMedianAcknowledgementIsHalfABatchAgeAndAPut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const put = 30 * time.Millisecond
		for _, tables := range []int{1, 20} {
			p50, p99 := ackLatency(t, tables, 60, put)
			require.LessOrEqual(t, p50, DefaultFlushAge/2+put*12/10, "%d tables", tables)
			require.LessOrEqual(t, p99, DefaultFlushAge+2*put, "%d tables", tables)
		}
	})
}

// TestClosedLogLeavesNoGoroutineBehind relies on the bubble, which fails when a
// goroutine of it is left.
func TestClosedLogLeavesNoGoroutineBehind(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := openLog(t, Options{})
		mustAppend(t, l, entry(bucketA, 0, 1))
		closeLog(t, l)
	})
}
