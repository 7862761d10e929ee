package wal

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/wal/producers"
)

func testManifest(table uint64, next int64) BucketManifest {
	return BucketManifest{
		Bucket: BucketID{Table: table, Bucket: 1}, NextOffset: next, LakeOffset: next / 2, Generation: uint64(next), EarliestOffset: next / 4,
		Segments: []SegmentRef{
			{Object: ObjectID{"inc-0", 9}, Index: 3, BaseOffset: next / 2, Rows: next - next/2 - 1, Bytes: 100, Timestamp: 1_700_000_000_000_000, SchemaID: 1},
			{Object: ObjectID{"inc-1", 2}, Index: 0, BaseOffset: next - 1, Rows: 1, Bytes: 80, Timestamp: 1_700_000_000_000_500, SchemaID: 2},
		},
		Producers: []ProducerState{{ID: "p", State: producers.State{Watermark: 4, Ranges: []producers.Range{{First: 6, End: 9}}, LastSeen: 5}}},
	}
}

func newWriter(t testing.TB, store objstore.Store) *CheckpointWriter {
	t.Helper()
	w, err := NewCheckpointWriter(store, "inc-1")
	require.NoError(t, err)
	return w
}

func TestGoldenCheckpointV1(t *testing.T) {
	fresh := func() []byte {
		store := objstore.NewMem()
		w := newWriter(t, store)
		w.random = strings.NewReader("0123456789abcdef" + "fedcba9876543210")
		many := []BucketManifest{testManifest(1, 10), testManifest(2, 20), testManifest(3, 1000), testManifest(5, 8)}
		_, err := w.Write(t.Context(), 7, many, nil)
		require.NoError(t, err)
		ref, err := w.Write(t.Context(), 9, []BucketManifest{testManifest(2, 30)}, []BucketID{{1, 1}})
		require.NoError(t, err)
		b, _, err := store.Get(t.Context(), ref.Key())
		require.NoError(t, err)
		return b
	}
	b := golden(t, "checkpoint-v1.bin", fresh)
	c, err := decodeCheckpoint("golden", CheckpointRef{"inc-1", 2}, b)
	require.NoError(t, err)
	require.EqualValues(t, 9, c.covers)
	require.Equal(t, []BucketManifest{testManifest(2, 30)}, c.sorted())
	require.Equal(t, []checkpointPart{{1, 4}}, c.parts)
	require.Contains(t, c.removed, BucketID{1, 1})

	f, err := decodeCheckpoint("fresh", CheckpointRef{"inc-1", 2}, fresh())
	require.NoError(t, err)
	require.Equal(t, c, f, "the message is fixed; compressed bytes may differ by library version")
}

// TestCheckpointsEqualAMap writes random changes and compares every checkpoint,
// loaded, with a plain map.
func TestCheckpointsEqualAMap(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 1))
		store := objstore.NewMem()
		w := newWriter(t, store)
		model := map[BucketID]BucketManifest{}
		for round := range uint64(40) {
			var changed []BucketManifest
			var removed []BucketID
			seen := map[BucketID]bool{}
			for range rng.IntN(1 + rng.IntN(30)) {
				m := testManifest(uint64(rng.IntN(60)), 10+int64(rng.IntN(1000)))
				if seen[m.Bucket] {
					continue
				}
				seen[m.Bucket] = true
				if rng.IntN(4) == 0 {
					removed = append(removed, m.Bucket)
					delete(model, m.Bucket)
					continue
				}
				changed = append(changed, m)
				model[m.Bucket] = m
			}
			ref, err := w.Write(t.Context(), round, changed, removed)
			require.NoError(t, err)
			covers, got, err := LoadCheckpoint(t.Context(), store, ref)
			require.NoError(t, err)
			require.Equal(t, round, covers)
			want := make([]BucketManifest, 0, len(model))
			for _, m := range model {
				want = append(want, m)
			}
			slices.SortFunc(want, func(a, b BucketManifest) int { return a.Bucket.Compare(b.Bucket) })
			require.Equal(t, want, got, "seed %d round %d", seed, round)

			collectUnneeded(t, store, ref)
		}
	}
}

// collectUnneeded deletes every checkpoint object that ref does not need.
func collectUnneeded(t *testing.T, store objstore.Store, ref CheckpointRef) {
	t.Helper()
	keep, err := CheckpointParts(t.Context(), store, ref)
	require.NoError(t, err)
	for info, err := range store.List(t.Context(), "checkpoint/", "") {
		require.NoError(t, err)
		if !slices.Contains(keep, info.Key) {
			require.NoError(t, store.Delete(t.Context(), info.Key))
		}
	}
}

