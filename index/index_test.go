package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// world is an index over a store in memory, beside a map.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	store objstore.Store
	cache *Cache
	index *Index
	want  map[Key]Location
	ids   uint64
}

var testOwner = Owner{Table: 7, Bucket: 3}

func newWorld(t *testing.T, seed uint64, budget int64) *world {
	w := &world{t: t, rng: rand.New(rand.NewPCG(seed, 3)), store: objstore.NewMem(), want: map[Key]Location{}} //nolint:gosec // a seeded test
	w.cache = NewCache(w.store, budget)
	var err error
	if w.index, err = Open(t.Context(), w.cache, &Manifest{Owner: testOwner}, nil); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) newID() (id [nonceBytes]byte) {
	w.ids++
	copy(id[:], fmt.Sprintf("%016d", w.ids))
	return id
}

func (w *world) put(ctx context.Context, name string, body []byte) error {
	return w.store.Put(ctx, testOwner.Key(name), body)
}

// update applies changes to the index and to the map, by way of the store.
func (w *world) update(changes map[Key]Location) {
	w.t.Helper()
	u := Update{NewFiles: []File{{Number: w.index.Manifest.NextFile, Key: fmt.Sprint("f", w.index.Manifest.NextFile), Rows: 1 << 30}}}
	for k, at := range changes {
		u.Changes = append(u.Changes, Placed{k, at})
		if at == Nowhere {
			delete(w.want, k)
		} else {
			w.want[k] = at
		}
	}
	slices.SortFunc(u.Changes, func(a, b Placed) int { return a.Key.Compare(b.Key) })
	m, err := w.index.Next(w.t.Context(), u, w.newID, w.put)
	if err != nil {
		w.t.Fatal(err)
	}
	body, err := m.Encode(w.newID())
	if err != nil {
		w.t.Fatal(err)
	}
	if m, err = DecodeManifest(body, "m", testOwner); err != nil {
		w.t.Fatal(err)
	}
	next, err := Open(w.t.Context(), w.cache, m, w.index)
	if err != nil {
		w.t.Fatal(err)
	}
	w.index.Forget(next)
	w.index = next
}

func (w *world) randomKey(space int) Key {
	i := w.rng.IntN(space)
	return Key{uint64(i%97) * 0x9E3779B97F4A7C15, uint64(i) * 0xD1B54A32D192ED03}
}

func (w *world) check(keys []Key) {
	w.t.Helper()
	got, err := w.index.Find(w.t.Context(), keys)
	if err != nil {
		w.t.Fatal(err)
	}
	for i, k := range keys {
		want, ok := w.want[k]
		if !ok {
			want = Nowhere
		}
		if got[i] != want {
			w.t.Fatalf("key %x is at %v, want %v", k, got[i], want)
		}
	}
}

func TestIndexFindsWhatAMapDoes(t *testing.T) {
	for seed := range uint64(3) {
		budget := []int64{0, 40_000, 64 << 20}[seed%3]
		w := newWorld(t, seed, budget)
		const space = 30_000
		for range 25 {
			changes := map[Key]Location{}
			for range 1 + w.rng.IntN(4_000) {
				at := At(w.index.Manifest.NextFile, w.rng.Uint32())
				if w.rng.IntN(4) == 0 {
					at = Nowhere
				}
				changes[w.randomKey(space)] = at
			}
			w.update(changes)
			keys := make([]Key, w.rng.IntN(3_000))
			for i := range keys {
				keys[i] = w.randomKey(space * 2)
			}
			w.check(keys)
			if got := w.cache.Bytes(); got > budget {
				t.Fatalf("the cache holds %d bytes of %d", got, budget)
			}
			if n := len(w.index.Manifest.levels()); n > maxLevels {
				t.Fatalf("%d levels", n)
			}
		}
		w.checkPrefixes()
	}
}

func (w *world) checkPrefixes() {
	w.t.Helper()
	for i := range uint64(100) {
		hi := i * 0x9E3779B97F4A7C15
		got, err := w.index.Prefix(w.t.Context(), hi)
		if err != nil {
			w.t.Fatal(err)
		}
		var want []Placed
		for k, at := range w.want {
			if k.Hi == hi {
				want = append(want, Placed{k, at})
			}
		}
		slices.SortFunc(want, func(a, b Placed) int { return a.Key.Compare(b.Key) })
		if !slices.Equal(got, want) {
			w.t.Fatalf("prefix %x has %d rows, want %d", hi, len(got), len(want))
		}
	}
}

func TestAKeyIsRewrittenALogarithmicNumberOfTimes(t *testing.T) {
	var levels []int64
	var written, fresh int64
	for i := range 10_000 {
		n := planMerge(levels, 100)
		sum := int64(100)
		for _, l := range levels[:n] {
			sum += l
		}
		levels = append([]int64{sum}, levels[n:]...)
		written += sum
		fresh += 100
		if len(levels) > maxLevels+1 {
			t.Fatalf("%d levels after %d", len(levels), i)
		}
	}
	if amplification := float64(written) / float64(fresh); amplification > 40 {
		t.Errorf("each entry is written %.1f times", amplification)
	}
}

