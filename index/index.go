package index

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
)

// Index is the lake's part of a bucket's index at one generation: the open runs of
// a manifest. It is immutable, and safe for concurrent use.
type Index struct {
	Manifest *Manifest
	cache    *Cache
	runs     []*Run // as Manifest.Runs
}

// Open opens the runs of a manifest, with one GET or two for each that reuse does
// not have open already. reuse may be nil.
func Open(ctx context.Context, c *Cache, m *Manifest, reuse *Index) (*Index, error) {
	x := &Index{Manifest: m, cache: c, runs: make([]*Run, len(m.Runs))}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for i, ref := range m.Runs {
		if r := reuse.run(ref.Name); r != nil {
			x.runs[i] = r
			continue
		}
		g.Go(func() error {
			r, err := OpenRun(ctx, c, m.Key(ref.Name), m.Owner)
			if err != nil {
				return err
			}
			if r.Entries() != ref.Entries || r.firsts[0].Hi != ref.FirstHi {
				return corrupt(r.key, "run", "not the one that the manifest names")
			}
			x.runs[i] = r
			return nil
		})
	}
	return x, errs.In("open index", g.Wait())
}

func (x *Index) run(name string) *Run {
	if x == nil {
		return nil
	}
	i := slices.IndexFunc(x.Manifest.Runs, func(r RunRef) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return x.runs[i]
}

// Forget lets what the cache holds of runs go that successor does not have.
func (x *Index) Forget(successor *Index) {
	for i, ref := range x.Manifest.Runs {
		if successor.run(ref.Name) == nil {
			x.cache.forget(x.runs[i])
		}
	}
}

// Find returns where the rows of keys lie, in the order of the keys; Nowhere for
// those without a row in the lake. It asks from the newest run to the oldest; a
// run costs at most one GET a key and, with neighbours, less.
func (x *Index) Find(ctx context.Context, keys []Key) ([]Location, error) {
	out := make([]Location, len(keys))
	order := make([]int32, len(keys))
	for i := range order {
		order[i], out[i] = int32(i), Nowhere //nolint:gosec // a request has far fewer keys
	}
	slices.SortFunc(order, func(a, b int32) int { return keys[a].Compare(keys[b]) })
	probes := make([]Probe, len(keys))
	for i, at := range order {
		probes[i] = Probe{Key: keys[at], At: Nowhere}
	}
	for i, r := range x.runs {
		part := within(probes, x.Manifest.Runs[i].FirstHi, x.Manifest.Runs[i].LastHi)
		if err := r.Find(ctx, part); err != nil {
			return nil, errs.In("look keys up", err)
		}
	}
	for i, at := range order {
		out[at] = probes[i].At
	}
	return out, nil
}

// within returns the probes that a run's range of keys may hold.
func within(probes []Probe, firstHi, lastHi uint64) []Probe {
	from, _ := slices.BinarySearchFunc(probes, firstHi, func(p Probe, hi uint64) int {
		if p.Key.Hi < hi {
			return -1
		}
		return 1
	})
	to, _ := slices.BinarySearchFunc(probes, lastHi, func(p Probe, hi uint64) int {
		if p.Key.Hi <= hi {
			return -1
		}
		return 1
	})
	return probes[from:to]
}

// Placed is a key and where its row lies.
type Placed struct {
	Key Key
	At  Location
}

// Prefix returns the rows whose keys begin with hi, ordered by key. Another
// prefix may have the same hash: compare the rows.
func (x *Index) Prefix(ctx context.Context, hi uint64) ([]Placed, error) {
	known := map[Key]Location{}
	for i, r := range x.runs {
		if ref := x.Manifest.Runs[i]; hi < ref.FirstHi || hi > ref.LastHi {
			continue
		}
		if err := r.prefix(ctx, hi, known); err != nil {
			return nil, errs.In("look a prefix up", err)
		}
	}
	out := make([]Placed, 0, len(known))
	for k, at := range known {
		if at != Nowhere {
			out = append(out, Placed{k, at})
		}
	}
	slices.SortFunc(out, func(a, b Placed) int { return a.Key.Compare(b.Key) })
	return out, nil
}

// Bytes returns about what the open runs take beside the cached blocks.
func (x *Index) Bytes() (n int64) {
	for _, r := range x.runs {
		n += int64(len(r.blocks)) * (keyBytes + 16 + 8)
		for i := range r.parts {
			if f := r.parts[i].filter.Load(); f != nil {
				n += int64(len(f.Fingerprints))
			}
		}
	}
	return n
}
