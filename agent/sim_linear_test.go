package agent

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/firn-data/firn/internal/objstore"
)

// logOp is an operation on a bucket's log as a client sees it.
type logOp struct {
	read bool
	id   int64 // appended row
}

// logAnswer is what the client learned: where the row stands, or what it read.
type logAnswer struct {
	unknown bool
	offset  int64
	rows    []int64
}

// logModel is an append-only log. An append whose outcome is unknown took place
// or did not, at any time after its call.
var logModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{[]int64(nil)} },
	Step: func(state, input, output any) []any {
		log, op, got := state.([]int64), input.(logOp), output.(logAnswer)
		if op.read {
			if got.unknown || slices.Equal(log, got.rows) {
				return []any{log}
			}
			return nil
		}
		with := append(slices.Clone(log), op.id)
		switch {
		case got.unknown:
			return []any{log, with}
		case got.offset == int64(len(log)):
			return []any{with}
		}
		return nil
	},
	Equal: func(a, b any) bool { return slices.Equal(a.([]int64), b.([]int64)) },
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v → %+v", input, output)
	},
}

// history collects the operations of all clients.
type history struct {
	mu    sync.Mutex
	begun time.Time
	ops   []porcupine.Operation
	next  int64
}

func (h *history) do(client int, op logOp, run func() logAnswer) {
	call := time.Since(h.begun).Nanoseconds()
	got := run()
	end := time.Since(h.begun).Nanoseconds()
	if got.unknown {
		if op.read {
			return
		}
		end = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: call, Output: got, Return: end})
}

func (h *history) nextID() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.next++
	return h.next
}

// client appends and reads until ctx ends.
func (h *history) client(ctx context.Context, n int, url string, rng *rand.Rand) {
	for ctx.Err() == nil {
		if rng.IntN(3) == 0 {
			h.do(n, logOp{read: true}, func() logAnswer { return readRows(url) })
		} else {
			id := h.nextID()
			h.do(n, logOp{id: id}, func() logAnswer {
				a, err := postRows(ctx, url+tableURL+"one/rows", id, id+1)
				if err != nil {
					return logAnswer{unknown: true}
				}
				return logAnswer{offset: a.Buckets[0].BaseOffset}
			})
		}
		pause(ctx, time.Duration(rng.IntN(12))*time.Millisecond)
	}
}

func readRows(url string) logAnswer {
	log, err := readLog(url, "one")
	if err != nil {
		return logAnswer{unknown: true}
	}
	rows := make([]int64, len(log))
	for p, id := range log {
		rows[p.offset] = id
	}
	return logAnswer{rows: rows}
}

// TestSimulatedLogIsLinearizable: clients without retries append and read through
// HTTP over a store with faults, through deaths and restarts and folds; one order
// of all operations explains every answer.
func TestSimulatedLogIsLinearizable(t *testing.T) {
	for seed := range uint64(min(simSeeds(2), 200)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 0x11))
			w := &simWorld{t: t, seed: seed, rng: rng, store: objstore.NewMem(), seen: map[string]map[place]int64{}}
			defer w.end()
			w.serve("a", false)
			w.create()
			h := &history{begun: time.Now()}
			for life := range 3 {
				ctx, stop := context.WithCancel(t.Context())
				w.serving.faults.Add(simFaults(rng)...)
				var wg sync.WaitGroup
				for c := range 3 {
					r := rand.New(rand.NewPCG(seed, uint64(life*10+c)))
					wg.Go(func() { h.client(ctx, c, w.url(), r) })
				}
				pause(ctx, 100*time.Millisecond)
				_ = post(ctx, w.url()+tableURL+"one/fold")
				pause(ctx, time.Duration(20+rng.IntN(50))*time.Millisecond)
				w.serving.gate.kill()
				stop()
				w.bury(w.serving)
				wg.Wait()
				w.serve("a", false)
			}
			w.await(w.serving)
			h.do(9, logOp{read: true}, func() logAnswer { return readRows(w.url()) })
			res, info := porcupine.CheckOperationsVerbose(logModel.ToModel(), h.ops, 20*time.Second)
			if res == porcupine.Illegal {
				_ = porcupine.VisualizePath(logModel.ToModel(), info, t.TempDir()+"/history.html")
				t.Errorf("seed %d: no order explains %d operations", seed, len(h.ops))
			}
			t.Logf("%d operations: %v", len(h.ops), res)
		})
	}
}

func TestTheLogModelRefusesWhatNoLogDoes(t *testing.T) {
	appended := func(id, offset, call, end int64) porcupine.Operation {
		return porcupine.Operation{Input: logOp{id: id}, Output: logAnswer{offset: offset}, Call: call, Return: end}
	}
	read := func(call, end int64, rows ...int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 1, Input: logOp{read: true}, Output: logAnswer{rows: rows}, Call: call, Return: end}
	}
	unknown := porcupine.Operation{ClientId: 2, Input: logOp{id: 7}, Output: logAnswer{unknown: true}, Call: 0, Return: math.MaxInt64}
	for name, tc := range map[string]struct {
		ops  []porcupine.Operation
		want bool
	}{
		"in order":             {[]porcupine.Operation{appended(1, 0, 0, 1), appended(2, 1, 2, 3), read(4, 5, 1, 2)}, true},
		"unknown, done":        {[]porcupine.Operation{unknown, appended(1, 1, 1, 2), read(4, 5, 7, 1)}, true},
		"unknown, not done":    {[]porcupine.Operation{unknown, appended(1, 0, 1, 2), read(4, 5, 1)}, true},
		"acknowledged, lost":   {[]porcupine.Operation{appended(1, 0, 0, 1), read(4, 5)}, false},
		"one offset, two rows": {[]porcupine.Operation{appended(1, 0, 0, 1), appended(2, 0, 2, 3)}, false},
		"read, then unread":    {[]porcupine.Operation{unknown, read(1, 2, 7), read(3, 4)}, false},
	} {
		if got := porcupine.CheckOperations(logModel.ToModel(), tc.ops); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
