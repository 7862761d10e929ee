package loadtest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

// run is one workload on its way.
type run struct {
	o      Options
	client *client.Client
	table  *client.Table
	gen    *Generator
	report Report

	writing *writing
	checked int64 // rows verified in reads that have ended
}

// Run makes a table, runs the workload on it, reads everything back, checks it,
// and reports. The error is about what kept the run from its end; rows that were
// lost, doubled or changed are an error too, with the report.
func Run(ctx context.Context, o Options) (Report, error) {
	if err := o.complete(); err != nil {
		return Report{}, err
	}
	var opts []client.Option
	if o.Token != "" {
		opts = append(opts, client.WithToken(o.Token))
	}
	c, err := client.New(o.Server, opts...)
	if err != nil {
		return Report{}, err
	}
	defer c.Close()
	r := &run{o: o, client: c, table: c.Table(o.Database, o.Table), gen: NewGenerator(o.Shape, o.Seed)}
	r.report = Report{Started: time.Now(), Workload: o.Workload, Shape: o.Shape, Table: o.Database + "." + o.Table, Conditions: Conditions{
		Go: runtime.Version(), CPUs: runtime.NumCPU(), LoadStart: LoadAverage(), Writers: o.Writers, Producers: o.Producers,
		BatchRows: o.BatchRows, InFlight: o.InFlight, Buckets: o.Buckets, Rate: o.Rate,
	}}
	if err := r.createTable(ctx); err != nil {
		return r.report, err
	}
	err = r.measured(ctx)
	if !o.Keep {
		err = errors.Join(err, r.dropTable(ctx))
	}
	r.report.Conditions.LoadEnd = LoadAverage()
	r.report.Verified.OK = err == nil
	if err != nil {
		r.report.Verified.Failure = err.Error()
	}
	return r.report, err
}

func (r *run) createTable(ctx context.Context) error {
	if _, err := r.client.EnsureDatabase(ctx, r.o.Database); err != nil {
		return fmt.Errorf("create database: %w", err)
	}
	_, err := r.client.CreateTable(ctx, &firnv1.CreateTableRequest{
		Database: r.o.Database, Name: r.o.Table, Columns: r.o.Shape.Columns(), Buckets: r.o.Buckets, Properties: r.o.Properties,
	})
	if err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	return nil
}

const cleanupLimit = 30 * time.Second

// dropTable removes the table, also when the run was interrupted.
func (r *run) dropTable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
	defer cancel()
	if err := r.table.Drop(ctx); err != nil {
		return fmt.Errorf("drop table: %w", err)
	}
	return nil
}

// measured runs the workload between two readings of the agent's metrics.
func (r *run) measured(ctx context.Context) error {
	before, err := ReadMetrics(ctx, r.client.URL())
	if err != nil {
		return err
	}
	rss := watchRSS(ctx, r.client.URL(), r.o.AgentPID)
	err = r.workload(ctx)
	peak := rss.finish()
	after, merr := ReadMetrics(ctx, r.client.URL())
	if err == nil && merr == nil {
		r.report.Agent = difference(before, after, r.writing.requests())
	}
	r.report.Agent.RSSPeakBytes = peak
	r.report.Agent.RSSPeakOfLimit = float64(peak) / (1 << 30)
	if err := errors.Join(err, merr); err != nil {
		return err
	}
	if err := r.verify(ctx); err != nil {
		return err
	}
	if r.o.SkipCeiling {
		return nil
	}
	return r.ceilings(ctx)
}

func (r *run) workload(ctx context.Context) error {
	r.writing = newWriting(r)
	switch r.o.Workload {
	case Tail:
		return r.together(ctx, r.follow)
	case Scan:
		r.writing.limit = r.o.ScanRows
		if err := r.write(ctx); err != nil {
			return err
		}
		return r.scanFor(ctx, r.o.Duration)
	case Mixed:
		return r.together(ctx, r.follow, r.scanUntil, r.foldUntil)
	default:
		return r.write(ctx)
	}
}

// verify reads the whole log and the whole table and compares both with what was
// acknowledged.
func (r *run) verify(ctx context.Context) error {
	fmt.Fprintln(r.o.Progress, "verifying")
	acked := r.writing.acknowledged()
	log := NewChecker(r.gen)
	if err := r.readLog(ctx, log); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	if err := log.Complete(acked); err != nil {
		return fmt.Errorf("log: %w", err)
	}
	table := NewChecker(r.gen)
	if err := r.scanOnce(ctx, table); err != nil {
		return fmt.Errorf("scan table: %w", err)
	}
	if err := table.Complete(acked); err != nil {
		return fmt.Errorf("table: %w", err)
	}
	count, err := r.table.Count(ctx, client.CountOptions{})
	if err != nil {
		return fmt.Errorf("count: %w", err)
	}
	v := &r.report.Verified
	v.Rows, v.Count, v.Buckets, v.Reads = log.Rows(), count, len(log.next), r.checked+log.Rows()+table.Rows()
	if count != log.Rows() {
		return fmt.Errorf("count says %d, the log holds %d rows", count, log.Rows())
	}
	return r.checkOffsets(ctx, log)
}

// checkOffsets compares the agent's own offsets with what the log held.
func (r *run) checkOffsets(ctx context.Context, log *Checker) error {
	offsets, err := r.table.Offsets(ctx)
	if err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	for _, b := range offsets {
		if b.Earliest != 0 {
			return fmt.Errorf("bucket %d begins at offset %d", b.Bucket, b.Earliest)
		}
		if got := log.next[b.Bucket]; got != b.End {
			return fmt.Errorf("bucket %d ends at offset %d, its log at %d", b.Bucket, b.End, got)
		}
	}
	return nil
}