func TestCheckpointCostFollowsWhatChanged(t *testing.T) {
	ledger := objstore.NewLedger(objstore.NewMem(), nil)
	w := newWriter(t, ledger)
	var all []BucketManifest
	for i := range uint64(5_000) {
		all = append(all, testManifest(i, 10))
	}
	_, err := w.Write(t.Context(), 1, all, nil)
	require.NoError(t, err)
	full := ledger.Snapshot()

	const rounds = 100
	for i := range uint64(rounds) {
		changed := []BucketManifest{testManifest(i*7%5_000, 50), testManifest(3, 50+int64(i))}
		if i == 0 || i*7%5_000 == 3 {
			changed = changed[1:]
		}
		ref, err := w.Write(t.Context(), 2+i, changed, nil)
		require.NoError(t, err)
		keys, err := CheckpointParts(t.Context(), ledger.Unwrap(), ref)
		require.NoError(t, err)
		require.LessOrEqual(t, len(keys), 10)
	}
	d := ledger.Snapshot().Since(full)
	require.EqualValues(t, rounds, d.Puts("checkpoint"))
	require.LessOrEqual(t, d.Gets("checkpoint"), int64(rounds*2), "merges read about one part a round")
	perRound := d.Bytes(objstore.OpPutIfAbsent, "checkpoint") / rounds
	require.Less(t, perRound, full.Bytes(objstore.OpPutIfAbsent, "checkpoint")/25)
}

func TestSameBucketsAgainAndAgainReadNothing(t *testing.T) {
	ledger := objstore.NewLedger(objstore.NewMem(), nil)
	w := newWriter(t, ledger)
	var all []BucketManifest
	for i := range uint64(100) {
		all = append(all, testManifest(i, 10))
	}
	for i := range uint64(20) {
		_, err := w.Write(t.Context(), i, all[:5], nil)
		if i == 0 {
			_, err = w.Write(t.Context(), i, all, nil)
		}
		require.NoError(t, err)
	}
	require.Zero(t, ledger.Snapshot().Gets("checkpoint"))
	require.Len(t, w.parts, 2)
}

func TestNewestCheckpointPassesOverTornOnes(t *testing.T) {
	store := objstore.NewMem()
	_, ok, err := NewestCheckpoint(t.Context(), store, "inc-1")
	require.NoError(t, err)
	require.False(t, ok)

	w := newWriter(t, store)
	first, err := w.Write(t.Context(), 3, []BucketManifest{testManifest(1, 10)}, nil)
	require.NoError(t, err)
	object, _, err := store.Get(t.Context(), first.Key())
	require.NoError(t, err)
	require.NoError(t, store.Put(t.Context(), CheckpointRef{"inc-1", 2}.Key(), object[:len(object)-5]))
	require.NoError(t, store.Put(t.Context(), CheckpointRef{"inc-1", 3}.Key(), object))
	require.NoError(t, store.Put(t.Context(), "checkpoint/inc-1/README", nil))
	ref, ok, err := NewestCheckpoint(t.Context(), store, "inc-1")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, first, ref, "2 is cut, 3 says that it is 1")
}

func TestMissingPartIsCorruption(t *testing.T) {
	store := objstore.NewMem()
	w := newWriter(t, store)
	first, err := w.Write(t.Context(), 1, []BucketManifest{testManifest(1, 10), testManifest(2, 10), testManifest(3, 10)}, nil)
	require.NoError(t, err)
	second, err := w.Write(t.Context(), 1, []BucketManifest{testManifest(1, 12)}, nil)
	require.NoError(t, err)
	require.NoError(t, store.Delete(t.Context(), first.Key()))
	_, _, err = LoadCheckpoint(t.Context(), store, second)
	require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
	_, _, err = LoadCheckpoint(t.Context(), store, CheckpointRef{"inc-1", 99})
	require.True(t, errs.Is(err, errs.NotFound), "%v", err)
}

