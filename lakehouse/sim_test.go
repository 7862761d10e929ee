package lakehouse

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
)

// The simulation has three processes fold, compact, expire and sweep one table, each
// with a view that may be old. At any write of one, chosen by the seed, another runs a
// whole operation, and a third within that: so everybody is paused everywhere. Writes
// fail, are lost, applied twice and applied late, and operations are canceled at any
// write. Nothing runs in parallel, so a seed gives one history.
type lakeSim struct {
	t       *testing.T
	rng     *rand.Rand
	store   objstore.Store
	def     TableDef
	now     time.Time
	durable int64 // rows that may be folded: [0, durable), each with its offset as its id
	actors  []*lakeActor
	log     []string
}

// lakeActor is one process.
type lakeActor struct {
	sim    *lakeSim
	name   string
	lake   *Lake
	faults *faultstore.Store
	busy   bool
	at     int64  // where it believes the lake to be
	gen    uint64 //
	cancel context.CancelFunc
}

func (s *lakeSim) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func lakeSimFaults() []faultstore.Rule {
	puts, plain := []objstore.Op{objstore.OpPutIfAbsent}, []objstore.Op{objstore.OpPut, objstore.OpDelete}
	return []faultstore.Rule{
		{Fault: faultstore.Fail, Ops: puts, Chance: 0.05, Class: errs.Unavailable},
		{Fault: faultstore.Conflict, Ops: puts, Chance: 0.05},
		{Fault: faultstore.FailAfter, Ops: puts, Chance: 0.1},
		{Fault: faultstore.Duplicate, Ops: puts, Chance: 0.1},
		{Fault: faultstore.LateApply, Ops: puts, Chance: 0.1},
		{Fault: faultstore.FailAfter, Ops: plain, Chance: 0.05},
		{Fault: faultstore.Fail, Ops: plain, Chance: 0.05},
	}
}

func newLakeSim(t *testing.T, seed uint64) *lakeSim {
	s := &lakeSim{t: t, rng: rand.New(rand.NewPCG(seed, 0x1a4e)), now: time.Unix(1_700_000_000, 0)}
	clock := func() time.Time { return s.now }
	s.store = objstore.NewMemClock(clock)
	options := func(n uint64) Options {
		o := quickOptions()
		ids := rand.New(rand.NewPCG(seed, n))
		o.NewID = func() (id uuid.UUID) {
			binary.BigEndian.PutUint64(id[:8], ids.Uint64())
			binary.BigEndian.PutUint64(id[8:], ids.Uint64())
			return id
		}
		o.Create.Rand = func() float64 { return 0.5 }
		o.Now, o.SafeAge, o.KeepVersions, o.Parallel = clock, -1, 4, 1
		return o
	}
	x := newFoldTable(t, s.store, options(99), idSchema(), func(d *TableDef) { d.UUID = uuid.UUID{1}.String() })
	s.def = x.def
	for i := range 3 {
		a := &lakeActor{sim: s, name: string(rune('A' + i))}
		a.faults = faultstore.New(&lakeRecorder{s.store, a}, int64(seed)+int64(i), lakeSimFaults()...)
		a.lake = Open(&lakeTurn{a.faults, a}, options(uint64(i)))
		s.actors = append(s.actors, a)
	}
	return s
}

// lakeRecorder writes down what a process really did.
type lakeRecorder struct {
	objstore.Store
	a *lakeActor
}

func (r *lakeRecorder) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	out, err := r.Store.PutIfAbsent(ctx, key, body)
	r.a.sim.note("%s create %s: %v", r.a.name, key, out)
	return out, err
}

func (r *lakeRecorder) Put(ctx context.Context, key string, body []byte) error {
	r.a.sim.note("%s put %s", r.a.name, key)
	return r.Store.Put(ctx, key, body)
}

func (r *lakeRecorder) Delete(ctx context.Context, key string) error {
	r.a.sim.note("%s delete %s", r.a.name, key)
	return r.Store.Delete(ctx, key)
}

// lakeTurn lets something happen before each write of a process.
type lakeTurn struct {
	objstore.Store
	a *lakeActor
}

func (l *lakeTurn) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	l.a.interrupted()
	return l.Store.PutIfAbsent(ctx, key, body)
}

func (l *lakeTurn) Put(ctx context.Context, key string, body []byte) error {
	if !strings.HasSuffix(key, "version-hint.text") {
		l.a.interrupted()
	}
	return l.Store.Put(ctx, key, body)
}

func (l *lakeTurn) Delete(ctx context.Context, key string) error {
	l.a.interrupted()
	return l.Store.Delete(ctx, key)
}

// interrupted: others work while this one is paused, or its caller gives up.
func (a *lakeActor) interrupted() {
	s := a.sim
	if s.rng.IntN(60) == 0 {
		s.note("%s is canceled", a.name)
		a.cancel()
	}
	for s.rng.IntN(6) == 0 {
		idle := slices.DeleteFunc(slices.Clone(s.actors), func(b *lakeActor) bool { return b.busy })
		if len(idle) == 0 {
			return
		}
		idle[s.rng.IntN(len(idle))].act()
	}
}

