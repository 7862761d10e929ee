package agent

import (
	"context"
	"iter"
	"strings"
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
	point  *simPoint     // where something happens next; nil = nowhere
}

// simPoint is a place in the run of a process: before or after its next request of a
// kind for a key that holds a text.
type simPoint struct {
	op    objstore.Op
	part  string
	after bool
	met   chan struct{} // closed when it is reached; the process goes no further
	act   func()
}

// simPoints are the places where a death or a pause tells most.
var simPoints = []simPoint{
	{op: objstore.OpPutIfAbsent, part: "wal/"},
	{op: objstore.OpPutIfAbsent, part: "checkpoint/"},
	{op: objstore.OpPutIfAbsent, part: "/metadata/v"},
	{op: objstore.OpPutIfAbsent, part: "meta/log/"},
	{op: objstore.OpPut, part: "/data/"},
	{op: objstore.OpPut, part: "/metadata/snap-"},
	{op: objstore.OpDelete, part: "wal/"},
	{op: objstore.OpDelete, part: "checkpoint/"},
	{op: objstore.OpDelete, part: "lake/"},
}

// at has act (freeze or kill) happen at a point; the channel is closed then.
func (g *simGate) at(p simPoint, act func()) <-chan struct{} {
	p.met, p.act = make(chan struct{}), act
	g.mu.Lock()
	defer g.mu.Unlock()
	g.point = &p
	return p.met
}

// disarm gives up on a point; false when it was reached.
func (g *simGate) disarm() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	armed := g.point != nil
	g.point = nil
	return armed
}

// reach acts when a request is the point that is waited for.
func (g *simGate) reach(op objstore.Op, key string, after bool) {
	g.mu.Lock()
	p := g.point
	if p == nil || p.op != op || p.after != after || !strings.Contains(key, p.part) {
		g.mu.Unlock()
		return
	}
	g.point = nil
	g.mu.Unlock()
	p.act()
	close(p.met)
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
func (g *simGate) around(ctx context.Context, op objstore.Op, key string, run func() error) error {
	g.reach(op, key, false)
	if err := g.pass(ctx); err != nil {
		return err
	}
	err := run()
	g.reach(op, key, true)
	if late := g.pass(ctx); late != nil {
		return late
	}
	return err
}

func (g *simGate) Put(ctx context.Context, key string, body []byte) error {
	return g.around(ctx, objstore.OpPut, key, func() error { return g.Store.Put(ctx, key, body) })
}

func (g *simGate) PutIfAbsent(ctx context.Context, key string, body []byte) (out objstore.Outcome, err error) {
	before := out
	sent := false
	err = g.around(ctx, objstore.OpPutIfAbsent, key, func() (err error) { sent = true; out, err = g.Store.PutIfAbsent(ctx, key, body); return err })
	if err != nil {
		out = before
		if sent { // the answer did not arrive
			err = errs.Wrap(errs.Unknown, "put "+key, err)
		}
	}
	return out, err
}

func (g *simGate) Delete(ctx context.Context, key string) error {
	return g.around(ctx, objstore.OpDelete, key, func() error { return g.Store.Delete(ctx, key) })
}

func (g *simGate) Get(ctx context.Context, key string) (b []byte, i objstore.Info, err error) {
	err = g.around(ctx, objstore.OpGet, key, func() (err error) { b, i, err = g.Store.Get(ctx, key); return err })
	return b, i, err
}

func (g *simGate) GetRange(ctx context.Context, key string, start, n int64) (b []byte, i objstore.Info, err error) {
	err = g.around(ctx, objstore.OpGetRange, key, func() (err error) { b, i, err = g.Store.GetRange(ctx, key, start, n); return err })
	return b, i, err
}

func (g *simGate) Head(ctx context.Context, key string) (i objstore.Info, err error) {
	err = g.around(ctx, objstore.OpHead, key, func() (err error) { i, err = g.Store.Head(ctx, key); return err })
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
