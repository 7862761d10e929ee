package bench

import (
	"context"
	"fmt"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/objstore"
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
// have rows, on one agent.
func manyTables(ctx context.Context, o Options) ([]sample, error) {
	steps := []int{1, 1000}
	if o.Large {
		steps = append(steps, 10_000)
	}
	r, err := newRig(ctx, objstore.NewMem(), quick)
	if err != nil {
		return nil, err
	}
	defer r.close()
	var out []sample
	var tables []*client.Table
	var first, first99 float64
	for _, n := range steps {
		for len(tables) < n {
			t, err := r.table(ctx, fmt.Sprintf("t%05d", len(tables)), loadtest.Tiny)
			if err != nil {
				return nil, err
			}
			tables = append(tables, t)
		}
		if err := touch(ctx, tables); err != nil {
			return nil, err
		}
		p50, p99, err := probeAcks(ctx, tables)
		if err != nil {
			return nil, err
		}
		if n == 1 {
			first, first99 = p50, p99
			continue
		}
		out = append(out, sample{name: fmt.Sprintf("p50 with %d tables", n), unit: "ms", value: p50, ceiling: first, beside: "1 table", goal: "does not grow", reached: about},
			sample{name: fmt.Sprintf("p99 with %d tables", n), unit: "ms", value: p99, ceiling: first99, beside: "1 table"})
	}
	return out, nil
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

// manySegments compares acknowledgements with few and with thousands of live
// segments in one table, each in a WAL object of its own.
func manySegments(ctx context.Context, o Options) ([]sample, error) {
	steps := []int64{1000, 5000}
	if o.Large {
		steps = append(steps, 20_000)
	}
	r, err := newRig(ctx, objstore.NewMem(), quick)
	if err != nil {
		return nil, err
	}
	defer r.close()
	t, err := r.table(ctx, "rows", loadtest.Tiny)
	if err != nil {
		return nil, err
	}
	var out []sample
	var first float64
	made := int64(0)
	for _, n := range steps {
		for ; made < n; made++ {
			if err := touch(ctx, []*client.Table{t}); err != nil {
				return nil, err
			}
		}
		p50, _, err := probeAcks(ctx, []*client.Table{t})
		if err != nil {
			return nil, err
		}
		if first == 0 {
			first = p50
			continue
		}
		out = append(out, sample{name: fmt.Sprintf("p50 with %d live segments", n), unit: "ms", value: p50, ceiling: first, beside: fmt.Sprintf("%d", steps[0]), goal: "does not grow", reached: about})
	}
	return out, nil
}
