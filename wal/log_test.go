package wal

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

// inBubble runs f with a fake clock and closes l's store traffic before it ends.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func mustAppend(t testing.TB, l *Log, entries ...Entry) {
	t.Helper()
	require.NoError(t, l.Append(context.Background(), entries))
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	require.NoError(t, l.Close(context.Background()))
}

func TestOneObjectHoldsManyTablesAndIsAcknowledgedInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		store.put = slowly(30 * time.Millisecond)
		var got outcomes
		var commits []Committed
		l := openLog(t, Options{Store: store, Codec: segments.CodecZSTD, OnCommit: func(c Committed) {
			require.Empty(t, got.names(), "OnCommit comes before Done")
			commits = append(commits, c)
		}})
		begin := time.Now()
		a, b, c := entry(bucketA, 100, 1, 2, 3), entry(bucketB, 5, 10, 11), entry(bucketA, 103, 4)
		a.Done, b.Done, c.Done = got.done("a"), got.done("b"), got.done("c")
		c.Producers = []ProducerDelta{{ID: "p", First: 7, Count: 1, AckedBelow: 7}}
		mustAppend(t, l, a, b)
		mustAppend(t, l, c)
		require.NoError(t, l.Flush(t.Context()))
		require.Equal(t, 30*time.Millisecond, time.Since(begin), "a flush waits for no batch age")
		require.Equal(t, []string{"a", "b", "c"}, got.names())
		require.Equal(t, []string{"put_if_absent " + walKey(0)}, store.transcript())

		require.Len(t, commits, 1)
		segs := commits[0].Segments
		require.Len(t, segs, 2)
		require.Equal(t, bucketA, segs[0].Bucket)
		require.EqualValues(t, 100, segs[0].BaseOffset)
		require.EqualValues(t, 4, segs[0].Rows)
		require.Equal(t, c.Producers, segs[0].Producers)
		require.Equal(t, []int64{1, 2, 3, 4}, idsOf(commits[0].Rows[0]...))
		require.EqualValues(t, 5, segs[1].BaseOffset)
		for _, o := range got.all() {
			require.NoError(t, o.Err)
			require.Equal(t, ObjectID{"inc-1", 0}, o.Object)
			require.Equal(t, segs[0].Timestamp, o.Timestamp)
		}
		closeLog(t, l)
	})
}

func TestIdleLogAsksNothingOfTheStore(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		l := openLog(t, Options{Store: store})
		time.Sleep(time.Hour)
		require.Empty(t, store.transcript())
		mustAppend(t, l, entry(bucketA, 0, 1))
		time.Sleep(time.Hour)
		require.Len(t, store.transcript(), 1)
		require.NoError(t, l.Flush(t.Context()), "a flush of nothing puts nothing")
		closeLog(t, l)
		require.Len(t, store.transcript(), 1)
	})
}

func TestBatchIsCutByFloorAgeOrBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		store.put = slowly(time.Second)
		l := openLog(t, Options{Store: store, FlushBytes: 1000, FlushAge: 100 * time.Millisecond, FlushFloor: 2 * time.Millisecond})
		puts := func() int { synctest.Wait(); return len(store.transcript()) }

		mustAppend(t, l, entry(bucketA, 0, 1))
		time.Sleep(2*time.Millisecond - 1)
		require.Equal(t, 0, puts())
		time.Sleep(time.Nanosecond)
		require.Equal(t, 1, puts(), "nothing in flight: cut at the floor")

		mustAppend(t, l, entry(bucketA, 1, 2))
		time.Sleep(50 * time.Millisecond)
		mustAppend(t, l, entry(bucketA, 2, 3))
		time.Sleep(50*time.Millisecond - 1)
		require.Equal(t, 1, puts())
		time.Sleep(time.Nanosecond)
		require.Equal(t, 2, puts(), "something in flight: cut at the age of the oldest")

		mustAppend(t, l, Entry{Bucket: bucketA, Schema: testSchema(), Rows: rowsOf(4), Bytes: 1000, BaseOffset: 3})
		require.Equal(t, 3, puts(), "enough bytes: cut at once")
		closeLog(t, l)
	})
}

