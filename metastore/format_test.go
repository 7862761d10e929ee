package metastore

import (
	"bytes"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
)

// The golden files of a format are written once, when the format is made, and
// never again: what a released version wrote must stay readable.
var writeGolden = flag.Bool("write-golden", false, "write golden files that do not exist")

func golden(t testing.TB, name string, made []byte) []byte {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	want, err := os.ReadFile(path)
	if os.IsNotExist(err) && *writeGolden {
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		require.NoError(t, os.WriteFile(path, made, 0o600))
		return made
	}
	require.NoError(t, err)
	return want
}

// goldenLog applies one command of every kind.
func goldenLog(t testing.TB) (entries []*Entry, bodies [][]byte, s *State) {
	m := newMachine(t)
	m.n, m.s = 0, &State{}
	run := func(c Command) {
		t.Helper()
		e := m.entry(c)
		next, err := step(m.s, e)
		require.NoError(t, err)
		body, err := e.Encode()
		require.NoError(t, err)
		m.s = next
		entries, bodies = append(entries, e), append(bodies, body)
	}
	decided := func(d Decision) {
		t.Helper()
		c, err := d(m.s)
		require.NoError(t, err)
		run(c)
	}
	a, b := incarnation(1), incarnation(2)
	run(&Init{ClusterID: "5a1e0c7b9d3f", SlotCount: 8})
	run(&Join{Incarnation: a, AgentID: "alpha:7070", Address: "10.0.0.1:7070", Zone: "z1", Version: "0.1.0"})
	run(claim(m.s, a, 0, 0, 1, 2))
	run(&CreateDatabase{Database: "shop", Comment: "a shop"})
	table, err := NewTable("shop", ordersSpec(), TableIDs{ID: 1, UUID: "6f1c9a52-0d5e-4a8e-9a57-3c1f6c2f8a11"}, epoch)
	require.NoError(t, err)
	run(&CreateTable{Table: table})
	decided(DecideAlterTable("shop", "orders", changes(t, `[{"add_column": {"name": "note", "type": "string", "default": "", "after": "ts"}},
		{"set_properties": {"retention": "7d"}}]`)))
	second := ordersSpec()
	second.Name = "returns"
	table, err = NewTable("shop", second, TableIDs{ID: 2, UUID: "0b7d9d55-58a1-4f0b-8f0e-0f8f5f1d2c33"}, epoch)
	require.NoError(t, err)
	run(&CreateTable{Table: table})
	decided(DecideDropTable("shop", "returns", false))
	run(&CreateDatabase{Database: "old"})
	decided(DecideDropDatabase("old", true))
	run(&Release{Incarnation: a, Slots: []int{2}, Checkpoint: CheckpointRef{a, 4}})
	run(&Join{Incarnation: b, AgentID: "beta:7070", Address: "10.0.0.2:7070"})
	run(&Fence{Incarnation: a, FenceAt: 17, By: b, ByAgent: "beta:7070"})
	run(claim(m.s, b, 3, 0, 1))
	run(&Join{Incarnation: incarnation(3), AgentID: "gamma:7070", Address: "10.0.0.3:7070"})
	run(&Leave{Incarnation: incarnation(3)})
	m.now = m.now.Add(2 * DeadKept)
	run(&Prune{Incarnations: []string{incarnation(3)}})
	return entries, bodies, m.s
}

func TestGoldenEntriesOfFormat1(t *testing.T) {
	entries, bodies, _ := goldenLog(t)
	seen := map[string]bool{}
	s := &State{}
	for i, e := range entries {
		seen[e.Command.Name()] = true
		want := golden(t, fmt.Sprintf("entry-1-%02d-%s.json", e.Seq, e.Command.Name()), bodies[i])
		require.Equal(t, string(want), string(bodies[i]))
		decoded, err := DecodeEntry(want)
		require.NoError(t, err)
		s, err = Apply(s, decoded)
		require.NoError(t, err)
	}
	require.Len(t, seen, len(newCommand), "every command has a golden entry")
}

func TestGoldenSnapshotOfFormat1(t *testing.T) {
	_, _, s := goldenLog(t)
	body, err := EncodeSnapshot(s)
	require.NoError(t, err)
	want := golden(t, "snapshot-1.bin", body)
	decoded, err := DecodeSnapshot(want)
	require.NoError(t, err)
	requireSameState(t, s, decoded)
	records, err := writeRecords(s)
	require.NoError(t, err)
	require.Equal(t, string(golden(t, "snapshot-1.records.jsonl", records)), string(records))
}

