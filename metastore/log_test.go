package metastore

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

func listKeys(t testing.TB, s objstore.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range s.List(t.Context(), prefix, "") {
		require.NoError(t, err)
		keys = append(keys, info.Key)
	}
	return keys
}

func TestTwoFirstOpenersAgreeOnOneCluster(t *testing.T) {
	store := objstore.NewMem()
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		wg.Go(func() { ids[i] = openLog(t, store, i+1).State().ClusterID })
	}
	wg.Wait()
	require.NotEmpty(t, ids[0])
	require.Len(t, slices.Compact(ids), 1)
	require.Equal(t, []string{"meta/log/00000000000000000001"}, listKeys(t, store, "meta/"))
}

func TestAReaderOfAnEmptyStoreSaysThatThereIsNoCluster(t *testing.T) {
	store := objstore.NewMem()
	_, err := Open(t.Context(), store, Options{Manual: true})
	requireClass(t, err, errs.NotFound, "no Firn cluster")
	require.Empty(t, listKeys(t, store, ""))
	openLog(t, store, 1)
	l, err := Open(t.Context(), store, Options{Manual: true})
	require.NoError(t, err)
	require.Equal(t, uint64(1), l.State().Seq)
	_, err = l.Append(t.Context(), DecideCreateDatabase("x", "", false))
	requireClass(t, err, errs.Invalid, "reading only")
}

func TestALogWithoutItsBeginningIsCorrupt(t *testing.T) {
	store := objstore.NewMem()
	l := openLog(t, store, 1)
	createDatabase(t, l, "a")
	require.NoError(t, store.Delete(t.Context(), entryKey(1)))
	_, err := Open(t.Context(), store, Options{Writer: "x", Manual: true})
	requireClass(t, err, errs.Corrupt, entryKey(2))
}

func TestADamagedEntryIsNamed(t *testing.T) {
	store := objstore.NewMem()
	l := openLog(t, store, 1)
	createDatabase(t, l, "a")
	body, _, err := store.Get(t.Context(), entryKey(2))
	require.NoError(t, err)
	body[20] ^= 1
	require.NoError(t, store.Put(t.Context(), entryKey(2), body))
	_, err = Open(t.Context(), store, Options{Manual: true})
	requireClass(t, err, errs.Corrupt, entryKey(2), "checksum")
}

