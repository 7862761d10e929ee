package index

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
)

// The model: a log of changes, of which a prefix is durable and a shorter prefix
// is in the lake. The lake is a list of files; a row of it is deleted by a
// snapshot or not. At every step each key has one row in all that a reader sees,
// or none, and it is the one that the durable prefix of the log says.

type modelChange struct {
	key     int
	deleted bool
}

type modelRow struct{ key int }

type stateModel struct {
	t       *testing.T
	seed    uint64
	rng     *rand.Rand
	state   *State
	log     []modelChange
	ends    []int64 // ends of requests that are not durable
	durable int64
	lake    int64
	folding bool

	files   [][]modelRow      // rows by file number
	deleted map[Location]bool // by the newest snapshot
	runs    map[int]Location  // what the newest runs say
	steps   []string
}

const modelKeys = 12

func modelKey(i int) Key {
	return Key{uint64(i) * 0x9E3779B97F4A7C15, uint64(i%3) * 0xD1B54A32D192ED03} //nolint:gosec // small
}

func newStateModel(t *testing.T, seed uint64) *stateModel {
	return &stateModel{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), state: NewState(0), //nolint:gosec // a seeded test
		deleted: map[Location]bool{}, runs: map[int]Location{}}
}

func (m *stateModel) fatal(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("seed %d after %v: %s", m.seed, m.steps, fmt.Sprintf(format, args...))
}

func (m *stateModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.fatal("%v", err)
	}
}

func (m *stateModel) below(key int) Location {
	if l, ok := m.runs[key]; ok {
		return l
	}
	return Nowhere
}

func (m *stateModel) request() {
	var changes []Change
	for range 1 + m.rng.IntN(4) {
		key, deleted := m.rng.IntN(modelKeys), m.rng.IntN(3) == 0
		changes = append(changes, Change{Key: modelKey(key), Offset: int64(len(m.log)), Deleted: deleted, Lake: m.below(key)})
		m.log = append(m.log, modelChange{key, deleted})
	}
	m.must(m.state.Apply(changes))
	m.ends = append(m.ends, int64(len(m.log)))
}

func (m *stateModel) publish() {
	if len(m.ends) == 0 {
		return
	}
	n := 1 + m.rng.IntN(len(m.ends))
	m.durable = m.ends[n-1]
	m.ends = m.ends[n:]
	m.state.Publish(m.durable)
}

func (m *stateModel) freeze() {
	if !m.folding {
		m.must(m.state.Freeze(int64(len(m.log))))
		m.folding = true
	}
}

// fold writes what is frozen to a new file, commits and adopts.
func (m *stateModel) fold() {
	cut, _ := m.state.Cut()
	if !m.folding || m.durable < cut {
		return
	}
	m.folding = false
	type frozen struct {
		key int
		e   Entry
	}
	var all []frozen
	for k, e := range m.state.Frozen() {
		all = append(all, frozen{m.keyOf(k), e})
	}
	slices.SortFunc(all, func(a, b frozen) int { return int(a.e.Offset - b.e.Offset) })
	file := uint32(len(m.files)) //nolint:gosec // small
	var rows []modelRow
	placed := map[Key]Location{}
	for _, f := range all {
		if f.e.Lake != Nowhere {
			if m.deleted[f.e.Lake] {
				m.fatal("position %v is deleted twice", f.e.Lake)
			}
			m.deleted[f.e.Lake] = true
		}
		delete(m.runs, f.key)
		if !f.e.Deleted {
			at := At(file, uint32(len(rows))) //nolint:gosec // small
			placed[modelKey(f.key)], m.runs[f.key] = at, at
			rows = append(rows, modelRow{f.key})
		}
	}
	m.files = append(m.files, rows)
	m.must(m.state.Adopt(func(k Key) (Location, bool) { l, ok := placed[k]; return l, ok }))
	m.lake = cut
}

// compact writes the rows of all files that are not deleted to a new one.
func (m *stateModel) compact() {
	if m.folding {
		return
	}
	file := uint32(len(m.files)) //nolint:gosec // small
	var rows []modelRow
	moved := map[Location]Location{}
	for f, old := range m.files {
		for r, row := range old {
			from := At(uint32(f), uint32(r)) //nolint:gosec // small
			if m.deleted[from] {
				continue
			}
			moved[from] = At(file, uint32(len(rows))) //nolint:gosec // small
			m.runs[row.key] = moved[from]
			rows = append(rows, row)
		}
		m.files[f] = nil
	}
	m.deleted = map[Location]bool{}
	m.files = append(m.files, rows)
	m.state.Move(func(_ Key, l Location) (Location, bool) { to, ok := moved[l]; return to, ok })
}

// restart rebuilds the state from the durable log behind the lake.
func (m *stateModel) restart() {
	m.folding, m.ends = false, nil
	m.log = m.log[:m.durable]
	m.state = NewState(m.lake)
	for at := m.lake; at < m.durable; at++ {
		c := m.log[at]
		m.must(m.state.Apply([]Change{{Key: modelKey(c.key), Offset: at, Deleted: c.deleted, Lake: m.below(c.key)}}))
	}
	m.state.Publish(m.durable)
}

