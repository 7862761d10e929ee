package metastore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// The simulation runs several agents on one thread. Each store call and each
// wait is a step: the agent stops there, and the seed says who runs next, whether
// the agent sleeps for a long time, or dies and is started anew. Late requests of
// the sleeping and the dead arrive at any later step. Logs are trimmed at age
// zero behind snapshots of every third entry, so that sleepers wake up in a
// store that forgot them.

const (
	simAgents = 4
	simSteps  = 900
)

type sim struct {
	seed   uint64
	rng    *rand.Rand
	store  *simStore
	check  positionCheck
	actors []*actor
	births int

	events  hash.Hash
	trace   strings.Builder
	verbose bool

	states   []*State // the one log, as far as it was audited
	outcomes []outcome
	violated error
	counts   map[string]int
}

// outcome is what an append of a uniquely named database said.
type outcome struct {
	name    string
	success bool // else: surely not written
}

// actor is one agent process at a time; when it dies, another takes its place
// under the same agent id.
type actor struct {
	sim         *sim
	agentID     string
	incarnation string
	log         *Log
	wake        int64
	next        func() (string, bool)
	stop        func()
	yield       func(string) bool
	cancel      context.CancelFunc
}

type killed struct{}

func newSim(seed uint64, check positionCheck) *sim {
	s := &sim{seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), check: check, events: sha256.New(), counts: map[string]int{}}
	s.store = &simStore{rng: s.rng, objects: map[string]simObject{}, first: map[string][]byte{}, faults: true, note: s.note}
	s.states = []*State{{}}
	for i := range simAgents {
		s.actors = append(s.actors, &actor{sim: s, agentID: fmt.Sprint("agent-", i)})
	}
	return s
}

func (s *sim) note(format string, args ...any) {
	fmt.Fprintf(s.events, format+"\n", args...)
	if s.verbose {
		fmt.Fprintf(&s.trace, format+"\n", args...)
	}
}

func (s *sim) fail(format string, args ...any) {
	if s.violated == nil {
		s.violated = fmt.Errorf(format, args...)
	}
}

// run drives the agents and returns the first violation.
func (s *sim) run() error {
	for s.store.now = 0; s.store.now < simSteps && s.violated == nil; s.store.now++ {
		if len(s.store.late) > 0 && s.rng.IntN(15) == 0 {
			i := s.rng.IntN(len(s.store.late))
			apply := s.store.late[i]
			s.store.late = append(s.store.late[:i], s.store.late[i+1:]...)
			apply()
		}
		a := s.actors[s.rng.IntN(simAgents)]
		if a.wake > s.store.now {
			continue
		}
		s.turn(a)
		s.audit(a)
	}
	for _, a := range s.actors {
		a.kill()
	}
	for _, apply := range s.store.late {
		apply()
	}
	s.auditEnd()
	return s.violated
}

func (s *sim) turn(a *actor) {
	switch {
	case a.next == nil:
		a.start()
	case s.rng.IntN(60) == 0:
		s.note("%s dies", a.incarnation)
		a.kill()
		return
	case s.rng.IntN(25) == 0:
		a.wake = s.store.now + int64(s.rng.IntN(400))
		s.note("%s sleeps until %d", a.incarnation, a.wake)
		return
	}
	what, alive := a.next()
	s.note("%d %s %s", s.store.now, a.incarnation, what)
	if !alive {
		a.next = nil
	}
}

func (a *actor) start() {
	a.sim.births++
	a.incarnation = incarnation(a.sim.births)
	a.log = nil
	a.next, a.stop = iter.Pull(func(yield func(string) bool) {
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(killed); !ok {
					panic(r)
				}
			}
		}()
		a.yield = yield
		a.live()
	})
}

func (a *actor) kill() {
	if a.next != nil {
		a.stop()
		a.next = nil
	}
}

// step hands the thread back to the scheduler.
func (a *actor) step(what string) {
	if !a.yield(what) {
		panic(killed{})
	}
}