func TestConcurrentAppendsAllLandOnce(t *testing.T) {
	store := objstore.NewMem()
	var wg sync.WaitGroup
	for i := range 6 {
		l := openLog(t, store, i+1)
		wg.Go(func() {
			for j := range 10 {
				_, err := l.Append(t.Context(), DecideCreateDatabase(fmt.Sprintf("db-%d-%d", i, j), "", false))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := openLog(t, store, 9).State()
	require.Equal(t, uint64(61), s.Seq)
	require.Len(t, s.Databases(), 60)
}

func TestARefusalIsDecidedOnTheNewestState(t *testing.T) {
	store := objstore.NewMem()
	a, b := openLog(t, store, 1), openLog(t, store, 2)
	createDatabase(t, a, "shop")
	// b has not seen it: a stale refusal must not stand, and neither a stale consent.
	_, err := b.Append(t.Context(), DecideDropDatabase("shop", false))
	require.NoError(t, err)
	_, err = a.Append(t.Context(), DecideCreateDatabase("shop", "", false))
	require.NoError(t, err, "it was dropped meanwhile")
	_, err = b.Append(t.Context(), DecideCreateDatabase("shop", "", false))
	requireClass(t, err, errs.Exists)
	s, err := b.Append(t.Context(), DecideCreateDatabase("shop", "", true))
	require.NoError(t, err)
	require.Equal(t, a.State().Seq, s.Seq, "if_not_exists writes nothing")
}

func TestDecisionsAboutTablesThroughTheLog(t *testing.T) {
	store := objstore.NewMem()
	l := openLog(t, store, 1)
	createDatabase(t, l, "shop")
	s, err := l.Append(t.Context(), l.DecideCreateTable("shop", ordersSpec(), false))
	require.NoError(t, err)
	table, err := s.TableByName("shop", "orders")
	require.NoError(t, err)
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4`, table.UUID)
	_, err = l.Append(t.Context(), l.DecideCreateTable("shop", ordersSpec(), false))
	requireClass(t, err, errs.Exists)
	_, err = l.Append(t.Context(), l.DecideCreateTable("shop", ordersSpec(), true))
	require.NoError(t, err)
	keyed := ordersSpec()
	keyed.Name, keyed.PrimaryKey = "keyed", []string{"order_id"}
	_, err = l.Append(t.Context(), l.DecideCreateTable("shop", keyed, false))
	require.NoError(t, err)
	_, err = l.Append(t.Context(), DecideDropTable("shop", "nope", false))
	requireClass(t, err, errs.NotFound)
	_, err = l.Append(t.Context(), DecideDropTable("shop", "nope", true))
	require.NoError(t, err)
}

// fillLog appends until the log has reached seq, keeping snapshots.
func fillLog(t testing.TB, l *Log, seq uint64) {
	t.Helper()
	for i := 0; l.State().Seq < seq; i++ {
		createDatabase(t, l, fmt.Sprintf("fill-%d-%d", seq, i))
		require.NoError(t, l.Maintain(t.Context()))
	}
}

func small(o *Options) { o.SnapshotEvery, o.TrimAge = 10, -1 }

func TestSnapshotsBoundTheLog(t *testing.T) {
	store := objstore.NewMem()
	l := openLog(t, store, 1, small)
	fillLog(t, l, 45)
	require.Equal(t, []string{snapshotKey(30), snapshotKey(40)}, listKeys(t, store, snapshotPrefix))
	entries := listKeys(t, store, logPrefix)
	require.Equal(t, entryKey(31), entries[0], "deleted behind two snapshots")
	require.Len(t, entries, 15)
	s := openLog(t, store, 2, small).State()
	requireSameState(t, l.State(), s)
	young := openLog(t, objstore.NewMem(), 1, func(o *Options) { o.SnapshotEvery = 10 })
	fillLog(t, young, 45)
	require.Len(t, listKeys(t, young.store, logPrefix), 45, "younger than a day")
	require.Len(t, listKeys(t, young.store, snapshotPrefix), 4)
}

func TestOpenFallsBackWhenTheNewestSnapshotIsDamaged(t *testing.T) {
	store := objstore.NewMem()
	l := openLog(t, store, 1, small)
	fillLog(t, l, 45)
	require.NoError(t, store.Put(t.Context(), snapshotKey(40), []byte("rubbish")))
	requireSameState(t, l.State(), openLog(t, store, 2, small).State())
	for l.State().Seq < 50 {
		createDatabase(t, l, fmt.Sprint("more-", l.State().Seq))
	}
	requireClass(t, l.Maintain(t.Context()), errs.Corrupt, snapshotKey(40))
	require.Equal(t, entryKey(31), listKeys(t, store, logPrefix)[0], "nothing is trimmed on the strength of a damaged snapshot")
	fillLog(t, l, 65)
	require.Equal(t, entryKey(51), listKeys(t, store, logPrefix)[0], "two good ones later it goes on")
}

func requireSameState(t testing.TB, want, got *State) {
	t.Helper()
	a, err := writeRecords(want)
	require.NoError(t, err)
	b, err := writeRecords(got)
	require.NoError(t, err)
	require.Equal(t, string(a), string(b))
}

func TestASleeperReloadsWhenTheLogWasTrimmedUnderIt(t *testing.T) {
	store := objstore.NewMem()
	sleeper := openLog(t, store, 2, small)
	l := openLog(t, store, 1, small)
	fillLog(t, l, 45)
	s, err := sleeper.Refresh(t.Context())
	require.NoError(t, err)
	requireSameState(t, l.State(), s)
	_, err = sleeper.WaitFor(t.Context(), 99)
	requireClass(t, err, errs.Unavailable)
}

// TestAStalledAppendNeverWinsAFreedPosition is the pitfall of collected log
// positions: the put succeeds, because the position is free again.
func TestAStalledAppendNeverWinsAFreedPosition(t *testing.T) {
	store := objstore.NewMem()
	sleeper, reader := openLog(t, store, 2, small), openLog(t, store, 3, small)
	l := openLog(t, store, 1, small)
	fillLog(t, l, 45)
	s, err := sleeper.Append(t.Context(), DecideCreateDatabase("late", "", false))
	require.NoError(t, err)
	require.Equal(t, uint64(46), s.Seq)
	requireSameState(t, s, openLog(t, store, 4, small).State())
	s, err = l.Refresh(t.Context())
	require.NoError(t, err)
	_, err = s.Database("late")
	require.NoError(t, err)
	require.Contains(t, listKeys(t, store, logPrefix), entryKey(2), "the ghost of the first attempt stands where nobody believes it")

	// A reader that slept too meets the ghost, which follows its view perfectly.
	s, err = reader.Refresh(t.Context())
	require.NoError(t, err)
	requireSameState(t, l.State(), s)
}

func TestTheLogIsFollowedAndWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := objstore.NewMem()
		open := func(n int) *Log {
			l, err := Open(t.Context(), store, Options{Writer: incarnation(n), SnapshotEvery: 10})
			require.NoError(t, err)
			return l
		}
		a, b := open(1), open(2)
		s, changed := b.Watch()
		createDatabase(t, a, "shop")
		<-changed
		require.Equal(t, s.Seq+1, b.State().Seq)
		for i := range 30 {
			createDatabase(t, a, fmt.Sprint("d", i))
		}
		synctest.Wait()
		require.Contains(t, listKeys(t, store, snapshotPrefix), snapshotKey(30))
		time.Sleep(time.Minute)
		require.Equal(t, a.State().Seq, b.State().Seq)
		require.NoError(t, a.Close(context.Background()))
		require.NoError(t, b.Close(context.Background()))
	})
}

func TestAnIdleFollowerSendsFewGets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger := objstore.NewLedger(objstore.NewMem(), nil)
		l, err := Open(t.Context(), ledger, Options{Writer: incarnation(1)})
		require.NoError(t, err)
		time.Sleep(time.Minute)
		before := ledger.Snapshot()
		time.Sleep(time.Hour)
		calls := ledger.Snapshot().Since(before)
		require.LessOrEqual(t, calls.Calls(objstore.OpGet, ""), int64(730))
		require.LessOrEqual(t, calls.Calls(objstore.OpList, ""), int64(7))
		require.Zero(t, calls.Puts("")+calls.Calls(objstore.OpDelete, ""))
		require.NoError(t, l.Close(context.Background()))
	})
}

func TestAnUnknownOutcomeIsSaidSoAndResolvedByTheNextAppend(t *testing.T) {
	store := &stuckStore{Store: objstore.NewMem()}
	l := openLog(t, store, 1)
	ctx, cancel := context.WithCancel(t.Context())
	store.afterPut = cancel // the put is applied, its answer is lost, and the caller goes
	_, err := l.Append(ctx, DecideCreateDatabase("shop", "", false))
	requireClass(t, err, errs.Unknown)
	store.afterPut = nil
	_, err = l.Append(t.Context(), DecideCreateDatabase("shop", "", false))
	requireClass(t, err, errs.Exists)
}

type stuckStore struct {
	objstore.Store
	afterPut func()
}

func (s *stuckStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	outcome, err := s.Store.PutIfAbsent(ctx, key, body)
	if s.afterPut != nil {
		s.afterPut()
		return objstore.Unknown, errs.New(errs.Unknown, "the answer was lost")
	}
	return outcome, err
}
