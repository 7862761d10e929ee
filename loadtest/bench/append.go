package bench

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/agent"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/loadtest"
	"github.com/firn-data/firn/segments"
)

// appendWay is how rows reach the agent.
type appendWay struct {
	name      string
	unordered bool
	buckets   int32 // by key; 0 = one bucket without a key
	apart     bool  // the agent is a process of its own
}

var appendWays = []appendWay{
	{name: "one ordered stream"},
	{name: "unordered", unordered: true},
	{name: "one ordered stream, 4 buckets by key", buckets: 4},
	{name: "one ordered stream, agent's processor time only", apart: true},
}

// arrowAppend writes ready-made batches through the SDK and, as the ceiling,
// hashes, encodes and puts the same batches on all processors.
func arrowAppend(ctx context.Context, o Options) ([]sample, error) {
	var out []sample
	for _, c := range []struct {
		shape   loadtest.Shape
		n, rows int
	}{{loadtest.Flights, 64, 10_000}, {loadtest.Wide, 64, 500}} {
		all := batches(c.shape, c.n, c.rows)
		ceiling, err := o.steady(ctx, func(ctx context.Context) (int64, error) { return putAll(ctx, c.shape, all) })
		if err != nil {
			return nil, err
		}
		for _, way := range appendWays {
			if way.apart && o.AgentProgram == "" {
				continue
			}
			value, err := o.appendBy(ctx, way, c.shape, all)
			if err != nil {
				return nil, fmt.Errorf("%s rows, %s: %w", c.shape, way.name, err)
			}
			s := beside(fmt.Sprintf("%s rows, %s", c.shape, way.name), "hash + ZSTD + put", value, ceiling, 0.7)
			if way.apart { // its goal is on processor time: the client's process takes its share of the processors
				s.goal, s.reached = "", nil
			}
			out = append(out, s)
		}
	}
	return out, nil
}

// appendBy writes batches to a new agent.
func (o *Options) appendBy(ctx context.Context, way appendWay, shape loadtest.Shape, all []arrow.RecordBatch) (speed, error) {
	if way.apart {
		return o.appendApart(ctx, shape, all)
	}
	r, err := newRig(ctx, newRecentStore(), func(c *agent.Config) { c.MaxUnfoldedBytes = unboundedBytes })
	if err != nil {
		return speed{}, err
	}
	defer r.close()
	t, err := unfoldedTable(ctx, r.client, shape, way.buckets)
	if err != nil {
		return speed{}, err
	}
	next := int64(0)
	return o.steady(ctx, func(ctx context.Context) (int64, error) { return keepWriting(ctx, t, all, way.unordered, &next) })
}

// unboundedBytes is more than any case writes.
const unboundedBytes = 1 << 50

// unfoldedTable makes a table that stays in the log.
func unfoldedTable(ctx context.Context, c *client.Client, shape loadtest.Shape, buckets int32) (*client.Table, error) {
	req := &firnv1.CreateTableRequest{
		Database: rigDatabase, Name: "rows", Columns: shape.Columns(), Buckets: buckets,
		Properties: map[string]string{"fold_interval": "0", "fold_bytes": "17179869184"},
	}
	if buckets > 0 {
		req.BucketKey = []string{"seq"}
	}
	_, err := c.CreateTable(ctx, req)
	return c.Table(rigDatabase, "rows"), err
}

// keepWriting writes batches over and over through the SDK until ctx ends, and
// returns how many rows were acknowledged. next is the producer's next sequence.
func keepWriting(ctx context.Context, t *client.Table, all []arrow.RecordBatch, unordered bool, next *int64) (int64, error) {
	w, err := t.NewWriter(client.WriterOptions{
		ProducerID: "bench", FirstSequence: *next, BatchRows: all[0].NumRows(), BatchBytes: 48 << 20, Unordered: unordered,
	})
	if err != nil {
		return 0, err
	}
	begun := *next
	for i := 0; ctx.Err() == nil; i++ {
		if err := w.Write(context.WithoutCancel(ctx), all[i%len(all)]); err != nil {
			_ = w.Close(context.WithoutCancel(ctx))
			return 0, err
		}
	}
	err = w.Close(context.WithoutCancel(ctx))
	*next = w.Acked()
	return *next - begun, err
}

const objectBytes = 4 << 20 // as flush_bytes

// putAll is the ceiling of appends. It goes on until ctx ends.
func putAll(ctx context.Context, shape loadtest.Shape, all []arrow.RecordBatch) (int64, error) {
	store := newRecentStore()
	per := max(1, int(objectBytes/segments.SizeOf(all[0])))
	var rows, objects atomic.Int64
	var g errgroup.Group
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			c, err := loadtest.NewCeiling(shape)
			if err != nil {
				return err
			}
			for ctx.Err() == nil {
				n := objects.Add(1)
				group := make([]arrow.RecordBatch, per)
				for i := range group {
					group[i] = all[(int(n)*per+i)%len(all)]
				}
				if err := c.Put(context.WithoutCancel(ctx), store, fmt.Sprintf("wal/ceiling/%d", n), group); err != nil {
					return err
				}
				rows.Add(totalRows(group))
			}
			return nil
		})
	}
	err := g.Wait()
	return rows.Load(), err
}
