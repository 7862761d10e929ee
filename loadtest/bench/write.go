package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/loadtest"
)

// flushAge is the default on object stores, whatever the case's store is.
const flushAge = 100 * time.Millisecond

// ackLatency sends a small request every 20 ms and compares the acknowledgement
// with the put that it cannot do without.
func ackLatency(ctx context.Context, o Options) ([]sample, error) {
	slow := &slowStore{objstore.NewMem(), o.PutDelay}
	raw, err := rawPut(ctx, slow)
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, slow, func(c *agent.Config) { c.FlushAge = flushAge })
	if err != nil {
		return nil, err
	}
	defer r.close()
	rep, err := loadtest.Run(ctx, loadtest.Options{
		Server: r.url(), Shape: loadtest.Tiny, BatchRows: 10, Rate: 500, Duration: 4 * time.Second, Writers: 1, InFlight: 32, Producers: -1, SkipCeiling: true,
	})
	if err != nil {
		return nil, err
	}
	limit := float64(flushAge.Milliseconds())/2 + 1.2*raw
	return []sample{
		{name: "p50", unit: "ms", value: rep.Append.Ack.P50, ceiling: raw, beside: "raw put p50",
			goal: fmt.Sprintf("≤ age/2 + 1.2 × put = %.0f ms", limit), reached: func(v, c, _ float64) bool { return v <= float64(flushAge.Milliseconds())/2+1.2*c }},
		{name: "p99", unit: "ms", value: rep.Append.Ack.P99, ceiling: raw, beside: "raw put p50"},
		{name: "puts a flush", unit: "", value: rep.Agent.PutsPerFlush, goal: "1", reached: func(v, _, _ float64) bool { return v == 1 }},
		{name: "puts an acknowledged request", unit: "", value: rep.Agent.PutsPerAck, goal: "≤ 1", reached: func(v, _, _ float64) bool { return v <= 1 }},
	}, nil
}

// rawPut returns the median put, in milliseconds.
func rawPut(ctx context.Context, s objstore.Store) (float64, error) {
	var took []float64
	for i := range 50 {
		begun := time.Now()
		if _, err := s.PutIfAbsent(ctx, fmt.Sprintf("raw/%d", i), make([]byte, 2000)); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(begun).Microseconds())/1000)
	}
	return median(took), nil
}
