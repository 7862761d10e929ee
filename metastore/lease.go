package metastore

import (
	"slices"
	"time"
)

// Defaults of heartbeats.
const (
	// DefaultLease is how long a heartbeat must stand still before its agent
	// counts as silent.
	DefaultLease = 10 * time.Second
	// beatsPerLease is how many heartbeats are written, and looked at, in a lease.
	beatsPerLease = 4
	// marginPart of the lease is given up by its holder, for clocks that run at
	// different speeds.
	marginPart = 5
)

// lease is the pure half of a Heartbeat: whether this agent may believe that
// nobody took its slots.
//
// Nobody counts the agent as silent before the lease has passed since the start
// of a put whose counter they saw. So from the start of a confirmed beat, until
// the lease less a margin has passed, the slots are surely still its own. A beat
// that ends later than that proves nothing by itself: somebody may have decided
// already. Then the log must be read after the beat, and must show the
// incarnation live; the other side appends its Fence first and looks at the
// heartbeat afterwards (Observer.StillSilent), so one of the two sees the other.
type lease struct {
	length, margin time.Duration
	from           time.Time // start of the newest beat that confirmed the lease
}

// holds reports whether the lease is confirmed at now.
func (l *lease) holds(now time.Time) bool {
	return !l.from.IsZero() && now.Sub(l.from) < l.length-l.margin
}

// beat records a beat that was accepted. It returns false when the lease lapsed
// before the beat ended, so that the log must be asked.
func (l *lease) beat(start, end time.Time) bool {
	if !l.holds(end) {
		return false
	}
	l.from = start
	return true
}

// checked records that the log, read after the beat which began at start was
// accepted, shows the incarnation live.
func (l *lease) checked(start time.Time) {
	if start.After(l.from) {
		l.from = start
	}
}

// tracker is the pure half of an Observer: which incarnations stood still for a
// whole lease by this process's monotonic clock.
type tracker struct {
	lease time.Duration
	seen  map[string]sighting
}

type sighting struct {
	counter uint64
	since   time.Time // end of the read that saw the counter first
	silent  bool
}

// observe records a successful read of a heartbeat (counter zero: there is none
// yet). Only a read that began a whole lease after the counter was first seen,
// and finds it unchanged, makes an incarnation silent: time alone never does, so
// a store that cannot be read silences nobody.
func (t *tracker) observe(incarnation string, counter uint64, start, end time.Time) {
	if t.seen == nil {
		t.seen = map[string]sighting{}
	}
	s, ok := t.seen[incarnation]
	if !ok || s.counter != counter {
		t.seen[incarnation] = sighting{counter: counter, since: end}
		return
	}
	s.silent = s.silent || start.Sub(s.since) >= t.lease
	t.seen[incarnation] = s
}

// keep forgets all but these.
func (t *tracker) keep(incarnations []string) {
	for id := range t.seen {
		if !slices.Contains(incarnations, id) {
			delete(t.seen, id)
		}
	}
}

// silent returns the silent incarnations, ascending.
func (t *tracker) silent() []string {
	var out []string
	for _, id := range sortedKeys(t.seen) {
		if t.seen[id].silent {
			out = append(out, id)
		}
	}
	return out
}