func TestEqualStatesAreEqualSnapshots(t *testing.T) {
	_, bodies, s := goldenLog(t)
	a, err := EncodeSnapshot(s)
	require.NoError(t, err)
	again := &State{}
	for _, body := range bodies {
		e, err := DecodeEntry(body)
		require.NoError(t, err)
		again, err = Apply(again, e)
		require.NoError(t, err)
	}
	b, err := EncodeSnapshot(again)
	require.NoError(t, err)
	require.True(t, bytes.Equal(a, b))
}

func TestEveryDamagedByteOfAnObjectIsNoticed(t *testing.T) {
	_, bodies, s := goldenLog(t)
	snapshot, err := EncodeSnapshot(s)
	require.NoError(t, err)
	for i := range bodies[4] {
		damaged := bytes.Clone(bodies[4])
		damaged[i] ^= 0x04
		_, err := DecodeEntry(damaged)
		requireClass(t, err, errs.Corrupt)
	}
	for i := range snapshot {
		damaged := bytes.Clone(snapshot)
		damaged[i] ^= 0x04
		_, err := DecodeSnapshot(damaged)
		require.Error(t, err, "byte %d", i)
		require.Contains(t, []errs.Class{errs.Corrupt, errs.Unsupported}, errs.ClassOf(err), "byte %d: %v", i, err)
		_, err = DecodeSnapshot(snapshot[:i])
		requireClass(t, err, errs.Corrupt)
	}
}

func TestNewerFormatsAreNotTakenForDamage(t *testing.T) {
	line := []byte(`{"format":2,"seq":1,"shape":"new"}` + "\n")
	_, err := DecodeEntry(fmt.Appendf(line, "{\"crc32c\":\"%08x\"}\n", crc32.Checksum(line, castagnoli)))
	requireClass(t, err, errs.Unsupported, "format 2", "upgrade")
	_, err = DecodeSnapshot([]byte("firn-metadata-snapshot 2 anything\n"))
	requireClass(t, err, errs.Unsupported, "format 2", "upgrade")
}

func TestASnapshotThatPromisesTooMuchIsRefused(t *testing.T) {
	_, err := DecodeSnapshot([]byte("firn-metadata-snapshot 1 seq=1 zstd bytes=99999999999 crc32c=00000000\n"))
	requireClass(t, err, errs.Corrupt)
	_, _, s := goldenLog(t)
	body, err := EncodeSnapshot(s)
	require.NoError(t, err)
	head, rest, _ := strings.Cut(string(body), "\n")
	words := strings.Fields(head)
	words[4] = "bytes=10"
	_, err = DecodeSnapshot([]byte(strings.Join(words, " ") + "\n" + rest))
	requireClass(t, err, errs.Corrupt)
}

func FuzzDecodeEntry(f *testing.F) {
	_, bodies, _ := goldenLog(f)
	for _, body := range bodies {
		f.Add(body[:bytes.IndexByte(body, '\n')+1])
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		// The checksum is made right, so that the fuzzer gets past it.
		e, err := DecodeEntry(fmt.Appendf(bytes.Clone(line), "{\"crc32c\":\"%08x\"}\n", crc32.Checksum(line, castagnoli)))
		if err != nil {
			require.Contains(t, []errs.Class{errs.Corrupt, errs.Unsupported}, errs.ClassOf(err), "%v", err)
			return
		}
		_, err = Apply(&State{Seq: e.Seq - 1, Sum: e.Prev, SlotCount: 1, slots: make([]Slot, 1)}, e)
		_ = err // refused or not: no panic
		_, err = e.Encode()
		require.NoError(t, err)
	})
}

func FuzzDecodeSnapshot(f *testing.F) {
	_, _, s := goldenLog(f)
	records, err := writeRecords(s)
	require.NoError(f, err)
	f.Add(records, s.Seq)
	f.Fuzz(func(t *testing.T, records []byte, seq uint64) {
		body, err := packSnapshot(records, seq)
		require.NoError(t, err)
		state, err := DecodeSnapshot(body)
		if err != nil {
			requireClass(t, err, errs.Corrupt)
			return
		}
		for _, table := range state.Tables("") {
			_ = table.Current().Names()
			_ = table.PartitionBy()
		}
		_, err = EncodeSnapshot(state)
		require.NoError(t, err)
	})
}

func FuzzDecodeSnapshotBytes(f *testing.F) {
	_, _, s := goldenLog(f)
	body, err := EncodeSnapshot(s)
	require.NoError(f, err)
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := DecodeSnapshot(body); err != nil {
			require.Contains(t, []errs.Class{errs.Corrupt, errs.Unsupported}, errs.ClassOf(err), "%v", err)
		}
	})
}

func FuzzDecodeBeat(f *testing.F) {
	f.Add([]byte(`{"format":1,"incarnation":"x","counter":7}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if _, err := DecodeBeat(body); err != nil {
			requireClass(t, err, errs.Corrupt)
		}
	})
}
