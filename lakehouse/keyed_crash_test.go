package lakehouse

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
)

// halfFolded returns a keyed table with folded rows, and changes of them that are not.
func halfFolded(t *testing.T, store objstore.Store, format string) *keyedTable {
	k := newKeyedTable(t, store, smallKeep(), format, nil)
	withIndex(k)
	k.churn(40, 30)
	k.foldKeyed()
	k.churn(10, 30)
	k.foldKeyed()
	k.churn(10, 30)
	return k
}

// keyedFoldOps counts the store calls of the fold that the test below breaks off.
func keyedFoldOps(t *testing.T, format string) int {
	inner := objstore.NewMem()
	k := halfFolded(t, inner, format)
	fs := faultstore.New(inner, 1)
	var n atomic.Int64
	fs.Observe(func(faultstore.Event) { n.Add(1) })
	var places map[int64]RowRef
	if _, err := k.with(fs, smallKeep()).lake.Fold(context.Background(), k.def, k.keyedInput(k.load(), &places)); err != nil {
		t.Fatal(err)
	}
	return int(n.Load())
}

// The bucket's owner dies at each store call of a fold that replaces and deletes rows:
// the lake is at the state before or after it, with the index that belongs to it.
func TestCrashAtEachStepOfAKeyedFoldLeavesTheLakeExact(t *testing.T) {
	bothFormats(t, func(t *testing.T, format string) {
		steps := keyedFoldOps(t, format)
		if steps < 8 {
			t.Fatalf("a keyed fold made %d store calls", steps)
		}
		for _, fault := range []faultstore.Fault{faultstore.Fail, faultstore.FailAfter, faultstore.LateApply} {
			for step := range steps {
				t.Run(fmt.Sprintf("%s at %d", fault, step), func(t *testing.T) { crashKeyedFold(t, format, fault, step) })
			}
		}
	})
}

func crashKeyedFold(t *testing.T, format string, fault faultstore.Fault, step int) {
	inner := objstore.NewMem()
	k := halfFolded(t, inner, format)
	before, named := k.load(), k.last
	ctx, crash := context.WithCancel(context.Background())
	defer crash()
	fs := faultstore.New(inner, 1,
		faultstore.Rule{Fault: fault, After: step, Times: 1}, faultstore.Rule{Fault: faultstore.Fail, After: step + 1})
	var n atomic.Int64
	fs.Observe(func(faultstore.Event) {
		if n.Add(1) > int64(step+1) {
			crash()
		}
	})
	var places map[int64]RowRef
	_, err := k.with(fs, smallKeep()).lake.Fold(ctx, k.def, k.keyedInput(before, &places))
	fs.Release(context.Background(), "")

	k.foldTable = k.with(inner, smallKeep())
	switch now := k.load(); {
	case now.Offset(0) == k.next:
		k.places = places
		k.begin()
	case now.Offset(0) != before.Offset(0):
		t.Fatalf("lake offset %d", now.Offset(0))
	case err == nil:
		t.Fatalf("the fold succeeded, and the lake offset is %d", now.Offset(0))
	case now.IndexName(0) != named:
		t.Fatalf("index %s belongs to a fold that was not committed", now.IndexName(0))
	default:
		k.foldKeyed()
	}
	k.check()
	k.churn(10, 30)
	k.foldKeyed()
	k.check()
	k.sweepKeyed()
}

// sweepKeyed sweeps, and expects that nothing is left but what is referenced.
func (k *keyedTable) sweepKeyed() {
	k.t.Helper()
	for range 2 {
		k.sweep()
	}
	refs, err := k.lake.References(context.Background(), k.def)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, key := range k.keysUnder("") {
		if _, version := parseVersionKey(key); !version && !refs[key] && key != k.def.hintKey() {
			k.t.Errorf("object %s is garbage and was not swept", key)
		}
		delete(refs, key)
	}
	for key := range refs {
		k.t.Errorf("object %s is referenced and missing", key)
	}
	k.check()
}
