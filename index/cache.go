package index

import (
	"sync"
	"sync/atomic"

	"github.com/firn-data/firn/internal/objstore"
)

// Cache holds blocks of runs in memory, up to a budget. What was not asked for
// since the hand came by last goes first (the clock algorithm). Filters and block
// indexes are not in it: they are resident as long as their run is open, about
// 1.2 bytes a key.
//
// A cache for blocks that knows where they came from beats one by name here: a
// hit is an atomic load, and neighbours that miss are one request.
type Cache struct {
	store  objstore.Store
	budget int64

	mu   sync.Mutex
	used int64
	ring []ringSlot
	hand int
}

// cachedBlock is a block in memory.
type cachedBlock struct {
	block
	bytes int64
	asked atomic.Bool // since the hand came by
}

type ringSlot struct {
	place *atomic.Pointer[cachedBlock]
	block *cachedBlock
}

const blockOverhead = 192 // of a cached block, beside its bytes

// NewCache makes a cache of blocks of up to budget bytes.
func NewCache(store objstore.Store, budget int64) *Cache {
	return &Cache{store: store, budget: budget}
}

// Bytes returns what the cached blocks take.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// keep remembers a block at its place, and lets others go for it.
func (c *Cache) keep(place *atomic.Pointer[cachedBlock], b *cachedBlock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.bytes > c.budget || !place.CompareAndSwap(nil, b) {
		return
	}
	c.used += b.bytes
	c.ring = append(c.ring, ringSlot{place, b})
	for c.used > c.budget {
		c.hand %= len(c.ring)
		s := c.ring[c.hand]
		if s.block.asked.Swap(false) {
			c.hand++
			continue
		}
		c.drop(c.hand)
	}
}

// drop lets the block of a slot go; the last slot takes its place.
func (c *Cache) drop(slot int) {
	s := c.ring[slot]
	s.place.CompareAndSwap(s.block, nil)
	c.used -= s.block.bytes
	last := len(c.ring) - 1
	c.ring[slot] = c.ring[last]
	c.ring[last] = ringSlot{}
	c.ring = c.ring[:last]
}

// forget lets all blocks of a run go.
func (c *Cache) forget(r *Run) {
	mine := make(map[*atomic.Pointer[cachedBlock]]struct{}, len(r.loaded))
	for i := range r.loaded {
		if r.loaded[i].Load() != nil {
			mine[&r.loaded[i]] = struct{}{}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := 0; i < len(c.ring); {
		if _, ok := mine[c.ring[i].place]; ok {
			c.drop(i)
		} else {
			i++
		}
	}
}
