package producers

import (
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/firn-data/firn/internal/errs"
)

// Bounds of one bucket's set. They keep a manifest and an owner's memory small;
// idempotency keys leave by age.
const (
	MaxProducers       = 65_536
	MaxIdempotencyKeys = 262_144
	MaxIDBytes         = 256
)

// Delta is what one segment says about one producer: rows [First, First+Count)
// were applied, and everything below AckedBelow is done.
type Delta struct {
	ID          string
	First       int64
	Count       int64
	AckedBelow  int64
	Idempotency bool // ID is the key of a single request
}

// Join returns d extended by next when next continues it, as one delta that
// records the same.
func (d Delta) Join(next Delta) (Delta, bool) {
	if d.ID != next.ID || d.Idempotency != next.Idempotency || d.First+d.Count != next.First {
		return d, false
	}
	d.Count += next.Count
	d.AckedBelow = max(d.AckedBelow, next.AckedBelow)
	return d, true
}

// Named is a State with its producer's id, as manifests keep it.
type Named struct {
	ID string
	State
}

// Set is the producers of one bucket. The zero Set is empty and ready.
type Set struct {
	producers map[string]*State
	keys      map[string]*State // idempotency keys: a name space of their own
}

// NewSet returns a set with the states of a manifest; it takes the slices over.
func NewSet(states []Named) *Set {
	s := &Set{}
	for _, n := range states {
		state := n.State
		s.space(state.Idempotency)[n.ID] = &state
	}
	return s
}

func (s *Set) space(idempotency bool) map[string]*State {
	if s.producers == nil {
		s.producers, s.keys = make(map[string]*State), make(map[string]*State)
	}
	if idempotency {
		return s.keys
	}
	return s.producers
}

// Len returns how many producers and idempotency keys are known.
func (s *Set) Len() int { return len(s.producers) + len(s.keys) }

// Get returns a copy of what is known about a producer, or about an idempotency key.
func (s *Set) Get(id string, idempotency bool) (State, bool) {
	state, ok := s.space(idempotency)[id]
	if !ok {
		return State{}, false
	}
	return state.Clone(), true
}

// Admit returns the parts of the delta's range that are new (see State.Admit).
// Errors: Invalid, or Exhausted when the bucket knows too many producers.
func (s *Set) Admit(d Delta) ([]Range, error) {
	if d.ID == "" || len(d.ID) > MaxIDBytes {
		return nil, errs.New(errs.Invalid, "producer id of %d bytes: it needs 1 to %d", len(d.ID), MaxIDBytes)
	}
	if !utf8.ValidString(d.ID) { // the log could not be written, for nobody
		return nil, errs.New(errs.Invalid, "producer id or key %q is not valid UTF-8", d.ID)
	}
	space := s.space(d.Idempotency)
	if state, ok := space[d.ID]; ok {
		return state.Admit(d.First, d.Count, d.AckedBelow)
	}
	if d.Idempotency && len(space) >= MaxIdempotencyKeys {
		return nil, errs.New(errs.Exhausted,
			"bucket holds %d idempotency keys younger than their expiry: send fewer, larger requests or use producer_id", MaxIdempotencyKeys)
	}
	if !d.Idempotency && len(space) >= MaxProducers {
		return nil, errs.New(errs.Exhausted,
			"bucket knows %d producers: reuse producer ids, or let them expire by the table's producer expiry", MaxProducers)
	}
	return new(State).Admit(d.First, d.Count, d.AckedBelow)
}

// Record notes an applied delta as of a commit timestamp in microseconds. It
// never fails (INVARIANT(producers-3)).
func (s *Set) Record(d Delta, timestamp int64) {
	space := s.space(d.Idempotency)
	state, ok := space[d.ID]
	if !ok {
		state = &State{Idempotency: d.Idempotency}
		space[d.ID] = state
	}
	state.Record(d.First, d.Count, d.AckedBelow, timestamp)
}

// Expire forgets the producers last seen before one timestamp and the
// idempotency keys last seen before another, both in microseconds, and returns
// how many it forgot. Zero forgets none.
func (s *Set) Expire(producersBefore, keysBefore int64) int {
	old := s.Len()
	maps.DeleteFunc(s.producers, func(_ string, st *State) bool { return st.LastSeen < producersBefore })
	maps.DeleteFunc(s.keys, func(_ string, st *State) bool { return st.LastSeen < keysBefore })
	return old - s.Len()
}

// States returns copies of everything known, ordered by id, producers before
// idempotency keys of the same id.
func (s *Set) States() []Named {
	all := make([]Named, 0, s.Len())
	for _, space := range []map[string]*State{s.producers, s.keys} {
		for id, state := range space {
			all = append(all, Named{ID: id, State: state.Clone()})
		}
	}
	slices.SortFunc(all, compareNamed)
	return all
}

func compareNamed(a, b Named) int {
	switch {
	case a.ID < b.ID, a.ID == b.ID && !a.Idempotency && b.Idempotency:
		return -1
	case a.ID == b.ID && a.Idempotency == b.Idempotency:
		return 0
	}
	return 1
}
