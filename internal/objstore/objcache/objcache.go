package objcache

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/dgraph-io/ristretto/v2"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	// entryOverhead is about what an entry costs beside its bytes.
	entryOverhead = 256
	// countedEntry is the size of entry that the admission counters are made for.
	countedEntry = 16 << 10
	// largestShare is the part of the cache that one entry may take.
	largestShare = 8
	minBytes     = 1 << 20
)

// Options bound a cache.
type Options struct {
	MaxBytes int64 // of all entries; less than 1 MiB means no caching at all
}

// Cache remembers ranges and whole objects of one store. Make one with New.
type Cache struct {
	store   objstore.Store
	largest int64 // bytes of an entry that is kept
	kept    *ristretto.Cache[string, *entry]

	mu      sync.Mutex
	flights map[string]*flight

	hits, misses, shared, fetchedBytes, hitBytes atomic.Int64
}

// entry is immutable.
type entry struct {
	key  string // of the cache, to be compared
	body []byte
	info objstore.Info
}

// flight is one request that several callers may wait for.
type flight struct {
	done    chan struct{}
	cancel  context.CancelFunc
	waiting int // callers; guarded by Cache.mu
	entry   *entry
	err     error
}

// Stats are counters since the start, and what is kept now.
type Stats struct {
	Hits         int64 // answered from memory
	Misses       int64 // requests sent to the store
	Shared       int64 // callers that waited for another's request
	HitBytes     int64
	FetchedBytes int64
	KeptBytes    int64 // an estimate; includes overhead
	MaxBytes     int64
}

// New makes a cache before a store. Close it when done; the store stays open.
func New(store objstore.Store, o Options) (*Cache, error) {
	c := &Cache{store: store, flights: make(map[string]*flight)}
	if o.MaxBytes < minBytes {
		return c, nil
	}
	c.largest = o.MaxBytes / largestShare
	kept, err := ristretto.NewCache(&ristretto.Config[string, *entry]{
		MaxCost:            o.MaxBytes,
		NumCounters:        max(1000, 10*o.MaxBytes/countedEntry),
		BufferItems:        64,
		IgnoreInternalCost: true, // entryOverhead counts it
		Metrics:            true,
	})
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, "make object cache", err)
	}
	c.kept = kept
	return c, nil
}

// Get returns a whole object.
func (c *Cache) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	return c.fetch(ctx, key, key, func(ctx context.Context) ([]byte, objstore.Info, error) {
		return c.store.Get(ctx, key)
	})
}

// Range returns n bytes from start, as objstore.Store.GetRange does. It is
// answered from a whole object when that is kept.
func (c *Cache) Range(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	if whole, ok := c.peek(key); ok {
		from, to := objstore.Window(int64(len(whole.body)), start, n)
		c.hit(to - from)
		return whole.body[from:to:to], whole.info, nil
	}
	if start < 0 {
		start = -1 // the magnitude means nothing
	}
	// No object key holds a control character, so this is no key.
	name := fmt.Sprintf("%s\x00%d\x00%d", key, start, n)
	return c.fetch(ctx, key, name, func(ctx context.Context) ([]byte, objstore.Info, error) {
		return c.store.GetRange(ctx, key, start, n)
	})
}

// Add offers a whole object that the caller has just written or read. The cache
// keeps body, which must not change any more.
func (c *Cache) Add(info objstore.Info, body []byte) {
	c.keep(&entry{key: info.Key, body: body, info: info})
}

// Stats returns the counters.
func (c *Cache) Stats() Stats {
	s := Stats{
		Hits: c.hits.Load(), Misses: c.misses.Load(), Shared: c.shared.Load(),
		HitBytes: c.hitBytes.Load(), FetchedBytes: c.fetchedBytes.Load(),
	}
	if c.kept != nil {
		s.MaxBytes = c.kept.MaxCost()
		s.KeptBytes = int64(c.kept.Metrics.CostAdded() - c.kept.Metrics.CostEvicted())
	}
	return s
}

// Close forgets everything. Requests in flight go on for their callers.
func (c *Cache) Close() {
	if c.kept != nil {
		c.kept.Close()
	}
}

func (c *Cache) peek(name string) (*entry, bool) {
	if c.kept == nil {
		return nil, false
	}
	e, ok := c.kept.Get(name)
	if !ok || e == nil || e.key != name {
		return nil, false
	}
	return e, true
}

func (c *Cache) keep(e *entry) {
	cost := int64(len(e.body)) + int64(len(e.key)) + entryOverhead
	if c.kept != nil && cost <= c.largest {
		c.kept.Set(e.key, e, cost)
	}
}

func (c *Cache) hit(n int64) {
	c.hits.Add(1)
	c.hitBytes.Add(n)
}

// fetch answers from memory, joins the request in flight under the same name, or
// starts one.
func (c *Cache) fetch(ctx context.Context, key, name string, get func(context.Context) ([]byte, objstore.Info, error)) ([]byte, objstore.Info, error) {
	if err := ctx.Err(); err != nil {
		return nil, objstore.Info{}, errs.Wrap(errs.Canceled, "read "+key, err)
	}
	if e, ok := c.peek(name); ok {
		c.hit(int64(len(e.body)))
		return e.body, e.info, nil
	}
	f := c.join(ctx, name, get)
	defer c.leave(name, f)
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, objstore.Info{}, errs.Wrap(errs.Canceled, "read "+key, ctx.Err())
	}
	if f.err != nil {
		return nil, objstore.Info{}, f.err
	}
	return f.entry.body, f.entry.info, nil
}

// join returns the flight of a name with the caller counted in.
func (c *Cache) join(ctx context.Context, name string, get func(context.Context) ([]byte, objstore.Info, error)) *flight {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.flights[name]; f != nil {
		f.waiting++
		c.shared.Add(1)
		return f
	}
	// The request belongs to all who wait, so no one caller's end ends it.
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &flight{done: make(chan struct{}), cancel: cancel, waiting: 1}
	c.flights[name] = f
	c.misses.Add(1)
	go func() {
		defer cancel()
		body, info, err := get(ctx)
		c.land(name, f, body, info, err)
	}()
	return f
}

// land ends a flight with the store's answer.
func (c *Cache) land(name string, f *flight, body []byte, info objstore.Info, err error) {
	if err == nil {
		c.fetchedBytes.Add(int64(len(body)))
		f.entry = &entry{key: name, body: body[:len(body):len(body)], info: info}
		c.keep(f.entry)
	}
	f.err = err
	c.mu.Lock()
	if c.flights[name] == f {
		delete(c.flights, name)
	}
	c.mu.Unlock()
	close(f.done)
}

// leave takes a caller out of a flight, and ends one that nobody waits for.
func (c *Cache) leave(name string, f *flight) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.waiting--; f.waiting > 0 {
		return
	}
	f.cancel()
	if c.flights[name] == f {
		delete(c.flights, name) // a later caller starts anew
	}
}
