package wal

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// The simulation: clients append to three buckets through the Log of incarnation
// A on a store that loses answers, applies puts late and stalls past any lease.
// At some moment one or two takers fence A and replay it, a collector without a
// safe age deletes all that A wrote but the fence, and B goes on where the
// replay ended. A knows of nothing and keeps trying. Then: nothing that A
// acknowledged is missing, nothing that it gave up for lost is there, both takers
// agree, and the history of appends and reads of each bucket is linearizable.

const simBuckets = 3

// simMutation breaks the protocol, to show that the simulation would notice.
type simMutation string

const (
	simDesign       simMutation = ""
	simTwoWinners   simMutation = "store accepts a second conditional put"
	simCollectFence simMutation = "collector deletes the fence"
)

type simulation struct {
	seed  uint64
	rng   *rand.Rand
	store *simStore
	mut   simMutation

	mu      sync.Mutex
	buckets [simBuckets]simBucket
	ops     []porcupine.Operation
	value   int64
	clients int
	noMore  bool // clients stop at their next turn
}

// simBucket is a bucket as its owner sees it.
type simBucket struct {
	lock      sync.Mutex // held over hand-over, as an owner does
	next      int64
	published []int64 // values below the high watermark of A
}

// Operations for the linearizability check, of one bucket.
type (
	opAppend struct {
		bucket int
		value  int64
	}
	opRead struct{ bucket int }
	// appended is the answer to an append; unknown when its outcome is.
	appended struct {
		offset  int64
		unknown bool
	}
)

func simBucketID(b int) BucketID { return BucketID{Table: 1 + uint64(b), Bucket: int32(b)} }

func (s *simulation) note(client int, input any, call int64, output any, ret int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, porcupine.Operation{ClientId: client, Input: input, Call: call, Output: output, Return: ret})
}

// now is the fake time with a counter behind it, so that one instant has an order.
func (s *simulation) now() int64 { return time.Since(s.store.begin).Nanoseconds() }

func (s *simulation) newClient() (id int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clients++
	return s.clients
}

// append hands one row over and waits for its outcome, which it returns.
func (s *simulation) append(l *Log, client, b int) error {
	s.mu.Lock()
	s.value++
	value := s.value
	s.mu.Unlock()
	bucket := &s.buckets[b]
	done := make(chan Result, 1)
	call := s.now()

	bucket.lock.Lock()
	offset := bucket.next
	e := entry(simBucketID(b), offset, value)
	e.Done = func(r Result) { done <- r }
	err := l.Append(context.Background(), []Entry{e})
	if err == nil {
		bucket.next++
	}
	bucket.lock.Unlock()
	if err != nil {
		return err // nothing was taken
	}
	r := <-done
	s.store.inner.event("client %d: bucket %d offset %d in %s: %v", client, b, offset, r.Object, r.Err)
	in := opAppend{b, value}
	switch {
	case r.Err == nil:
		s.note(client, in, call, appended{offset: offset}, s.now())
	case errs.Is(r.Err, errs.Unknown):
		s.note(client, in, call, appended{unknown: true}, 1<<62)
	case !errs.Is(r.Err, errs.Unavailable):
		return fmt.Errorf("append failed with class %v: %w", errs.ClassOf(r.Err), r.Err)
	}
	return r.Err
}

// publish is A's OnCommit: the values become visible.
func (s *simulation) publish(c Committed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range c.Segments {
		b := int(c.Segments[i].Bucket.Bucket)
		s.buckets[b].published = append(s.buckets[b].published, idsOf(c.Rows[i]...)...)
	}
}

func (s *simulation) read(client, b int) {
	call := s.now()
	s.mu.Lock()
	values := slices.Clone(s.buckets[b].published)
	s.mu.Unlock()
	s.note(client, opRead{b}, call, values, s.now())
}

// client appends and reads until it is told to stop or its log does.
func (s *simulation) client(l *Log, id, b int, reads bool, seed uint64) {
	rng := rand.New(rand.NewPCG(s.seed, seed))
	for range 12 {
		time.Sleep(time.Duration(rng.Int64N(int64(800 * time.Millisecond))))
		s.mu.Lock()
		stop := s.noMore
		s.mu.Unlock()
		if stop && reads {
			reads = false // only A's lease, which is not simulated, would allow it
		}
		if reads {
			s.read(id, b)
		}
		if s.append(l, id, b) != nil {
			return
		}
	}
}

