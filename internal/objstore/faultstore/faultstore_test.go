package faultstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/storetest"
)

var quick = objstore.CreatePolicy{MinBackoff: time.Microsecond, MaxBackoff: time.Microsecond}

func TestWithoutRulesItKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Options{RaceKeys: 3}, func(*testing.T) objstore.Store { return New(objstore.NewMem(), 1) })
}

func TestPagesOfOneKeepTheContract(t *testing.T) {
	storetest.Run(t, storetest.Options{RaceKeys: 1, ListKeys: 300}, func(*testing.T) objstore.Store {
		return New(objstore.NewMem(), 1, Rule{Fault: PagesOfOne})
	})
}

func TestWriteFaultsApplyWhatTheySay(t *testing.T) {
	for _, c := range []struct {
		fault   Fault
		applied bool
		outcome objstore.Outcome
		class   errs.Class
	}{
		{Fail, false, objstore.Unknown, errs.Unknown},
		{FailAfter, true, objstore.Unknown, errs.Unknown},
		{Conflict, false, objstore.Unknown, errs.Unknown},
		{LateApply, false, objstore.Unknown, errs.Unknown},
		{Duplicate, true, objstore.Exists, errs.Internal},
	} {
		inner := objstore.NewMem()
		s := New(inner, 1, Rule{Fault: c.fault, Times: 1})
		outcome, err := s.PutIfAbsent(t.Context(), "k", []byte("x"))
		if outcome != c.outcome || errs.ClassOf(err) != c.class && err != nil {
			t.Errorf("%v: outcome %d, %v", c.fault, outcome, err)
		}
		if err != nil && !errors.Is(err, ErrInjected) {
			t.Errorf("%v: %v is not marked as injected", c.fault, err)
		}
		if _, err := inner.Head(t.Context(), "k"); (err == nil) != c.applied {
			t.Errorf("%v: applied is %v", c.fault, err == nil)
		}
		created, err := objstore.Create(t.Context(), s, "k", []byte("x"), quick)
		if err != nil || !created.Created {
			t.Errorf("%v: create afterwards: %+v, %v", c.fault, created, err)
		}
	}
}

func TestLateWriteLandsWhenReleased(t *testing.T) {
	inner := objstore.NewMem()
	s := New(inner, 1, Rule{Fault: LateApply, Key: "late*"})
	body := []byte("late")
	_, _ = s.PutIfAbsent(t.Context(), "late/1", body)
	_ = s.Put(t.Context(), "late/2", body)
	copy(body, "XXXX") // the caller's bytes are its own again
	if got := s.Held(); !slices.Equal(got, []string{"late/1", "late/2"}) {
		t.Fatalf("held: %v", got)
	}
	// Meanwhile another takes the first key and writes the second.
	for _, key := range []string{"late/1", "late/2"} {
		if err := inner.Put(t.Context(), key, []byte("other")); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Release(t.Context(), "late/2"); n != 1 {
		t.Errorf("released %d", n)
	}
	if n := s.Release(t.Context(), ""); n != 1 || len(s.Held()) != 0 {
		t.Errorf("released %d", n)
	}
	for key, want := range map[string]string{"late/1": "other", "late/2": "late"} {
		if got, _, _ := inner.Get(t.Context(), key); string(got) != want {
			t.Errorf("%s holds %q, want %q", key, got, want)
		}
	}
	_ = s.Delete(t.Context(), "late/2")
	s.Drop()
	if s.Release(t.Context(), ""); len(s.Held()) != 0 {
		t.Error("a dropped write came back")
	}
	if _, err := inner.Head(t.Context(), "late/2"); err != nil {
		t.Errorf("the dropped delete was applied: %v", err)
	}
}

func TestLateWriteLandsByTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := objstore.NewMem()
		s := New(inner, 1, Rule{Fault: LateApply, Delay: time.Minute})
		_, _ = s.PutIfAbsent(t.Context(), "k", []byte("x"))
		time.Sleep(59 * time.Second)
		if _, err := inner.Head(t.Context(), "k"); !errs.Is(err, errs.NotFound) {
			t.Errorf("applied too early: %v", err)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, err := inner.Head(t.Context(), "k"); err != nil {
			t.Errorf("not applied: %v", err)
		}
	})
}

func TestDelaysAddUpAndHeedTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(objstore.NewMem(), 1, Rule{Fault: Delay, Delay: time.Second}, Rule{Fault: DelayAnswer, Delay: 2 * time.Second}, Rule{Fault: Delay, Delay: 4 * time.Second})
		begun := time.Now()
		if err := s.Put(t.Context(), "k", nil); err != nil || time.Since(begun) != 7*time.Second {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
		defer cancel()
		if err := s.Put(ctx, "late-answer", nil); !errs.Is(err, errs.Unknown) {
			t.Errorf("put: %v", err)
		}
		if _, err := s.Unwrap().Head(t.Context(), "late-answer"); err != nil {
			t.Errorf("the put whose answer was late is not there: %v", err)
		}
		if _, _, err := s.Get(ctx, "k"); !errs.Is(err, errs.Canceled) {
			t.Errorf("get: %v", err)
		}
	})
}

func TestStuckCallEndsWithContextOrRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(objstore.NewMem(), 1, Rule{Fault: Stuck})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := s.PutIfAbsent(ctx, "k", nil); !errs.Is(err, errs.Unknown) {
			t.Errorf("put: %v", err)
		}
		done := make(chan error)
		go func() {
			_, _, err := s.Get(t.Context(), "k")
			done <- err
		}()
		synctest.Wait()
		s.Release(t.Context(), "")
		if err := <-done; !errs.Is(err, errs.Unavailable) {
			t.Errorf("get: %v", err)
		}
	})
}

func TestReadFaults(t *testing.T) {
	inner := objstore.NewMem()
	body := bytes.Repeat([]byte{0x55}, 1000)
	if err := inner.Put(t.Context(), "k", body); err != nil {
		t.Fatal(err)
	}
	s := New(inner, 1, Rule{Fault: Truncate, Times: 1}, Rule{Fault: FlipBit, Times: 1}, Rule{Fault: FailAfter, Times: 1}, Rule{Fault: Fail, Times: 1, Class: errs.PermissionDenied})
	if got, info, err := s.Get(t.Context(), "k"); err != nil || len(got) >= len(body) || info.Size != 1000 {
		t.Errorf("truncate: %d bytes, %v", len(got), err)
	}
	got, _, err := s.GetRange(t.Context(), "k", 0, 1000)
	flipped := 0
	for i := range got {
		flipped += bits.OnesCount8(got[i] ^ body[i])
	}
	if err != nil || flipped != 1 {
		t.Errorf("flip: %d bits, %v", flipped, err)
	}
	if _, err := s.Head(t.Context(), "k"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("fail after: %v", err)
	}
	if _, err := s.Head(t.Context(), "k"); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("fail: %v", err)
	}
	if got, _, err := s.Get(t.Context(), "k"); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the object itself was changed: %v", err)
	}
}

func TestListFaults(t *testing.T) {
	inner := objstore.NewMem()
	for _, key := range []string{"a/1", "a/2", "a/3"} {
		if err := inner.Put(t.Context(), key, nil); err != nil {
			t.Fatal(err)
		}
	}
	s := New(inner, 1, Rule{Fault: FailAfter, Times: 1}, Rule{Fault: Fail, Times: 1})
	for _, want := range []string{"a/1 unavailable", "unavailable", "a/1 a/2 a/3"} {
		var seen []string
		for info, err := range s.List(t.Context(), "a/", "") {
			if err != nil {
				seen = append(seen, errs.ClassOf(err).String())
			} else {
				seen = append(seen, info.Key)
			}
		}
		if got := strings.Join(seen, " "); got != want {
			t.Errorf("list: %q, want %q", got, want)
		}
	}
}

