package metastore

import (
	"slices"

	"github.com/firn-data/firn/internal/errs"
)

// Apply returns the state after entry e; s stays as it was. It is deterministic:
// the same entries give equal states everywhere. An entry that does not follow s
// or whose command does not hold on s was never written by Append, so it is
// Corrupt.
func Apply(s *State, e *Entry) (*State, error) {
	next, err := step(s, e)
	if err != nil {
		return nil, &errs.Error{Class: errs.Corrupt, Op: "apply " + entryKey(e.Seq), Cause: err}
	}
	return next, nil
}

// step is Apply with the command's own error class, for those who decide.
func step(s *State, e *Entry) (*State, error) {
	if e.Seq != s.Seq+1 {
		return nil, errs.New(errs.Corrupt, "entry %d does not follow %d", e.Seq, s.Seq)
	}
	if e.Prev != s.Sum {
		return nil, errs.New(errs.Corrupt, "entry %d follows an entry with the sum %q; entry %d has the sum %q", e.Seq, e.Prev, s.Seq, s.Sum)
	}
	if e.Sum == "" || e.Nonce == "" || e.Writer == "" {
		return nil, errs.New(errs.Corrupt, "entry %d lacks its sum, nonce or writer", e.Seq)
	}
	if _, isInit := e.Command.(*Init); isInit != (e.Seq == 1) {
		return nil, errs.New(errs.Corrupt, "entry %d is %q; init is the first entry and no other", e.Seq, e.Command.Name())
	}
	next := *s
	next.Seq, next.Sum = e.Seq, e.Sum
	if err := e.Command.apply(&next, e); err != nil {
		return nil, err
	}
	next.mark(e)
	return &next, nil
}

// mark remembers the entry's nonce, among the newest and with its writer.
func (s *State) mark(e *Entry) {
	m := Mark{Seq: e.Seq, Writer: e.Writer, Nonce: e.Nonce}
	old := s.recent
	if len(old) >= recentMarks {
		old = old[len(old)-recentMarks+1:]
	}
	s.recent = append(slices.Clone(old), m)
	if a, ok := s.agents.get(e.Writer); ok {
		c := *a
		c.Last = Mark{Seq: e.Seq, Nonce: e.Nonce}
		s.agents = s.agents.with(c.Incarnation, &c)
	}
}

func (c *Init) apply(s *State, e *Entry) error {
	if c.ClusterID == "" || c.SlotCount < 1 || c.SlotCount > MaxSlots {
		return errs.New(errs.Invalid, "a cluster needs an id and 1 to %d slots", MaxSlots)
	}
	s.ClusterID, s.SlotCount, s.CreatedAt = c.ClusterID, c.SlotCount, e.Time
	s.NextTableID = 1
	s.slots = make([]Slot, c.SlotCount)
	return nil
}
