package objcache

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
)

// filled is a counted store with objects o/0, o/1, … of size bytes.
func filled(t *testing.T, n, size int) *objstore.Ledger {
	t.Helper()
	l := objstore.NewLedger(objstore.NewMem(), nil)
	for i := range n {
		if err := l.Put(t.Context(), fmt.Sprintf("o/%d", i), bytes.Repeat([]byte{byte(i)}, size)); err != nil {
			t.Fatal(err)
		}
	}
	return l
}

func open(t *testing.T, s objstore.Store, maxBytes int64) *Cache {
	t.Helper()
	c, err := New(s, Options{MaxBytes: maxBytes})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// settle waits for ristretto's queue of sets.
func (c *Cache) settle() { c.kept.Wait() }

func TestSecondReadIsAnsweredFromMemory(t *testing.T) {
	l := filled(t, 1, 1000)
	c := open(t, l, 10<<20)
	for i := range 3 {
		body, info, err := c.Range(t.Context(), "o/0", 10, 20)
		if err != nil || len(body) != 20 || info.Size != 1000 || info.Key != "o/0" {
			t.Fatalf("%d bytes, %+v, %v", len(body), info, err)
		}
		body, _, err = c.Range(t.Context(), "o/0", int64(-1-i), 30)
		if err != nil || len(body) != 30 {
			t.Fatalf("suffix: %d bytes, %v", len(body), err)
		}
		c.settle()
	}
	if n := l.Snapshot().Calls(objstore.OpGetRange, ""); n != 2 {
		t.Errorf("%d requests", n)
	}
	if s := c.Stats(); s.Hits != 4 || s.Misses != 2 || s.HitBytes != 100 || s.FetchedBytes != 50 || s.KeptBytes == 0 {
		t.Errorf("%+v", s)
	}
}

func TestRangesComeOutOfAKeptWholeObject(t *testing.T) {
	l := filled(t, 1, 1000)
	c := open(t, l, 10<<20)
	if _, _, err := c.Get(t.Context(), "o/0"); err != nil {
		t.Fatal(err)
	}
	c.Add(objstore.Info{Key: "written", Size: 10}, []byte("0123456789"))
	c.settle()
	for _, r := range []struct {
		key      string
		start, n int64
		want     int
	}{{"o/0", 0, 10, 10}, {"o/0", -1, 1001, 1000}, {"o/0", 990, 100, 10}, {"o/0", 5000, 1, 0}, {"written", 4, 3, 3}} {
		body, _, err := c.Range(t.Context(), r.key, r.start, r.n)
		if err != nil || len(body) != r.want || cap(body) != r.want {
			t.Errorf("%+v: %d bytes, %v", r, len(body), err)
		}
	}
	if got, _, _ := c.Range(t.Context(), "written", 4, 3); string(got) != "456" {
		t.Errorf("%q", got)
	}
	if n := l.Snapshot().Gets(""); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestCallersAtOneTimeShareOneRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := filled(t, 1, 100)
		slow := faultstore.New(l, 1, faultstore.Rule{Fault: faultstore.Delay, Delay: time.Second})
		c, err := New(slow, Options{}) // no memory: sharing alone
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if body, _, err := c.Get(t.Context(), "o/0"); err != nil || len(body) != 100 {
					t.Errorf("%d bytes, %v", len(body), err)
				}
			})
		}
		all.Wait()
		if n := l.Snapshot().Gets(""); n != 1 || c.Stats().Shared != 49 {
			t.Errorf("%d requests, %+v", n, c.Stats())
		}
	})
}

func TestOneCallersEndDoesNotEndTheOthersRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := faultstore.New(filled(t, 1, 100), 1, faultstore.Rule{Fault: faultstore.Delay, Delay: time.Minute})
		c, _ := New(slow, Options{})
		hasty, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var all sync.WaitGroup
		all.Go(func() {
			if _, _, err := c.Get(hasty, "o/0"); !errs.Is(err, errs.Canceled) {
				t.Errorf("hasty: %v", err)
			}
		})
		synctest.Wait()
		all.Go(func() {
			if _, _, err := c.Get(t.Context(), "o/0"); err != nil {
				t.Errorf("patient: %v", err)
			}
		})
		all.Wait()
	})
}

func TestRequestThatNobodyWaitsForIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := faultstore.New(filled(t, 1, 100), 1, faultstore.Rule{Fault: faultstore.Stuck, Times: 1})
		c, _ := New(stuck, Options{})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, _, err := c.Get(ctx, "o/0"); !errs.Is(err, errs.Canceled) {
			t.Errorf("%v", err)
		}
		synctest.Wait() // the stuck request has ended, or this test never does
		if _, _, err := c.Get(t.Context(), "o/0"); err != nil {
			t.Errorf("a later caller got the cancelled request's end: %v", err)
		}
	})
}

func TestErrorsAreNotKept(t *testing.T) {
	l := filled(t, 1, 100)
	s := faultstore.New(l, 1, faultstore.Burst(0, 1))
	c := open(t, s, 10<<20)
	if _, _, err := c.Get(t.Context(), "o/0"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("%v", err)
	}
	if _, _, err := c.Get(t.Context(), "o/0"); err != nil {
		t.Errorf("after the fault: %v", err)
	}
	if _, _, err := c.Get(t.Context(), "missing"); !errs.Is(err, errs.NotFound) {
		t.Errorf("%v", err)
	}
	if err := l.Put(t.Context(), "missing", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Get(t.Context(), "missing"); err != nil {
		t.Errorf("a missing object was remembered as missing: %v", err)
	}
}

func TestMemoryStaysWithinItsBound(t *testing.T) {
	const limit = 4 << 20
	c := open(t, filled(t, 300, 64<<10), limit)
	for round := range 3 {
		for i := range 300 {
			body, _, err := c.Get(t.Context(), fmt.Sprintf("o/%d", i))
			if err != nil || body[0] != byte(i) {
				t.Fatalf("round %d object %d: %v", round, i, err)
			}
		}
		c.settle()
		if kept := c.Stats().KeptBytes; kept > limit {
			t.Errorf("%d bytes are kept, over %d", kept, limit)
		}
	}
	if len(c.flights) != 0 {
		t.Errorf("%d flights are left", len(c.flights))
	}
	c.Add(objstore.Info{Key: "huge"}, make([]byte, limit/2))
	c.settle()
	if _, ok := c.peek("huge"); ok {
		t.Error("one entry took half of the cache")
	}
}

func TestConcurrentUseReadsRightBytes(t *testing.T) {
	c := open(t, filled(t, 40, 8<<10), 2<<20)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 500 {
				k := (i*7 + w) % 40
				body, _, err := c.Range(t.Context(), fmt.Sprintf("o/%d", k), int64(i%5)*100, 100)
				if err != nil || len(body) != 100 || body[0] != byte(k) {
					t.Errorf("object %d: %d bytes, %v", k, len(body), err)
					return
				}
			}
		})
	}
	all.Wait()
}