func TestCheckpointWithAnUnknownOutcomeIsPutAgainAsItWas(t *testing.T) {
	store := newHookStore()
	w := newWriter(t, store)
	ctx, cancel := context.WithCancel(t.Context())
	store.put = func(_ context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
		_, _ = apply()
		cancel()
		return objstore.Unknown, errs.New(errs.Unknown, "reset")
	}
	_, err := w.Write(ctx, 1, []BucketManifest{testManifest(1, 10)}, nil)
	require.True(t, errs.Is(err, errs.Unknown), "%v", err)
	store.put = nil
	ref, err := w.Write(t.Context(), 2, []BucketManifest{testManifest(1, 12), testManifest(2, 5)}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 2, ref.Seq, "the first number is its own object")
	_, got, err := LoadCheckpoint(t.Context(), store, ref)
	require.NoError(t, err)
	require.Equal(t, []BucketManifest{testManifest(1, 12), testManifest(2, 5)}, got)

	other := newWriter(t, store)
	_, err = other.Write(t.Context(), 1, nil, nil)
	require.True(t, errs.Is(err, errs.Fenced), "another process with this incarnation's id: %v", err)
}

func TestCheckpointRefusesNonsense(t *testing.T) {
	w := newWriter(t, objstore.NewMem())
	m := testManifest(1, 10)
	overlap := testManifest(1, 10)
	overlap.Segments[1].BaseOffset--
	lake := testManifest(1, 10)
	lake.LakeOffset = 11
	state := testManifest(1, 10)
	state.Producers[0].Ranges = []producers.Range{{First: 1, End: 2}}
	for i, changed := range [][]BucketManifest{{m, m}, {overlap}, {lake}, {state}} {
		_, err := w.Write(t.Context(), 5, changed, nil)
		require.True(t, errs.Is(err, errs.Invalid), "%d: %v", i, err)
	}
	_, err := w.Write(t.Context(), 5, []BucketManifest{m}, []BucketID{m.Bucket})
	require.True(t, errs.Is(err, errs.Invalid), "%v", err)
	_, err = w.Write(t.Context(), 5, []BucketManifest{m}, nil)
	require.NoError(t, err)
	_, err = w.Write(t.Context(), 4, nil, nil)
	require.True(t, errs.Is(err, errs.Invalid), "it covers less than the one before: %v", err)
}

func TestEveryFlippedByteOfACheckpointIsNoticed(t *testing.T) {
	store := objstore.NewMem()
	ref, err := newWriter(t, store).Write(t.Context(), 7, []BucketManifest{testManifest(1, 10)}, nil)
	require.NoError(t, err)
	object, _, err := store.Get(t.Context(), ref.Key())
	require.NoError(t, err)
	for i := range object {
		bad := bytes.Clone(object)
		bad[i] ^= 0x41
		_, err := decodeCheckpoint("x", ref, bad)
		require.True(t, errs.Is(err, errs.Corrupt), "byte %d: %v", i, err)
		_, err = decodeCheckpoint("x", ref, object[:i])
		require.True(t, errs.Is(err, errs.Corrupt), "cut at %d: %v", i, err)
	}
	var text bytes.Buffer
	require.NoError(t, Dump(&text, object))
	require.Contains(t, text.String(), "bucket 1/1")
	require.Contains(t, text.String(), fmt.Sprintf("%s #3", ObjectID{"inc-0", 9}.Key()))
}

// FuzzCheckpoint lets the fuzzer past checksum and compression.
func FuzzCheckpoint(f *testing.F) {
	c := newCheckpoint(CheckpointRef{"inc-1", 2}, 4)
	m := testManifest(1, 10)
	c.add(&m)
	c.remove(BucketID{4, 0})
	c.parts = []checkpointPart{{1, 3}}
	object, err := c.encode(nonce{})
	require.NoError(f, err)
	message, err := unframeCheckpoint("seed", object)
	require.NoError(f, err)
	f.Add(message)
	f.Add([]byte{5<<3 | 2, 0, 5<<3 | 2, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		object, err := frameCheckpoint(message)
		require.NoError(t, err)
		c, err := decodeCheckpoint("fuzz", CheckpointRef{}, object)
		if err != nil {
			require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
			return
		}
		again, err := c.encode(nonce{})
		require.NoError(t, err)
		back, err := decodeCheckpoint("fuzz", c.ref, again)
		require.NoError(t, err)
		require.Equal(t, c, back)
	})
}

func FuzzCheckpointObject(f *testing.F) {
	object, err := newCheckpoint(CheckpointRef{"inc-1", 2}, 4).encode(nonce{})
	require.NoError(f, err)
	f.Add(object)
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decodeCheckpoint("fuzz", CheckpointRef{}, b); err != nil {
			require.True(t, errs.Is(err, errs.Corrupt), "%v", err)
		}
	})
}
