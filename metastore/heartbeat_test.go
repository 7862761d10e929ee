package metastore

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

func TestALeaseIsHeldFromTheStartOfItsBeat(t *testing.T) {
	l := lease{length: 10 * time.Second, margin: 2 * time.Second}
	at := func(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }
	require.False(t, l.holds(at(0)))
	require.False(t, l.beat(at(0), at(1)), "the first beat proves nothing: somebody may have decided before")
	l.checked(at(0))
	require.True(t, l.holds(at(7.9)))
	require.False(t, l.holds(at(8)))
	require.True(t, l.beat(at(3), at(7)), "accepted while the lease held")
	require.True(t, l.holds(at(10.9)))
	require.False(t, l.beat(at(4), at(11)), "accepted too late")
	require.False(t, l.holds(at(11)))
	l.checked(at(2))
	require.False(t, l.holds(at(11)), "an older beat takes nothing back")
}

func TestSilenceIsSeenNotAssumed(t *testing.T) {
	tr := tracker{lease: 10 * time.Second}
	at := func(s int) time.Time { return epoch.Add(time.Duration(s) * time.Second) }
	see := func(counter uint64, start int) { tr.observe("a", counter, at(start), at(start+1)) }
	see(5, 0)
	see(5, 10)
	require.Empty(t, tr.silent(), "the read began 9 s after the counter was seen")
	see(5, 11)
	require.Equal(t, []string{"a"}, tr.silent())
	see(6, 12)
	require.Empty(t, tr.silent(), "it moved")
	see(6, 30) // the store could not be read for long
	require.Equal(t, []string{"a"}, tr.silent())
	tr.keep(nil)
	require.Empty(t, tr.silent())
}

// world is a few agents on one store, in a synctest bubble.
type world struct {
	t     *testing.T
	store *gate
}

// gate is a store whose heartbeats can be held up.
type gate struct {
	objstore.Store
	mu   sync.Mutex
	shut map[string]bool // by key: puts hang until their context ends
}

func (g *gate) set(incarnation string, shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut[agentKey(incarnation)] = shut
}

func (g *gate) Put(ctx context.Context, key string, body []byte) error {
	g.mu.Lock()
	shut := g.shut[key]
	g.mu.Unlock()
	if shut {
		<-ctx.Done()
		return errs.Wrap(errs.Unknown, "put "+key, ctx.Err())
	}
	return g.Store.Put(ctx, key, body)
}

func newWorld(t *testing.T) *world {
	return &world{t: t, store: &gate{Store: objstore.NewMem(), shut: map[string]bool{}}}
}

type member struct {
	id       string
	log      *Log
	beat     *Heartbeat
	observer *Observer
}

func (w *world) join(n int, agentID string) *member {
	t := w.t
	l, err := Open(t.Context(), w.store, Options{Writer: incarnation(n), SlotCount: 8})
	require.NoError(t, err)
	m := &member{id: incarnation(n), log: l}
	m.beat, err = OpenHeartbeat(t.Context(), HeartbeatOptions{
		Store: w.store, Beat: Beat{Incarnation: m.id, AgentID: agentID, Address: agentID + ":1"}, Live: l.CheckLive(m.id),
	})
	require.NoError(t, err)
	_, err = l.Append(t.Context(), DecideJoin(Join{Incarnation: m.id, AgentID: agentID}))
	require.NoError(t, err)
	m.observer = OpenObserver(ObserverOptions{Store: w.store, State: l.State, Self: m.id})
	return m
}

func (m *member) close(t *testing.T) {
	require.NoError(t, m.observer.Close(context.Background()))
	require.NoError(t, m.beat.Close(context.Background()))
	require.NoError(t, m.log.Close(context.Background()))
}

