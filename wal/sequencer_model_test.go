package wal

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The model: one writer that drives the real sequencer, puts that may be applied
// late, repeated or unanswered, two takers that fence the first absent position
// (one of them may put a barrier ahead first), and a collector that deletes
// anything of the dead writer but never a fence. All of its states are explored.
// What must always hold: both takers find the same end, and the writer has never
// acknowledged anything at or after it.

const (
	modelPositions = 4 // positions that the writer would like to fill
	modelInFlight  = 3
	modelBarrier   = 2 // distance of the barrier from the taker's position
	modelStore     = modelPositions + modelBarrier + 2
)

type modelTaker struct {
	scan    uint8
	done    bool
	barrier bool
}

// modelState is one state of the whole system, comparable.
type modelState struct {
	store     [modelStore]byte // 0, 'W' or 'F'
	net       uint16           // positions whose put may still be applied
	next      uint8
	acked     uint8
	uncertain uint8
	stopped   bool
	slots     [modelInFlight]posState
	takers    [2]modelTaker
}

func (m *modelState) sequencer() *sequencer {
	s := newSequencer(uint64(m.next), modelInFlight)
	s.acked, s.uncertain, s.stopped = uint64(m.acked), int(m.uncertain), m.stopped
	copy(s.states, m.slots[:])
	return &s
}

func (m modelState) with(s *sequencer) modelState {
	m.next, m.acked, m.uncertain, m.stopped = uint8(s.next), uint8(s.acked), uint8(s.uncertain), s.stopped
	copy(m.slots[:], s.states)
	return m
}

// mutation is one way to get it wrong; each must be found.
type mutation string

const (
	theDesign        mutation = "the design"
	plainPut         mutation = "plain put"
	ackOutOfOrder    mutation = "acknowledge out of order"
	noFence          mutation = "no fence"
	collectFence     mutation = "collect the fence"
	existsIsSuccess  mutation = "take exists for success"
	unknownIsSuccess mutation = "take unknown for success"
	existsIsFailure  mutation = "take exists for failure and mint past it"
	fenceAhead       mutation = "fence ahead of the first absent position"
)

// steps returns every state that can follow m.
func (m modelState) steps(mut mutation) []modelState {
	out := m.writerSteps(mut)
	out = append(out, m.storeSteps(mut)...)
	for i := range m.takers {
		out = append(out, m.takerSteps(i, mut)...)
	}
	return out
}

func (m modelState) writerSteps(mut mutation) []modelState {
	var out []modelState
	if s := m.sequencer(); s.next < modelPositions {
		if seq, ok := s.dispatch(); ok {
			n := m.with(s)
			n.net |= 1 << seq
			out = append(out, n)
		}
	}
	if s := m.sequencer(); true {
		if _, ok := s.ack(); ok {
			out = append(out, m.with(s))
		}
	}
	for p := m.acked; p < m.next; p++ {
		s := m.sequencer()
		state := *s.at(uint64(p))
		if !m.stopped && state == posInFlight {
			s := m.sequencer()
			s.unknown(uint64(p))
			if mut == unknownIsSuccess {
				s.created(uint64(p))
			}
			out = append(out, m.with(s))
		}
		switch {
		case m.stopped || state == posCreated:
		case m.store[p] == 'W', m.store[p] == 'F' && mut == existsIsSuccess:
			s.created(uint64(p))
			out = append(out, m.with(s))
		case m.store[p] == 'F' && mut == existsIsFailure:
			s.created(uint64(p)) // skipped: the slot is freed and the log goes on
			out = append(out, m.with(s))
		case m.store[p] == 'F':
			s.stop()
			out = append(out, m.with(s))
		}
		if mut == ackOutOfOrder && !m.stopped && state == posCreated && p > m.acked {
			n := m
			for q := m.acked; q <= p; q++ {
				n.slots[q%modelInFlight] = posFree
			}
			n.acked, n.uncertain = p+1, 0
			out = append(out, n)
		}
	}
	return out
}

func (m modelState) storeSteps(mut mutation) []modelState {
	var out []modelState
	for p := range modelStore {
		if m.net&(1<<p) != 0 && (m.store[p] == 0 || (mut == plainPut && m.store[p] == 'F')) {
			n := m
			n.store[p] = 'W'
			out = append(out, n)
		}
		over := m.takers[0].done && m.takers[1].done
		if over && (m.store[p] == 'W' || (m.store[p] == 'F' && mut == collectFence)) {
			n := m
			n.store[p] = 0
			out = append(out, n)
		}
	}
	return out
}

func (m modelState) takerSteps(i int, mut mutation) []modelState {
	t := m.takers[i]
	if t.done {
		return nil
	}
	var out []modelState
	if i == 0 && !t.barrier && int(t.scan)+modelBarrier < modelStore {
		n := m
		n.takers[i].barrier = true
		if at := int(t.scan) + modelBarrier; n.store[at] == 0 {
			n.store[at] = 'F'
			if mut == fenceAhead { // ... and believe that it is the end
				n.takers[i].done = true
				n.takers[i].scan = t.scan
			}
		}
		out = append(out, n)
	}
	n := m
	switch m.store[t.scan] {
	case 'W':
		n.takers[i].scan++
	case 'F':
		n.takers[i].done = true
	default:
		n.takers[i].done = true
		if mut != noFence {
			n.store[t.scan] = 'F'
		}
	}
	return append(out, n)
}

func (m modelState) violation() string {
	for i, t := range m.takers {
		if t.done && m.acked > t.scan {
			return fmt.Sprintf("acknowledged %d positions, taker %d recovered %d", m.acked, i, t.scan)
		}
	}
	if a, b := m.takers[0], m.takers[1]; a.done && b.done && a.scan != b.scan {
		return fmt.Sprintf("takers end at %d and %d", a.scan, b.scan)
	}
	return ""
}

func explore(mut mutation) (violation string, states int) {
	start := modelState{}
	seen := map[modelState]struct{}{start: {}}
	todo := []modelState{start}
	for len(todo) > 0 {
		m := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, n := range m.steps(mut) {
			if v := n.violation(); v != "" {
				return v, len(seen)
			}
			if _, ok := seen[n]; !ok {
				seen[n] = struct{}{}
				todo = append(todo, n)
			}
		}
	}
	return "", len(seen)
}

func TestEveryInterleavingOfWriterTakersAndCollector(t *testing.T) {
	violation, states := explore(theDesign)
	require.Empty(t, violation)
	require.Greater(t, states, 10_000, "the model must not collapse")
	t.Logf("%d states", states)
}

func TestModelFindsEveryMutation(t *testing.T) {
	for _, mut := range []mutation{plainPut, ackOutOfOrder, noFence, collectFence, existsIsSuccess, unknownIsSuccess, existsIsFailure, fenceAhead} {
		violation, states := explore(mut)
		require.NotEmpty(t, violation, "%s: nothing found in %d states", mut, states)
		t.Logf("%s: %s (after %d states)", mut, violation, states)
	}
}
