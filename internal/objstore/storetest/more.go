package storetest

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

func list(t *testing.T, s objstore.Store, prefix, startAfter string) []objstore.Info {
	t.Helper()
	var all []objstore.Info
	for info, err := range s.List(t.Context(), prefix, startAfter) {
		if err != nil {
			t.Fatalf("list %q after %q: %v", prefix, startAfter, err)
		}
		all = append(all, info)
	}
	return all
}

func listKeys(t *testing.T, s objstore.Store, prefix, startAfter string) []string {
	t.Helper()
	var keys []string
	for _, info := range list(t, s, prefix, startAfter) {
		keys = append(keys, info.Key)
	}
	return keys
}

func listOrder(t *testing.T, s objstore.Store, _ Options) {
	keys := []string{
		"a/1", "a/10", "a/2", "a-b", "a.b/c", "a/b/c/d", "a0", "b/x/1", "b/x/2", "b/xy/1", "b/x-1", "c",
		"B/upper", "z/é", "z/z", "wal/i/00000000000000000001", "wal/i/00000000000000000002", "wal/i/00000000000000000010",
	}
	for _, key := range keys {
		put(t, s, key, []byte(key))
	}
	slices.Sort(keys)
	cursors := append([]string{"", "a", "a/", "a/1", "a/10", "a/11", "a/b", "b/x", "b/x/", "b/x/1", "b/x/9", "b/xy", "c", "zzz", "wal/i/00000000000000000001"}, keys...)
	for _, prefix := range []string{"", "a", "a/", "a/1", "b/x", "b/x/", "wal/i/", "wal/i/0000000000000000000", "z/", "nope/", "c"} {
		for _, after := range cursors {
			var want []string
			for _, key := range keys {
				if strings.HasPrefix(key, prefix) && key > after {
					want = append(want, key)
				}
			}
			if got := listKeys(t, s, prefix, after); !slices.Equal(got, want) {
				t.Fatalf("list %q after %q:\n got %v\nwant %v", prefix, after, got, want)
			}
		}
	}
	for _, info := range list(t, s, "", "") {
		if info.Size != int64(len(info.Key)) {
			t.Errorf("%s listed with size %d", info.Key, info.Size)
		}
	}
}

func listPages(t *testing.T, s objstore.Store, o Options) {
	var keys []string
	for i := range o.ListKeys {
		keys = append(keys, fmt.Sprintf("pages/%02d/%06d", i%3, i))
	}
	var writers sync.WaitGroup
	for chunk := range slices.Chunk(keys, (len(keys)+15)/16) {
		writers.Go(func() {
			for _, key := range chunk {
				if err := s.Put(t.Context(), key, []byte("x")); err != nil {
					t.Errorf("put %s: %v", key, err)
					return
				}
			}
		})
	}
	writers.Wait()
	slices.Sort(keys)
	if got := listKeys(t, s, "pages/", ""); !slices.Equal(got, keys) {
		t.Fatalf("long listing has %d keys, want %d in order", len(got), len(keys))
	}
	middle := len(keys) / 3
	if got := listKeys(t, s, "pages/", keys[middle]); !slices.Equal(got, keys[middle+1:]) {
		t.Errorf("long listing after %s has %d keys, want %d", keys[middle], len(got), len(keys)-middle-1)
	}
}

func listStops(t *testing.T, s objstore.Store, _ Options) {
	for i := range 5 {
		put(t, s, fmt.Sprintf("stop/%d", i), []byte("x"))
	}
	seen := 0
	for _, err := range s.List(t.Context(), "stop/", "") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 2 {
			break
		}
	}
	if seen != 2 {
		t.Errorf("saw %d objects", seen)
	}
}

