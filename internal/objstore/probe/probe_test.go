package probe

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
	"github.com/firn-data/firn/internal/objstore/filestore"
)

// broken is a store that lacks one guarantee.
type broken struct {
	objstore.Store
	replaces bool          // a second conditional put is accepted
	lies     bool          // it is refused, and applied all the same
	racy     bool          // check, then act: two may win
	noRange  bool          // a range read gives the whole object
	stale    bool          // a listing lacks what was written last
	cached   bool          // a read gives the first version for ever
	noDelete bool          // deletes are refused
	backward bool          // lists in reverse
	skew     time.Duration // of its clock

	mu    sync.Mutex
	last  string
	first map[string][]byte
}

func (b *broken) note(key string, body []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = key
	if b.first == nil {
		b.first = make(map[string][]byte)
	}
	if _, ok := b.first[key]; !ok {
		b.first[key] = bytes.Clone(body)
	}
}

func (b *broken) Put(ctx context.Context, key string, body []byte) error {
	b.note(key, body)
	return b.Store.Put(ctx, key, body)
}

func (b *broken) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	switch {
	case b.replaces:
		return objstore.Created, b.Store.Put(ctx, key, body)
	case b.lies:
		outcome, err := b.Store.PutIfAbsent(ctx, key, body)
		_ = b.Store.Put(ctx, key, body)
		return outcome, err
	case b.racy && strings.Contains(key, "race"):
		if _, err := b.Store.Head(ctx, key); err == nil {
			return objstore.Exists, nil
		}
		time.Sleep(time.Millisecond) // where the others get in
		return objstore.Created, b.Store.Put(ctx, key, body)
	}
	b.note(key, body)
	return b.Store.PutIfAbsent(ctx, key, body)
}

func (b *broken) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if b.cached {
		b.mu.Lock()
		defer b.mu.Unlock()
		if body, ok := b.first[key]; ok {
			return body, objstore.Info{Key: key, Size: int64(len(body))}, nil
		}
	}
	return b.Store.Get(ctx, key)
}

func (b *broken) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	if b.noRange {
		return b.Store.Get(ctx, key)
	}
	return b.Store.GetRange(ctx, key, start, n)
}

func (b *broken) Head(ctx context.Context, key string) (objstore.Info, error) {
	info, err := b.Store.Head(ctx, key)
	info.ModTime = info.ModTime.Add(b.skew)
	return info, err
}

func (b *broken) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		var all []objstore.Info
		for info, err := range b.Store.List(ctx, prefix, startAfter) {
			if err == nil && (!b.stale || info.Key != b.last) {
				all = append(all, info)
			}
		}
		if b.backward {
			slices.Reverse(all)
		}
		for _, info := range all {
			if !yield(info, nil) {
				return
			}
		}
	}
}

func (b *broken) Delete(ctx context.Context, key string) error {
	if b.noDelete {
		return errs.New(errs.PermissionDenied, "no right to delete")
	}
	return b.Store.Delete(ctx, key)
}

func TestBrokenStoresAreFoundOut(t *testing.T) {
	for name, c := range map[string]struct {
		store  *broken
		check  string
		level  Level
		word   string
		refuse bool // at start-up
	}{
		"accepts a second put":  {&broken{replaces: true}, "conditional put", Fail, "second conditional put", true},
		"lies about the second": {&broken{lies: true}, "conditional put", Fail, "all the same", true},
		"checks, then acts":     {&broken{racy: true}, "race", Fail, "writers raced", false},
		"knows no ranges":       {&broken{noRange: true}, "ranges", Fail, "Range header", false},
		"lists late":            {&broken{stale: true}, "list after write", Fail, "listing", false},
		"lists backward":        {&broken{backward: true}, "list order", Fail, "order", false},
		"reads old versions":    {&broken{cached: true}, "read after write", Fail, "eventually consistent", false},
		"refuses deletes":       {&broken{noDelete: true}, "delete", Fail, "garbage", false},
		"is 20 minutes ahead":   {&broken{skew: 20 * time.Minute}, "clock", Fail, "20m0s ahead", false},
		"is 20 minutes behind":  {&broken{skew: -20 * time.Minute}, "clock", Fail, "20m0s behind", false},
		"is 5 minutes ahead":    {&broken{skew: 5 * time.Minute}, "clock", Warn, "5m0s ahead", false},
	} {
		t.Run(name, func(t *testing.T) {
			c.store.Store = objstore.NewMem()
			err := StartupProbe(t.Context(), c.store)
			if refused := errs.Is(err, errs.Unsupported); refused != c.refuse || err != nil && !refused {
				t.Errorf("start-up probe: %v", err)
			}
			if err != nil && !strings.Contains(err.Error(), c.store.URL()) {
				t.Errorf("the error does not name the store: %v", err)
			}
			found := false
			for _, f := range Examine(t.Context(), c.store, Options{Samples: 2, Races: 3}) {
				if f.Check == c.check {
					found = f.Level == c.level && strings.Contains(f.Text, c.word)
					t.Log(f.Text)
				}
			}
			if !found {
				t.Errorf("%q did not say %v %q", c.check, c.level, c.word)
			}
		})
	}
}

func TestSoundStoresPassAndNothingIsLeftBehind(t *testing.T) {
	folder, err := filestore.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []objstore.Store{objstore.NewMem(), folder} {
		if err := StartupProbe(t.Context(), s); err != nil {
			t.Errorf("%s: %v", s.URL(), err)
		}
		for _, f := range Examine(t.Context(), s, Options{Samples: 3, Races: 3}) {
			if f.Level != OK {
				t.Errorf("%s: %+v", s.URL(), f)
			}
		}
		for info, err := range s.List(t.Context(), "", "") {
			t.Errorf("%s: %s was left behind, %v", s.URL(), info.Key, err)
		}
	}
}

func TestLostAnswersDoNotFailTheProbe(t *testing.T) {
	for seed := range int64(5) {
		s := faultstore.New(objstore.NewMem(), seed,
			faultstore.Rule{Fault: faultstore.FailAfter, Ops: []objstore.Op{objstore.OpPutIfAbsent}, Chance: 0.4},
			faultstore.Rule{Fault: faultstore.Conflict, Ops: []objstore.Op{objstore.OpPutIfAbsent}, Chance: 0.3})
		if err := StartupProbe(t.Context(), s); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

func TestUnreachableStoreKeepsItsClass(t *testing.T) {
	for _, class := range []errs.Class{errs.PermissionDenied, errs.Unauthenticated, errs.Invalid} {
		s := faultstore.New(objstore.NewMem(), 1, faultstore.Rule{Fault: faultstore.Fail, Class: class})
		if err := StartupProbe(t.Context(), s); !errs.Is(err, class) {
			t.Errorf("%v: %v", class, err)
		}
		findings := Doctor(t.Context(), s)
		if !Failed(findings) || len(findings) != 1 {
			t.Errorf("%v: %+v", class, findings)
		}
	}
}