func TestWaitingObjectsGrowWhileAllPutsAreInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		store.put = slowly(10 * time.Second)
		l := openLog(t, Options{Store: store, InFlight: 2, FlushAge: 10 * time.Millisecond})
		for i := range int64(100) {
			mustAppend(t, l, entry(bucketA, i, i))
			time.Sleep(20 * time.Millisecond)
		}
		closeLog(t, l)
		require.Len(t, store.transcript(), 3, "98 appends share the third object")
		require.EqualValues(t, 100, l.Stats().Rows)
	})
}

func TestAcknowledgementWaitsForEarlierPositions(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		store.put = func(ctx context.Context, key string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
			if key == walKey(0) {
				time.Sleep(5 * time.Second)
			}
			return apply()
		}
		var got outcomes
		l := openLog(t, Options{Store: store})
		for i := range int64(3) {
			e := entry(bucketA, i, i)
			e.Done = got.done(fmt.Sprint(i))
			mustAppend(t, l, e)
			time.Sleep(time.Second)
			require.Empty(t, got.names())
		}
		require.Len(t, store.transcript(), 3, "three puts were in flight")
		time.Sleep(3 * time.Second)
		require.Equal(t, []string{"0", "1", "2"}, got.names())
		closeLog(t, l)
	})
}

func TestUnknownOutcomeBlocksDispatchAndIsRetriedWithTheSameBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		var attempts atomic.Int64
		var broken atomic.Bool
		broken.Store(true)
		store.put = func(ctx context.Context, key string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
			if key == walKey(1) {
				attempts.Add(1)
				if broken.Load() {
					return objstore.Unknown, errs.New(errs.Unknown, "connection reset")
				}
			}
			return apply()
		}
		var got outcomes
		l := openLog(t, Options{Store: store})
		for i := range int64(4) {
			e := entry(bucketA, i, i)
			e.Done = got.done(fmt.Sprint(i))
			mustAppend(t, l, e)
			time.Sleep(time.Minute)
		}
		require.Equal(t, []string{"0"}, got.names())
		require.Equal(t, 1, l.Stats().Uncertain)
		require.NotContains(t, store.transcript(), "put_if_absent "+walKey(2), "nothing is dispatched past an unknown outcome")
		require.Greater(t, attempts.Load(), int64(3))
		broken.Store(false)
		closeLog(t, l)
		require.Equal(t, []string{"0", "1", "2", "3"}, got.names())
		for _, o := range got.all() {
			require.NoError(t, o.Err)
		}
	})
}

func TestLostAnswersNeitherFenceNorDuplicate(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		store.put = func(_ context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
			if out, err := apply(); out != objstore.Created {
				return out, err
			}
			return objstore.Unknown, errs.New(errs.Unknown, "connection reset after the store applied it")
		}
		var got outcomes
		l := openLog(t, Options{Store: store, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
		for i := range int64(20) {
			e := entry(bucketA, i, i)
			e.Done = got.done(fmt.Sprint(i))
			mustAppend(t, l, e)
			time.Sleep(time.Second)
		}
		closeLog(t, l)
		var ids []int64
		err := Replay(t.Context(), store, "inc-1", 0, ToEnd, func(id ObjectID, f *Footer) error {
			rec, err := ReadSegment(t.Context(), store, id, &f.Segments[0], testSchema(), nil)
			ids = append(ids, idsOf(rec)...)
			return err
		})
		require.NoError(t, err)
		require.Equal(t, seqIDs(0, 20), ids)
		for _, o := range got.all() {
			require.NoError(t, o.Err)
		}
	})
}