func TestAbsentKeysAndCachedKeysCostNoRequest(t *testing.T) {
	w := newWorld(t, 1, 64<<20)
	changes := map[Key]Location{}
	for range 50_000 {
		changes[Key{w.rng.Uint64(), w.rng.Uint64()}] = At(0, w.rng.Uint32())
	}
	w.update(changes)
	ledger := objstore.NewLedger(w.store, nil)
	cache := NewCache(ledger, 64<<20)
	x, err := Open(t.Context(), cache, w.index.Manifest, nil)
	if err != nil {
		t.Fatal(err)
	}
	count := func(f func()) int64 {
		before := ledger.Snapshot()
		f()
		return ledger.Snapshot().Since(before).Gets("index")
	}
	find := func(keys ...Key) func() {
		return func() {
			if _, err := x.Find(t.Context(), keys); err != nil {
				t.Fatal(err)
			}
		}
	}
	var present []Key
	for k := range changes {
		present = append(present, k)
	}
	find(present[0])() // reads the filter
	if n := count(find(present[1])); n != 1 {
		t.Errorf("a cold key costs %d requests, want 1", n)
	}
	if n := count(find(present[1])); n != 0 {
		t.Errorf("a cached key costs %d requests", n)
	}
	absent := make([]Key, 1000)
	for i := range absent {
		absent[i] = Key{w.rng.Uint64(), w.rng.Uint64()}
	}
	// One in 256 passes the filter; their blocks are read once.
	if n := count(find(absent...)); n > 15 {
		t.Errorf("1,000 absent keys cost %d requests", n)
	}
	if n := count(find(present...)); n > 4 {
		t.Errorf("a batch of all keys costs %d requests: neighbours are not read together", n)
	}
}

func TestDamageIsCorruptAndNeverAPanic(t *testing.T) {
	w := newWorld(t, 2, 1<<20)
	changes := map[Key]Location{}
	for range 1500 {
		changes[w.randomKey(4000)] = At(0, w.rng.Uint32())
	}
	w.update(changes)
	name := w.index.Manifest.Runs[0].Name
	whole, _, err := w.store.Get(t.Context(), testOwner.Key(name))
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.Collect(func(yield func(Key) bool) {
		for k := range changes {
			if !yield(k) {
				return
			}
		}
	})
	try := func(what string, body []byte) {
		t.Helper()
		store := objstore.NewMem()
		if err := store.Put(t.Context(), testOwner.Key(name), body); err != nil {
			t.Fatal(err)
		}
		x, err := Open(t.Context(), NewCache(store, 1<<20), w.index.Manifest, nil)
		var got []Location
		if err == nil {
			got, err = x.Find(t.Context(), keys)
		}
		if err != nil && !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.Unsupported) {
			t.Fatalf("%s: %v", what, err)
		}
		if err != nil {
			return
		}
		for i, k := range keys {
			if got[i] != changes[k] {
				t.Fatalf("%s: key %x is at %v, want %v, and no error", what, k, got[i], changes[k])
			}
		}
	}
	for at := 0; at < len(whole); at += 5 + at%29 {
		body := slices.Clone(whole)
		body[at] ^= 1 << (at % 8)
		try(fmt.Sprintf("bit of byte %d flipped", at), body)
		try(fmt.Sprintf("cut at %d", at), whole[:at])
	}
}

func TestAnUnreadableRunIsNoMissingKey(t *testing.T) {
	w := newWorld(t, 3, 0)
	w.update(map[Key]Location{{1, 1}: At(0, 0)})
	if err := w.store.Delete(t.Context(), testOwner.Key(w.index.Manifest.Runs[0].Name)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.index.Find(t.Context(), []Key{{1, 1}}); !errs.Is(err, errs.NotFound) {
		t.Errorf("a key of a run that is gone: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.index.Find(ctx, []Key{{1, 1}}); err == nil || errors.Is(err, os.ErrNotExist) {
		t.Errorf("with an ended context: %v", err)
	}
}

func TestResidentBytesOfAKey(t *testing.T) {
	n := 300_000
	if os.Getenv("FIRN_INDEX_KEYS") != "" {
		n = 10_000_000
	}
	w := newWorld(t, 4, 1<<40)
	writer := NewRunWriter(testOwner, w.newID())
	keys := make([]Key, n)
	for i := range keys {
		keys[i] = Key{w.rng.Uint64(), w.rng.Uint64()}
	}
	slices.SortFunc(keys, Key.Compare)
	for i, k := range keys {
		if err := writer.Add(k, At(uint32(i%90), uint32(i%1_000_000))); err != nil { //nolint:gosec // small
			t.Fatal(err)
		}
	}
	body, err := writer.Finish()
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Owner: testOwner, Runs: []RunRef{{Name: "r", Entries: int64(n), Size: int64(len(body)), FirstHi: keys[0].Hi, LastHi: keys[n-1].Hi}}}
	if err := w.put(t.Context(), "r", body); err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), w.cache, m, nil)
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(keys, 100_000) {
		if _, err := x.Find(t.Context(), part); err != nil {
			t.Fatal(err)
		}
	}
	perKey := float64(w.cache.Bytes()+x.Bytes()) / float64(n)
	t.Logf("%d keys: %.2f bytes a key resident, %.2f stored", n, perKey, float64(len(body))/float64(n))
	if perKey > 24 {
		t.Errorf("%.2f bytes a key are resident, at most 24 may be", perKey)
	}
}
