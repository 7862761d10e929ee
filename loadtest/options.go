package loadtest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/firn-data/firn/client"
)

// Workload is what a run does.
type Workload string

// The workloads. Each verifies all that it reads.
const (
	Append Workload = "append" // writers only; the log is read and checked at the end
	Tail   Workload = "tail"   // writers, and readers that follow the log from its start
	Scan   Workload = "scan"   // a fill, then union reads over and over
	Mixed  Workload = "mixed"  // writers, followers, union reads and folds, all at once
)

// Workloads lists all workloads.
var Workloads = []Workload{Append, Tail, Scan, Mixed}

// Options says what a run does. Zero values mean the defaults.
type Options struct {
	Server string // URL of an agent; default client.DefaultURL
	Token  string

	Workload Workload // default Append
	Shape    Shape    // default Flights
	Seed     uint64

	Database   string            // default "loadtest"
	Table      string            // default a new name; an existing table is refused
	Buckets    int32             // default 1
	Properties map[string]string // of the table
	Keep       bool              // leave the table; it is dropped at the end otherwise

	Duration  time.Duration // of the writing; default 10 s
	Rate      float64       // rows per second over all writers; 0 = as fast as it goes
	Writers   int           // default 1
	Producers int           // how many of the writers number their rows; negative = all, the default of the command
	BatchRows int           // rows of a request; default 1,000
	InFlight  int           // requests of a writer that wait for their acknowledgement; default 8
	Readers   int           // followers or scanners; default 1
	ScanRows  int64         // rows to fill before Scan; default 1,000,000

	AgentPID    int  // for the peak of the agent's memory; 0 = /metrics only
	SkipCeiling bool // leave out the ceiling program
	// CeilingStore is the store URL that the ceiling program writes to; default a
	// temporary folder. It must be the agent's kind of store to be a fair ceiling.
	CeilingStore string

	Progress io.Writer // a line now and then; nil = none
}

// complete fills in the defaults and checks every bound.
func (o *Options) complete() error {
	def(&o.Server, client.DefaultURL)
	def(&o.Workload, Append)
	def(&o.Shape, Flights)
	def(&o.Database, "loadtest")
	def(&o.Table, fmt.Sprintf("%s-%s", o.Shape, strings.ToLower(time.Now().UTC().Format("20060102t150405.000000"))))
	o.Table = strings.ReplaceAll(o.Table, ".", "-")
	def(&o.Buckets, 1)
	def(&o.Duration, 10*time.Second)
	def(&o.Writers, 1)
	def(&o.BatchRows, 1000)
	def(&o.InFlight, 8)
	def(&o.Readers, 1)
	def(&o.ScanRows, 1_000_000)
	if o.Producers < 0 {
		o.Producers = o.Writers
	}
	switch {
	case !slices.Contains(Workloads, o.Workload):
		return fmt.Errorf("workload %q: must be one of %v", o.Workload, Workloads)
	case !o.Shape.known():
		return fmt.Errorf("shape %q: must be one of %v", o.Shape, Shapes)
	case o.Producers > o.Writers:
		return fmt.Errorf("%d producers of %d writers", o.Producers, o.Writers)
	case o.Duration < 0 || o.Rate < 0 || o.Writers < 1 || o.BatchRows < 1 || o.InFlight < 1 || o.Readers < 1 || o.ScanRows < 1 || o.Buckets < 1:
		return fmt.Errorf("durations, rates and numbers must be positive")
	case o.Writers > maxWriters || o.Readers > maxWriters:
		return fmt.Errorf("at most %d writers and readers", maxWriters)
	case o.BatchRows > maxBatchRows:
		return fmt.Errorf("%d rows a request: at most %d", o.BatchRows, maxBatchRows)
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	return nil
}

const (
	maxWriters   = 4096
	maxBatchRows = 1 << 20
)

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}