func TestFencedWriterCannotAcknowledge(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		fatal := make(chan error, 2)
		var got outcomes
		l := openLog(t, Options{Store: store, OnFatal: func(err error) {
			require.Equal(t, []string{"0"}, got.names(), "OnFatal comes before the waiters hear")
			fatal <- err
		}})
		put := func(i int64) {
			e := entry(bucketA, i, i)
			e.Done = got.done(fmt.Sprint(i))
			mustAppend(t, l, e)
			time.Sleep(time.Second)
		}
		put(0)
		end, err := Fence(t.Context(), store.Store, "inc-1", 0, "inc-2")
		require.NoError(t, err)
		require.EqualValues(t, 1, end)
		put(1)
		err = <-fatal
		require.Empty(t, fatal)
		require.True(t, errs.Is(err, errs.Fenced), "%v", err)
		require.ErrorContains(t, err, "inc-2")
		require.Equal(t, []any{FencedBy{"inc-2"}}, errs.Details(err))
		require.Equal(t, errs.Unavailable, errs.ClassOf(got.all()[1].Err), "surely lost, retry elsewhere")

		err = l.Append(t.Context(), []Entry{entry(bucketA, 2, 2)})
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		require.Positive(t, errs.RetryAfter(err))
		require.True(t, errs.Is(l.Flush(t.Context()), errs.Unavailable))
		require.Error(t, l.Close(t.Context()))
		require.Equal(t, []string{"put_if_absent " + walKey(0), "put_if_absent " + walKey(1), "get " + walKey(1)}, store.transcript())
	})
}

func TestWaitersBehindAFenceAreToldApart(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		fence, err := fenceObject(ObjectID{"inc-1", 1}, "taker", 1, zeroReader{})
		require.NoError(t, err)
		_, err = store.Store.PutIfAbsent(t.Context(), walKey(1), fence)
		require.NoError(t, err)
		store.put = func(ctx context.Context, key string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
			switch key {
			case walKey(0): // stuck
				<-ctx.Done()
				return objstore.Unknown, ctx.Err()
			case walKey(1):
				time.Sleep(10 * time.Second)
			}
			return apply()
		}
		var got outcomes
		l := openLog(t, Options{Store: store})
		for i := range int64(4) {
			e := entry(bucketA, i, i)
			e.Done = got.done(fmt.Sprint(i))
			mustAppend(t, l, e)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		all := got.all()
		require.Len(t, all, 4)
		require.Equal(t, errs.Unknown, errs.ClassOf(all[0].Err), "its put may still be applied")
		for _, o := range all[1:] {
			require.Equal(t, errs.Unavailable, errs.ClassOf(o.Err), "%s is at or behind the fence", o.name)
		}
		require.Error(t, l.Close(t.Context()))
	})
}

func TestForeignObjectStopsTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		writeObject(t, Options{Store: store.Store}, entry(bucketB, 0, 1))
		fatal := make(chan error, 1)
		l := openLog(t, Options{Store: store, OnFatal: func(err error) { fatal <- err }})
		mustAppend(t, l, entry(bucketA, 0, 1))
		require.True(t, errs.Is(<-fatal, errs.Fenced))
		require.Error(t, l.Close(t.Context()))
	})
}

// damagedReads flips a bit of every whole read, n times.
type damagedReads struct {
	*hookStore
	at, n int
}

func (d *damagedReads) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	b, info, err := d.hookStore.Get(ctx, key)
	if d.n > 0 {
		d.n--
		b[d.at] ^= 1
	}
	return b, info, err
}

