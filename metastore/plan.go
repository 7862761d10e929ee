package metastore

import (
	"cmp"
	"slices"
)

// The Plan functions are pure: the same state gives every agent the same plan.
// What they return is a wish; the log decides when it is appended.

// PlanStart returns the live incarnations of the agent id, which a new
// incarnation of it fences before it joins, without waiting for any lease: two of
// one id are never meant to run.
func PlanStart(s *State, agentID string) []string {
	var former []string
	for _, a := range s.LiveAgents() {
		if a.AgentID == agentID {
			former = append(former, a.Incarnation)
		}
	}
	return former
}

// Recovery is a set of slots that are recovered from one source and then claimed.
type Recovery struct {
	Slots []SlotRef // for DecideClaim
	// Checkpoint to start from. Zero: nothing was ever written to the slots.
	Checkpoint CheckpointRef
	// Fenced, when not empty, is the dead owner: its newest checkpoint (at or past
	// Checkpoint) and its WAL up to FenceAt hold the slots' last writes. Empty: the
	// slots were released, and the checkpoint holds everything.
	Fenced  string
	FenceAt uint64
}

// PlanClaims returns the slots that the live incarnation should own and may
// claim now, grouped by what they are recovered from. It is empty for an
// incarnation that is not live.
func PlanClaims(s *State, incarnation string) []Recovery {
	live := s.LiveAgents()
	return planClaims(s, func(slot int) bool {
		wanted := WantedOwner(slot, live)
		return wanted != nil && wanted.Incarnation == incarnation
	})
}

// PlanSoleClaims is PlanClaims for agents that do not hand requests on to each
// other: one of them should own every slot, because a table whose buckets have
// two owners can be read at neither.
func PlanSoleClaims(s *State, incarnation string) []Recovery {
	if sole := SoleOwner(s); sole == nil || sole.Incarnation != incarnation {
		return nil
	}
	return planClaims(s, func(int) bool { return true })
}

// SoleOwner returns the live agent that should own all slots: the one that owns
// most; when none owns any, the successor of a dead owner under its agent id; else
// the one that runs for longest. Nil when nobody lives.
func SoleOwner(s *State) *Agent {
	owned, heirs := map[string]int{}, map[string]bool{}
	for _, slot := range s.slots {
		owned[slot.Owner]++
		if owner, ok := s.agents.get(slot.Owner); ok {
			heirs[owner.AgentID] = true
		}
	}
	var best *Agent
	for _, a := range s.LiveAgents() { // the oldest first
		switch {
		case best == nil, owned[a.Incarnation] > owned[best.Incarnation]:
			best = a
		case owned[best.Incarnation] == 0 && heirs[a.AgentID] && !heirs[best.AgentID]:
			best = a
		}
	}
	return best
}

func planClaims(s *State, wants func(slot int) bool) []Recovery {
	var out []Recovery
	index := map[recoverySource]int{}
	for i, slot := range s.slots {
		if !wants(i) {
			continue
		}
		source := recoverySource{checkpoint: slot.Checkpoint}
		if slot.Owner != "" {
			owner, ok := s.agents.get(slot.Owner)
			if !ok || owner.State != Fenced {
				continue
			}
			source.fenced, source.fenceAt = owner.Incarnation, owner.FenceAt
		}
		at, ok := index[source]
		if !ok {
			at = len(out)
			index[source] = at
			out = append(out, Recovery{Checkpoint: source.checkpoint, Fenced: source.fenced, FenceAt: source.fenceAt})
		}
		out[at].Slots = append(out[at].Slots, SlotRef{Slot: i, Epoch: slot.Epoch})
	}
	return out
}

// recoverySource is what makes two slots share a recovery.
type recoverySource struct {
	checkpoint CheckpointRef
	fenced     string
	fenceAt    uint64
}

// PlanReleases returns the slots that the incarnation owns and another live one
// should, grouped by whom they go to, in the order of the receivers' ids.
func PlanReleases(s *State, incarnation string) []HandOver {
	return handOver(s, incarnation, s.LiveAgents())
}

// PlanLeave returns all slots of the incarnation, grouped by who should own them
// once it is gone; To is empty when nobody is left.
func PlanLeave(s *State, incarnation string) []HandOver {
	others := slices.DeleteFunc(s.LiveAgents(), func(a *Agent) bool { return a.Incarnation == incarnation })
	return handOver(s, incarnation, others)
}

// HandOver is a set of slots to release for one receiver.
type HandOver struct {
	To    string // incarnation that should claim them, or ""
	Slots []int
}

func handOver(s *State, from string, agents []*Agent) []HandOver {
	slots := map[string][]int{}
	for _, i := range s.SlotsOf(from) {
		to := ""
		if wanted := WantedOwner(i, agents); wanted != nil {
			to = wanted.Incarnation
		}
		if to != from {
			slots[to] = append(slots[to], i)
		}
	}
	var out []HandOver
	for _, to := range sortedKeys(slots) {
		out = append(out, HandOver{To: to, Slots: slots[to]})
	}
	return out
}

// PlanTakeover returns which of the silent incarnations self should fence now,
// and which it should fence only when they are still live one lease later: one
// agent goes first for each, chosen by rendezvous, so that not all of them
// recover the same slots; the others are there in case it died too.
func PlanTakeover(s *State, self string, silent []string) (now, later []string) {
	voters := slices.DeleteFunc(s.LiveAgents(), func(a *Agent) bool { return slices.Contains(silent, a.Incarnation) })
	for _, dead := range silent {
		if dead == self || !s.IsLive(dead) || len(voters) == 0 {
			continue
		}
		first := slices.MaxFunc(voters, func(a, b *Agent) int {
			return cmp.Compare(mix64(fnv64(a.AgentID)^fnv64(dead)), mix64(fnv64(b.AgentID)^fnv64(dead)))
		})
		if first.Incarnation == self {
			now = append(now, dead)
		} else {
			later = append(later, dead)
		}
	}
	return now, later
}

// FencedSelf says what an agent does that finds its own incarnation fenced: an
// agent fenced under its own agent id exits, because another process runs under
// its name and the two would fight; otherwise it joins again as a new incarnation.
func FencedSelf(s *State, incarnation string) (fenced, exit bool) {
	a, ok := s.agents.get(incarnation)
	if !ok || a.State != Fenced {
		return false, false
	}
	return true, a.FencedByAgent == a.AgentID
}
