package agent

import (
	"container/list"
	"context"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/wal"
)

// footerCache keeps parsed WAL footers by object, bounded by the segments in
// them (about 1 KiB each), with one read a footer however many ask.
type footerCache struct {
	store objstore.Store
	group singleflight.Group

	mu       sync.Mutex
	segments int
	byKey    map[string]*list.Element
	order    *list.List // of *footerItem, newest use first
}

type footerItem struct {
	key    string
	footer *wal.Footer
}

const maxCachedSegments = 32 << 10

func newFooterCache(store objstore.Store) *footerCache {
	return &footerCache{store: store, byKey: map[string]*list.Element{}, order: list.New()}
}

func (c *footerCache) get(ctx context.Context, id wal.ObjectID) (*wal.Footer, error) {
	key := id.Key()
	c.mu.Lock()
	if e, ok := c.byKey[key]; ok {
		c.order.MoveToFront(e)
		c.mu.Unlock()
		return e.Value.(*footerItem).footer, nil
	}
	c.mu.Unlock()
	v, err, _ := c.group.Do(key, func() (any, error) {
		footer, err := wal.ReadFooter(ctx, c.store, id)
		if err != nil {
			return nil, err
		}
		c.put(key, footer)
		return footer, nil
	})
	if err != nil {
		return nil, err
	}
	return v.(*wal.Footer), nil
}

func (c *footerCache) put(key string, footer *wal.Footer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byKey[key]; ok {
		return
	}
	c.byKey[key] = c.order.PushFront(&footerItem{key, footer})
	c.segments += len(footer.Segments)
	for c.segments > maxCachedSegments && c.order.Len() > 1 {
		c.evict(c.order.Back())
	}
}

func (c *footerCache) forget(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byKey[key]; ok {
		c.evict(e)
	}
}

func (c *footerCache) evict(e *list.Element) {
	item := c.order.Remove(e).(*footerItem)
	delete(c.byKey, item.key)
	c.segments -= len(item.footer.Segments)
}
