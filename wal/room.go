package wal

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// roomRetryAfter is the hint given to a caller that found no room: about the time
// in which a healthy store takes a few objects.
const roomRetryAfter = 500 * time.Millisecond

// room hands out a bounded number of bytes, first come first served, so that a
// large request is not starved by small ones.
type room struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiters list.List // of *roomWaiter, oldest first
	closed  error     // once set, what every taker gets
}

type roomWaiter struct {
	n     int64
	ready chan error // gets one value
}

// take waits for n bytes until ctx ends.
func (r *room) take(ctx context.Context, n int64) error {
	if n > r.limit {
		e := errs.New(errs.TooLarge, "rows of %d bytes exceed the limit of %d bytes not yet durable (wal max pending bytes)", n, r.limit)
		e.Details = []any{map[string]any{"limit": r.limit}}
		return e
	}
	r.mu.Lock()
	if r.closed != nil {
		defer r.mu.Unlock()
		return r.closed
	}
	if r.waiters.Len() == 0 && r.used+n <= r.limit {
		r.used += n
		r.mu.Unlock()
		return nil
	}
	w := &roomWaiter{n: n, ready: make(chan error, 1)}
	el := r.waiters.PushBack(w)
	r.mu.Unlock()

	select {
	case err := <-w.ready:
		return err
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case err := <-w.ready: // granted meanwhile
		return err
	default:
	}
	r.waiters.Remove(el)
	r.grant() // the one behind may fit
	return r.full(ctx.Err())
}

func (r *room) full(end error) error {
	class := errs.Exhausted
	if errors.Is(end, context.Canceled) {
		class = errs.Canceled
	}
	return &errs.Error{
		Class: class, Op: "append rows", RetryAfter: roomRetryAfter, Cause: end,
		Msg: "the store is slower than the writers: " + itoa(r.limit) + " bytes wait to become durable (wal max pending bytes)",
	}
}

// give returns n bytes.
func (r *room) give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used -= n
	r.grant()
}

func (r *room) grant() {
	for el := r.waiters.Front(); el != nil; el = r.waiters.Front() {
		w := el.Value.(*roomWaiter)
		if r.used+w.n > r.limit {
			return
		}
		r.used += w.n
		r.waiters.Remove(el)
		w.ready <- nil
	}
}

// close fails everyone who waits or comes later.
func (r *room) close(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed != nil {
		return
	}
	r.closed = err
	for el := r.waiters.Front(); el != nil; el = r.waiters.Front() {
		r.waiters.Remove(el)
		el.Value.(*roomWaiter).ready <- err
	}
}

func (r *room) inUse() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}
