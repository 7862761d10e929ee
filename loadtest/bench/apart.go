package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/loadtest"
)

const startLimit = 10 * time.Second

// appendApart writes batches to an agent in a process of its own, over a store in
// its memory. The processor time is that process's alone: what a row costs the
// agent when its producers run on other machines.
func (o *Options) appendApart(ctx context.Context, shape loadtest.Shape, all []arrow.RecordBatch) (s speed, err error) {
	url, stop, err := o.startAgent(ctx)
	if err != nil {
		return speed{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	c, err := client.New(url)
	if err != nil {
		return speed{}, err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.EnsureDatabase(ctx, rigDatabase); err != nil {
		return speed{}, err
	}
	t, err := unfoldedTable(ctx, c, shape, 0)
	if err != nil {
		return speed{}, err
	}
	next := int64(0)
	if _, err := during(ctx, o.warmUp(), func(ctx context.Context) (int64, error) { return keepWriting(ctx, t, all, false, &next) }); err != nil {
		return speed{}, err
	}
	before, err := loadtest.ReadMetrics(ctx, url)
	if err != nil {
		return speed{}, err
	}
	begun := time.Now()
	rows, err := during(ctx, o.Measure, func(ctx context.Context) (int64, error) { return keepWriting(ctx, t, all, false, &next) })
	if err != nil {
		return speed{}, err
	}
	took := time.Since(begun)
	after, err := loadtest.ReadMetrics(ctx, url)
	if err != nil {
		return speed{}, err
	}
	used := after.Sum("process_cpu_seconds_total") - before.Sum("process_cpu_seconds_total")
	return speed{perSecond(rows, took), time.Duration(used * float64(time.Second) / float64(max(1, rows)))}, nil
}

// startAgent runs the agent program on a free port and waits until it serves.
func (o *Options) startAgent(ctx context.Context) (url string, stop func() error, err error) {
	dir, err := os.MkdirTemp("", "firn-bench-")
	if err != nil {
		return "", nil, err
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	config := filepath.Join(dir, "agent.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, "max_unfolded_bytes: %d\nmemory_limit_bytes: -1\n", int64(unboundedBytes)), 0o600); err != nil {
		return "", nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	address := free.Addr().String()
	_ = free.Close()
	cmd := exec.CommandContext(ctx, o.AgentProgram, "serve", "--config", config, "--store", "mem://", "--listen", address, "--agent-id", "bench") //nolint:gosec // this program
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error {
		_ = cmd.Process.Kill() // its store dies with it
		_ = cmd.Wait()
		return os.RemoveAll(dir)
	}
	url = "http://" + address
	for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if _, err := loadtest.ReadMetrics(ctx, url); err == nil {
			return url, stop, nil
		}
		if time.Since(begun) > startLimit || ctx.Err() != nil {
			return "", nil, errors.Join(fmt.Errorf("%s serve did not answer within %s", o.AgentProgram, startLimit), stop())
		}
	}
}
