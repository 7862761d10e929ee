package bench

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/filestore"
	"github.com/firn-data/firn/loadtest"
)

const (
	probes     = 150
	probeEvery = 15 * time.Millisecond
)

// probeAcks sends one row at a time to tables in turn and returns the median and
// 99th percentile of the acknowledgement, in milliseconds.
func probeAcks(ctx context.Context, tables []*client.Table) (p50, p99 float64, err error) {
	h := hdr.New(1, time.Hour.Microseconds(), 3)
	gen := loadtest.NewGenerator(loadtest.Tiny, 3)
	for i := range probes {
		rec := gen.Batch(1<<20, int64(i), 1)
		begun := time.Now()
		_, err := tables[i*7919%len(tables)].AppendRecords(ctx, rec)
		took := time.Since(begun)
		if err != nil {
			return 0, 0, err
		}
		_ = h.RecordValue(max(1, took.Microseconds()))
		time.Sleep(max(0, probeEvery-took))
	}
	return float64(h.ValueAtQuantile(50)) / 1000, float64(h.ValueAtQuantile(99)) / 1000, nil
}

// manyTables compares acknowledgements with 1 and with thousands of tables that
// have rows, on one agent, and tells what the tables cost it at rest.
func manyTables(ctx context.Context, o Options) ([]sample, error) {
	steps := []int{1, 1000}
	if o.Large {
		steps = []int{1, 100, 1000, 10_000}
	}
	r, err := newRig(ctx, objstore.NewMem(), quick)
	if err != nil {
		return nil, err
	}
	defer func() { r.close() }()
	g := growth{unit: "tables", out: o.Progress}
	var names []string
	for _, n := range steps {
		for len(names) < n {
			name := fmt.Sprintf("t%05d", len(names))
			if _, err := r.table(ctx, name, loadtest.Tiny); err != nil {
				return nil, err
			}
			names = append(names, name)
		}
		if err := touch(ctx, r.tables(names)); err != nil {
			return nil, err
		}
		if err := g.measure(ctx, &r, n, names); err != nil {
			return nil, err
		}
	}
	return g.samples, nil
}

// growth measures one agent at several sizes, each beside the first.
type growth struct {
	unit    string
	out     io.Writer // a line for each size
	first   *sizes
	samples []sample
}

// sizes is what one size costs.
type sizes struct{ p50, p99, heap, idle, restart float64 }

// measure probes acknowledgements, the heap of the whole process, what an idle
// second costs, and how long a new process under the same name needs to serve.
func (g *growth) measure(ctx context.Context, r **rig, n int, names []string) (err error) {
	var s sizes
	if s.p50, s.p99, err = probeAcks(ctx, (*r).tables(names)); err != nil {
		return err
	}
	s.idle = idleCost()
	s.heap = heapBytes()
	if s.restart, err = restart(ctx, r); err != nil {
		return err
	}
	if g.first == nil {
		g.first = &s
	}
	of := fmt.Sprintf(" with %d %s", n, g.unit)
	fmt.Fprintf(g.out, "%s: p50 %.2f ms, p99 %.1f ms, idle %.1f ms/s, heap %.0f MB, restart %.0f ms\n", strings.TrimSpace(of), s.p50, s.p99, s.idle, s.heap/1e6, s.restart)
	f := g.first
	g.samples = append(g.samples,
		sample{name: "p50" + of, unit: "ms", value: s.p50, ceiling: f.p50, beside: "the first", goal: "does not grow", reached: about},
		sample{name: "p99" + of, unit: "ms", value: s.p99, ceiling: f.p99, beside: "the first"},
		sample{name: "processor while idle" + of, unit: "ms/s", value: s.idle, ceiling: f.idle, beside: "the first"},
		sample{name: "heap" + of, unit: "B", value: s.heap, ceiling: f.heap, beside: "the first"},
		sample{name: "restart after a crash" + of, unit: "ms", value: s.restart, ceiling: f.restart, beside: "the first"})
	return nil
}

// tables returns some tables by name.
func (r *rig) tables(names []string) []*client.Table {
	out := make([]*client.Table, len(names))
	for i, name := range names {
		out[i] = r.client.Table(rigDatabase, name)
	}
	return out
}