// live is an agent's life: open, fence former selves, join, then act.
func (a *actor) live() {
	rng := a.sim.rng
	var err error
	_ = a.do(func(ctx context.Context) error {
		a.log, err = Open(ctx, &actorStore{simStore: a.sim.store, step: a.step}, Options{
			Writer: a.incarnation, SlotCount: 4, SnapshotEvery: 3, TrimAge: -1, Manual: true, check: a.sim.check,
			Rand: newSeeded(a.sim.seed<<16 | uint64(a.sim.births)),
			Now:  func() time.Time { return epoch.Add(time.Duration(a.sim.store.now) * time.Hour) },
			Create: objstore.CreatePolicy{Rand: func() float64 { return 0 }, Sleep: func(ctx context.Context, _ time.Duration) error {
				a.step("wait")
				if rng.IntN(12) == 0 {
					a.cancel() // the caller ran out of time
				}
				return ctx.Err()
			}},
		})
		return err
	})
	if err != nil {
		return
	}
	for _, former := range PlanStart(a.log.State(), a.agentID) {
		_ = a.append(DecideFence(former, 1, a.incarnation, a.agentID))
	}
	_ = a.append(DecideJoin(Join{Incarnation: a.incarnation, AgentID: a.agentID}))
	for range 40 {
		a.act(rng.IntN(12))
		if fenced, _ := FencedSelf(a.log.State(), a.incarnation); fenced {
			return
		}
	}
}

func (a *actor) act(what int) {
	s, me := a.log.State(), a.incarnation
	checkpoint := CheckpointRef{Incarnation: me, Seq: uint64(a.sim.store.now)}
	switch what {
	case 0, 1, 2:
		a.createDatabase()
	case 3, 4:
		for _, r := range PlanClaims(s, me) {
			a.step("recover") // takes its time; the world moves on
			_ = a.append(DecideClaim(me, r.Slots, checkpoint))
		}
	case 5:
		for _, h := range PlanReleases(s, me) {
			_ = a.append(DecideRelease(me, h.Slots, checkpoint))
		}
	case 6:
		if agents := s.LiveAgents(); len(agents) > 0 {
			if victim := agents[a.sim.rng.IntN(len(agents))].Incarnation; victim != me {
				_ = a.append(DecideFence(victim, 1, me, a.agentID))
			}
		}
	case 7, 8:
		_ = a.do(a.log.Maintain)
	case 9:
		_ = a.do(func(ctx context.Context) error { _, err := a.log.Refresh(ctx); return err })
	case 10:
		_ = a.append(DecidePrune(a.log.o.Now()))
	case 11:
		for _, h := range PlanLeave(s, me) {
			_ = a.append(DecideRelease(me, h.Slots, checkpoint))
		}
		_ = a.append(DecideLeave(me))
	}
}

// createDatabase appends an entry that can be recognised, and records what
// Append said of it.
func (a *actor) createDatabase() {
	name := fmt.Sprintf("db-%s-%d", a.incarnation, a.sim.store.now)
	err := a.append(DecideCreateDatabase(name, "", false))
	switch {
	case err == nil:
		a.sim.outcomes = append(a.sim.outcomes, outcome{name, true})
	case !errs.Is(err, errs.Unknown):
		a.sim.outcomes = append(a.sim.outcomes, outcome{name, false})
	default:
		a.sim.counts["unknown"]++
	}
}

func (a *actor) append(d Decision) error {
	return a.do(func(ctx context.Context) error {
		_, err := a.log.Append(ctx, d)
		return err
	})
}

func (a *actor) do(fn func(context.Context) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	a.cancel = cancel
	err := fn(ctx)
	class := "ok"
	if err != nil {
		class = errs.ClassOf(err).String()
	}
	if errs.Is(err, errs.Corrupt) || errs.Is(err, errs.Internal) {
		a.sim.fail("%s: %w", a.incarnation, err)
	}
	a.sim.counts[class]++
	a.sim.note("%s: %s", a.incarnation, class)
	return err
}