func bigObject(t *testing.T, s objstore.Store, o Options) {
	body := make([]byte, o.BigBytes)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(body)
	outcome, err := s.PutIfAbsent(t.Context(), "big/if-absent", body)
	if outcome != objstore.Created {
		t.Fatalf("put-if-absent: %d, %v", outcome, err)
	}
	put(t, s, "big/put", body)
	for _, key := range []string{"big/if-absent", "big/put"} {
		if !bytes.Equal(get(t, s, key), body) {
			t.Errorf("%s came back changed", key)
		}
	}
	n := int64(len(body))
	tail, info, err := s.GetRange(t.Context(), "big/put", -1, 70_000)
	if err != nil || !bytes.Equal(tail, body[n-70_000:]) || info.Size != n {
		t.Errorf("suffix of the big object: %d bytes, info %+v, %v", len(tail), info, err)
	}
	part, _, err := s.GetRange(t.Context(), "big/put", n/2, 1<<20)
	if err != nil || !bytes.Equal(part, body[n/2:n/2+1<<20]) {
		t.Errorf("middle of the big object: %d bytes, %v", len(part), err)
	}
	// A loser's large body must end in an outcome too, at latest on a retry.
	c, err := objstore.Create(t.Context(), s, "big/if-absent", body[1:], objstore.CreatePolicy{MinBackoff: time.Millisecond})
	if err != nil || c.Created || !bytes.Equal(c.Existing, body) {
		t.Errorf("large losing create: created=%v, %d bytes, %v", c.Created, len(c.Existing), err)
	}
}

func emptyObject(t *testing.T, s objstore.Store, _ Options) {
	if outcome, err := s.PutIfAbsent(t.Context(), "empty", nil); outcome != objstore.Created {
		t.Fatalf("put-if-absent of nothing: %d, %v", outcome, err)
	}
	if got := get(t, s, "empty"); len(got) != 0 {
		t.Errorf("empty object holds %q", got)
	}
	for _, start := range []int64{0, 5, -1} {
		if got, _, err := s.GetRange(t.Context(), "empty", start, 5); err != nil || len(got) != 0 {
			t.Errorf("range from %d of an empty object: %q, %v", start, got, err)
		}
	}
}

