package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/loadtest"
	"github.com/firn-data/firn/loadtest/bench"
)

const loadtestHelp = `Drive an agent with rows that can be recognised again, read everything back, and
check every row: none lost, none twice, offsets dense, every value right. A speed
is reported only of rows that were verified. Exit code 1 means that they were not
all right.

"firn loadtest bench" measures Firn beside its ceilings inside this process.`

func (a *app) loadtestCommand() *cobra.Command {
	o := loadtest.Options{Producers: -1}
	var workload, shape string
	var properties []string
	c := &cobra.Command{
		Use: "loadtest", Short: "Drive an agent with rows, and verify every one", Long: loadtestHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Server, o.Token = a.server, a.token
			if o.Token == "" {
				o.Token = os.Getenv("FIRN_TOKEN")
			}
			o.Workload, o.Shape = loadtest.Workload(workload), loadtest.Shape(shape)
			if !slices.Contains(loadtest.Workloads, o.Workload) || !slices.Contains(loadtest.Shapes, o.Shape) {
				return usagef("workload %q, shape %q: one of %v and one of %v", workload, shape, loadtest.Workloads, loadtest.Shapes)
			}
			if err := addProperties(&o.Properties, properties); err != nil {
				return err
			}
			o.Progress = a.errOut
			r, err := loadtest.Run(cmd.Context(), o)
			return errors.Join(err, a.printReport(&r))
		},
	}
	f := c.Flags()
	f.StringVar(&workload, "workload", string(loadtest.Append), names(loadtest.Workloads))
	f.StringVar(&shape, "shape", string(loadtest.Flights), "rows: "+names(loadtest.Shapes))
	f.DurationVar(&o.Duration, "duration", 0, "how long to write (default 10s)")
	f.Float64Var(&o.Rate, "rate", 0, "rows per second over all writers (default as fast as it goes)")
	f.IntVar(&o.Writers, "writers", 0, "writers (default 1)")
	f.IntVar(&o.Producers, "producers", -1, "writers that number their rows (default all)")
	f.IntVar(&o.BatchRows, "batch-rows", 0, "rows of a request (default 1000)")
	f.IntVar(&o.InFlight, "in-flight", 0, "requests in flight of a writer (default 8)")
	f.IntVar(&o.Readers, "readers", 0, "followers or scanners (default 1)")
	f.Int64Var(&o.ScanRows, "scan-rows", 0, "rows to fill before a scan (default 1000000)")
	f.Int32Var(&o.Buckets, "buckets", 0, "buckets of the table (default 1)")
	f.StringVar(&o.Database, "database", "", "database of the table (default loadtest)")
	f.StringVar(&o.Table, "table", "", "name of the table (default a new one)")
	f.StringArrayVar(&properties, "property", nil, "a property of the table: NAME=VALUE; repeat it")
	f.BoolVar(&o.Keep, "keep", false, "leave the table")
	f.Uint64Var(&o.Seed, "seed", 0, "seed of the rows")
	f.IntVar(&o.AgentPID, "agent-pid", 0, "process of the agent, for the peak of its memory")
	f.BoolVar(&o.SkipCeiling, "skip-ceiling", false, "leave out the ceiling program")
	f.StringVar(&o.CeilingStore, "ceiling-store", "", "URL of the store that the ceiling program writes to (default a temporary folder)")
	c.AddCommand(a.benchCommand())
	return c
}

func (a *app) benchCommand() *cobra.Command {
	var o bench.Options
	var markdown bool
	cases := make([]string, 0, len(bench.Cases))
	about := strings.Builder{}
	for _, b := range bench.Cases {
		cases = append(cases, b.Name)
		fmt.Fprintf(&about, "  %-12s %s\n", b.Name, b.About)
	}
	c := &cobra.Command{
		Use: "bench [CASE…]", Short: "Measure Firn beside its ceilings, in this process",
		Long:      "Measure Firn beside programs that do only what cannot be left out, on the same\nrows in the same run. The cases:\n\n" + about.String(),
		ValidArgs: cases, Args: cobra.OnlyValidArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Cases, o.Progress = args, a.errOut
			if program, err := os.Executable(); err == nil {
				o.AgentProgram = program
			}
			r, err := bench.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if markdown {
				return r.WriteMarkdown(a.out)
			}
			return a.printReport(&r)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Repeat, "repeat", 0, "repeats of a case (default 3)")
	f.BoolVar(&o.Large, "large", false, "also the cases that take long: 10,000 tables, 20,000 live segments")
	f.DurationVar(&o.PutDelay, "put-delay", 0, "time of a put in the latency cases (default 30ms)")
	f.DurationVar(&o.Measure, "measure", 0, "time of a workload in the arrow and ndjson cases (default 2s)")
	f.BoolVar(&markdown, "markdown", false, "print the table of docs/benchmarks.md")
	return c
}

// report is what both kinds of runs print.
type report interface {
	WriteJSON(io.Writer) error
	WriteText(io.Writer) error
}

func (a *app) printReport(r report) error {
	if a.json {
		return r.WriteJSON(a.out)
	}
	return r.WriteText(a.out)
}

func names[T ~string](list []T) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(out, ", ")
}
