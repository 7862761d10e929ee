package index

import (
	"container/heap"
	"context"
	"encoding/hex"
	"io"
	"slices"

	"github.com/firn-data/firn/internal/errs"
)

const (
	// maxRunEntries bounds one run object: about 90 MiB, which is also what the
	// writer holds. A level of more keys has several runs.
	maxRunEntries = 4 << 20
	// maxLevels bounds the levels, whatever their sizes: each may cost a lookup a GET.
	maxLevels    = 8
	mergeReadRun = 1 << 20 // bytes that a merge reads of a run at once
)

// planMerge says how many of the newest levels are merged with a new one of so
// many entries: as long as a level is less than twice of what is gathered, so that
// sizes at least double from level to level and an entry is rewritten a
// logarithmic number of times; and always so many that at most maxLevels remain.
func planMerge(levels []int64, fresh int64) (n int) {
	for n < len(levels) && (levels[n] < 2*fresh || len(levels)-n >= maxLevels) {
		fresh += levels[n]
		n++
	}
	return n
}

// levels returns the runs of each level, newest first.
func (m *Manifest) levels() (out [][]RunRef) {
	for i, r := range m.Runs {
		if i == 0 || r.Level != m.Runs[i-1].Level {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

// Put stores a new object of the index under a name in its bucket.
type Put func(ctx context.Context, name string, body []byte) error

// Update is what a fold or a compaction changes in a bucket's index.
type Update struct {
	Changes  []Placed // sorted by key, distinct; Nowhere: the row is gone
	NewFiles []File   // that Changes point to; numbered from NextFile on
	// Gone are the keys of data files that the lake dropped.
	Gone map[string]bool
}

// Next writes the level that holds an update, merged with those levels that it
// outgrew, and returns the manifest of the next generation, which the caller
// stores. newID returns fresh ids for names and nonces.
func (x *Index) Next(ctx context.Context, u Update, newID func() [nonceBytes]byte, put Put) (*Manifest, error) {
	old := x.Manifest
	next := &Manifest{Owner: old.Owner, Generation: old.Generation + 1, NextFile: old.NextFile}
	for _, f := range old.Files {
		if !u.Gone[f.Key] {
			next.Files = append(next.Files, f)
		}
	}
	for _, f := range u.NewFiles {
		if f.Number < next.NextFile || f.Number > MaxFile {
			return nil, errs.New(errs.Internal, "index: data file %s has the number %d, next is %d", f.Key, f.Number, next.NextFile)
		}
		next.NextFile = f.Number + 1
		next.Files = append(next.Files, f)
	}
	if len(u.Changes) == 0 {
		next.Runs = old.Runs
		return next, nil
	}
	levels := old.levels()
	sizes := make([]int64, len(levels))
	for i, l := range levels {
		for _, r := range l {
			sizes[i] += r.Entries
		}
	}
	merged := planMerge(sizes, int64(len(u.Changes)))
	refs, err := x.merge(ctx, u.Changes, levels[:merged], merged == len(levels), &levelWriter{owner: old.Owner, newID: newID, put: put})
	if err != nil {
		return nil, errs.In("write index", err)
	}
	level := uint32(1)
	if merged < len(levels) {
		level = levels[merged][0].Level + 1
	}
	for i := range refs {
		refs[i].Level = level
	}
	next.Runs = append(refs, slices.Concat(levels[merged:]...)...)
	return next, nil
}

// merge writes the newest entry of each key. With nothing older below it,
// deletions are left out.
func (x *Index) merge(ctx context.Context, fresh []Placed, levels [][]RunRef, bottom bool, w *levelWriter) ([]RunRef, error) {
	m := &merger{}
	if err := m.add(ctx, &freshCursor{rest: fresh}, 0); err != nil {
		return nil, err
	}
	for i, l := range levels {
		var runs []*Run
		for _, ref := range l {
			runs = append(runs, x.run(ref.Name))
		}
		if err := m.add(ctx, &levelCursor{runs: runs}, i+1); err != nil {
			return nil, err
		}
	}
	var last Key
	for begun := false; m.Len() > 0; {
		e, err := m.next(ctx)
		if err != nil {
			return nil, err
		}
		if begun && e.key == last { // an older level's
			continue
		}
		begun, last = true, e.key
		if e.at == Nowhere && bottom {
			continue
		}
		if err := w.add(ctx, e); err != nil {
			return nil, err
		}
	}
	return w.finish(ctx)
}

// levelWriter writes the runs of one level.
type levelWriter struct {
	owner Owner
	newID func() [nonceBytes]byte
	put   Put
	run   *RunWriter
	ref   RunRef
	refs  []RunRef
}

func (w *levelWriter) add(ctx context.Context, e entry) error {
	if w.run != nil && w.run.Len() >= maxRunEntries && e.key.Hi != w.ref.LastHi {
		if err := w.end(ctx); err != nil {
			return err
		}
	}
	if w.run == nil {
		w.run = NewRunWriter(w.owner, w.newID())
		w.ref = RunRef{FirstHi: e.key.Hi}
	}
	w.ref.LastHi = e.key.Hi
	w.ref.Entries++
	if e.at == Nowhere {
		w.ref.Deletions++
	}
	return w.run.Add(e.key, e.at)
}

func (w *levelWriter) end(ctx context.Context) error {
	body, err := w.run.Finish()
	if err != nil {
		return err
	}
	id := w.newID()
	w.ref.Name, w.ref.Size = RunName(hex.EncodeToString(id[:])), int64(len(body))
	if err := w.put(ctx, w.ref.Name, body); err != nil {
		return err
	}
	w.refs = append(w.refs, w.ref)
	w.run = nil
	return nil
}

func (w *levelWriter) finish(ctx context.Context) ([]RunRef, error) {
	if w.run != nil {
		if err := w.end(ctx); err != nil {
			return nil, err
		}
	}
	return w.refs, nil
}

// cursor yields entries in the order of their keys; io.EOF ends it.
type cursor interface {
	next(ctx context.Context) (entry, error)
}

type freshCursor struct{ rest []Placed }

func (c *freshCursor) next(context.Context) (entry, error) {
	if len(c.rest) == 0 {
		return entry{}, io.EOF
	}
	p := c.rest[0]
	c.rest = c.rest[1:]
	return entry{p.Key, p.At}, nil
}

// levelCursor reads the runs of a level, about mergeReadRun bytes at a time, past
// the cache.
type levelCursor struct {
	runs      []*Run
	following int // block of runs[0]
	blocks    []*block
	at        int // entry of blocks[0]
}

func (c *levelCursor) next(ctx context.Context) (entry, error) {
	for {
		if len(c.blocks) > 0 {
			b := c.blocks[0]
			if c.at < b.n {
				c.at++
				return entry{b.key(c.at - 1), b.location(c.at - 1)}, nil
			}
			c.blocks, c.at = c.blocks[1:], 0
			continue
		}
		if len(c.runs) == 0 {
			return entry{}, io.EOF
		}
		if c.following == len(c.runs[0].blocks) {
			c.runs, c.following = c.runs[1:], 0
			continue
		}
		var err error
		if c.blocks, err = c.runs[0].stream(ctx, c.following, mergeReadRun); err != nil {
			return entry{}, err
		}
		c.following += len(c.blocks)
	}
}

// stream reads neighbouring blocks from one on, up to about n bytes.
func (r *Run) stream(ctx context.Context, from int, n int64) ([]*block, error) {
	first := r.blocks[from]
	to := from + 1
	end := first.offset + int64(first.length)
	for to < len(r.blocks) && r.blocks[to].offset == end && end-first.offset < n {
		end += int64(r.blocks[to].length)
		to++
	}
	b, _, err := r.store.GetRange(ctx, r.key, first.offset, end-first.offset)
	if err != nil {
		return nil, errs.In("read index run", err)
	}
	if int64(len(b)) != end-first.offset {
		return nil, corrupt(r.key, "blocks", "cut off")
	}
	out := make([]*block, 0, to-from)
	for at := from; at < to; at++ {
		p := r.blocks[at]
		blk, err := r.checked(b[p.offset-first.offset:p.offset-first.offset+int64(p.length)], at)
		if err != nil {
			return nil, err
		}
		out = append(out, blk)
	}
	return out, nil
}

// merger is a heap of cursors: the smallest key first, of equal keys the newest.
type merger struct{ heads []mergeHead }

type mergeHead struct {
	entry
	age    int // 0 is the newest
	source cursor
}

func (m *merger) add(ctx context.Context, c cursor, age int) error {
	e, err := c.next(ctx)
	if err == io.EOF {
		return nil
	}
	if err == nil {
		heap.Push(m, mergeHead{e, age, c})
	}
	return err
}

func (m *merger) next(ctx context.Context) (entry, error) {
	e := m.heads[0].entry
	following, err := m.heads[0].source.next(ctx)
	switch {
	case err == io.EOF:
		heap.Pop(m)
	case err != nil:
		return entry{}, err
	default:
		m.heads[0].entry = following
		heap.Fix(m, 0)
	}
	return e, nil
}

// Len, Less, Swap, Push and Pop make the heap.
func (m *merger) Len() int { return len(m.heads) }

// Less orders heads by key, then age.
func (m *merger) Less(i, j int) bool {
	if c := m.heads[i].key.Compare(m.heads[j].key); c != 0 {
		return c < 0
	}
	return m.heads[i].age < m.heads[j].age
}

// Swap exchanges two heads.
func (m *merger) Swap(i, j int) { m.heads[i], m.heads[j] = m.heads[j], m.heads[i] }

// Push adds a head.
func (m *merger) Push(x any) { m.heads = append(m.heads, x.(mergeHead)) } //nolint:forcetypeassert // container/heap's

// Pop takes the last head off.
func (m *merger) Pop() any {
	last := m.heads[len(m.heads)-1]
	m.heads = m.heads[:len(m.heads)-1]
	return last
}