func (s *simulation) options(incarnation string) Options {
	return Options{
		Store: s.store, Incarnation: incarnation, NextSeq: uint64(s.rng.IntN(3)),
		FlushBytes: 1 + s.rng.Int64N(200), InFlight: 1 + s.rng.IntN(4),
		FlushAge: time.Duration(1 + s.rng.Int64N(int64(200*time.Millisecond))),
		Rand:     rand.NewChaCha8([32]byte{byte(s.seed)}),
		Create:   simPolicy(),
	}
}

func simPolicy() objstore.CreatePolicy {
	return objstore.CreatePolicy{Rand: func() float64 { return 0.5 }}
}

// takeover fences A and replays it; it returns the end and the values of each bucket.
func (s *simulation) takeover(from uint64, by string) (end uint64, values [simBuckets][]int64, err error) {
	ctx := context.Background()
	end, err = FenceWith(ctx, s.store, "A", from, by, simPolicy())
	s.store.inner.event("%s fenced A at %d: %v", by, end, err)
	if err != nil {
		return 0, values, err
	}
	err = Replay(ctx, s.store, "A", from, end, func(id ObjectID, f *Footer) error {
		for i := range f.Segments {
			seg := &f.Segments[i]
			b := int(seg.Bucket.Bucket)
			if int64(len(values[b])) != seg.BaseOffset {
				return fmt.Errorf("%s: bucket %d continues at %d, not at %d", id, b, seg.BaseOffset, len(values[b]))
			}
			rec, err := ReadSegment(ctx, s.store, id, seg, testSchema(), []int32{1})
			if err != nil {
				return err
			}
			values[b] = append(values[b], idsOf(rec)...)
		}
		return nil
	})
	return end, values, err
}

// collect deletes everything of A, without a safe age, but no fence.
func (s *simulation) collect() error {
	ctx := context.Background()
	for info, err := range s.store.inner.List(ctx, "wal/A/", "") {
		if err != nil {
			return err
		}
		id, _ := ParseObjectKey(info.Key)
		f, err := ReadFooter(ctx, s.store.inner, id)
		if err != nil {
			return err
		}
		if f.IsFence() && s.mut != simCollectFence {
			continue
		}
		if err := s.store.inner.Delete(ctx, info.Key); err != nil {
			return err
		}
	}
	return nil
}

// run is one whole simulation, inside a bubble.
func (s *simulation) run() error {
	ctx := context.Background()
	o := s.options("A")
	o.OnCommit = s.publish
	a, err := New(o)
	if err != nil {
		return err
	}
	if err := a.Open(ctx); err != nil {
		return err
	}
	var clients sync.WaitGroup
	for i := range 2 * simBuckets {
		id := s.newClient()
		clients.Go(func() { s.client(a, id, i%simBuckets, i < simBuckets, uint64(i)) })
	}
	time.Sleep(time.Duration(s.rng.Int64N(int64(12 * time.Second))))
	s.mu.Lock()
	s.noMore = true
	s.mu.Unlock()

	end, err := s.takeCollectGoOn(o.NextSeq)
	clients.Wait()
	closing, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	_ = a.Close(closing) // fenced, or done before
	time.Sleep(simSettle)
	if err != nil {
		return err
	}
	if acked := a.Stats().AckedSeq; acked > end {
		return fmt.Errorf("A acknowledged up to %d, its log ends at %d", acked, end)
	}
	return s.checkHistory()
}

func (s *simulation) takeCollectGoOn(from uint64) (end uint64, err error) {
	end, values, err := s.takeAll(from)
	if err != nil {
		return 0, err
	}
	if err := s.collect(); err != nil {
		return 0, err
	}
	return end, s.goOn(values)
}

// takeAll lets one or two takers race; they must agree.
func (s *simulation) takeAll(from uint64) (uint64, [simBuckets][]int64, error) {
	type taken struct {
		end    uint64
		values [simBuckets][]int64
		err    error
	}
	n := 1 + s.rng.IntN(2)
	got := make([]taken, n)
	var wg sync.WaitGroup
	for i := range n {
		delay := time.Duration(s.rng.Int64N(int64(100 * time.Millisecond)))
		wg.Go(func() {
			time.Sleep(delay)
			got[i].end, got[i].values, got[i].err = s.takeover(from, fmt.Sprint("taker-", i))
		})
	}
	wg.Wait()
	for _, g := range got {
		if g.err != nil {
			return 0, g.values, g.err
		}
		if g.end != got[0].end {
			return 0, g.values, fmt.Errorf("takers end at %d and %d", g.end, got[0].end)
		}
	}
	return got[0].end, got[0].values, nil
}