func TestDamagedReadBackDoesNotFenceItsOwnWriter(t *testing.T) {
	for _, at := range []int{9, 70} { // the header's kind; a body, which no footer checksum covers
		inBubble(t, func(t *testing.T) {
			store := &damagedReads{newHookStore(), at, 2}
			first := true
			store.put = func(_ context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
				out, err := apply()
				if first {
					first = false
					return objstore.Unknown, errs.New(errs.Unknown, "answer lost")
				}
				return out, err
			}
			var got outcomes
			l := openLog(t, Options{Store: store, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
			e := entry(bucketA, 0, 1)
			e.Done = got.done("a")
			mustAppend(t, l, e)
			closeLog(t, l)
			require.NoError(t, got.all()[0].Err)
			require.Zero(t, store.n)
		})
	}
}

func TestObjectThatStaysDamagedLeavesTheOutcomeOpen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		require.NoError(t, store.Put(t.Context(), walKey(0), []byte("junk")))
		fatal := make(chan error, 1)
		var got outcomes
		l := openLog(t, Options{Store: store, OnFatal: func(err error) { fatal <- err }})
		e := entry(bucketA, 0, 1)
		e.Done = got.done("a")
		mustAppend(t, l, e)
		require.True(t, errs.Is(<-fatal, errs.Corrupt))
		require.Error(t, l.Close(t.Context()))
		require.Equal(t, errs.Unknown, errs.ClassOf(got.all()[0].Err))
	})
}

func TestRefusedPutStopsTheLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		store := newHookStore()
		store.put = func(context.Context, string, func() (objstore.Outcome, error)) (objstore.Outcome, error) {
			return objstore.Unknown, errs.New(errs.PermissionDenied, "no")
		}
		fatal := make(chan error, 1)
		var got outcomes
		l := openLog(t, Options{Store: store, OnFatal: func(err error) { fatal <- err }})
		e := entry(bucketA, 0, 1)
		e.Done = got.done("a")
		mustAppend(t, l, e)
		require.True(t, errs.Is(<-fatal, errs.PermissionDenied))
		require.Error(t, l.Close(t.Context()))
		require.Equal(t, errs.Unavailable, errs.ClassOf(got.all()[0].Err))
	})
}

func TestSchemaChangeInOneFlushMakesTwoSegments(t *testing.T) {
	s2 := testSchema()
	s2.ID = 2
	second := entry(bucketA, 1, 2)
	second.Schema = s2
	object := writeObject(t, Options{}, entry(bucketA, 0, 1), second, entry(bucketB, 0, 5))
	f, err := ParseObject(object)
	require.NoError(t, err)
	require.Len(t, f.Segments, 3)
	require.EqualValues(t, 1, f.Segments[0].SchemaID)
	require.EqualValues(t, 2, f.Segments[1].SchemaID)
	require.EqualValues(t, 1, f.Segments[1].BaseOffset)
}

func TestProducersWithoutRowsAreDurable(t *testing.T) {
	delta := ProducerDelta{ID: "p", First: 3, Count: 4, AckedBelow: 2}
	object := writeObject(t, Options{}, Entry{Bucket: bucketA, Schema: testSchema(), BaseOffset: 12, Producers: []ProducerDelta{delta}})
	f, err := ParseObject(object)
	require.NoError(t, err)
	require.Equal(t, []ProducerDelta{delta}, f.Segments[0].Producers)
	require.EqualValues(t, 12, f.Segments[0].EndOffset())
	rec, err := DecodeSegment(f.ID, object, &f.Segments[0], testSchema(), []int32{2})
	require.NoError(t, err)
	require.Zero(t, rec.NumRows())
	require.EqualValues(t, 1, rec.NumCols())
}

func TestTimestampsNeverDecrease(t *testing.T) {
	now := time.UnixMicro(1_000_000)
	var stamps []int64
	l := openLog(t, Options{Now: func() time.Time { return now }, OnCommit: func(c Committed) { stamps = append(stamps, c.Segments[0].Timestamp) }})
	for i, at := range []int64{1_000_000, 2_000_000, 1_500_000, 2_000_001} {
		now = time.UnixMicro(at)
		mustAppend(t, l, entry(bucketA, int64(i), 1))
		require.NoError(t, l.Flush(t.Context()))
	}
	closeLog(t, l)
	require.Equal(t, []int64{1_000_000, 2_000_000, 2_000_000, 2_000_001}, stamps)
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }
