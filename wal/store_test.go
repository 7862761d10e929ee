package wal

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// hookStore lets a test decide about each conditional put, and writes a
// transcript of all calls.
type hookStore struct {
	objstore.Store
	// put, when set, is called instead of the store's PutIfAbsent; apply does it.
	put func(ctx context.Context, key string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error)

	mu    sync.Mutex
	calls []string
}

func newHookStore() *hookStore { return &hookStore{Store: objstore.NewMem()} }

func (h *hookStore) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, fmt.Sprintf(format, args...))
}

func (h *hookStore) transcript() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.calls...)
}

func (h *hookStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	h.note("put_if_absent %s", key)
	apply := func() (objstore.Outcome, error) { return h.Store.PutIfAbsent(ctx, key, body) }
	if h.put != nil {
		return h.put(ctx, key, apply)
	}
	return apply()
}

func (h *hookStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	h.note("get %s", key)
	return h.Store.Get(ctx, key)
}

func (h *hookStore) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	h.note("get_range %s %d+%d", key, start, n)
	return h.Store.GetRange(ctx, key, start, n)
}

// slowly makes every conditional put take d.
func slowly(d time.Duration) func(context.Context, string, func() (objstore.Outcome, error)) (objstore.Outcome, error) {
	return func(ctx context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
		if err := sleepCtx(ctx, d); err != nil {
			return objstore.Unknown, err
		}
		return apply()
	}
}

func sleepCtx(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func walKey(seq uint64) string { return ObjectID{"inc-1", seq}.Key() }