// goOn reads what was recovered, lets B append behind it, and reads B's log in the end.
func (s *simulation) goOn(values [simBuckets][]int64) error {
	b := &simulation{seed: s.seed + 1<<32, rng: s.rng, store: s.store, value: 1 << 20}
	o := b.options("B")
	o.OnCommit = b.publish
	for i := range simBuckets {
		b.buckets[i].next = int64(len(values[i]))
		b.buckets[i].published = values[i]
		s.note(s.newClient(), opRead{i}, s.now(), slices.Clone(values[i]), s.now())
	}
	l, err := New(o)
	if err != nil {
		return err
	}
	if err := l.Open(context.Background()); err != nil {
		return err
	}
	b.clients = 100
	var clients sync.WaitGroup
	for i := range simBuckets {
		id := b.newClient()
		clients.Go(func() { b.client(l, id, i, true, uint64(i)) })
	}
	clients.Wait()
	if err := l.Close(context.Background()); err != nil {
		return fmt.Errorf("close B: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ops = append(s.ops, b.ops...)
	return nil
}

// appendLog is the model of one bucket: a list of values.
func appendLog() porcupine.Model {
	m := porcupine.NondeterministicModel{
		Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
			parts := make([][]porcupine.Operation, simBuckets)
			for _, op := range history {
				switch in := op.Input.(type) {
				case opAppend:
					parts[in.bucket] = append(parts[in.bucket], op)
				case opRead:
					parts[in.bucket] = append(parts[in.bucket], op)
				}
			}
			return parts
		},
		Init: func() []any { return []any{""} },
		Step: func(state, input, output any) []any {
			list := state.(string)
			in, ok := input.(opAppend)
			if !ok {
				if listOf(output.([]int64)) == list {
					return []any{state}
				}
				return nil
			}
			longer := list + listOf([]int64{in.value})
			switch out := output.(appended); {
			case out.unknown:
				return []any{list, longer}
			case int64(strings.Count(list, ",")) == out.offset:
				return []any{longer}
			}
			return nil
		},
		Equal: func(a, b any) bool { return a == b },
	}
	return m.ToModel()
}

func listOf(values []int64) string {
	var b strings.Builder
	for _, v := range values {
		b.WriteString(strconv.FormatInt(v, 10))
		b.WriteByte(',')
	}
	return b.String()
}

func (s *simulation) checkHistory() error {
	if r := porcupine.CheckOperationsTimeout(appendLog(), s.ops, 0); r != porcupine.Ok {
		return fmt.Errorf("history of %d operations is not linearizable (%v)", len(s.ops), r)
	}
	return nil
}

// simulate runs one seed and returns its verdict and events.
func simulate(t *testing.T, seed uint64, mut simMutation) (events []string, verdict error) {
	synctest.Test(t, func(*testing.T) {
		store := newSimStore(seed)
		store.inner.twoWinners = mut == simTwoWinners
		s := &simulation{seed: seed, rng: rand.New(rand.NewPCG(seed, 99)), store: store, mut: mut}
		verdict = s.run()
		time.Sleep(simSettle) // late puts land before the bubble ends
		events = store.inner.events()
	})
	return events, verdict
}

func simSeeds(def int) uint64 {
	if n, err := strconv.Atoi(os.Getenv("FIRN_SIM_SEEDS")); err == nil {
		return uint64(n)
	}
	if raceEnabled {
		def /= 5 // the detector makes each many times slower, and one seed shows most races
	}
	return uint64(def)
}

func TestSimulationOfTakeover(t *testing.T) {
	first := uint64(0)
	if n, err := strconv.ParseUint(os.Getenv("FIRN_SIM_SEED"), 10, 64); err == nil {
		first = n
	}
	for seed := first; seed < first+simSeeds(200); seed++ {
		if events, err := simulate(t, seed, simDesign); err != nil {
			t.Fatalf("FIRN_SIM_SEED=%d: %v\n%s", seed, err, strings.Join(events, "\n"))
		}
	}
}

func TestSimulationRepeatsItself(t *testing.T) {
	for seed := range simSeeds(10) {
		one, _ := simulate(t, seed, simDesign)
		two, _ := simulate(t, seed, simDesign)
		require.Equal(t, one, two, "seed %d", seed)
		require.Greater(t, len(one), 10)
	}
}

func TestSimulationNoticesABrokenProtocol(t *testing.T) {
	for _, mut := range []simMutation{simTwoWinners, simCollectFence} {
		found := 0
		for seed := range uint64(20) {
			if _, err := simulate(t, seed, mut); err != nil {
				found++
			}
		}
		require.Positive(t, found, "%s", mut)
		t.Logf("%s: noticed in %d of 20 seeds", mut, found)
	}
}
