package faultstore

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// ErrInjected is in the chain of every error that a rule made.
var ErrInjected = errors.New("injected fault")

// Clock is what delays are measured by. The default is package time, which
// testing/synctest fakes.
type Clock interface {
	// Sleep waits, or returns the context's error.
	Sleep(ctx context.Context, d time.Duration) error
	// AfterFunc calls f once, d later.
	AfterFunc(d time.Duration, f func())
}

// Event tells a call and what was done to it.
type Event struct {
	Op     objstore.Op
	Key    string
	Faults []Fault
}

// Store is a store that breaks by rule. Make one with New.
type Store struct {
	inner objstore.Store
	seed  int64

	mu      sync.Mutex
	clock   Clock
	observe func(Event)
	rules   []*rule
	calls   map[callKey]uint64
	held    []*held
	freed   chan struct{} // closed and replaced by Release
	closed  bool
}

type callKey struct {
	op  objstore.Op
	key string
}

// held is a write that waits to be applied.
type held struct {
	op    objstore.Op
	key   string
	apply func(context.Context)
}

// New wraps inner. Rules are tried in order; waiting faults add up, and the
// first other one decides.
func New(inner objstore.Store, seed int64, rules ...Rule) *Store {
	s := &Store{inner: inner, seed: seed, clock: realClock{}, calls: make(map[callKey]uint64), freed: make(chan struct{})}
	s.Add(rules...)
	return s
}

// Add appends rules.
func (s *Store) Add(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rules {
		s.rules = append(s.rules, &rule{Rule: r})
	}
}

// Clear removes all rules; writes held back stay so.
func (s *Store) Clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// SetClock replaces the clock.
func (s *Store) SetClock(c Clock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock = c
}

// Observe calls f with every call, before it is passed on. f must not call the
// store.
func (s *Store) Observe(f func(Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observe = f
}

// Held returns the keys of the writes held back, oldest first.
func (s *Store) Held() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, h := range s.held {
		keys = append(keys, h.key)
	}
	return keys
}

// Release applies the writes held back whose keys match the pattern (empty: all
// of them), oldest first, and frees every stuck call. It returns how many writes
// it applied.
func (s *Store) Release(ctx context.Context, pattern string) int {
	s.mu.Lock()
	var due, rest []*held
	for _, h := range s.held {
		if matches(pattern, h.key) {
			due = append(due, h)
		} else {
			rest = append(rest, h)
		}
	}
	s.held = rest
	close(s.freed)
	s.freed = make(chan struct{})
	s.mu.Unlock()
	for _, h := range due {
		h.apply(ctx)
	}
	return len(due)
}

// Drop forgets the writes held back: they never happen.
func (s *Store) Drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = nil
}

// plan is what the rules say about one call.
type plan struct {
	call       call
	before     time.Duration
	after      time.Duration
	pagesOfOne bool
	fate       *Rule // nil: pass it on
	index      int   // of fate
	clock      Clock
	freed      <-chan struct{}
	seed       int64
}

func (s *Store) plan(op objstore.Op, key string) plan {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := callKey{op, key}
	p := plan{call: call{op, key, s.calls[k]}, clock: s.clock, freed: s.freed, seed: s.seed}
	s.calls[k]++
	var faults []Fault
	for i, r := range s.rules {
		if p.fate != nil && !r.Fault.delays() || !r.fires(s.seed, i, p.call) {
			continue
		}
		faults = append(faults, r.Fault)
		switch r.Fault {
		case Delay:
			p.before += r.Delay
		case DelayAnswer:
			p.after += r.Delay
		case PagesOfOne:
			p.pagesOfOne = true
		default:
			fate := r.Rule
			p.fate, p.index = &fate, i
		}
	}
	if s.observe != nil {
		s.observe(Event{op, key, faults})
	}
	return p
}

func (p *plan) is(f Fault) bool { return p.fate != nil && p.fate.Fault == f }

// enter waits, and returns the error of a call that is not passed on.
func (p *plan) enter(ctx context.Context) error {
	if p.before > 0 {
		if err := p.clock.Sleep(ctx, p.before); err != nil {
			return p.ended(err)
		}
	}
	switch {
	case p.is(Fail):
		class := p.fate.Class
		if class == errs.Internal {
			class = errs.Unavailable
			if p.call.op.Writes() {
				class = errs.Unknown
			}
		}
		return p.err(class)
	case p.is(Conflict):
		return p.err(errs.Unknown)
	case p.is(Stuck):
		select {
		case <-ctx.Done():
			return p.ended(ctx.Err())
		case <-p.freed:
			return p.lost()
		}
	}
	return nil
}

// leave waits before the answer is given.
func (p *plan) leave(ctx context.Context) error {
	if p.after == 0 {
		return nil
	}
	if err := p.clock.Sleep(ctx, p.after); err != nil {
		return p.ended(err)
	}
	return nil
}

func (p *plan) err(c errs.Class) error {
	return errs.Wrap(c, p.call.op.String()+" "+p.call.key, ErrInjected)
}

// lost is the error of an answer that never came.
func (p *plan) lost() error {
	if p.call.op.Writes() {
		return p.err(errs.Unknown)
	}
	return p.err(errs.Unavailable)
}

// ended is the error of a call whose context ended while it waited.
func (p *plan) ended(err error) error {
	class := errs.Canceled
	if p.call.op.Writes() {
		class = errs.Unknown
	}
	return errs.Wrap(class, p.call.op.String()+" "+p.call.key, errors.Join(ErrInjected, err))
}