func (m *stateModel) keyOf(k Key) int {
	for i := range modelKeys {
		if modelKey(i) == k {
			return i
		}
	}
	m.fatal("unknown key %v", k)
	return 0
}

// newest returns, for a key, the offset of its newest change below end; -1 if none.
func (m *stateModel) newest(key int, end int64) int64 {
	for at := end - 1; at >= 0; at-- {
		if m.log[at].key == key {
			return at
		}
	}
	return -1
}

func (m *stateModel) check() {
	v := m.state.View()
	seen := map[int]int{}
	for it := v.Current.Iterator(); it.HasNext(); {
		at := int64(it.Next()) //nolint:gosec // small
		if at < v.Lake || at >= v.Durable || m.log[at].deleted {
			m.fatal("offset %d is current in [%d, %d)", at, v.Lake, v.Durable)
		}
		seen[m.log[at].key]++
		if want := m.newest(m.log[at].key, m.durable); want != at {
			m.fatal("key %d is read at offset %d, its newest is %d", m.log[at].key, at, want)
		}
	}
	hidden := int64(0)
	for f, rows := range m.files {
		for r, row := range rows {
			l := At(uint32(f), uint32(r)) //nolint:gosec // small
			mask := v.Hidden[l.File()]
			switch masked := mask != nil && mask.Contains(l.Row()); {
			case masked && m.deleted[l]:
				m.fatal("%v is hidden and deleted", l)
			case masked:
				hidden++
			case !m.deleted[l]:
				seen[row.key]++
			}
		}
	}
	live := int64(v.Current.GetCardinality()) //nolint:gosec // small
	if l, h := m.state.Rows(); l != live || h != hidden {
		m.fatal("rows are %d and %d, want %d and %d", l, h, live, hidden)
	}
	for key := range modelKeys {
		want, at := 0, m.newest(key, m.durable)
		if at >= 0 && !m.log[at].deleted {
			want = 1
		}
		if seen[key] != want {
			m.fatal("key %d is read %d times, want %d (newest change %d)", key, seen[key], want, at)
		}
		m.checkFound("durable", key, m.state.FindDurable(modelKey(key)), at)
		m.checkFound("newest", key, m.state.Find(modelKey(key)), m.newest(key, int64(len(m.log))))
	}
}

func (m *stateModel) checkFound(what string, key int, f Found, at int64) {
	switch {
	case f.Below && at >= m.lake:
		m.fatal("%s: key %d is said to be below, its newest change is %d", what, key, at)
	case !f.Below && f.Offset < m.lake:
		m.fatal("%s: key %d is said to be live at %d, which is in the lake", what, key, f.Offset)
	case !f.Below && (f.Offset != at || f.Deleted != m.log[at].deleted):
		m.fatal("%s: key %d is %+v, its newest change is %d", what, key, f, at)
	}
}

// seeds is how many seeds a simulation runs; make sim asks for more.
func seeds(fallback int) uint64 {
	if n, err := strconv.ParseUint(os.Getenv("FIRN_SIM_SEEDS"), 10, 32); err == nil && n > 0 {
		return n
	}
	return uint64(fallback) //nolint:gosec // small
}

func TestSimulatedStateShowsEachKeyOnce(t *testing.T) {
	for seed := range seeds(100) {
		m := newStateModel(t, seed)
		for range 120 {
			steps := []struct {
				name   string
				weight int
				run    func()
			}{
				{"request", 8, m.request}, {"publish", 5, m.publish}, {"freeze", 2, m.freeze},
				{"fold", 3, m.fold}, {"compact", 1, m.compact}, {"restart", 1, m.restart},
			}
			n := m.rng.IntN(20)
			for _, s := range steps {
				if n -= s.weight; n < 0 {
					m.steps = append(m.steps, s.name)
					s.run()
					break
				}
			}
			m.check()
		}
	}
}

func TestGenerationGrowsAndReplaces(t *testing.T) {
	var g Generation
	const keys = 10_000
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // a seeded test
	key := func(i int) Key { return Key{uint64(i % 7), uint64(i)} }
	want := map[Key]Entry{}
	for range 3 * keys {
		i := rng.IntN(keys)
		e := Entry{Offset: rng.Int64N(1 << 40), Deleted: rng.IntN(2) == 0, Lake: At(rng.Uint32(), rng.Uint32())}
		g.Put(key(i), e)
		want[key(i)] = e
	}
	if g.Len() != len(want) {
		t.Fatalf("%d keys, want %d", g.Len(), len(want))
	}
	for k, e := range g.All() {
		if want[k] != e {
			t.Fatalf("%v is %+v, want %+v", k, e, want[k])
		}
	}
	for i := range keys {
		e, ok := g.Get(key(i))
		if w, known := want[key(i)]; ok != known || e != w {
			t.Fatalf("%v is %+v, %v, want %+v, %v", key(i), e, ok, w, known)
		}
	}
	if load := float64(g.Len()) / float64(g.Bytes()/slotBytes); load < 0.43 {
		t.Errorf("the table is filled to %.2f only", load)
	}
}
