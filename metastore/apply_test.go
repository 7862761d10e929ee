package metastore

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
)

func TestTablesOfADatabase(t *testing.T) {
	m := newMachine(t)
	orphan, err := newTable(ordersSpec())
	require.NoError(t, err)
	requireClass(t, m.try(&CreateTable{Table: orphan}), errs.NotFound, "shop")
	m.must(&CreateDatabase{Database: "shop"})
	requireClass(t, m.try(&CreateDatabase{Database: "shop"}), errs.Exists)
	requireClass(t, m.try(&CreateDatabase{Database: "a b"}), errs.Invalid)
	before := m.s
	orders := m.createTable("shop", ordersSpec())
	require.Zero(t, before.TableCount(), "the former state stays as it was")
	require.Equal(t, uint64(1), orders.ID)
	got, ok := m.s.Table(1)
	require.True(t, ok)
	require.Same(t, orders, got)
	s, err := m.s.Schema(1, 0)
	require.NoError(t, err)
	require.Same(t, orders.Current(), s)
	_, err = m.s.Schema(1, 7)
	requireClass(t, err, errs.NotFound, "schema 7")
	_, err = m.s.TableByName("shop", "nope")
	requireClass(t, err, errs.NotFound, `table "nope"`)
	_, err = m.s.TableByName("nope", "orders")
	requireClass(t, err, errs.NotFound, `database "nope"`)
	require.Equal(t, []*Table{orders}, m.s.Tables("shop"))
}

func TestTableIDsAreNeverReused(t *testing.T) {
	m := newMachine(t)
	m.must(&CreateDatabase{Database: "shop"})
	first := m.createTable("shop", ordersSpec())
	require.NoError(t, m.decide(DecideDropTable("shop", "orders", false)))
	second := m.createTable("shop", ordersSpec())
	require.Equal(t, first.ID+1, second.ID)
	require.NotEqual(t, first.LakePrefix(), second.LakePrefix())
	stale := *second
	stale.Name = "other"
	requireClass(t, m.try(&CreateTable{Table: &stale}), errs.Conflict)
}

func TestDropDatabaseNeedsCascadeForTables(t *testing.T) {
	m := newMachine(t)
	m.must(&CreateDatabase{Database: "shop"})
	m.must(&CreateDatabase{Database: "other"})
	m.createTable("shop", ordersSpec())
	m.createTable("other", ordersSpec())
	requireClass(t, m.decide(DecideDropDatabase("shop", false)), errs.Conflict, "1 tables", "cascade")
	requireClass(t, m.try(&DropDatabase{Database: "shop"}), errs.Conflict)
	require.NoError(t, m.decide(DecideDropDatabase("shop", true)))
	require.Equal(t, 1, m.s.TableCount())
	_, err := m.s.TableByName("other", "orders")
	require.NoError(t, err)
	requireClass(t, m.decide(DecideDropDatabase("shop", true)), errs.NotFound)
}

func TestAlterTableAppliesToTheVersionItWasDecidedOn(t *testing.T) {
	m := newMachine(t)
	m.must(&CreateDatabase{Database: "shop"})
	m.createTable("shop", ordersSpec())
	d := DecideAlterTable("shop", "orders", changes(t, `[{"add_column": {"name": "note", "type": "map<string,long>"}}]`))
	c, err := d(m.s)
	require.NoError(t, err)
	m.must(c)
	requireClass(t, m.try(c), errs.Conflict, "version")
	table, _ := m.s.Table(1)
	require.Equal(t, int32(12), table.LastFieldID)
	f, ok := table.Current().Field("note")
	require.True(t, ok)
	require.Equal(t, int32(12), f.Type.Children[1].ID, "ids of nested fields survive the entry")
	require.NoError(t, m.decide(DecideAlterTable("shop", "orders", changes(t, `[{"set_properties": {"retention": "7d"}}]`))))
	table, _ = m.s.Table(1)
	require.Equal(t, int32(1), table.CurrentSchema, "properties make no schema")
	seq := m.s.Seq
	require.NoError(t, m.decide(DecideAlterTable("shop", "orders", changes(t, `[{"set_properties": {"retention": "7d"}}]`))))
	require.Equal(t, seq, m.s.Seq, "nothing to change writes nothing")
}

func TestAnIncarnationLivesOnce(t *testing.T) {
	m := newMachine(t)
	a := m.join(1, "a")
	requireClass(t, m.try(&Join{Incarnation: a, AgentID: "b"}), errs.Exists)
	requireClass(t, m.try(&Join{Incarnation: incarnation(2), AgentID: "a"}), errs.Conflict, a)
	requireClass(t, m.try(&Join{Incarnation: "x/y", AgentID: "b"}), errs.Invalid)
	require.Equal(t, []string{a}, PlanStart(m.s, "a"))
	require.NoError(t, m.decide(DecideFence(a, 17, incarnation(2), "a")))
	requireClass(t, m.try(&Fence{Incarnation: a, FenceAt: 18, By: incarnation(3)}), errs.Fenced)
	require.NoError(t, m.decide(DecideFence(a, 17, incarnation(3), "c")), "who comes second has nothing to do")
	fenced, exit := FencedSelf(m.s, a)
	require.True(t, fenced && exit, "fenced by its own agent id")
	b := m.join(2, "a")
	requireClass(t, m.try(&Join{Incarnation: a, AgentID: "z"}), errs.Exists, "before")
	require.NoError(t, m.decide(DecideLeave(b)))
	require.NoError(t, m.decide(DecideLeave(b)))
	requireClass(t, m.try(&Leave{Incarnation: b}), errs.Fenced)
	requireClass(t, m.try(&Fence{Incarnation: b, By: a}), errs.Fenced)
	require.Empty(t, m.s.LiveAgents())
	require.Len(t, m.s.Agents(), 2)
	dead, _ := m.s.Agent(a)
	require.Equal(t, uint64(17), dead.FenceAt)
}

