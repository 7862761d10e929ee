package metastore

import (
	"slices"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// DecideJoin makes an incarnation live. Conflict names the live incarnation of
// the same agent id, which must be fenced first (PlanStart).
func DecideJoin(j Join) Decision {
	return func(s *State) (Command, error) {
		if s.IsLive(j.Incarnation) {
			return nil, nil
		}
		return &j, nil
	}
}

// DecideLeave ends a live incarnation that released its slots.
func DecideLeave(incarnation string) Decision {
	return func(s *State) (Command, error) {
		if a, ok := s.Agent(incarnation); ok && a.State == Left {
			return nil, nil
		}
		return &Leave{Incarnation: incarnation}, nil
	}
}

// DecideFence ends an incarnation whose WAL carries a fence at fenceAt. One that
// is dead already is no error: whoever was first has said the same.
func DecideFence(incarnation string, fenceAt uint64, by, byAgent string) Decision {
	return func(s *State) (Command, error) {
		a, ok := s.Agent(incarnation)
		if !ok {
			return nil, errs.New(errs.NotFound, "incarnation %s has not joined", incarnation)
		}
		if a.State != Live {
			return nil, nil
		}
		return &Fence{Incarnation: incarnation, FenceAt: fenceAt, By: by, ByAgent: byAgent}, nil
	}
}

// DecideRelease gives up slots that the incarnation owns; the checkpoint covers
// every bucket of them, and nothing was written to them since.
func DecideRelease(incarnation string, slots []int, checkpoint CheckpointRef) Decision {
	return func(s *State) (Command, error) {
		if len(slots) == 0 {
			return nil, nil
		}
		return &Release{Incarnation: incarnation, Slots: slots, Checkpoint: checkpoint}, nil
	}
}

// DecideClaim takes slots as they were when their recovery began. Conflict: some
// slot moved meanwhile; drop what was recovered and plan again. Fenced: the
// claimer itself is dead.
func DecideClaim(incarnation string, slots []SlotRef, checkpoint CheckpointRef) Decision {
	return func(s *State) (Command, error) {
		if len(slots) == 0 {
			return nil, nil
		}
		return &Claim{Incarnation: incarnation, Slots: slots, Checkpoint: checkpoint}, nil
	}
}

// DecidePrune forgets the incarnations that died more than DeadKept ago and that
// nothing needs. After it their fence objects may be deleted.
func DecidePrune(now time.Time) Decision {
	return func(s *State) (Command, error) {
		ids := Prunable(s, now)
		if len(ids) == 0 {
			return nil, nil
		}
		return &Prune{Incarnations: ids}, nil
	}
}

// pruneMargin keeps a decision valid although the entry is stamped a moment later
// by a clock that may be corrected meanwhile.
const pruneMargin = time.Minute

// Prunable lists the incarnations that DecidePrune would forget.
func Prunable(s *State, now time.Time) []string {
	var ids []string
	for a := range s.agents.values {
		if a.State != Live && now.Sub(a.EndedAt) >= DeadKept+pruneMargin && !needed(s, a.Incarnation) {
			ids = append(ids, a.Incarnation)
		}
	}
	slices.Sort(ids)
	return ids
}