func TestALiveAgentStaysConfirmedAndIsNeverSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join(1, "a"), w.join(2, "b")
		require.False(t, a.beat.Confirmed(), "not before the log was asked")
		require.NoError(t, a.beat.Confirm(t.Context()))
		for range 100 {
			time.Sleep(777 * time.Millisecond)
			require.True(t, a.beat.Confirmed())
			silent, _ := b.observer.Silent()
			require.Empty(t, silent)
		}
		body, _, err := w.store.Get(t.Context(), "agents/"+a.id)
		require.NoError(t, err)
		beat, err := DecodeBeat(body)
		require.NoError(t, err)
		require.Equal(t, "a:1", beat.Address)
		require.Greater(t, beat.Counter, uint64(25))
		a.close(t)
		b.close(t)
	})
}

// TestNobodyIsConfirmedWhileAnotherMayTakeOver runs silence, fence, and the
// return of the silent one, in both orders of fence and look.
func TestNobodyIsConfirmedWhileAnotherMayTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join(1, "a"), w.join(2, "b")
		require.NoError(t, a.beat.Confirm(t.Context()))
		w.store.set(a.id, true)
		_, changed := b.observer.Silent()
		began := time.Now()
		<-changed
		require.GreaterOrEqual(t, time.Since(began), DefaultLease-DefaultLease/beatsPerLease)
		silent, _ := b.observer.Silent()
		require.Equal(t, []string{a.id}, silent)
		require.False(t, a.beat.Confirmed(), "its lease ended before anybody called it silent")

		// It comes back before it is fenced: beat first, then the log.
		w.store.set(a.id, false)
		require.NoError(t, a.beat.Confirm(t.Context()))
		_, err := b.log.Append(t.Context(), DecideFence(a.id, 3, b.id, "b"))
		require.NoError(t, err)
		still, err := b.observer.StillSilent(t.Context(), a.id)
		require.NoError(t, err)
		require.False(t, still, "it may answer reads: b must not serve its slots yet")
		require.True(t, a.beat.Confirmed())

		w.store.set(a.id, true)
		for a.beat.Confirmed() {
			still, err = b.observer.StillSilent(t.Context(), a.id)
			require.NoError(t, err)
			require.False(t, still)
			time.Sleep(time.Second)
		}
		time.Sleep(DefaultLease)
		still, err = b.observer.StillSilent(t.Context(), a.id)
		require.NoError(t, err)
		require.True(t, still)

		// It comes back after the fence: the log says so, for good.
		w.store.set(a.id, false)
		requireClass(t, a.beat.Confirm(t.Context()), errs.Fenced, b.id)
		<-a.beat.Fenced()
		require.False(t, a.beat.Confirmed())
		a.close(t)
		b.close(t)
	})
}

func TestAnAgentThatNeverBeatIsSilentAfterALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.join(1, "a")
		_, err := a.log.Append(t.Context(), DecideJoin(Join{Incarnation: incarnation(2), AgentID: "b"}))
		require.NoError(t, err)
		_, changed := a.observer.Silent()
		<-changed
		silent, _ := a.observer.Silent()
		require.Equal(t, []string{incarnation(2)}, silent)
		a.close(t)
	})
}

func TestAStoreThatCannotBeReadSilencesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.join(1, "a"), w.join(2, "b")
		var broken atomic.Bool
		observer := OpenObserver(ObserverOptions{Store: &unreadable{Store: w.store, broken: &broken}, State: b.log.State, Self: b.id})
		time.Sleep(5 * time.Second)
		broken.Store(true)
		time.Sleep(time.Hour)
		silent, _ := observer.Silent()
		require.Empty(t, silent)
		require.NoError(t, observer.Close(context.Background()))
		a.close(t)
		b.close(t)
	})
}

type unreadable struct {
	objstore.Store
	broken *atomic.Bool
}

func (u *unreadable) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if u.broken.Load() {
		return nil, objstore.Info{}, errs.New(errs.Unavailable, "slow down")
	}
	return u.Store.Get(ctx, key)
}