// claim builds a Claim of slots as they are now.
func claim(s *State, who string, checkpoint uint64, slots ...int) *Claim {
	c := &Claim{Incarnation: who, Checkpoint: CheckpointRef{Incarnation: who, Seq: checkpoint}}
	for _, i := range slots {
		c.Slots = append(c.Slots, SlotRef{Slot: i, Epoch: s.Slot(i).Epoch})
	}
	return c
}

func TestASlotHasOneLiveOwner(t *testing.T) {
	m := newMachine(t)
	a, b := m.join(1, "a"), m.join(2, "b")
	m.must(claim(m.s, a, 1, 0, 1, 2))
	requireClass(t, m.try(claim(m.s, b, 1, 2, 3)), errs.Conflict, "slot 2", a)
	require.Empty(t, m.s.Slot(3).Owner, "all slots of a claim or none")
	requireClass(t, m.try(claim(m.s, a, 1, 0)), errs.Conflict)
	requireClass(t, m.try(&Release{Incarnation: b, Slots: []int{0}, Checkpoint: CheckpointRef{b, 1}}), errs.Conflict)
	requireClass(t, m.try(&Leave{Incarnation: a}), errs.Conflict, "3 slots")
	requireClass(t, m.try(claim(m.s, incarnation(9), 1, 3)), errs.NotFound)
	requireClass(t, m.try(&Claim{Incarnation: b, Slots: []SlotRef{{Slot: 99}}}), errs.Invalid)

	released := CheckpointRef{a, 5}
	m.must(&Release{Incarnation: a, Slots: []int{2}, Checkpoint: released})
	require.Equal(t, Slot{Epoch: 2, Checkpoint: released}, m.s.Slot(2))
	m.must(claim(m.s, b, 2, 2))
	require.Equal(t, b, m.s.Slot(2).Owner)

	m.must(&Fence{Incarnation: a, FenceAt: 9, By: b, ByAgent: "b"})
	requireClass(t, m.try(&Release{Incarnation: a, Slots: []int{0}, Checkpoint: CheckpointRef{a, 7}}), errs.Fenced, "fenced by "+b)
	requireClass(t, m.try(claim(m.s, a, 8, 3)), errs.Fenced)
	m.must(claim(m.s, b, 3, 0, 1))
	require.Equal(t, []int{0, 1, 2}, m.s.SlotsOf(b))
}

func TestAClaimOvertakenByAnotherOwnerIsRefused(t *testing.T) {
	m := newMachine(t)
	a, b, c := m.join(1, "a"), m.join(2, "b"), m.join(3, "c")
	m.must(claim(m.s, a, 1, 0))
	m.must(&Release{Incarnation: a, Slots: []int{0}, Checkpoint: CheckpointRef{a, 2}})
	slow := claim(m.s, b, 1, 0) // b recovers from a's checkpoint, slowly
	m.must(claim(m.s, c, 1, 0))
	m.must(&Release{Incarnation: c, Slots: []int{0}, Checkpoint: CheckpointRef{c, 2}})
	requireClass(t, m.try(slow), errs.Conflict, "epoch")
}

func TestTheWayBackToASlotsRowsIsNotLost(t *testing.T) {
	m := newMachine(t)
	a, b := m.join(1, "a"), m.join(2, "b")
	m.must(claim(m.s, a, 1, 0))
	requireClass(t, m.try(&Release{Incarnation: a, Slots: []int{0}}), errs.Invalid)
	requireClass(t, m.try(&Release{Incarnation: a, Slots: []int{0}, Checkpoint: CheckpointRef{b, 1}}), errs.Invalid)
	m.must(&Release{Incarnation: a, Slots: []int{0}, Checkpoint: CheckpointRef{a, 1}})
	bad := claim(m.s, b, 1, 0)
	bad.Checkpoint = CheckpointRef{}
	requireClass(t, m.try(bad), errs.Invalid)
	empty := claim(m.s, b, 1, 1)
	empty.Checkpoint = CheckpointRef{}
	m.must(empty) // a slot that nobody ever wrote to
}

