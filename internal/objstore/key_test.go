package objstore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/errs"
)

func TestPrefixesThatCanStartAKey(t *testing.T) {
	for prefix, ok := range map[string]bool{
		"": true, "a": true, "a/": true, "a/b": true, "a/..": true, "..a": true, "lake/db/t-1/metadata/v": true, "é": true,
		"/": false, "/a": false, "a//": false, "a//b": false, "a/../": false, "../a": false, "./": false, "a\x00": false, "a\\": false, "\xff": false,
	} {
		if err := CheckPrefix(prefix); (err == nil) != ok || err != nil && !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: %v", prefix, err)
		}
	}
}

func TestWindowNeverLeavesTheObject(t *testing.T) {
	edges := []int64{-1 << 62, -10, -1, 0, 1, 5, 9, 10, 11, 1 << 62}
	for _, size := range []int64{0, 1, 10} {
		for _, start := range edges {
			for _, n := range edges {
				from, to := Window(size, start, n)
				if from < 0 || from > to || to > size || n > 0 && to-from > n {
					t.Errorf("Window(%d, %d, %d) = %d, %d", size, start, n, from, to)
				}
			}
		}
	}
}

func TestKeyClasses(t *testing.T) {
	for key, want := range map[string]string{
		"wal/i/1": "wal", "meta/log/1": "meta", "lake/db/t-1/metadata/v1.metadata.json": "lake/metadata", "lake/db/t-1/data/x.parquet": "lake/data",
		"lake/db/": "lake", "lake/db/t-1/version-hint.text": "lake", "lake": "lake", "": "", "agents/x": "agents",
	} {
		if got := KeyClass(key); got != want {
			t.Errorf("%q is of class %q, want %q", key, got, want)
		}
	}
}

func TestKeySetStaysSortedThroughManyChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var s keySet
	model := make(map[string]bool)
	for range 20_000 {
		key := fmt.Sprintf("%04d", r.IntN(3000))
		if r.IntN(3) == 0 {
			s.remove(key)
			delete(model, key)
		} else {
			s.add(key)
			model[key] = true
		}
	}
	from := "1000"
	var got, want []string
	s.after(from, func(key string) bool { got = append(got, key); return true })
	for key := range model {
		if key >= from {
			want = append(want, key)
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d keys, want %d", len(got), len(want))
	}
	for _, c := range s.chunks {
		if len(c) == 0 || len(c) > maxChunk {
			t.Errorf("a chunk of %d keys", len(c))
		}
	}
}

func TestLedgerCountsByOperationAndClass(t *testing.T) {
	var heard []string
	l := NewLedger(NewMem(), func(c Call) { heard = append(heard, c.Op.String()+" "+c.Class) })
	ctx := t.Context()
	for i := range 1001 {
		if err := l.Put(ctx, fmt.Sprintf("lake/db/t-1/data/%d", i), []byte("12345")); err != nil {
			t.Fatal(err)
		}
	}
	before := l.Snapshot()
	_, _ = l.PutIfAbsent(ctx, "wal/i/1", []byte("123"))
	_, _ = l.PutIfAbsent(ctx, "wal/i/1", []byte("123"))
	_, _, _ = l.Get(ctx, "wal/i/1")
	_, _, _ = l.Get(ctx, "wal/i/2")
	_, _, _ = l.GetRange(ctx, "wal/i/1", 0, 2)
	_, _ = l.Head(ctx, "bad//key")
	for _, err := range l.List(ctx, "lake/db/t-1/data/", "") {
		if err != nil {
			t.Fatal(err)
		}
	}
	_ = l.Delete(ctx, "wal/i/1")
	var got []string
	for _, row := range l.Snapshot().Since(before) {
		got = append(got, fmt.Sprintf("%v %s calls=%d bytes=%d errors=%d lost=%d", row.Op, row.Class, row.Calls, row.Bytes, row.Errors, row.Lost))
	}
	want := []string{
		"get wal calls=2 bytes=3 errors=0 lost=0",
		"get_range wal calls=1 bytes=2 errors=0 lost=0",
		"head bad calls=1 bytes=0 errors=1 lost=0",
		"put_if_absent wal calls=2 bytes=6 errors=0 lost=1",
		"list lake/data calls=2 bytes=0 errors=0 lost=0",
		"delete wal calls=1 bytes=0 errors=0 lost=0",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	all := l.Snapshot()
	if all.Puts("") != 1003 || all.Puts("wal") != 2 || all.Gets("") != 4 || all.Bytes(OpPut, "lake/data") != 5005 || len(heard) != 1009 {
		t.Errorf("puts %d, gets %d, heard %d", all.Puts(""), all.Gets(""), len(heard))
	}
}
