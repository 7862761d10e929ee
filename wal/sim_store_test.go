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
)

// simStore breaks an in-memory store. Every decision is drawn from the seed, the
// operation, the key and how often that was asked, never from the order in which
// goroutines run, so that one seed gives one history under a fake clock.
type simStore struct {
	objstore.Store
	seed   uint64
	faults bool
	// twoWinners is a store without put-if-absent: the last put wins.
	twoWinners bool

	late sync.WaitGroup // puts that are applied after their answer

	mu     sync.Mutex
	counts map[string]uint64
	log    simLog
}

// simLog is what happened, ordered by time and text.
type simLog struct {
	begin time.Time
	lines []string
}

func (s *simStore) event(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.lines = append(s.log.lines, fmt.Sprintf("%14d ", time.Since(s.log.begin))+fmt.Sprintf(format, args...))
}

func (s *simStore) events() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := slices.Clone(s.log.lines)
	slices.Sort(lines)
	return lines
}

func newSimStore(seed uint64) *simStore {
	return &simStore{Store: objstore.NewMem(), seed: seed, faults: true, counts: map[string]uint64{}, log: simLog{begin: time.Now()}}
}

// draw returns the randomness of one call.
func (s *simStore) draw(op, key string) *rand.Rand {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[op+key]++
	h := fnv.New64a()
	fmt.Fprint(h, s.seed, op, key, s.counts[op+key])
	return rand.New(rand.NewPCG(s.seed, h.Sum64()))
}

// latency is some ten milliseconds, seldom longer than any lease.
func latency(rng *rand.Rand) time.Duration {
	d := 5*time.Millisecond + time.Duration(rng.Int64N(int64(60*time.Millisecond)))
	if rng.IntN(40) == 0 {
		d += time.Duration(rng.Int64N(int64(20 * time.Second)))
	}
	return d
}

func (s *simStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	rng := s.draw("put", key)
	wait, after := latency(rng), latency(rng)
	fault := rng.IntN(100)
	if !s.faults {
		fault = 100
	}
	apply := func() objstore.Outcome {
		if s.twoWinners && strings.HasPrefix(key, "wal/") {
			_ = s.Store.Put(context.Background(), key, body)
			return objstore.Created
		}
		out, _ := s.Store.PutIfAbsent(context.Background(), key, body)
		return out
	}
	if err := sleepCtx(ctx, wait); err != nil { // the caller gave up; the request goes on without it
		s.applyLater(key, after, apply)
		return objstore.Unknown, errs.Wrap(errs.Unknown, "put", err)
	}
	switch {
	case fault < 6:
		return objstore.Unknown, errs.New(errs.Unavailable, "503, not applied")
	case fault < 12:
		s.event("put %s: applied (%d), answer lost", key, apply())
		return objstore.Unknown, errs.New(errs.Unknown, "answer lost")
	case fault < 18:
		s.applyLater(key, time.Duration(rng.Int64N(int64(30*time.Second))), apply)
		return objstore.Unknown, errs.New(errs.Unknown, "timeout")
	case fault < 22:
		return objstore.Unknown, errs.New(errs.Unknown, "409")
	}
	out := apply()
	s.event("put %s: %d", key, out)
	_ = sleepCtx(ctx, after)
	return out, nil
}

func (s *simStore) applyLater(key string, d time.Duration, apply func() objstore.Outcome) {
	s.late.Go(func() {
		time.Sleep(d)
		s.event("put %s: applied late (%d)", key, apply())
	})
}

// read sleeps and sometimes refuses.
func (s *simStore) read(ctx context.Context, op, key string) error {
	rng := s.draw(op, key)
	if err := sleepCtx(ctx, latency(rng)/4); err != nil {
		return err
	}
	if s.faults && rng.IntN(100) < 10 {
		return errs.New(errs.Unavailable, "503")
	}
	return nil
}

func (s *simStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if err := s.read(ctx, "get", key); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

func (s *simStore) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	if err := s.read(ctx, "range", fmt.Sprint(key, start, n)); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.GetRange(ctx, key, start, n)
}

func (s *simStore) Head(ctx context.Context, key string) (objstore.Info, error) {
	if err := s.read(ctx, "head", key); err != nil {
		return objstore.Info{}, err
	}
	return s.Store.Head(ctx, key)
}

// List answers in pages of one object, with time passing between them.
func (s *simStore) List(ctx context.Context, prefix, after string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for {
			if err := s.read(ctx, "list", prefix+after); err != nil {
				yield(objstore.Info{}, err)
				return
			}
			more := false
			for info, err := range s.Store.List(ctx, prefix, after) {
				if !yield(info, err) {
					return
				}
				after, more = info.Key, err == nil
				break
			}
			if !more {
				return
			}
		}
	}
}
