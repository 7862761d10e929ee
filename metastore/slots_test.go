package metastore

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSlotOfIsFixedForEver pins values that every agent and every later version
// must agree on.
func TestSlotOfIsFixedForEver(t *testing.T) {
	s := &State{SlotCount: 256}
	require.Equal(t, []int{30, 3, 180, 94, 202}, []int{s.SlotOf(1, 0), s.SlotOf(1, 1), s.SlotOf(2, 0), s.SlotOf(1<<40, 4095), s.HomeSlot(77)})
}

func TestSlotsAreSpreadEvenly(t *testing.T) {
	s := &State{SlotCount: 256}
	var count [256]int
	for table := range uint64(10_000) {
		count[s.SlotOf(table+1, 0)]++
	}
	require.Greater(t, slices.Min(count[:]), 15)
	require.Less(t, slices.Max(count[:]), 75)
}

func TestWantedOwnerMovesOnlyWhatItMust(t *testing.T) {
	agents := []*Agent{{AgentID: "a", Incarnation: "1"}, {AgentID: "b", Incarnation: "2"}, {AgentID: "c", Incarnation: "3"}}
	owned := map[string]int{}
	for slot := range 256 {
		all := WantedOwner(slot, agents)
		owned[all.AgentID]++
		two := WantedOwner(slot, agents[:2])
		if all.AgentID != "c" {
			require.Same(t, all, two, "slot %d moved although its owner stayed", slot)
		}
		reversed := slices.Clone(agents)
		slices.Reverse(reversed)
		require.Same(t, all, WantedOwner(slot, reversed))
		restarted := WantedOwner(slot, []*Agent{{AgentID: "a", Incarnation: "9"}, agents[1], agents[2]})
		require.Equal(t, all.AgentID, restarted.AgentID, "a restart moves nothing")
	}
	for _, a := range agents {
		require.Greater(t, owned[a.AgentID], 55, "%v", owned)
	}
	require.Nil(t, WantedOwner(0, nil))
}

func TestPlansOfAClustersLife(t *testing.T) {
	m := newMachine(t)
	a := m.join(1, "a")
	plan := PlanClaims(m.s, a)
	require.Len(t, plan, 1)
	require.Len(t, plan[0].Slots, 8)
	require.True(t, plan[0].Checkpoint.IsZero())
	m.must(&Claim{Incarnation: a, Slots: plan[0].Slots, Checkpoint: CheckpointRef{a, 1}})
	require.Empty(t, PlanClaims(m.s, a))
	require.Empty(t, PlanReleases(m.s, a))

	b := m.join(2, "b") // scale up: a hands over what b should own
	require.Empty(t, PlanClaims(m.s, b), "they are a's until it releases them")
	moves := PlanReleases(m.s, a)
	require.Len(t, moves, 1)
	require.Equal(t, b, moves[0].To)
	require.NotEmpty(t, moves[0].Slots)
	m.must(&Release{Incarnation: a, Slots: moves[0].Slots, Checkpoint: CheckpointRef{a, 2}})
	plan = PlanClaims(m.s, b)
	require.Len(t, plan, 1)
	require.Equal(t, CheckpointRef{a, 2}, plan[0].Checkpoint)
	require.Empty(t, plan[0].Fenced)
	m.must(&Claim{Incarnation: b, Slots: plan[0].Slots, Checkpoint: CheckpointRef{b, 1}})
	require.Empty(t, PlanReleases(m.s, a))
	require.Empty(t, PlanReleases(m.s, b))

	now, later := PlanTakeover(m.s, b, []string{a}) // a falls silent
	require.Equal(t, []string{a}, now)
	require.Empty(t, later)
	m.must(&Fence{Incarnation: a, FenceAt: 7, By: b, ByAgent: "b"})
	fenced, exit := FencedSelf(m.s, a)
	require.True(t, fenced && !exit)
	plan = PlanClaims(m.s, b)
	require.Len(t, plan, 1)
	require.Equal(t, a, plan[0].Fenced)
	require.Equal(t, uint64(7), plan[0].FenceAt)
	m.must(&Claim{Incarnation: b, Slots: plan[0].Slots, Checkpoint: CheckpointRef{b, 2}})
	require.Len(t, m.s.SlotsOf(b), 8)

	leave := PlanLeave(m.s, b) // the last one goes
	require.Equal(t, []HandOver{{Slots: []int{0, 1, 2, 3, 4, 5, 6, 7}}}, leave)
	m.must(&Release{Incarnation: b, Slots: leave[0].Slots, Checkpoint: CheckpointRef{b, 3}})
	m.must(&Leave{Incarnation: b})
	c := m.join(3, "c")
	plan = PlanClaims(m.s, c)
	require.Len(t, plan, 1)
	require.Equal(t, CheckpointRef{b, 3}, plan[0].Checkpoint)
	require.Empty(t, PlanClaims(m.s, b))
	owner, ok := m.s.Owner(1, 0)
	require.False(t, ok, "%v", owner)
}

