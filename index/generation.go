package index

import "iter"

// Entry is what a live generation knows about a key.
type Entry struct {
	// Offset of the key's newest change.
	Offset int64
	// Deleted says that this change left no row.
	Deleted bool
	// Lake is the position that this hides, or Nowhere.
	Lake Location
}

// Generation maps the keys that were changed since some offset to their newest
// change. It is an open-addressing table without pointers, so that the garbage
// collector never looks into it: 32 bytes a slot, at most seven of eight slots
// taken. The zero value is empty and ready. It is not safe for concurrent use.
type Generation struct {
	keys  []Key
	state []uint64 // 0: free; else offset+1 in the upper 63 bits, deleted in the lowest
	lake  []Location
	n     int
}

const (
	minSlots    = 64
	slotBytes   = keyBytes + 8 + 8
	maxLoadPart = 8 // one of so many slots stays free
)

// Len returns the number of keys.
func (g *Generation) Len() int { return g.n }

// Bytes returns the memory that the table takes.
func (g *Generation) Bytes() int64 { return int64(len(g.keys)) * slotBytes }

// slot returns where a key is, or the free slot where it would be.
func (g *Generation) slot(k Key) (at int, found bool) {
	mask := len(g.keys) - 1
	for at = int(k.word()>>20) & mask; g.state[at] != 0; at = (at + 1) & mask { //nolint:gosec // 44 bits
		if g.keys[at] == k {
			return at, true
		}
	}
	return at, false
}

// Get returns what is known about a key.
func (g *Generation) Get(k Key) (Entry, bool) {
	if g == nil || g.n == 0 {
		return Entry{}, false
	}
	at, ok := g.slot(k)
	if !ok {
		return Entry{}, false
	}
	return g.entry(at), true
}

func (g *Generation) entry(at int) Entry {
	s := g.state[at]
	return Entry{Offset: int64(s>>1) - 1, Deleted: s&1 != 0, Lake: g.lake[at]} //nolint:gosec // 63 bits
}

// Put sets what is known about a key.
func (g *Generation) Put(k Key, e Entry) {
	if g.n >= len(g.keys)-len(g.keys)/maxLoadPart {
		g.grow()
	}
	at, found := g.slot(k)
	if !found {
		g.keys[at] = k
		g.n++
	}
	s := uint64(e.Offset+1) << 1 //nolint:gosec // an offset is not negative
	if e.Deleted {
		s |= 1
	}
	g.state[at], g.lake[at] = s, e.Lake
}

func (g *Generation) grow() {
	old := *g
	size := max(minSlots, 2*len(old.keys))
	g.keys, g.state, g.lake = make([]Key, size), make([]uint64, size), make([]Location, size)
	for i, s := range old.state {
		if s == 0 {
			continue
		}
		at, _ := g.slot(old.keys[i])
		g.keys[at], g.state[at], g.lake[at] = old.keys[i], s, old.lake[i]
	}
}

// All yields the keys in no meaningful order. Entries may be replaced meanwhile,
// not added.
func (g *Generation) All() iter.Seq2[Key, Entry] {
	return func(yield func(Key, Entry) bool) {
		if g == nil {
			return
		}
		for at, s := range g.state {
			if s != 0 && !yield(g.keys[at], g.entry(at)) {
				return
			}
		}
	}
}
