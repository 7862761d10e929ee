package lakehouse

import (
	"container/list"
	"sync"
)

// lru is a small cache bounded by the total cost of its entries. An entry that
// costs more than the bound is not kept.
type lru[K comparable, V any] struct {
	mu    sync.Mutex // covers what follows; never held over I/O
	bound int
	cost  int
	order *list.List // front: most recently used
	items map[K]*list.Element
}

type lruItem[K comparable, V any] struct {
	key   K
	value V
	cost  int
}

func newLRU[K comparable, V any](bound int) *lru[K, V] {
	return &lru[K, V]{bound: bound, order: list.New(), items: make(map[K]*list.Element)}
}

func (c *lru[K, V]) get(key K) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.items[key]
	if !ok {
		var zero V
		return zero, false
	}
	c.order.MoveToFront(e)
	return e.Value.(*lruItem[K, V]).value, true
}

func (c *lru[K, V]) put(key K, value V, cost int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(key)
	if cost > c.bound {
		return
	}
	c.items[key] = c.order.PushFront(&lruItem[K, V]{key: key, value: value, cost: cost})
	c.cost += cost
	for c.cost > c.bound {
		c.removeLocked(c.order.Back().Value.(*lruItem[K, V]).key)
	}
}

func (c *lru[K, V]) remove(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.removeLocked(key)
}

func (c *lru[K, V]) removeLocked(key K) {
	if e, ok := c.items[key]; ok {
		c.cost -= e.Value.(*lruItem[K, V]).cost
		c.order.Remove(e)
		delete(c.items, key)
	}
}
