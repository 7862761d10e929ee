package metastore

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/faultstore"
)

// TestAppendsSurviveEveryFaultOfTheStore appends from several agents at once,
// each through its own broken store, with trimming at age zero.
func TestAppendsSurviveEveryFaultOfTheStore(t *testing.T) {
	puts := []objstore.Op{objstore.OpPutIfAbsent, objstore.OpDelete}
	for name, rules := range map[string][]faultstore.Rule{
		"lost before":   {{Fault: faultstore.Fail, Ops: puts, Chance: 0.3}},
		"lost after":    {{Fault: faultstore.FailAfter, Ops: puts, Chance: 0.3}},
		"409":           {{Fault: faultstore.Conflict, Chance: 0.3}},
		"twice":         {{Fault: faultstore.Duplicate, Chance: 0.5}},
		"503":           {{Fault: faultstore.Fail, Class: errs.Unavailable, Chance: 0.3, Ops: puts}},
		"burst":         {faultstore.Burst(20, 15, puts...)},
		"pages of one":  {{Fault: faultstore.PagesOfOne}},
		"a bit of each": {{Fault: faultstore.FailAfter, Ops: puts, Chance: 0.1}, {Fault: faultstore.Duplicate, Chance: 0.1}, {Fault: faultstore.LateApply, Ops: puts, Chance: 0.05}},
	} {
		t.Run(name, func(t *testing.T) {
			inner := objstore.NewMem()
			var wg sync.WaitGroup
			const agents, each = 3, 12
			for n := range agents {
				store := faultstore.New(inner, int64(n), rules...)
				l := openLog(t, store, n+1, small)
				wg.Go(func() {
					for i := range each {
						if _, err := l.Append(t.Context(), DecideCreateDatabase(fmt.Sprintf("db-%d-%d", n, i), "", false)); err != nil {
							t.Error(err)
						}
						_ = l.Maintain(t.Context()) // may fail; the next one goes on
						store.Release(t.Context(), "*")
					}
				})
			}
			wg.Wait()
			s := openLog(t, inner, 9, small).State()
			require.Len(t, s.Databases(), agents*each)
			require.Equal(t, uint64(agents*each+1), s.Seq, "every append is there once")
		})
	}
}

// TestAFlippedBitIsNeverApplied reads a good log through a store that damages
// what it reads: the Log opens right, or not at all.
func TestAFlippedBitIsNeverApplied(t *testing.T) {
	inner := objstore.NewMem()
	l := openLog(t, inner, 1, small)
	fillLog(t, l, 25)
	for seed := range int64(40) {
		for _, fault := range []faultstore.Fault{faultstore.FlipBit, faultstore.Truncate} {
			got, err := Open(t.Context(), faultstore.New(inner, seed, faultstore.Rule{Fault: fault, Chance: 0.2}), Options{Manual: true})
			if err != nil {
				require.Contains(t, []errs.Class{errs.Corrupt, errs.Unsupported}, errs.ClassOf(err), "%v", err)
				continue
			}
			requireSameState(t, l.State(), got.State())
		}
	}
}
