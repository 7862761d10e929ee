package bench

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/agent"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/loadtest"
)

// slowStore makes every put take some time.
type slowStore struct {
	objstore.Store
	put time.Duration
}

// Put implements objstore.Store.
func (s *slowStore) Put(ctx context.Context, key string, body []byte) error {
	time.Sleep(s.put)
	return s.Store.Put(ctx, key, body)
}

// PutIfAbsent implements objstore.Store.
func (s *slowStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	time.Sleep(s.put)
	return s.Store.PutIfAbsent(ctx, key, body)
}

const (
	rigDatabase = "bench"
	closeLimit  = 30 * time.Second
)

// rig is an agent in this process, and a client of it.
type rig struct {
	store  objstore.Store
	agent  *agent.Agent
	client *client.Client
}

// newRig starts an agent on a store.
func newRig(ctx context.Context, store objstore.Store, change ...func(*agent.Config)) (*rig, error) {
	cfg := agent.DefaultConfig()
	cfg.Store, cfg.Listen, cfg.AgentID, cfg.MemoryLimitBytes = store.URL(), "127.0.0.1:0", "bench", -1
	for _, f := range change {
		f(&cfg)
	}
	a, err := agent.New(cfg, store, nil)
	if err != nil {
		return nil, err
	}
	if err := a.Open(ctx); err != nil {
		return nil, err
	}
	c, err := client.New("http://" + a.Addr())
	if err != nil {
		return nil, err
	}
	r := &rig{store: store, agent: a, client: c}
	if _, err := c.EnsureDatabase(ctx, rigDatabase); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *rig) close() {
	_ = r.client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = r.agent.Close(ctx)
}

func (r *rig) url() string { return "http://" + r.agent.Addr() }

// table makes a table that is folded when the case says so only.
func (r *rig) table(ctx context.Context, name string, shape loadtest.Shape) (*client.Table, error) {
	return r.client.Table(rigDatabase, name), r.tableOf(ctx, name, shape, 1)
}

// tableOf is table with a number of buckets, by the rows' sequence.
func (r *rig) tableOf(ctx context.Context, name string, shape loadtest.Shape, buckets int32) error {
	req := &firnv1.CreateTableRequest{
		Database: rigDatabase, Name: name, Columns: shape.Columns(), Properties: map[string]string{"fold_interval": "0", "fold_bytes": "17179869184"},
	}
	if buckets > 1 {
		req.Buckets, req.BucketKey = buckets, []string{"seq"}
	}
	_, err := r.client.CreateTable(ctx, req)
	return err
}

// batches makes rows ahead of time, so that making them is not measured.
func batches(shape loadtest.Shape, n, rows int) []arrow.RecordBatch {
	gen := loadtest.NewGenerator(shape, 1)
	out := make([]arrow.RecordBatch, n)
	for i := range out {
		out[i] = gen.Batch(0, int64(i*rows), rows)
	}
	return out
}

// fill writes batches through the SDK, to their acknowledgement.
func fill(ctx context.Context, t *client.Table, all []arrow.RecordBatch, unordered bool) error {
	w, err := t.NewWriter(client.WriterOptions{ProducerID: "bench", BatchRows: all[0].NumRows(), BatchBytes: 48 << 20, Unordered: unordered})
	if err != nil {
		return err
	}
	for _, rec := range all {
		if err := w.Write(ctx, rec); err != nil {
			_ = w.Close(ctx)
			return err
		}
	}
	return w.Close(ctx)
}

func totalRows(all []arrow.RecordBatch) (n int64) {
	for _, rec := range all {
		n += rec.NumRows()
	}
	return n
}

// speed is how fast some rows were, and what each cost.
type speed struct {
	rows float64       // per second
	cpu  time.Duration // processor time of the whole process, for each row
}

// timed measures what f does to a number of rows. The heap is collected before, so
// that one measurement does not pay for another's garbage.
func timed(rows int64, f func() error) (speed, error) {
	runtime.GC()
	begun, cpu := time.Now(), processorTime()
	err := f()
	return speed{perSecond(rows, time.Since(begun)), (processorTime() - cpu) / time.Duration(max(1, rows))}, err
}

// beside makes a sample of a speed and its ceiling.
func beside(name, what string, value, ceiling speed, goal float64) sample {
	s := sample{name: name, unit: "rows/s", value: value.rows, ceiling: ceiling.rows, beside: what, goal: fmt.Sprintf("≥ %g", goal), reached: atLeast(goal)}
	if value.cpu > 0 {
		s.byCPU = float64(ceiling.cpu) / float64(value.cpu)
	}
	return s
}

func perSecond(rows int64, d time.Duration) float64 { return float64(rows) / d.Seconds() }

func wrong(what string, got, want int64) error {
	return fmt.Errorf("%s: %d rows, want %d", what, got, want)
}