// idleCost is the processor time of an idle second, in milliseconds.
func idleCost() float64 {
	const wait = 3 * time.Second
	runtime.GC()
	cpu := processorTime()
	time.Sleep(wait)
	return float64((processorTime() - cpu).Milliseconds()) / wait.Seconds()
}

// heapBytes is what the process holds, stores in memory included.
func heapBytes() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// restart replaces an agent by a new one under its name, as after a crash: the new
// one fences the former and recovers. It returns the milliseconds until it serves.
func restart(ctx context.Context, r **rig) (float64, error) {
	begun := time.Now()
	next, err := newRig(ctx, (*r).store, quick)
	if err != nil {
		return 0, err
	}
	took := time.Since(begun)
	(*r).close()
	*r = next
	return float64(took.Microseconds()) / 1000, nil
}

// about takes a quarter more, or half a millisecond, for the same.
func about(v, c, ratio float64) bool { return ratio <= 1.25 || v-c < 0.5 }

func quick(c *agent.Config) { c.FlushAge = time.Millisecond; c.MaxUnfoldedBytes = 4 << 30 }

// touch writes one row to every table, so that each has a live segment.
func touch(ctx context.Context, tables []*client.Table) error {
	rec := loadtest.NewGenerator(loadtest.Tiny, 2).Batch(0, 0, 1)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for _, t := range tables {
		g.Go(func() error { _, err := t.AppendRecords(ctx, rec); return err })
	}
	return g.Wait()
}

// segmentBuckets is how many segments one WAL object of the larger steps has at most.
const segmentBuckets = 1024

// manySegments compares acknowledgements with few and with many segments in one
// table, live as long as the agent keeps so many, and again once all are folded.
func manySegments(ctx context.Context, o Options) ([]sample, error) {
	steps := []int{1000, 5000}
	if o.Large {
		steps = []int{1000, 10_000, 100_000, 1_000_000}
	}
	store, clean, err := storeOnDisk()
	if err != nil {
		return nil, err
	}
	defer clean()
	r, err := newRig(ctx, store, quick)
	if err != nil {
		return nil, err
	}
	defer func() { r.close() }()
	if _, err := r.table(ctx, "few", loadtest.Tiny); err != nil {
		return nil, err
	}
	if err := r.tableOf(ctx, "many", loadtest.Tiny, segmentBuckets); err != nil {
		return nil, err
	}
	live, folded := growth{unit: "segments", out: o.Progress}, growth{unit: "segments, all folded", out: o.Progress}
	probed, made, seq := []string{"few"}, 0, int64(0)
	for _, n := range steps {
		added, err := addSegments(ctx, r.client.Table(rigDatabase, "many"), n-made, &seq)
		if err != nil {
			return nil, err
		}
		made += added
		if err := live.measure(ctx, &r, n, probed); err != nil {
			return nil, err
		}
	}
	if _, err := r.client.Table(rigDatabase, "many").Fold(ctx); err != nil {
		return nil, err
	}
	folded.first = live.first
	err = folded.measure(ctx, &r, made, probed)
	return append(live.samples, folded.samples...), err
}

// addSegments makes about n live segments, one a bucket and request.
func addSegments(ctx context.Context, t *client.Table, n int, seq *int64) (made int, err error) {
	gen := loadtest.NewGenerator(loadtest.Tiny, 2)
	for made < n {
		rows := min(3*segmentBuckets, n-made)
		res, err := t.AppendRecords(ctx, gen.Batch(0, *seq, rows))
		if err != nil {
			return made, err
		}
		*seq += int64(rows)
		made += len(res.Buckets)
	}
	return made, nil
}

// storeOnDisk makes a store whose objects do not count as this process's memory.
func storeOnDisk() (_ objstore.Store, clean func(), err error) {
	dir, err := os.MkdirTemp("", "firn-bench-")
	if err != nil {
		return nil, nil, err
	}
	clean = func() { _ = os.RemoveAll(dir) }
	store, err := filestore.Open(dir)
	if err != nil {
		clean()
		return nil, nil, err
	}
	return store, clean, nil
}
