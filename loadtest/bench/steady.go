package bench

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// warmUp is how long a workload runs before it is measured: pools fill, the heap
// reaches its size, connections stand.
func (o *Options) warmUp() time.Duration { return o.Measure / 8 }

// steady measures a workload that goes on until its context ends and returns how
// many rows it moved. The heap is collected before, so that one measurement does
// not pay for another's garbage.
func (o *Options) steady(ctx context.Context, work func(context.Context) (rows int64, err error)) (speed, error) {
	if _, err := during(ctx, o.warmUp(), work); err != nil {
		return speed{}, err
	}
	runtime.GC()
	begun, cpu := time.Now(), processorTime()
	rows, err := during(ctx, o.Measure, work)
	return speed{perSecond(rows, time.Since(begun)), (processorTime() - cpu) / time.Duration(max(1, rows))}, err
}

// during tells a workload to begin nothing new after some time.
func during(ctx context.Context, d time.Duration, work func(context.Context) (int64, error)) (int64, error) {
	limited, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return work(limited)
}

// recentObjects is how many WAL objects a store of the throughput cases keeps.
const recentObjects = 32

// recentStore forgets all but the newest WAL objects: nobody reads them in the
// throughput cases, and a run of seconds would not fit memory.
type recentStore struct {
	objstore.Store
	mu   sync.Mutex
	keys []string
}

func newRecentStore() *recentStore { return &recentStore{Store: objstore.NewMem()} }

// PutIfAbsent implements objstore.Store.
func (s *recentStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	outcome, err := s.Store.PutIfAbsent(ctx, key, body)
	if err != nil || !strings.HasPrefix(key, "wal/") {
		return outcome, err
	}
	s.mu.Lock()
	s.keys = append(s.keys, key)
	var old string
	if len(s.keys) > recentObjects {
		old, s.keys = s.keys[0], s.keys[1:]
	}
	s.mu.Unlock()
	if old != "" {
		_ = s.Delete(ctx, old)
	}
	return outcome, nil
}