// act runs one operation.
func (a *lakeActor) act() {
	s := a.sim
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.busy, a.cancel = true, cancel
	defer func() { a.busy = false }()
	s.now = s.now.Add(time.Second)
	s.durable += s.rng.Int64N(6)
	if s.rng.IntN(3) == 0 {
		a.faults.Release(context.Background(), "")
	}
	var err error
	what := s.rng.IntN(8)
	switch what {
	case 0:
		_, err = a.lake.Compact(ctx, s.def, CompactOptions{All: true})
	case 1:
		_, err = a.lake.Expire(ctx, s.def, ExpireOptions{Keep: 1 + s.rng.IntN(3), MinAge: -1})
	case 2, 3:
		_, err = a.lake.SweepOrphans(ctx, s.def)
	default:
		if s.rng.IntN(2) == 0 {
			a.look(ctx)
		}
		err = a.fold(ctx)
	}
	s.note("%s did %d: %v", a.name, what, err)
	switch {
	case err == nil, errs.Is(err, errs.Conflict), errs.Is(err, errs.Unknown), errs.Is(err, errs.Unavailable), errs.Is(err, errs.Canceled),
		errs.Is(err, errs.NotFound), what == 0 && errs.Is(err, errs.Corrupt): // the snapshot that it reads was expired meanwhile
	default:
		s.t.Fatalf("%s: operation %d: %v", a.name, what, err)
	}
}

// look takes over where the lake is.
func (a *lakeActor) look(ctx context.Context) {
	if snap, err := a.lake.Load(ctx, a.sim.def); err == nil {
		a.at, a.gen = snap.Offset(0), snap.Generation(0)
	}
}

func (a *lakeActor) fold(ctx context.Context) error {
	to := a.sim.durable
	if to <= a.at {
		return nil
	}
	in := FoldInput{Buckets: []BucketFold{bucketFold(0, a.at, a.gen, 1, simRows(a.at, to))}}
	res, err := a.lake.Fold(ctx, a.sim.def, in)
	switch {
	case err == nil:
		a.at, a.gen = res.Offsets[0], res.Generations[0]
	case errs.Is(err, errs.Conflict), errs.Is(err, errs.Unknown):
		a.look(ctx)
	}
	return err
}

func simRows(from, to int64) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, idSchema().Arrow())
	defer b.Release()
	for id := from; id < to; id++ {
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.StringBuilder).Append("row")
	}
	return b.NewRecordBatch()
}

// audit: the newest snapshot holds each row below the lake offset once, at its offset,
// and everything that any snapshot names is there.
func (s *lakeSim) audit() error {
	ctx := context.Background()
	lake := Open(s.store, quickOptions())
	snap, err := lake.Load(ctx, s.def)
	if err != nil {
		return err
	}
	if snap.Offset(0) > s.durable {
		return fmt.Errorf("the lake offset %d is beyond the last row %d", snap.Offset(0), s.durable)
	}
	refs, err := lake.References(ctx, s.def)
	if err != nil {
		return err
	}
	for key := range refs {
		if _, err := s.store.Head(ctx, key); err != nil {
			return fmt.Errorf("a snapshot names %s: %w", key, err)
		}
	}
	place := map[int64]int64{} // offset of each row
	for batch, err := range snap.Scan(ctx, ScanOptions{WithOffsets: true, Parallel: 1}) {
		if err != nil {
			return err
		}
		for i, id := range batch.Rows.Column(0).(*array.Int64).Int64Values() {
			if at, twice := place[id]; twice || batch.Offsets[i] != id {
				return fmt.Errorf("row %d stands at offset %d (and at %d, %v)", id, batch.Offsets[i], at, twice)
			}
			place[id] = id
		}
		batch.Rows.Release()
	}
	if int64(len(place)) != snap.Offset(0) {
		return fmt.Errorf("%d rows below the lake offset %d", len(place), snap.Offset(0))
	}
	return nil
}

// run gives the history, or what is wrong.
func (s *lakeSim) run(steps int) error {
	for range steps {
		s.actors[s.rng.IntN(len(s.actors))].act()
		if err := s.audit(); err != nil {
			return err
		}
	}
	for _, a := range s.actors {
		a.faults.Clear()
		a.faults.Release(context.Background(), "")
	}
	return s.rest()
}

// rest folds what is left: one sweep, and nothing is garbage.
func (s *lakeSim) rest() error {
	ctx := context.Background()
	lake := Open(s.store, sweepAtOnce())
	a := &lakeActor{sim: s, lake: lake}
	a.look(ctx)
	if err := a.fold(ctx); err != nil {
		return err
	}
	if r, err := lake.SweepOrphans(ctx, s.def); err != nil || r.Waiting > 0 {
		return fmt.Errorf("last sweep: %+v, %w", r, err)
	}
	refs, err := lake.References(ctx, s.def)
	if err != nil {
		return err
	}
	for info, err := range s.store.List(ctx, s.def.Prefix+"/", "") {
		if _, version := parseVersionKey(info.Key); err != nil || !version && !refs[info.Key] && info.Key != s.def.hintKey() {
			return fmt.Errorf("%s is garbage and was not swept (%w)", info.Key, err)
		}
	}
	return s.audit()
}

func TestSimulationOfTheLake(t *testing.T) {
	seeds := uint64(12)
	if n, err := strconv.ParseUint(os.Getenv("FIRN_SIM_SEEDS"), 10, 64); err == nil && n > 0 {
		seeds = n
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			s := newLakeSim(t, seed)
			if err := s.run(20); err != nil {
				t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(s.log[max(0, len(s.log)-60):], "\n"))
			}
		})
	}
}

func TestSimulationOfTheLakeIsReproducible(t *testing.T) {
	for seed := range uint64(3) {
		first, second := newLakeSim(t, seed), newLakeSim(t, seed)
		for _, s := range []*lakeSim{first, second} {
			if err := s.run(15); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(first.log, second.log) {
			for i := range min(len(first.log), len(second.log)) {
				if first.log[i] != second.log[i] {
					t.Fatalf("seed %d differs at event %d: %q, then %q", seed, i, first.log[i], second.log[i])
				}
			}
			t.Fatalf("seed %d: %d events, then %d", seed, len(first.log), len(second.log))
		}
		if len(first.log) < 50 {
			t.Errorf("seed %d: %d events only", seed, len(first.log))
		}
	}
}