func TestRulesSelectByOperationKeyAndCount(t *testing.T) {
	s := New(objstore.NewMem(), 1,
		Rule{Fault: Fail, Ops: []objstore.Op{objstore.OpPut}, Key: "wal/*/0*1", After: 1, Times: 2},
		Burst(2, 2, objstore.OpGet))
	var got []string
	for _, key := range []string{"wal/i/01", "meta/01", "wal/i/02", "wal/j/0x1", "wal/j/001", "wal/i/01"} {
		got = append(got, fmt.Sprint(s.Put(t.Context(), key, nil) != nil))
	}
	if want := "[false false false true true false]"; fmt.Sprint(got) != want {
		t.Errorf("puts failed: %v, want %v", got, want)
	}
	got = nil
	for range 5 {
		_, _, err := s.Get(t.Context(), "meta/01")
		got = append(got, fmt.Sprint(err != nil))
	}
	if want := "[false false true true false]"; fmt.Sprint(got) != want {
		t.Errorf("gets failed: %v, want %v", got, want)
	}
}

func TestPatterns(t *testing.T) {
	for _, c := range []struct {
		pattern, s string
		want       bool
	}{
		{"", "x", true}, {"*", "", true}, {"a", "a", true}, {"a", "ab", false}, {"a*", "ab/c", true}, {"*c", "ab/c", true}, {"a*c", "ac", true},
		{"a*b*c", "a1b2c", true}, {"a*b*c", "a1c2b", false}, {"ab*bc", "abc", false}, {"a**c", "abc", true},
	} {
		if matches(c.pattern, c.s) != c.want {
			t.Errorf("%q on %q is not %v", c.pattern, c.s, c.want)
		}
	}
}

// faultsOf runs the same calls from many goroutines and returns what each met.
func faultsOf(t *testing.T, seed int64) string {
	s := New(objstore.NewMem(), seed, Rule{Fault: Fail, Chance: 0.3}, Rule{Fault: FailAfter, Chance: 0.3})
	var mu sync.Mutex
	var events []string
	s.Observe(func(e Event) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, fmt.Sprint(e))
	})
	var all sync.WaitGroup
	for k := range 20 {
		all.Go(func() {
			for range 20 {
				_, _ = s.PutIfAbsent(t.Context(), fmt.Sprint("k", k), nil)
				_, _, _ = s.Get(t.Context(), fmt.Sprint("k", k))
			}
		})
	}
	all.Wait()
	slices.Sort(events)
	return strings.Join(events, "\n")
}

func TestSameSeedGivesTheSameFaultsToConcurrentCallers(t *testing.T) {
	first := faultsOf(t, 7)
	if faultsOf(t, 7) != first {
		t.Error("the same seed gave other faults")
	}
	if faultsOf(t, 8) == first {
		t.Error("another seed gave the same faults")
	}
	fails := strings.Count(first, "[fail]")
	if fails < 160 || fails > 320 {
		t.Errorf("%d of 800 calls failed at 30 %%", fails)
	}
}

func TestCreateSettlesUnderEveryFaultAtOnce(t *testing.T) {
	for seed := range int64(30) {
		s := New(objstore.NewMem(), seed,
			Rule{Fault: Fail, Chance: 0.15}, Rule{Fault: FailAfter, Chance: 0.15}, Rule{Fault: Conflict, Chance: 0.15},
			Rule{Fault: Duplicate, Chance: 0.15}, Rule{Fault: LateApply, Chance: 0.15})
		winners := 0
		for w := range 4 {
			c, err := objstore.Create(t.Context(), s, "one", fmt.Appendf(nil, "writer %d", w), quick)
			if err != nil {
				t.Errorf("seed %d writer %d: %v", seed, w, err)
			}
			if c.Created {
				winners++
			}
			s.Release(t.Context(), "")
		}
		if winners != 1 {
			t.Errorf("seed %d: %d winners", seed, winners)
		}
	}
}
