package index

import (
	"iter"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/RoaringBitmap/roaring/v2/roaring64"

	"github.com/firn-data/firn/internal/errs"
)

// Found says where a key's row lies.
type Found struct {
	// Below: no live change of the key is known here; the runs decide.
	Below bool
	// Offset of the key's newest change, unless Below.
	Offset int64
	// Deleted says that this change left no row.
	Deleted bool
}

// Change is a key's newest change out of one request.
type Change struct {
	Key     Key
	Offset  int64 // of the change
	Deleted bool  // it left no row
	// Lake is what the runs say of the key. It matters only if the key was Below.
	Lake Location
}

// State is what the owner of a bucket knows about where its live rows lie: the
// active and the frozen generation, the changes that are not durable yet, and
// what of the lake the durable ones hide. It is a pure state machine: no clock, no
// I/O, no lock. docs/decisions/0006-primary-key-tables.md tells how it is used.
type State struct {
	active, frozen *Generation // frozen is nil between folds
	cut            int64       // frozen's changes are below, active's at or above

	lake    int64 // every change below is in the lake
	durable int64 // every change below is durable
	next    int64 // every change applied is below

	undo    undoLog
	current *roaring64.Bitmap          // durable offsets whose row is its key's newest
	hidden  map[uint32]*roaring.Bitmap // by data file: rows whose key has a durable live change
	masked  int64                      // rows in hidden
}

// NewState returns the state of a bucket whose changes from offset on are all
// still to be applied.
func NewState(offset int64) *State {
	return &State{
		active: &Generation{}, cut: offset, lake: offset, durable: offset, next: offset,
		current: roaring64.New(), hidden: map[uint32]*roaring.Bitmap{},
	}
}

// Bytes returns about how much memory the state takes.
func (s *State) Bytes() int64 {
	n := s.active.Bytes() + s.undo.bytes() + int64(s.current.GetSizeInBytes()) //nolint:gosec // far below 2^63
	if s.frozen != nil {
		n += s.frozen.Bytes()
	}
	for _, b := range s.hidden {
		n += int64(b.GetSizeInBytes()) //nolint:gosec // far below 2^63
	}
	return n
}

// Len returns the number of keys with live changes, a key in both generations
// counted twice.
func (s *State) Len() int {
	n := s.active.Len()
	if s.frozen != nil {
		n += s.frozen.Len()
	}
	return n
}

// Find returns the newest change of a key, durable or not.
func (s *State) Find(k Key) Found {
	if e, ok := s.active.Get(k); ok {
		return Found{Offset: e.Offset, Deleted: e.Deleted}
	}
	if e, ok := s.frozen.Get(k); ok {
		return Found{Offset: e.Offset, Deleted: e.Deleted}
	}
	return Found{Below: true}
}

// FindDurable returns the newest durable change of a key. What it finds never
// changes its meaning while it is the newest: an offset that was folded meanwhile
// is Below.
func (s *State) FindDurable(k Key) Found {
	f, ok := s.undo.before(k)
	if !ok {
		return s.Find(k)
	}
	if !f.Below && f.Offset < s.lake {
		return Found{Below: true}
	}
	return f
}

// WithPrefixes returns the keys with live changes, durable or not, that begin with
// the given upper halves. It looks at every live key.
func (s *State) WithPrefixes(his []uint64) map[uint64][]Key {
	out := make(map[uint64][]Key, len(his))
	for _, hi := range his {
		out[hi] = nil
	}
	for _, g := range []*Generation{s.active, s.frozen} {
		for k := range g.All() {
			if of, ok := out[k.Hi]; ok {
				out[k.Hi] = append(of, k)
			}
		}
	}
	return out
}

// Apply notes the changes of one request, which has been handed to the WAL. Their
// offsets ascend and are not below those of earlier requests.
func (s *State) Apply(changes []Change) error {
	for _, c := range changes {
		if c.Offset < s.next {
			return errs.New(errs.Internal, "index: change at offset %d applied behind %d", c.Offset, s.next)
		}
		s.next = c.Offset + 1
		before := s.Find(c.Key)
		e := Entry{Offset: c.Offset, Deleted: c.Deleted, Lake: Nowhere}
		if old, ok := s.active.Get(c.Key); ok {
			e.Lake = old.Lake
		} else if before.Below {
			e.Lake = c.Lake
		} // a key of frozen: frozen hides its row in the lake, and Adopt names the new one
		s.active.Put(c.Key, e)
		s.undo.push(undoRecord{key: c.Key, offset: c.Offset, deleted: c.Deleted, before: before})
	}
	return nil
}

