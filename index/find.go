package index

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
)

const (
	parallelReads = 8        // GETs of one lookup at once
	readGap       = 64 << 10 // bytes between two blocks below which they are one GET
	maxReadBytes  = 4 << 20  // of one GET
)

// Probe is a key that is looked for, and what was found.
type Probe struct {
	Key   Key
	At    Location // Nowhere: the key was deleted, or never was
	Found bool     // a run knows the key
}

// Find looks the probes up that are not found yet. Probes are sorted by key. Keys
// that the filter excludes cost no read; missing blocks are read side by side,
// neighbours together.
func (r *Run) Find(ctx context.Context, probes []Probe) error {
	where := make([]int32, len(probes))
	var missing []int
	for i := range probes {
		where[i] = -1
		if probes[i].Found {
			continue
		}
		b := r.blockOf(probes[i].Key)
		if b < 0 {
			continue
		}
		may, err := r.mayHold(ctx, b, probes[i].Key)
		if err != nil {
			return err
		}
		if !may {
			continue
		}
		where[i] = int32(b) //nolint:gosec // a run has fewer blocks
		if c := r.loaded[b].Load(); c != nil {
			c.asked.Store(true)
			probes[i].At, probes[i].Found = c.find(probes[i].Key)
			where[i] = -1
			continue
		}
		if len(missing) == 0 || missing[len(missing)-1] != b {
			missing = append(missing, b)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	blocks, err := r.fetch(ctx, missing)
	if err != nil {
		return err
	}
	for i, b := range where {
		if b >= 0 {
			probes[i].At, probes[i].Found = blocks[int(b)].find(probes[i].Key)
		}
	}
	return nil
}

// fetch reads blocks, given in ascending order, and offers them to the cache.
func (r *Run) fetch(ctx context.Context, missing []int) (map[int]*cachedBlock, error) {
	out := make(map[int]*cachedBlock, len(missing))
	spans := r.spans(missing)
	read := make([][]*cachedBlock, len(spans))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallelReads)
	for i, span := range spans {
		g.Go(func() (err error) {
			read[i], err = r.fetchSpan(ctx, span)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	for i, span := range spans {
		for j, b := range span {
			out[b] = read[i][j]
		}
	}
	return out, nil
}

// spans groups blocks that are read by one GET.
func (r *Run) spans(blocks []int) [][]int {
	var out [][]int
	start := 0
	for i := range blocks {
		p := r.blocks[blocks[i]]
		if i > start {
			before := r.blocks[blocks[i-1]]
			if p.offset-(before.offset+int64(before.length)) > readGap || p.offset+int64(p.length)-r.blocks[blocks[start]].offset > maxReadBytes {
				out = append(out, blocks[start:i])
				start = i
			}
		}
	}
	return append(out, blocks[start:])
}

func (r *Run) fetchSpan(ctx context.Context, span []int) ([]*cachedBlock, error) {
	first, last := r.blocks[span[0]], r.blocks[span[len(span)-1]]
	n := last.offset + int64(last.length) - first.offset
	b, _, err := r.store.GetRange(ctx, r.key, first.offset, n)
	if err != nil {
		return nil, errs.In("read index blocks", err)
	}
	if int64(len(b)) != n {
		return nil, corrupt(r.key, "blocks", "cut off")
	}
	out := make([]*cachedBlock, len(span))
	for i, at := range span {
		p := r.blocks[at]
		from := p.offset - first.offset
		// A copy, so that a kept block does not keep its neighbours.
		bytes := slices.Clone(b[from : from+int64(p.length)])
		blk, err := r.checked(bytes, at)
		if err != nil {
			return nil, err
		}
		c := &cachedBlock{block: *blk, bytes: int64(len(bytes)) + blockOverhead}
		c.asked.Store(true)
		r.cache.keep(&r.loaded[at], c)
		out[i] = c
	}
	return out, nil
}

// checked parses the bytes of a block.
func (r *Run) checked(b []byte, at int) (*block, error) {
	blk, why := parseBlock(b)
	if why == "" && (blk.key(0) != r.firsts[at] || !blk.sorted() || at+1 < len(r.firsts) && blk.key(blk.n-1).Compare(r.firsts[at+1]) >= 0) {
		why = "keys out of order"
	}
	if why != "" {
		return nil, corrupt(r.key, "block", why)
	}
	return blk, nil
}

// prefix appends the entries whose keys begin with hi, except for those that a
// newer run knows.
func (r *Run) prefix(ctx context.Context, hi uint64, known map[Key]Location) error {
	from := max(0, r.blockOf(Key{hi, 0}))
	to := r.blockOf(Key{hi, 1<<64 - 1})
	var missing []int
	for at := from; at <= to; at++ {
		if r.loaded[at].Load() == nil {
			missing = append(missing, at)
		}
	}
	fetched := map[int]*cachedBlock{}
	if len(missing) > 0 {
		var err error
		if fetched, err = r.fetch(ctx, missing); err != nil {
			return err
		}
	}
	for at := from; at <= to; at++ {
		c := fetched[at]
		if c == nil {
			if c = r.loaded[at].Load(); c == nil { // it went meanwhile
				again, err := r.fetch(ctx, []int{at})
				if err != nil {
					return err
				}
				c = again[at]
			}
		}
		for i := c.search(Key{hi, 0}); i < c.n; i++ {
			k := c.key(i)
			if k.Hi != hi {
				break
			}
			if _, ok := known[k]; !ok {
				known[k] = c.location(i)
			}
		}
	}
	return nil
}
