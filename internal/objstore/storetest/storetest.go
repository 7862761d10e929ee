package storetest

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Options fit the suite to what a driver's test can afford.
type Options struct {
	BigBytes int // size of the big object; zero is 5 MiB
	ListKeys int // keys of the long listing; zero is 1,100
	RaceKeys int // keys raced for; zero is 12
}

// Run runs the contract against fresh stores from newStore, each of which it
// closes. The test's name must be free for subtests.
func Run(t *testing.T, o Options, newStore func(t *testing.T) objstore.Store) {
	t.Helper()
	if o.BigBytes == 0 {
		o.BigBytes = 5 << 20
	}
	if o.ListKeys == 0 {
		o.ListKeys = 1100
	}
	if o.RaceKeys == 0 {
		o.RaceKeys = 12
	}
	for _, c := range []struct {
		name string
		run  func(*testing.T, objstore.Store, Options)
	}{
		{"PutIfAbsentHasOneWinner", putIfAbsentHasOneWinner},
		{"PutIfAbsentNeverReplaces", putIfAbsentNeverReplaces},
		{"CreateRaceAgreesOnOneBody", createRaceAgreesOnOneBody},
		{"WritesAreReadAtOnce", writesAreReadAtOnce},
		{"PutsAreNeverTorn", putsAreNeverTorn},
		{"MissingIsNotFound", missingIsNotFound},
		{"Ranges", ranges},
		{"ListOrderPrefixAndStartAfter", listOrder},
		{"ListPages", listPages},
		{"ListStopsWhenAsked", listStops},
		{"DeleteIsIdempotent", deleteIsIdempotent},
		{"BigObject", bigObject},
		{"EmptyObject", emptyObject},
		{"WeirdKeys", weirdKeys},
		{"BadKeysAreInvalid", badKeysAreInvalid},
		{"EndedContext", endedContext},
		{"BytesBelongToTheCaller", bytesBelongToTheCaller},
		{"TimesAreSane", timesAreSane},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t)
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			})
			c.run(t, s, o)
		})
	}
}

// racers race for one key at once, as the design's probe does.
const racers = 32

func put(t *testing.T, s objstore.Store, key string, body []byte) {
	t.Helper()
	if err := s.Put(t.Context(), key, body); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func get(t *testing.T, s objstore.Store, key string) []byte {
	t.Helper()
	body, info, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	if info.Key != key || info.Size != int64(len(body)) {
		t.Fatalf("get %s: info %+v of %d bytes", key, info, len(body))
	}
	return body
}

func wantClass(t *testing.T, what string, err error, classes ...errs.Class) {
	t.Helper()
	for _, c := range classes {
		if errs.Is(err, c) {
			return
		}
	}
	t.Errorf("%s: error %v is of class %q, want %v", what, err, errs.ClassOf(err), classes)
}

func putIfAbsentHasOneWinner(t *testing.T, s objstore.Store, o Options) {
	for k := range o.RaceKeys {
		key := fmt.Sprintf("race/%04d", k)
		outcomes := make([]objstore.Outcome, racers)
		race(func(i int) {
			for { // a store may answer 409 or 503 to some racers
				outcome, err := s.PutIfAbsent(t.Context(), key, racerBody(k, i))
				if outcomes[i] = outcome; outcome != objstore.Unknown {
					return
				}
				if t.Context().Err() != nil {
					t.Errorf("racer %d never got an outcome: %v", i, err)
					return
				}
			}
		})
		winner := -1
		for i, outcome := range outcomes {
			if outcome == objstore.Created {
				if winner >= 0 {
					t.Fatalf("%s: racers %d and %d both created it", key, winner, i)
				}
				winner = i
			}
		}
		if winner < 0 {
			t.Fatalf("%s: nobody created it", key)
		}
		if !bytes.Equal(get(t, s, key), racerBody(k, winner)) {
			t.Errorf("%s does not hold the winner's body", key)
		}
	}
}

func racerBody(key, racer int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "key %d racer %d;", key, racer), 50)
}

func race(run func(i int)) {
	var ready, done sync.WaitGroup
	ready.Add(racers)
	for i := range racers {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			run(i)
		})
	}
	done.Wait()
}

func putIfAbsentNeverReplaces(t *testing.T, s objstore.Store, _ Options) {
	put(t, s, "taken/by-put", []byte("first"))
	for range 3 {
		outcome, err := s.PutIfAbsent(t.Context(), "taken/by-put", []byte("second"))
		if outcome != objstore.Exists || err != nil {
			t.Fatalf("outcome %d, error %v; want exists", outcome, err)
		}
	}
	if got := get(t, s, "taken/by-put"); string(got) != "first" {
		t.Errorf("object was replaced by %q", got)
	}
}