// Publish makes the changes below an offset durable.
func (s *State) Publish(durable int64) {
	s.durable = max(s.durable, durable)
	s.next = max(s.next, s.durable)
	for {
		r, ok := s.undo.pop(s.durable)
		if !ok {
			return
		}
		if !r.before.Below && !r.before.Deleted {
			s.current.Remove(uint64(r.before.Offset)) //nolint:gosec // an offset is not negative
		}
		if !r.deleted {
			s.current.Add(uint64(r.offset)) //nolint:gosec // an offset is not negative
		}
		from := s.active
		if r.offset < s.cut {
			from = s.frozen
		}
		if e, ok := from.Get(r.key); ok {
			s.hide(e.Lake)
		}
	}
}

func (s *State) hide(l Location) {
	if l == Nowhere {
		return
	}
	b := s.hidden[l.File()]
	if b == nil {
		b = roaring.New()
		s.hidden[l.File()] = b
	}
	if b.CheckedAdd(l.Row()) {
		s.masked++
	}
}

// Freeze cuts the changes below the next offset off for a fold, and returns the
// cut. The fold may begin once everything below it is durable. Before the
// previous cut was adopted it is an error of class Internal.
func (s *State) Freeze(next int64) error {
	if s.frozen != nil || next < s.next {
		return errs.New(errs.Internal, "index: frozen at %d while %d is next and the cut at %d stands", next, s.next, s.cut)
	}
	s.frozen, s.active = s.active, &Generation{}
	s.cut, s.next = next, next
	return nil
}

// Frozen yields the keys of the cut, in no meaningful order.
func (s *State) Frozen() iter.Seq2[Key, Entry] { return s.frozen.All() }

// Cut returns the offset below which everything is frozen or in the lake, and
// whether a frozen generation waits to be adopted.
func (s *State) Cut() (offset int64, frozen bool) { return s.cut, s.frozen != nil }

// Adopt drops the frozen generation, whose rows are in the lake now. place says
// where the row of a frozen key lies that was not deleted.
func (s *State) Adopt(place func(Key) (Location, bool)) error {
	if s.frozen == nil || s.durable < s.cut {
		return errs.New(errs.Internal, "index: a fold to %d is adopted, durable is %d", s.cut, s.durable)
	}
	for k, e := range s.frozen.All() {
		newer, ok := s.active.Get(k)
		if !ok {
			continue
		}
		newer.Lake = Nowhere
		if !e.Deleted {
			if newer.Lake, ok = place(k); !ok {
				return errs.New(errs.Internal, "index: the fold to %d has no row of a key that it folded", s.cut)
			}
		}
		s.active.Put(k, newer)
	}
	s.frozen, s.lake = nil, s.cut
	s.current.RemoveRange(0, uint64(s.cut)) //nolint:gosec // an offset is not negative
	s.rebuildHidden()
	return nil
}

// Move follows rows that a compaction wrote again. moved returns the new position
// of a row, or false if it stayed where it was.
func (s *State) Move(moved func(Key, Location) (Location, bool)) {
	for _, g := range []*Generation{s.active, s.frozen} {
		for k, e := range g.All() {
			if e.Lake == Nowhere {
				continue
			}
			if to, ok := moved(k, e.Lake); ok {
				e.Lake = to
				g.Put(k, e)
			}
		}
	}
	s.rebuildHidden()
}

// rebuildHidden computes hidden from the durable changes.
func (s *State) rebuildHidden() {
	s.hidden, s.masked = map[uint32]*roaring.Bitmap{}, 0
	for k, e := range s.frozen.All() {
		if f, pending := s.undo.before(k); !pending || !f.Below {
			s.hide(e.Lake)
		}
	}
	for k, e := range s.active.All() {
		if f, pending := s.undo.before(k); !pending || !f.Below && f.Offset >= s.cut {
			s.hide(e.Lake)
		}
	}
}

// View is the durable state at one moment. It shares nothing with the State.
type View struct {
	Lake, Durable int64
	// Current holds the offsets in [Lake, Durable) whose row is its key's newest.
	Current *roaring64.Bitmap
	// Hidden holds, by data file, the rows of the lake whose key has a live change.
	Hidden map[uint32]*roaring.Bitmap
}

// View captures the durable state.
func (s *State) View() View {
	v := View{Lake: s.lake, Durable: s.durable, Current: s.current.Clone(), Hidden: make(map[uint32]*roaring.Bitmap, len(s.hidden))}
	for file, b := range s.hidden {
		v.Hidden[file] = b.Clone()
	}
	return v
}

// Rows returns how many live rows there are, and how many rows of the lake they
// and the live deletions hide.
func (s *State) Rows() (live, hidden int64) {
	return int64(s.current.GetCardinality()), s.masked //nolint:gosec // far below 2^63
}
