package metastore

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// simStore is the object store of a simulation: one thread, every fault drawn
// from one seed, and a memory of what was first at each key.
type simStore struct {
	rng     *rand.Rand
	objects map[string]simObject
	first   map[string][]byte // the first body that ever stood at a key
	late    []func()          // requests still in the network
	now     int64             // in steps
	faults  bool
	ghosts  int // creations of a log position that had been freed
	note    func(format string, args ...any)
}

type simObject struct {
	body []byte
	at   int64
}

// chance is true once in n, when faults are on.
func (s *simStore) chance(n int) bool { return s.faults && s.rng.IntN(n) == 0 }

func (s *simStore) create(key string, body []byte) bool {
	if _, taken := s.objects[key]; taken {
		return false
	}
	s.objects[key] = simObject{body: body, at: s.now}
	if was, ok := s.first[key]; !ok {
		s.first[key] = body
	} else if strings.HasPrefix(key, logPrefix) {
		s.ghosts++
		s.note("ghost at %s, own=%v", key, bytes.Equal(was, body))
	}
	return true
}

// actorStore is the store as one actor reaches it: every call is a step at which
// the scheduler may run others first, or kill the actor.
type actorStore struct {
	*simStore
	step func(what string)
}

var _ objstore.Store = (*actorStore)(nil)

func (a *actorStore) unavailable() error {
	if a.chance(30) {
		return errs.New(errs.Unavailable, "slow down")
	}
	return nil
}

func (a *actorStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	a.step("get " + key)
	if err := a.unavailable(); err != nil {
		return nil, objstore.Info{}, err
	}
	o, ok := a.objects[key]
	if !ok {
		return nil, objstore.Info{}, errs.New(errs.NotFound, "%s does not exist", key)
	}
	return bytes.Clone(o.body), a.info(key), ctx.Err()
}

func (a *actorStore) info(key string) objstore.Info {
	o := a.objects[key]
	return objstore.Info{Key: key, Size: int64(len(o.body)), ModTime: epoch.Add(time.Duration(o.at))}
}

func (a *actorStore) GetRange(context.Context, string, int64, int64) ([]byte, objstore.Info, error) {
	return nil, objstore.Info{}, errs.New(errs.Unsupported, "ranges are not simulated")
}

func (a *actorStore) Head(_ context.Context, key string) (objstore.Info, error) {
	a.step("head " + key)
	if _, ok := a.objects[key]; !ok {
		return objstore.Info{}, errs.New(errs.NotFound, "%s does not exist", key)
	}
	return a.info(key), nil
}

func (a *actorStore) Put(context.Context, string, []byte) error {
	return errs.New(errs.Unsupported, "plain puts are not simulated")
}

// PutIfAbsent may lose the request, lose the answer, apply it much later, or
// apply it twice.
func (a *actorStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	a.step("create " + key)
	body = bytes.Clone(body)
	lost := errs.New(errs.Unknown, "no answer")
	again := func() { a.note("late create %s: %v", key, a.create(key, body)) }
	switch {
	case ctx.Err() != nil:
		return objstore.Unknown, ctx.Err()
	case a.chance(20):
		return objstore.Unknown, lost
	case a.chance(20):
		a.create(key, body)
		return objstore.Unknown, lost
	case a.chance(10):
		a.late = append(a.late, again)
		return objstore.Unknown, lost
	case a.chance(10):
		a.late = append(a.late, again)
	}
	if a.create(key, body) {
		return objstore.Created, nil
	}
	return objstore.Exists, nil
}

func (a *actorStore) List(_ context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		a.step("list " + prefix)
		if err := a.unavailable(); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		var keys []string
		for key := range a.objects {
			if strings.HasPrefix(key, prefix) && key > startAfter {
				keys = append(keys, key)
			}
		}
		slices.Sort(keys)
		for _, key := range keys {
			if !yield(a.info(key), nil) {
				return
			}
		}
	}
}

func (a *actorStore) Delete(_ context.Context, key string) error {
	a.step("delete " + key)
	again := func() {
		a.note("late delete %s", key)
		delete(a.objects, key)
	}
	switch {
	case a.chance(20):
		a.late = append(a.late, again)
		return errs.New(errs.Unknown, "no answer")
	case a.chance(10):
		a.late = append(a.late, again)
	}
	delete(a.objects, key)
	return nil
}

func (a *actorStore) URL() string  { return "sim://" }
func (a *actorStore) Close() error { return nil }

// truth replays the first body of every log position.
func (s *simStore) truth() (entries []*Entry, states []*State, err error) {
	state := &State{}
	states = append(states, state)
	for seq := uint64(1); ; seq++ {
		body, ok := s.first[entryKey(seq)]
		if !ok {
			return entries, states, nil
		}
		e, err := DecodeEntry(body)
		if err != nil {
			return nil, nil, err
		}
		if state, err = Apply(state, e); err != nil {
			return nil, nil, fmt.Errorf("the one log is broken: %w", err)
		}
		entries, states = append(entries, e), append(states, state)
	}
}
