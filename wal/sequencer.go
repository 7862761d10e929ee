package wal

// posState is what the writer knows about one of its positions.
type posState uint8

const (
	posFree      posState = iota
	posInFlight           // a put is under way
	posUncertain          // an attempt ended without an outcome; the same bytes are being retried
	posCreated            // our bytes stand there
)

// sequencer decides which position is written next and which is acknowledged.
// It is pure: no clock, no I/O, no lock. docs/format/wal.md states its rules;
// sequencer_test.go explores all of its states beside a taker and a collector.
//
// INVARIANT(wal-1): positions are minted densely, and at most limit of them lie
// between the first not acknowledged and the next to mint.
// INVARIANT(wal-2): position n+1 is acknowledged only after n.
// INVARIANT(wal-3): nothing is minted while an outcome is uncertain.
// INVARIANT(wal-5): after a stop nothing is minted or acknowledged, ever.
type sequencer struct {
	next  uint64 // next position to mint
	acked uint64 // first position not acknowledged

	uncertain int // positions whose outcome is unknown now
	stopped   bool
	states    []posState // of [acked, next), by position modulo the limit
}

func newSequencer(next uint64, limit int) sequencer {
	return sequencer{next: next, acked: next, states: make([]posState, limit)}
}

func (s *sequencer) at(seq uint64) *posState { return &s.states[seq%uint64(len(s.states))] }

// outstanding counts the positions minted and not acknowledged.
func (s *sequencer) outstanding() int { return int(s.next - s.acked) }

// owns reports whether seq was minted and is not acknowledged.
func (s *sequencer) owns(seq uint64) bool { return seq >= s.acked && seq < s.next }

// ready reports whether dispatch would mint a position.
func (s *sequencer) ready() bool {
	return !s.stopped && s.uncertain == 0 && s.outstanding() < len(s.states)
}

// dispatch mints the next position.
func (s *sequencer) dispatch() (seq uint64, ok bool) {
	if !s.ready() {
		return 0, false
	}
	seq = s.next
	s.next++
	*s.at(seq) = posInFlight
	return seq, true
}

// unknown notes that an attempt at seq ended without an outcome.
func (s *sequencer) unknown(seq uint64) {
	if s.owns(seq) && *s.at(seq) == posInFlight {
		*s.at(seq) = posUncertain
		s.uncertain++
	}
}

// created notes that our bytes stand at seq.
func (s *sequencer) created(seq uint64) {
	if !s.owns(seq) || *s.at(seq) == posCreated {
		return
	}
	if *s.at(seq) == posUncertain {
		s.uncertain--
	}
	*s.at(seq) = posCreated
}

// ack acknowledges the next position in order, if its object is known to stand.
func (s *sequencer) ack() (seq uint64, ok bool) {
	if s.stopped || s.acked == s.next || *s.at(s.acked) != posCreated {
		return 0, false
	}
	seq = s.acked
	*s.at(seq) = posFree
	s.acked++
	return seq, true
}

// stop ends the log: a fence or a foreign object stands at a minted position, or
// its put failed for good.
func (s *sequencer) stop() { s.stopped = true }
