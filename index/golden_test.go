package index

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// makeGolden writes golden files that are missing. Files that exist are never
// rewritten: objects like them stand in stores.
var makeGolden = flag.Bool("make-golden", false, "write missing golden files")

func golden(t *testing.T, name string, fresh []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", name)
	if _, err := os.Stat(path); os.IsNotExist(err) && *makeGolden {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, fresh, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// goldenEntries are 1,500 keys, so that there are two blocks; each seventh is
// deleted.
func goldenEntries() []Placed {
	out := make([]Placed, 1500)
	for i := range out {
		out[i] = Placed{Key{uint64(i/3) * 0x00B54A32D192ED03, uint64(i) * 0x9E3779B97F4A7C15}, At(uint32(i%300), uint32(i*2711))} //nolint:gosec // small
		if i%7 == 0 {
			out[i].At = Nowhere
		}
	}
	slices.SortFunc(out, func(a, b Placed) int { return a.Key.Compare(b.Key) })
	return out
}

func TestGoldenRunOfVersion1(t *testing.T) {
	w := NewRunWriter(testOwner, [nonceBytes]byte{1, 2, 3})
	entries := goldenEntries()
	for _, e := range entries {
		if err := w.Add(e.Key, e.At); err != nil {
			t.Fatal(err)
		}
	}
	fresh, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	b := golden(t, "run-v1.bin", fresh)
	if !bytes.Equal(b, fresh) {
		t.Error("a run is written in other bytes than version 1")
	}
	store := objstore.NewMem()
	m := &Manifest{Owner: testOwner, Runs: []RunRef{{Name: "r", Entries: 1500, Size: int64(len(b)), FirstHi: entries[0].Key.Hi, LastHi: entries[1499].Key.Hi}}}
	if err := store.Put(t.Context(), testOwner.Key("r"), b); err != nil {
		t.Fatal(err)
	}
	x, err := Open(t.Context(), NewCache(store, 1<<20), m, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got, err := x.Find(t.Context(), []Key{e.Key})
		if err != nil || got[0] != e.At {
			t.Fatalf("key %x is at %v, want %v: %v", e.Key, got, e.At, err)
		}
	}
}

func TestGoldenManifestOfVersion1(t *testing.T) {
	m := &Manifest{
		Owner: testOwner, Generation: 12, NextFile: 9,
		Runs:  []RunRef{{Name: "r-b", Entries: 10, Deletions: 2, Size: 900, FirstHi: 1, LastHi: 1 << 63, Level: 2}, {Name: "r-a", Entries: 40, Size: 1800, LastHi: 1<<64 - 1, Level: 1}},
		Files: []File{{Number: 3, Key: "lake/db/t-7/data/x.parquet", Rows: 1 << 40}, {Number: 8, Key: "lake/db/t-7/data/y.parquet", Rows: 1}},
	}
	fresh, err := m.Encode([nonceBytes]byte{4, 5, 6})
	if err != nil {
		t.Fatal(err)
	}
	b := golden(t, "manifest-v1.bin", fresh)
	if !bytes.Equal(b, fresh) {
		t.Error("a manifest is written in other bytes than version 1")
	}
	got, err := DecodeManifest(b, "m", testOwner)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
		t.Errorf("got %+v, want %+v", got, m)
	}
	for at := range b {
		damaged := slices.Clone(b)
		damaged[at] ^= 0x40
		if _, err := DecodeManifest(damaged, "m", testOwner); err == nil {
			t.Errorf("a manifest with byte %d damaged is believed", at)
		}
		if _, err := DecodeManifest(b[:at], "m", testOwner); err == nil {
			t.Errorf("a manifest cut at %d is believed", at)
		}
	}
}

// keyTypes are all types that a key column may have.
var keyTypes = []string{
	"boolean", "int", "long", "decimal(9,2)", "decimal(38,10)", "date", "time", "timestamp", "timestamptz", "string", "uuid", "fixed(5)", "binary",
}

func keySchema(t *testing.T) *segments.Schema {
	s := &segments.Schema{}
	for i, text := range keyTypes {
		typ, err := segments.ParseType(text)
		if err != nil {
			t.Fatal(err)
		}
		s.Fields = append(s.Fields, segments.Field{ID: int32(i + 1), Name: fmt.Sprint("c", i), Type: typ, Required: true}) //nolint:gosec // small
	}
	return s
}

func TestEqualKeyValuesHaveEqualKeysAndOthersDoNot(t *testing.T) {
	s := keySchema(t)
	rec := segtest.Batch(segtest.NewRand(5), s, 400, segtest.Options{})
	for i := range s.Fields {
		pk := []int32{s.Fields[i].ID, s.Fields[(i+1)%len(s.Fields)].ID}
		for prefix := 1; prefix <= 2; prefix++ {
			h, err := NewHasher(s, pk, pk[:prefix])
			if err != nil {
				t.Fatal(err)
			}
			keys := hashKeys(t, h, rec)
			if sliced := hashKeys(t, h, rec.NewSlice(13, 300)); !slices.Equal(sliced, keys[13:300]) {
				t.Errorf("%s: a slice of a batch has other keys", keyTypes[i])
			}
			byKey, byText := map[Key]string{}, map[string]Key{}
			for row, k := range keys {
				text := fmt.Sprintf("%q %q", segtest.Format(rec.Column(i), row), segtest.Format(rec.Column((i+1)%len(s.Fields)), row))
				if other, ok := byKey[k]; ok && other != text {
					t.Fatalf("%s and %s have one key", text, other)
				}
				if other, ok := byText[text]; ok && other != k {
					t.Fatalf("%s has two keys", text)
				}
				byKey[k], byText[text] = text, k
			}
			checkPrefixes(t, h, rec, keys)
		}
	}
}

func hashKeys(t *testing.T, h *Hasher, rec arrow.RecordBatch) []Key {
	t.Helper()
	keys, err := h.Keys(rec)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

func checkPrefixes(t *testing.T, h *Hasher, rec arrow.RecordBatch, keys []Key) {
	t.Helper()
	if !h.HasPrefix() {
		return
	}
	prefixes, err := h.Prefixes(rec)
	if err != nil {
		t.Fatal(err)
	}
	for row, hi := range prefixes {
		if keys[row].Hi != hi {
			t.Fatalf("row %d: its key does not begin with its prefix", row)
		}
	}
}

func TestAWidenedColumnKeepsItsKeys(t *testing.T) {
	narrow := &segments.Schema{Fields: []segments.Field{{ID: 1, Name: "k", Type: segments.Type{Kind: segments.Int}, Required: true}}}
	wide := &segments.Schema{Fields: []segments.Field{{ID: 1, Name: "k", Type: segments.Type{Kind: segments.Long}, Required: true}}}
	rec := segtest.Batch(segtest.NewRand(6), narrow, 50, segtest.Options{})
	widened, err := segments.Project(rec, narrow, wide)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewHasher(narrow, []int32{1}, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewHasher(wide, []int32{1}, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(hashKeys(t, a, rec), hashKeys(t, b, widened)) {
		t.Error("int and long of one value have different keys")
	}
}
