package wal

import (
	"context"
	"fmt"
	"hash/fnv"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
)

// simStore is a slow store that breaks: latency over faultstore over a recorder
// over an in-memory store. Every decision is drawn from the seed, the operation,
// the key and how often that was asked, never from the order in which goroutines
// run, so that one seed gives one history under a fake clock.
type simStore struct {
	objstore.Store // with faults
	inner          *simRecorder
	seed           uint64
	begin          time.Time

	mu     sync.Mutex
	counts map[string]uint64
}

// simFaults are what the store does to a writer and a reader.
func simFaults() []faultstore.Rule {
	puts, reads := []objstore.Op{objstore.OpPutIfAbsent}, []objstore.Op{objstore.OpGet, objstore.OpGetRange, objstore.OpHead, objstore.OpList}
	rules := []faultstore.Rule{
		{Fault: faultstore.Delay, Ops: puts, Chance: 0.02, Delay: 17 * time.Second}, // longer than any lease
		{Fault: faultstore.DelayAnswer, Ops: puts, Chance: 0.02, Delay: 13 * time.Second},
		{Fault: faultstore.Fail, Ops: puts, Chance: 0.06, Class: errs.Unavailable},
		{Fault: faultstore.FailAfter, Ops: puts, Chance: 0.06},
		{Fault: faultstore.Conflict, Ops: puts, Chance: 0.04},
		{Fault: faultstore.Duplicate, Ops: puts, Chance: 0.02},
		{Fault: faultstore.PagesOfOne},
		{Fault: faultstore.Fail, Ops: reads, Chance: 0.10},
		{Fault: faultstore.Truncate, Ops: reads, Chance: 0.02},
		{Fault: faultstore.FlipBit, Ops: reads, Chance: 0.01},
	}
	for i, d := range []time.Duration{31 * time.Millisecond, 701 * time.Millisecond, 4 * time.Second, 29 * time.Second} {
		rules = append(rules, faultstore.Rule{Fault: faultstore.LateApply, Ops: puts, Chance: 0.02, Delay: d + time.Duration(i)})
	}
	return rules
}

// simSettle is longer than the latest late put.
const simSettle = time.Minute

func newSimStore(seed uint64) *simStore {
	s := &simStore{inner: &simRecorder{Store: objstore.NewMem(), begin: time.Now()}, seed: seed, begin: time.Now(), counts: map[string]uint64{}}
	s.Store = faultstore.New(s.inner, int64(seed), simFaults()...)
	return s
}

// simRecorder writes down what is really applied.
type simRecorder struct {
	objstore.Store
	begin time.Time
	// twoWinners is a store without put-if-absent: the last put wins.
	twoWinners bool

	mu    sync.Mutex
	lines []string
}

func (r *simRecorder) event(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, fmt.Sprintf("%14d ", time.Since(r.begin))+fmt.Sprintf(format, args...))
}

// events returns what happened, ordered by time and text.
func (r *simRecorder) events() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	lines := slices.Clone(r.lines)
	slices.Sort(lines)
	return lines
}

func (r *simRecorder) PutIfAbsent(ctx context.Context, key string, body []byte) (out objstore.Outcome, err error) {
	if r.twoWinners && strings.HasPrefix(key, "wal/") {
		out, err = objstore.Created, r.Put(ctx, key, body)
	} else {
		out, err = r.Store.PutIfAbsent(ctx, key, body)
	}
	r.event("put %s: outcome %d", key, out)
	return out, err
}

// wait is the latency of one call: some ten milliseconds.
func (s *simStore) wait(ctx context.Context, op, key string) error {
	s.mu.Lock()
	s.counts[op+key]++
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, op, key, s.counts[op+key])
	s.mu.Unlock()
	rng := rand.New(rand.NewPCG(s.seed, h.Sum64()))
	return sleepCtx(ctx, 2*time.Millisecond+time.Duration(rng.Int64N(int64(60*time.Millisecond))))
}

func (s *simStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	if err := s.wait(ctx, "put", key); err != nil {
		return objstore.Unknown, errs.Wrap(errs.Unknown, "put", err)
	}
	out, err := s.Store.PutIfAbsent(ctx, key, body)
	_ = s.wait(ctx, "answer", key)
	return out, err
}

func (s *simStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if err := s.wait(ctx, "get", key); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *simStore) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	if err := s.wait(ctx, "range", fmt.Sprint(key, start, n)); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.GetRange(ctx, key, start, n)
}

func (s *simStore) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.wait(ctx, "head", key); err != nil {
		return objstore.Info{}, err
	}
	return s.Store.Head(ctx, key)
}

// List lets time pass before each object.
func (s *simStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range s.Store.List(ctx, prefix, after) {
			if e := s.wait(ctx, "list", info.Key); e != nil {
				yield(objstore.Info{}, e)
				return
			}
			if !yield(info, err) {
				return
			}
		}
	}
}