// write runs a write under its plan.
func (s *Store) write(ctx context.Context, op objstore.Op, key string, apply func(context.Context) (objstore.Outcome, error)) (objstore.Outcome, error) {
	p := s.plan(op, key)
	if err := p.enter(ctx); err != nil {
		return objstore.Unknown, err
	}
	if p.is(LateApply) {
		s.hold(&p, apply)
		return objstore.Unknown, p.lost()
	}
	outcome, err := apply(ctx)
	if p.is(Duplicate) {
		outcome, err = apply(ctx)
	}
	if p.is(FailAfter) {
		return objstore.Unknown, p.lost()
	}
	if err := p.leave(ctx); err != nil {
		return objstore.Unknown, err
	}
	return outcome, err
}

// hold keeps a write for later.
func (s *Store) hold(p *plan, apply func(context.Context) (objstore.Outcome, error)) {
	h := &held{op: p.call.op, key: p.call.key, apply: func(ctx context.Context) { _, _ = apply(ctx) }}
	s.mu.Lock()
	if !s.closed {
		s.held = append(s.held, h)
	}
	s.mu.Unlock()
	if p.fate.Delay > 0 {
		p.clock.AfterFunc(p.fate.Delay, func() {
			if s.take(h) {
				h.apply(context.Background())
			}
		})
	}
}

// take removes a held write, unless it has been applied or dropped.
func (s *Store) take(h *held) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.held {
		if s.held[i] == h {
			s.held = append(s.held[:i], s.held[i+1:]...)
			return true
		}
	}
	return false
}

// Put passes a plain put on.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	body = bytes.Clone(body) // a held write outlives the caller's bytes
	_, err := s.write(ctx, objstore.OpPut, key, func(ctx context.Context) (objstore.Outcome, error) {
		return objstore.Created, s.inner.Put(ctx, key, body)
	})
	return err
}

// PutIfAbsent passes a conditional put on.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	body = bytes.Clone(body)
	return s.write(ctx, objstore.OpPutIfAbsent, key, func(ctx context.Context) (objstore.Outcome, error) {
		return s.inner.PutIfAbsent(ctx, key, body)
	})
}

// Delete passes a delete on.
func (s *Store) Delete(ctx context.Context, key string) error {
	_, err := s.write(ctx, objstore.OpDelete, key, func(ctx context.Context) (objstore.Outcome, error) {
		return objstore.Created, s.inner.Delete(ctx, key)
	})
	return err
}

// Get passes a read on.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	return s.read(ctx, objstore.OpGet, key, func() ([]byte, objstore.Info, error) { return s.inner.Get(ctx, key) })
}

// GetRange passes a ranged read on.
func (s *Store) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	return s.read(ctx, objstore.OpGetRange, key, func() ([]byte, objstore.Info, error) { return s.inner.GetRange(ctx, key, start, n) })
}

// Head passes a head on.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	_, info, err := s.read(ctx, objstore.OpHead, key, func() ([]byte, objstore.Info, error) {
		info, err := s.inner.Head(ctx, key)
		return nil, info, err
	})
	return info, err
}

func (s *Store) read(ctx context.Context, op objstore.Op, key string, get func() ([]byte, objstore.Info, error)) ([]byte, objstore.Info, error) {
	p := s.plan(op, key)
	if err := p.enter(ctx); err != nil {
		return nil, objstore.Info{}, err
	}
	body, info, err := get()
	if err != nil {
		return nil, objstore.Info{}, err
	}
	if p.is(FailAfter) {
		return nil, objstore.Info{}, p.lost()
	}
	if err := p.leave(ctx); err != nil {
		return nil, objstore.Info{}, err
	}
	if len(body) > 0 {
		at := draw(p.seed, p.index, p.call)
		switch {
		case p.is(Truncate):
			body = body[:at%uint64(len(body))]
		case p.is(FlipBit):
			body = bytes.Clone(body)
			body[at%uint64(len(body))] ^= 1 << (at >> 60 % 8)
		}
	}
	return body, info, nil
}

// List passes a listing on. FailAfter ends it after its first object.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		p := s.plan(objstore.OpList, prefix)
		if err := p.enter(ctx); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		objects := s.inner.List(ctx, prefix, startAfter)
		if p.pagesOfOne {
			objects = s.onePerPage(ctx, prefix, startAfter)
		}
		for info, err := range objects {
			if !yield(info, err) {
				return
			}
			if p.is(FailAfter) {
				yield(objstore.Info{}, p.lost())
				return
			}
		}
		if err := p.leave(ctx); err != nil {
			yield(objstore.Info{}, err)
		}
	}
}

// onePerPage asks the store below again after each object.
func (s *Store) onePerPage(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for {
			found := false
			for info, err := range s.inner.List(ctx, prefix, startAfter) {
				found = err == nil
				startAfter = info.Key
				if !yield(info, err) {
					return
				}
				break
			}
			if !found {
				return
			}
		}
	}
}

// URL names the store below.
func (s *Store) URL() string { return s.inner.URL() }

// Close drops what is held back, frees stuck calls and closes the store below.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed, s.held = true, nil
	close(s.freed)
	s.freed = make(chan struct{})
	s.mu.Unlock()
	return s.inner.Close()
}

// Unwrap returns the store below.
func (s *Store) Unwrap() objstore.Store { return s.inner }

type realClock struct{}

func (realClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

func (realClock) AfterFunc(d time.Duration, f func()) { time.AfterFunc(d, f) }