func weirdKeys(t *testing.T, s objstore.Store, _ Options) {
	keys := []string{
		"weird/with space", "weird/ leading", "weird/trailing ", "weird/plus+plus", "weird/percent%20%2F%", "weird/question?x=1&y=2",
		"weird/hash#frag", "weird/ünï/çødé", "weird/日本語/キー", "weird/emoji-😀", "weird/quote\"'`", "weird/<xml>&amp;</xml>",
		"weird/a:b", "weird/a;b,c", "weird/a=b", "weird/@at", "weird/~tilde", "weird/$dollar!", "weird/(paren)[bracket]{brace}", "weird/a|b^c*",
		"weird/.hidden/..dots/...", "weird/" + strings.Repeat("n", objstore.MaxElementBytes), "orders$changelog/x",
	}
	for _, key := range keys {
		if outcome, err := s.PutIfAbsent(t.Context(), key, []byte(key)); outcome != objstore.Created {
			t.Errorf("%q: outcome %d, %v", key, outcome, err)
			continue
		}
		if outcome, err := s.PutIfAbsent(t.Context(), key, []byte("other")); outcome != objstore.Exists {
			t.Errorf("%q again: outcome %d, %v", key, outcome, err)
		}
		if got := get(t, s, key); string(got) != key {
			t.Errorf("%q holds %q", key, got)
		}
	}
	slices.Sort(keys)
	if got := listKeys(t, s, "", ""); !slices.Equal(got, keys) {
		t.Errorf("list:\n got %q\nwant %q", got, keys)
	}
	for _, key := range keys {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if got := listKeys(t, s, "", ""); len(got) != 0 {
		t.Errorf("left after delete: %q", got)
	}
}

func badKeysAreInvalid(t *testing.T, s objstore.Store, _ Options) {
	for _, key := range []string{"", "/a", "a/", "a//b", "a/../b", "..", "./a", "a/.", "a\x00b", "a\nb", "a\\b", "\xff",
		objstore.ReservedPrefix + "tmp/x", strings.Repeat("a/", objstore.MaxKeyBytes) + "a", strings.Repeat("n", objstore.MaxElementBytes+1)} {
		_, _, err := s.Get(t.Context(), key)
		wantClass(t, fmt.Sprintf("get %q", key), err, errs.Invalid)
		_, _, err = s.GetRange(t.Context(), key, 0, 1)
		wantClass(t, fmt.Sprintf("get range %q", key), err, errs.Invalid)
		_, err = s.Head(t.Context(), key)
		wantClass(t, fmt.Sprintf("head %q", key), err, errs.Invalid)
		wantClass(t, fmt.Sprintf("put %q", key), s.Put(t.Context(), key, nil), errs.Invalid)
		outcome, err := s.PutIfAbsent(t.Context(), key, nil)
		if outcome != objstore.Unknown {
			t.Errorf("put-if-absent %q: outcome %d", key, outcome)
		}
		wantClass(t, fmt.Sprintf("put-if-absent %q", key), err, errs.Invalid)
		wantClass(t, fmt.Sprintf("delete %q", key), s.Delete(t.Context(), key), errs.Invalid)
	}
	if got := list(t, s, "", ""); len(got) != 0 {
		t.Errorf("bad keys left %v", got)
	}
}

func endedContext(t *testing.T, s objstore.Store, _ Options) {
	put(t, s, "ctx/there", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err := s.Get(ctx, "ctx/there")
	wantClass(t, "get", err, errs.Canceled)
	_, _, err = s.GetRange(ctx, "ctx/there", 0, 1)
	wantClass(t, "get range", err, errs.Canceled)
	_, err = s.Head(ctx, "ctx/there")
	wantClass(t, "head", err, errs.Canceled)
	wantClass(t, "put", s.Put(ctx, "ctx/put", []byte("x")), errs.Canceled, errs.Unknown)
	wantClass(t, "delete", s.Delete(ctx, "ctx/there"), errs.Canceled, errs.Unknown)
	outcome, err := s.PutIfAbsent(ctx, "ctx/pia", []byte("x"))
	if outcome != objstore.Unknown {
		t.Errorf("put-if-absent: outcome %d", outcome)
	}
	wantClass(t, "put-if-absent", err, errs.Canceled, errs.Unknown)
	var failed error
	for _, err := range s.List(ctx, "ctx/", "") {
		failed = err
	}
	wantClass(t, "list", failed, errs.Canceled)
	_, err = objstore.Create(ctx, s, "ctx/create", []byte("x"), objstore.CreatePolicy{})
	wantClass(t, "create", err, errs.Canceled)
}

func bytesBelongToTheCaller(t *testing.T, s objstore.Store, _ Options) {
	body := []byte("mine")
	put(t, s, "own/put", body)
	if outcome, err := s.PutIfAbsent(t.Context(), "own/pia", body); outcome != objstore.Created {
		t.Fatal(outcome, err)
	}
	copy(body, "XXXX")
	for _, key := range []string{"own/put", "own/pia"} {
		got := get(t, s, key)
		if string(got) != "mine" {
			t.Fatalf("%s holds %q: the store kept the caller's bytes", key, got)
		}
		copy(got, "YYYY")
		part, _, err := s.GetRange(t.Context(), key, 0, 4)
		if err != nil || string(part) != "mine" {
			t.Fatalf("%s holds %q, %v: the store gave its own bytes away", key, part, err)
		}
	}
}

func timesAreSane(t *testing.T, s objstore.Store, _ Options) {
	put(t, s, "time", []byte("x"))
	head, err := s.Head(t.Context(), "time")
	if err != nil {
		t.Fatal(err)
	}
	_, ranged, err := s.GetRange(t.Context(), "time", 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for what, at := range map[string]time.Time{"head": head.ModTime, "range": ranged.ModTime, "list": list(t, s, "time", "")[0].ModTime} {
		if since := time.Since(at); since < -time.Hour || since > time.Hour {
			t.Errorf("%s says it was written at %v", what, at)
		}
	}
}
