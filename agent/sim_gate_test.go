package agent

import (
	"context"
	"iter"
	"sync"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// simGate stands between a process and its store. It can be frozen (the process is
// paused: nothing is sent and no answer arrives until it is thawed) and killed
// (nothing is sent any more, and no answer arrives ever).
type simGate struct {
	objstore.Store

	mu     sync.Mutex
	frozen chan struct{} // closed when thawed; nil = open
	dead   chan struct{} // closed when killed
}

func newSimGate(s objstore.Store) *simGate { return &simGate{Store: s, dead: make(chan struct{})} }

func (g *simGate) freeze() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen == nil {
		g.frozen = make(chan struct{})
	}
}

func (g *simGate) thaw() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.frozen != nil {
		close(g.frozen)
		g.frozen = nil
	}
}

func (g *simGate) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.dead:
	default:
		close(g.dead)
	}
}

func (g *simGate) pass(ctx context.Context) error {
	g.mu.Lock()
	frozen := g.frozen
	g.mu.Unlock()
	if frozen != nil {
		select {
		case <-frozen:
		case <-g.dead:
		case <-ctx.Done():
			return errs.Wrap(errs.Canceled, "paused", ctx.Err())
		}
	}
	select {
	case <-g.dead:
		return errDead
	default:
		return nil
	}
}

// around runs one operation with the gate before it and behind it.
func (g *simGate) around(ctx context.Context, run func() error) error {
	if err := g.pass(ctx); err != nil {
		return err
	}
	err := run()
	if late := g.pass(ctx); late != nil {
		return late
	}
	return err
}

func (g *simGate) Put(ctx context.Context, key string, body []byte) error {
	return g.around(ctx, func() error { return g.Store.Put(ctx, key, body) })
}

func (g *simGate) PutIfAbsent(ctx context.Context, key string, body []byte) (out objstore.Outcome, err error) {
	before := out
	sent := false
	err = g.around(ctx, func() (err error) { sent = true; out, err = g.Store.PutIfAbsent(ctx, key, body); return err })
	if err != nil {
		out = before
		if sent { // the answer did not arrive
			err = errs.Wrap(errs.Unknown, "put "+key, err)
		}
	}
	return out, err
}

func (g *simGate) Delete(ctx context.Context, key string) error {
	return g.around(ctx, func() error { return g.Store.Delete(ctx, key) })
}

func (g *simGate) Get(ctx context.Context, key string) (b []byte, i objstore.Info, err error) {
	err = g.around(ctx, func() (err error) { b, i, err = g.Store.Get(ctx, key); return err })
	return b, i, err
}

func (g *simGate) GetRange(ctx context.Context, key string, start, n int64) (b []byte, i objstore.Info, err error) {
	err = g.around(ctx, func() (err error) { b, i, err = g.Store.GetRange(ctx, key, start, n); return err })
	return b, i, err
}

func (g *simGate) Head(ctx context.Context, key string) (i objstore.Info, err error) {
	err = g.around(ctx, func() (err error) { i, err = g.Store.Head(ctx, key); return err })
	return i, err
}

func (g *simGate) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range g.Store.List(ctx, prefix, after) {
			if late := g.pass(ctx); late != nil {
				yield(objstore.Info{}, late)
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// Close keeps the store below open: other processes use it.
func (g *simGate) Close() error { return nil }