func TestDeadIncarnationsAreForgottenLateAndOnlyWhenNotNeeded(t *testing.T) {
	m := newMachine(t)
	a, b, c := m.join(1, "a"), m.join(2, "b"), m.join(3, "c")
	m.must(claim(m.s, a, 1, 0))
	m.must(&Fence{Incarnation: a, FenceAt: 3, By: b, ByAgent: "b"})
	m.must(&Leave{Incarnation: c})
	require.Empty(t, Prunable(m.s, m.now.Add(DeadKept)))
	requireClass(t, m.try(&Prune{Incarnations: []string{c}}), errs.Conflict)
	m.now = m.now.Add(DeadKept + time.Hour)
	require.Equal(t, []string{c}, Prunable(m.s, m.now), "a's slot is not recovered yet")
	requireClass(t, m.try(&Prune{Incarnations: []string{a}}), errs.Conflict, "needed")
	requireClass(t, m.try(&Prune{Incarnations: []string{b}}), errs.Conflict, "live")
	m.must(claim(m.s, b, 1, 0))
	require.NoError(t, m.decide(DecidePrune(m.now)))
	require.Len(t, m.s.Agents(), 1)
	require.NoError(t, m.decide(DecidePrune(m.now)))
}

// The entry is stamped a moment after the decision, perhaps by a clock that was set
// back meanwhile: a decision with no margin would be refused.
func TestADecisionToForgetLeavesRoomForTheClock(t *testing.T) {
	m := newMachine(t)
	c := m.join(1, "c")
	m.must(&Leave{Incarnation: c})
	ended, _ := m.s.Agent(c)
	require.Empty(t, Prunable(m.s, ended.EndedAt.Add(DeadKept+pruneMargin-1)))
	decided := ended.EndedAt.Add(DeadKept + pruneMargin)
	require.Equal(t, []string{c}, Prunable(m.s, decided))
	m.now = decided.Add(-pruneMargin)
	require.NoError(t, m.decide(DecidePrune(decided)))
	require.Empty(t, m.s.Agents())
	none, err := DecidePrune(decided)(m.s)
	require.NoError(t, err)
	require.Nil(t, none, "nobody is left to forget: no entry is written")
}

func TestApplyCallsWhatAppendWouldNotWriteCorrupt(t *testing.T) {
	m := newMachine(t)
	for name, e := range map[string]func(e *Entry){
		"gap":      func(e *Entry) { e.Seq++ },
		"fork":     func(e *Entry) { e.Prev = "ffff" },
		"init":     func(e *Entry) { e.Command = &Init{ClusterID: "x", SlotCount: 1} },
		"invalid":  func(e *Entry) { e.Command = &DropDatabase{Database: "nope"} },
		"no nonce": func(e *Entry) { e.Nonce = "" },
	} {
		t.Run(name, func(t *testing.T) {
			entry := m.entry(&CreateDatabase{Database: "shop"})
			e(entry)
			before := *m.s
			_, err := Apply(m.s, entry)
			requireClass(t, err, errs.Corrupt)
			require.Equal(t, before, *m.s)
		})
	}
}

func TestStateTellsWhetherAnEntryWasApplied(t *testing.T) {
	m := newMachine(t)
	a := m.join(0, "a") // entries of the machine are written by incarnation 0
	m.must(&CreateDatabase{Database: "d0"})
	nonce, seq := fmt.Sprintf("%024x", m.n), m.s.Seq
	yes, known := m.s.applied(a, nonce, seq)
	require.True(t, yes && known)
	yes, known = m.s.applied(a, "other", seq)
	require.True(t, !yes && known)
	yes, known = m.s.applied("a tool", "other", seq)
	require.True(t, !yes && known)
	for i := range recentMarks + 5 {
		m.must(&CreateDatabase{Database: fmt.Sprintf("e%d", i)})
	}
	_, known = m.s.applied("a tool", "other", seq)
	require.False(t, known, "too long ago")
	require.Len(t, m.s.recent, recentMarks)
}

// manyTables returns a machine whose state holds n small tables.
func manyTables(t testing.TB, n int) *machine {
	m := newMachine(t)
	m.must(&CreateDatabase{Database: "shop"})
	spec := &TableSpec{Columns: []ColumnSpec{{Name: "a", Type: "long"}, {Name: "b", Type: "string"}, {Name: "ts", Type: "timestamptz"}}}
	for i := range n {
		spec.Name = fmt.Sprintf("t%d", i)
		m.createTable("shop", spec)
	}
	return m
}

func TestStateStaysCheapWithManyTables(t *testing.T) {
	m := manyTables(t, 2000)
	e := m.entry(&CreateDatabase{Database: "other"})
	const runs = 200
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		_, err := step(m.s, e)
		require.NoError(t, err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/runs, uint64(40<<10), "an entry copies what it changes")
}

func BenchmarkApplyWith10000Tables(b *testing.B) {
	m := manyTables(b, 10_000)
	e := m.entry(&DropTable{Table: 5000, Database: "shop", TableName: "t4999"})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := step(m.s, e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSnapshotOf10000Tables(b *testing.B) {
	m := manyTables(b, 10_000)
	body, err := EncodeSnapshot(m.s)
	require.NoError(b, err)
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			if _, err := EncodeSnapshot(m.s); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(body)), "bytes")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, err := DecodeSnapshot(body); err != nil {
				b.Fatal(err)
			}
		}
	})
}
