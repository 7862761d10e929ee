package agent

import (
	"container/list"
	"context"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/wal"
)

// footerCache keeps parsed WAL footers by object, within a bound on bytes, with one
// read a footer however many ask. It is the only one to keep them: an entry that
// somebody holds on to keeps its whole footer in memory.
type footerCache struct {
	store objstore.Store
	group singleflight.Group

	mu    sync.Mutex
	bytes int64
	byID  map[wal.ObjectID]*list.Element
	order *list.List // of *footerItem, newest use first
}

type footerItem struct {
	id     wal.ObjectID
	footer *wal.Footer
	bytes  int64
}

const (
	maxFooterBytes = 64 << 20
	// What a footer's parts take once they are parsed, about.
	segmentMemory = 160
	chunkMemory   = 224 // one column of one segment
)

// footerMemory estimates what a parsed footer takes.
func footerMemory(f *wal.Footer) int64 {
	var n int64
	for i := range f.Segments {
		n += segmentMemory + chunkMemory*int64(len(f.Segments[i].Columns))
	}
	return n
}

func newFooterCache(store objstore.Store) *footerCache {
	return &footerCache{store: store, byID: map[wal.ObjectID]*list.Element{}, order: list.New()}
}

func (c *footerCache) get(ctx context.Context, id wal.ObjectID) (*wal.Footer, error) {
	c.mu.Lock()
	if e, ok := c.byID[id]; ok {
		c.order.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*footerItem).footer, nil
	}
	c.mu.Unlock()
	v, err, _ := c.group.Do(id.Key(), func() (any, error) {
		footer, err := wal.ReadFooter(ctx, c.store, id)
		if err != nil {
			return nil, err
		}
		c.put(id, footer)
		return footer, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*wal.Footer), nil
}

func (c *footerCache) put(id wal.ObjectID, footer *wal.Footer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byID[id]; ok {
		return
	}
	item := &footerItem{id, footer, footerMemory(footer)}
	c.byID[id] = c.order.PushFront(item)
	c.bytes += item.bytes
	for c.bytes > maxFooterBytes && c.order.Len() > 1 {
		c.evict(c.order.Back())
	}
}

// forget drops the footer of a deleted object.
func (c *footerCache) forget(key string) {
	id, ok := wal.ParseObjectKey(key)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byID[id]; ok {
		c.evict(e)
	}
}

func (c *footerCache) evict(e *list.Element) {
	item := c.order.Remove(e).(*footerItem)
	delete(c.byID, item.id)
	c.bytes -= item.bytes
}