func createRaceAgreesOnOneBody(t *testing.T, s objstore.Store, _ Options) {
	created := make([]objstore.Creation, racers)
	race(func(i int) {
		c, err := objstore.Create(t.Context(), s, "create/one", racerBody(0, i), objstore.CreatePolicy{MinBackoff: time.Millisecond})
		if err != nil {
			t.Errorf("racer %d: %v", i, err)
		}
		created[i] = c
	})
	stands := get(t, s, "create/one")
	winners := 0
	for i, c := range created {
		if c.Created {
			winners++
			if !bytes.Equal(stands, racerBody(0, i)) {
				t.Errorf("racer %d created, but another's body stands there", i)
			}
		} else if !bytes.Equal(stands, c.Existing) {
			t.Errorf("racer %d lost, but did not see the winner's body", i)
		}
	}
	if winners != 1 {
		t.Errorf("%d winners", winners)
	}
}

func writesAreReadAtOnce(t *testing.T, s objstore.Store, _ Options) {
	for version := range 5 {
		body := fmt.Appendf(nil, "version %d%s", version, strings.Repeat("x", version))
		put(t, s, "rw/a", body)
		if got := get(t, s, "rw/a"); !bytes.Equal(got, body) {
			t.Fatalf("read %q after writing %q", got, body)
		}
		info, err := s.Head(t.Context(), "rw/a")
		if err != nil || info.Size != int64(len(body)) || info.Key != "rw/a" {
			t.Fatalf("head: %+v, %v", info, err)
		}
		if got := list(t, s, "rw/", ""); len(got) != 1 || got[0].Size != int64(len(body)) {
			t.Fatalf("list: %+v", got)
		}
	}
}

func putsAreNeverTorn(t *testing.T, s objstore.Store, _ Options) {
	const size = 100_000
	put(t, s, "torn", bytes.Repeat([]byte("a"), size))
	ctx, stop := context.WithCancel(t.Context())
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for ctx.Err() == nil {
				body, _, err := s.Get(ctx, "torn")
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("get: %v", err)
					}
					return
				}
				if len(body) != size || !bytes.Equal(body, bytes.Repeat(body[:1], size)) {
					t.Errorf("read a mix of two puts (%d bytes)", len(body))
					return
				}
			}
		})
	}
	for i := range 20 {
		put(t, s, "torn", bytes.Repeat([]byte{'a' + byte(i)}, size))
	}
	stop()
	readers.Wait()
}

func missingIsNotFound(t *testing.T, s objstore.Store, _ Options) {
	put(t, s, "there/is/this", []byte("x"))
	for _, key := range []string{"missing", "there/is", "there/is/that", "there/is/this-", "not/there/at/all"} {
		_, _, err := s.Get(t.Context(), key)
		wantClass(t, "get "+key, err, errs.NotFound)
		_, _, err = s.GetRange(t.Context(), key, 0, 1)
		wantClass(t, "get range "+key, err, errs.NotFound)
		_, _, err = s.GetRange(t.Context(), key, -1, 1)
		wantClass(t, "get suffix "+key, err, errs.NotFound)
		_, err = s.Head(t.Context(), key)
		wantClass(t, "head "+key, err, errs.NotFound)
	}
	if got := list(t, s, "nothing/here/", ""); len(got) != 0 {
		t.Errorf("list of nothing: %v", got)
	}
}

func ranges(t *testing.T, s objstore.Store, _ Options) {
	const body = "0123456789"
	put(t, s, "ranges", []byte(body))
	for _, c := range []struct {
		start, n int64
		want     string
	}{
		{0, 10, body}, {0, 1, "0"}, {3, 4, "3456"}, {9, 1, "9"}, {9, 100, "9"}, {0, 1 << 40, body},
		{10, 1, ""}, {11, 5, ""}, {1 << 40, 5, ""}, {5, 0, ""},
		{-1, 3, "789"}, {-5, 1, "9"}, {-1, 10, body}, {-1, 11, body}, {-1, 1 << 40, body}, {-1, 0, ""},
	} {
		got, info, err := s.GetRange(t.Context(), "ranges", c.start, c.n)
		if err != nil || string(got) != c.want {
			t.Errorf("GetRange(%d, %d) = %q, %v; want %q", c.start, c.n, got, err, c.want)
			continue
		}
		if info.Size != int64(len(body)) || info.Key != "ranges" {
			t.Errorf("GetRange(%d, %d): info %+v, want the whole object's size", c.start, c.n, info)
		}
	}
}

func deleteIsIdempotent(t *testing.T, s objstore.Store, _ Options) {
	put(t, s, "del/a", []byte("x"))
	put(t, s, "del/b", []byte("x"))
	for range 3 {
		if err := s.Delete(t.Context(), "del/a"); err != nil {
			t.Fatalf("delete: %v", err)
		}
	}
	if err := s.Delete(t.Context(), "del/never/was"); err != nil {
		t.Errorf("delete of what never was: %v", err)
	}
	_, _, err := s.Get(t.Context(), "del/a")
	wantClass(t, "get after delete", err, errs.NotFound)
	if got := list(t, s, "del/", ""); len(got) != 1 || got[0].Key != "del/b" {
		t.Errorf("list after delete: %v", got)
	}
	if outcome, err := s.PutIfAbsent(t.Context(), "del/a", []byte("again")); outcome != objstore.Created {
		t.Errorf("put-if-absent after delete: %d, %v", outcome, err)
	}
}