func TestSlotsThatBecomeFreeGoToOneAgent(t *testing.T) {
	m := newMachine(t)
	claims := func(who string, slots int) []Recovery {
		t.Helper()
		plan, n := PlanSoleClaims(m.s, who), 0
		for _, r := range plan {
			n += len(r.Slots)
		}
		require.Equal(t, slots, n, who)
		return plan
	}
	a, b := m.join(1, "a"), m.join(2, "b")
	m.must(&Claim{Incarnation: a, Slots: claims(a, 8)[0].Slots, Checkpoint: CheckpointRef{a, 1}})
	claims(b, 0)

	m.must(&Fence{Incarnation: a, FenceAt: 7, By: "20261130T101500003Z-000000000003", ByAgent: "a"})
	again := m.join(3, "a") // restarted under its id while b waits
	claims(b, 0)
	m.must(&Claim{Incarnation: again, Slots: claims(again, 8)[0].Slots, Checkpoint: CheckpointRef{again, 1}})

	c := m.join(4, "c")
	m.must(&Fence{Incarnation: again, FenceAt: 9, By: c, ByAgent: "c"}) // it fell silent, and two wait
	claims(c, 0)
	plan := claims(b, 8)
	m.must(&Claim{Incarnation: b, Slots: plan[0].Slots[:3], Checkpoint: CheckpointRef{b, 1}})
	claims(c, 0)
	claims(b, 5)
}

func TestOneAgentGoesFirstInATakeover(t *testing.T) {
	m := newMachine(t)
	var ids []string
	for i := range 5 {
		ids = append(ids, m.join(i+1, fmt.Sprint("agent-", i)))
	}
	for _, dead := range ids {
		first := 0
		for _, self := range ids {
			now, later := PlanTakeover(m.s, self, []string{dead})
			first += len(now)
			if self == dead {
				require.Empty(t, append(now, later...), "nobody fences itself")
			} else {
				require.Len(t, append(now, later...), 1)
			}
		}
		require.Equal(t, 1, first)
	}
	now, later := PlanTakeover(m.s, ids[0], ids[1:])
	require.Len(t, now, 4, "the only one left does it all")
	require.Empty(t, later)
}

func TestIncarnationIDsSortByTime(t *testing.T) {
	random := newSeeded(1)
	var ids []string
	for i := range 50 {
		id, err := NewIncarnation(epoch.Add(time.Duration(i)*7*time.Hour), random)
		require.NoError(t, err)
		require.NoError(t, CheckIncarnation(id))
		ids = append(ids, id)
	}
	require.True(t, slices.IsSorted(ids))
	require.Equal(t, "20261130T101530123Z-", ids[0][:20])
	for _, bad := range []string{"", "a/b", ids[0] + "x", "20261130T101530123Z-9F3C21AA04DE"} {
		require.Error(t, CheckIncarnation(bad), bad)
	}
	_, err := NewIncarnation(epoch, bytes.NewReader(nil))
	require.Error(t, err)
}
