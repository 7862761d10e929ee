package metastore

import (
	"slices"

	"github.com/firn-data/firn/internal/errs"
)

// live returns a live incarnation, or Fenced when it is dead, or NotFound.
func (s *State) live(incarnation string) (*Agent, error) {
	a, ok := s.agents.get(incarnation)
	switch {
	case !ok:
		return nil, errs.New(errs.NotFound, "incarnation %s has not joined", incarnation)
	case a.State == Fenced:
		return nil, errs.New(errs.Fenced, "incarnation %s was fenced by %s (agent %s)", incarnation, a.FencedBy, a.FencedByAgent)
	case a.State == Left:
		return nil, errs.New(errs.Fenced, "incarnation %s has left", incarnation)
	}
	return a, nil
}

func (c *Join) apply(s *State, e *Entry) error {
	if err := CheckIncarnation(c.Incarnation); err != nil {
		return err
	}
	if c.AgentID == "" || len(c.AgentID) > maxAgentText || len(c.Address) > maxAgentText || len(c.Zone) > maxAgentText {
		return errs.New(errs.Invalid, "agent id, address and zone have at most %d bytes, and the id is not empty", maxAgentText)
	}
	if _, ok := s.agents.get(c.Incarnation); ok {
		return errs.New(errs.Exists, "incarnation %s has joined before", c.Incarnation)
	}
	for a := range s.agents.values {
		if a.State == Live && a.AgentID == c.AgentID {
			return errs.New(errs.Conflict, "agent %q is live as incarnation %s, which must be fenced first", c.AgentID, a.Incarnation)
		}
	}
	s.agents = s.agents.with(c.Incarnation, &Agent{
		Incarnation: c.Incarnation, AgentID: c.AgentID, Address: c.Address, Zone: c.Zone, Version: c.Version,
		State: Live, JoinedAt: e.Time, JoinedSeq: e.Seq,
	})
	return nil
}

// maxAgentText bounds an agent's id, address and zone.
const maxAgentText = 255

func (c *Leave) apply(s *State, e *Entry) error {
	a, err := s.live(c.Incarnation)
	if err != nil {
		return err
	}
	if owned := s.SlotsOf(c.Incarnation); len(owned) > 0 {
		return errs.New(errs.Conflict, "incarnation %s owns %d slots, which must be released before it leaves", c.Incarnation, len(owned))
	}
	gone := *a
	gone.State, gone.EndedAt, gone.EndedSeq = Left, e.Time, e.Seq
	s.agents = s.agents.with(gone.Incarnation, &gone)
	return nil
}

func (c *Fence) apply(s *State, e *Entry) error {
	a, err := s.live(c.Incarnation)
	if err != nil {
		return err
	}
	if c.By == "" || c.By == c.Incarnation {
		return errs.New(errs.Invalid, "incarnation %s is fenced by %q", c.Incarnation, c.By)
	}
	dead := *a
	dead.State, dead.EndedAt, dead.EndedSeq = Fenced, e.Time, e.Seq
	dead.FenceAt, dead.FencedBy, dead.FencedByAgent = c.FenceAt, c.By, c.ByAgent
	s.agents = s.agents.with(dead.Incarnation, &dead)
	return nil
}

func (c *Release) apply(s *State, _ *Entry) error {
	if _, err := s.live(c.Incarnation); err != nil {
		return err
	}
	slots := slices.Clone(s.slots)
	for _, i := range c.Slots {
		if i < 0 || i >= len(slots) || slots[i].Owner != c.Incarnation {
			return errs.New(errs.Conflict, "incarnation %s does not own slot %d", c.Incarnation, i)
		}
		if err := checkCheckpoint(i, slots[i], c.Incarnation, c.Checkpoint); err != nil {
			return err
		}
		slots[i] = Slot{Epoch: slots[i].Epoch + 1, Checkpoint: c.Checkpoint}
	}
	s.slots = slots
	return nil
}

// INVARIANT(meta-3): a slot is claimed only from nobody or from a fenced owner,
// by a live incarnation that saw the slot as it is now.
func (c *Claim) apply(s *State, _ *Entry) error {
	if _, err := s.live(c.Incarnation); err != nil {
		return err
	}
	slots := slices.Clone(s.slots)
	for _, ref := range c.Slots {
		if ref.Slot < 0 || ref.Slot >= len(slots) {
			return errs.New(errs.Invalid, "slot %d: there are %d slots", ref.Slot, len(slots))
		}
		slot := slots[ref.Slot]
		if owner, ok := s.agents.get(slot.Owner); slot.Owner != "" && (!ok || owner.State != Fenced) {
			return errs.New(errs.Conflict, "slot %d is owned by incarnation %s", ref.Slot, slot.Owner)
		}
		if slot.Epoch != ref.Epoch {
			return errs.New(errs.Conflict, "slot %d is at epoch %d, not %d: it was owned by another since", ref.Slot, slot.Epoch, ref.Epoch)
		}
		if err := checkCheckpoint(ref.Slot, slot, c.Incarnation, c.Checkpoint); err != nil {
			return err
		}
		slots[ref.Slot] = Slot{Owner: c.Incarnation, Epoch: slot.Epoch + 1, Checkpoint: c.Checkpoint}
	}
	s.slots = slots
	return nil
}

// checkCheckpoint refuses to lose the way back to a slot's rows: a checkpoint is
// replaced by one that the incarnation wrote itself, or stays as it is.
func checkCheckpoint(i int, slot Slot, by string, ref CheckpointRef) error {
	if ref == slot.Checkpoint || !ref.IsZero() && ref.Incarnation == by {
		return nil
	}
	return errs.New(errs.Invalid, "slot %d: checkpoint %s/%d is not one of incarnation %s", i, ref.Incarnation, ref.Seq, by)
}

// apply keeps an incarnation that a slot still needs for its recovery.
func (c *Prune) apply(s *State, e *Entry) error {
	for _, id := range c.Incarnations {
		a, ok := s.agents.get(id)
		switch {
		case !ok:
			return errs.New(errs.NotFound, "incarnation %s is not known", id)
		case a.State == Live || e.Time.Sub(a.EndedAt) < DeadKept:
			return errs.New(errs.Conflict, "incarnation %s is live, or dead for less than %s", id, DeadKept)
		case needed(s, id):
			return errs.New(errs.Conflict, "incarnation %s is needed to recover a slot", id)
		}
		s.agents = s.agents.without(id)
	}
	return nil
}

func needed(s *State, incarnation string) bool {
	return slices.ContainsFunc(s.slots, func(slot Slot) bool {
		return slot.Owner == incarnation || slot.Checkpoint.Incarnation == incarnation
	})
}