// audit checks, after each step, that the one log holds and that the view of the
// agent that ran is a prefix of it.
func (s *sim) audit(a *actor) {
	for {
		last := s.states[len(s.states)-1]
		body, ok := s.store.first[entryKey(last.Seq+1)]
		if !ok {
			break
		}
		e, err := DecodeEntry(body)
		if err == nil {
			s.auditOwnership(last, e)
			last, err = Apply(last, e)
		}
		if err != nil {
			s.fail("entry %d of the one log: %w", len(s.states), err)
			return
		}
		s.states = append(s.states, last)
	}
	if a.log == nil {
		return
	}
	view := a.log.State()
	if view.Seq >= uint64(len(s.states)) || s.states[view.Seq].Sum != view.Sum {
		s.fail("the view of %s at entry %d is no prefix of the log", a.incarnation, view.Seq)
	}
}

// auditOwnership is INVARIANT(meta-3) in other words than the state machine's.
func (s *sim) auditOwnership(before *State, e *Entry) {
	c, ok := e.Command.(*Claim)
	if !ok {
		return
	}
	for _, ref := range c.Slots {
		owner := before.slots[ref.Slot].Owner
		for a := range before.agents.values {
			if a.Incarnation == owner && a.State == Live {
				s.fail("slot %d has two live owners, %s and %s", ref.Slot, owner, c.Incarnation)
			}
			if a.Incarnation == c.Incarnation && a.State != Live {
				s.fail("slot %d is claimed by a dead incarnation", ref.Slot)
			}
		}
	}
	s.counts["claims"]++
}

// auditEnd checks what appends said against the whole log.
func (s *sim) auditEnd() {
	if s.violated != nil {
		return
	}
	entries, _, err := s.store.truth()
	if err != nil {
		s.fail("%w", err)
		return
	}
	written := map[string]int{}
	for _, e := range entries {
		if c, ok := e.Command.(*CreateDatabase); ok {
			written[c.Database]++
		}
	}
	for _, o := range s.outcomes {
		if o.success != (written[o.name] == 1) {
			s.fail("append of %s said success=%v; the log holds it %d times", o.name, o.success, written[o.name])
		}
	}
	s.counts["entries"] += len(entries)
	s.counts["ghosts"] += s.store.ghosts
}

func simSeeds(t testing.TB, fallback int) int {
	text := os.Getenv("FIRN_SIM_SEEDS")
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func TestSimulationOfTheMetadataLog(t *testing.T) {
	total := map[string]int{}
	seeds := simSeeds(t, simSeedsByDefault)
	for seed := range uint64(seeds) {
		s := newSim(seed, provePositions)
		if err := s.run(); err != nil {
			again := newSim(seed, provePositions)
			again.verbose = true
			_ = again.run()
			t.Fatalf("seed %d: %v\n%s", seed, err, again.trace.String())
		}
		for name, n := range s.counts {
			total[name] += n
		}
	}
	t.Log(total)
	for _, name := range []string{"ok", "entries", "ghosts", "claims", "unknown"} {
		require.Greater(t, total[name], seeds/10, "the simulation does not reach %s: %v", name, total)
	}
}

func TestSimulationIsReproducible(t *testing.T) {
	for seed := range uint64(10) {
		var sums []string
		for range 2 {
			s := newSim(seed, provePositions)
			require.NoError(t, s.run())
			sums = append(sums, hex.EncodeToString(s.events.Sum(nil)))
		}
		require.Equal(t, sums[0], sums[1], "seed %d", seed)
	}
}

// TestSimulationFindsWeakerRules shows that the simulation can fail: believing in
// a position because it was created, or because the entry before it is there,
// loses entries.
func TestSimulationFindsWeakerRules(t *testing.T) {
	for name, c := range map[string]struct {
		check positionCheck
		first uint64 // a seed that shows it, or one a little before
	}{
		"created is won": {trustPositions, 6}, "won when the entry before is there": {headPositions, 495}, "what is read is genuine": {trustReads, 6},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := c.first; seed < c.first+2000; seed++ {
				if err := newSim(seed, c.check).run(); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatal("no seed shows what is wrong with the rule")
		})
	}
}
