package agent

import "sync"

// snapshotPins counts the readers of each Iceberg snapshot of a table, so that
// expiry keeps the files that a scan is still reading. The zero value is ready.
type snapshotPins struct {
	mu      sync.Mutex
	readers map[int64]int
}

// pin registers a reader and returns what ends it; a second call of that does nothing.
func (p *snapshotPins) pin(id int64) (unpin func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readers == nil {
		p.readers = map[int64]int{}
	}
	p.readers[id]++
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.readers[id]--; p.readers[id] <= 0 {
			delete(p.readers, id)
		}
	})
}

// pinned reports whether somebody reads a snapshot.
func (p *snapshotPins) pinned(id int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.readers[id] > 0
}
