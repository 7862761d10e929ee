package loadtest

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
)

// Report is what a run measured. It marshals to JSON; WriteText is for people.
type Report struct {
	Started    time.Time  `json:"started"`
	Workload   Workload   `json:"workload"`
	Shape      Shape      `json:"shape"`
	Table      string     `json:"table"`
	Conditions Conditions `json:"conditions"`

	Append   *AppendFigures `json:"append,omitempty"`
	Tail     *ReadFigures   `json:"tail,omitempty"`
	Scan     *ReadFigures   `json:"scan,omitempty"`
	Agent    AgentFigures   `json:"agent"`
	Verified Verified       `json:"verified"`
}

// Conditions are what a speed depends on beside the program.
type Conditions struct {
	Go        string  `json:"go"`
	CPUs      int     `json:"cpus"`
	LoadStart float64 `json:"load_start"` // 1-minute load average; negative = unknown
	LoadEnd   float64 `json:"load_end"`
	Writers   int     `json:"writers"`
	Producers int     `json:"producers"`
	BatchRows int     `json:"batch_rows"`
	InFlight  int     `json:"in_flight"`
	Buckets   int32   `json:"buckets"`
	Rate      float64 `json:"rate_rows_per_second"` // asked for; 0 = unlimited
}

// Latency is the spread of some durations, in milliseconds.
type Latency struct {
	Count int64   `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

// AppendFigures tell of the writing.
type AppendFigures struct {
	Rows          int64   `json:"rows"`
	Requests      int64   `json:"requests"`
	Bytes         int64   `json:"arrow_bytes"`
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	MBPerSecond   float64 `json:"mb_per_second"`
	// Ack is from the moment a request was due (at a rate) or handed to the SDK
	// (without one) to its acknowledgement.
	Ack Latency `json:"acknowledgement"`
	// CeilingRowsPerSecond is a program that makes, hashes, ZSTD-encodes and puts
	// the same rows and nothing else, run right after.
	CeilingRowsPerSecond float64 `json:"ceiling_rows_per_second,omitempty"`
	OfCeiling            float64 `json:"of_ceiling,omitempty"`
}

// ReadFigures tell of the reading.
type ReadFigures struct {
	Rows          int64   `json:"rows"`
	Reads         int64   `json:"reads"` // complete scans, or followers
	Seconds       float64 `json:"seconds"`
	RowsPerSecond float64 `json:"rows_per_second"`
	// Delay is from a row's commit timestamp to its arrival at a follower (both by
	// clocks that may differ), or the length of a scan.
	Delay Latency `json:"delay"`
	// CeilingRowsPerSecond makes and checks the same rows without any agent.
	CeilingRowsPerSecond float64 `json:"ceiling_rows_per_second,omitempty"`
	OfCeiling            float64 `json:"of_ceiling,omitempty"`
}

// AgentFigures come from the agent's /metrics, as differences over the run.
type AgentFigures struct {
	WALObjects     int64   `json:"wal_objects"`
	WALBytes       int64   `json:"wal_bytes"`
	WALPuts        int64   `json:"wal_puts"`         // conditional and plain puts under wal/
	Puts           int64   `json:"puts"`             // all classes: folds, checkpoints, heartbeats too
	PutsPerFlush   float64 `json:"puts_per_flush"`   // WAL puts for each WAL object: 1
	PutsPerAck     float64 `json:"puts_per_ack"`     // WAL puts for each acknowledged request: at most 1
	Folds          int64   `json:"folds"`            //
	RSSPeakBytes   int64   `json:"rss_peak_bytes"`   // largest seen; 0 = unknown
	RSSPeakOfLimit float64 `json:"rss_peak_of_1gib"` //
}

// Verified says what was read back and held.
type Verified struct {
	Rows    int64  `json:"rows"`    // in the last complete stream, each once, at dense offsets, with every value
	Count   int64  `json:"count"`   // the agent's own answer
	Buckets int    `json:"buckets"` //
	Reads   int64  `json:"reads"`   // rows checked in all reads together
	OK      bool   `json:"ok"`
	Failure string `json:"failure,omitempty"`
}

// latencies are bounded: one microsecond to one hour, three digits.
func newHistogram() *hdr.Histogram { return hdr.New(1, time.Hour.Microseconds(), 3) }

func summarize(h *hdr.Histogram) Latency {
	ms := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Latency{Count: h.TotalCount(), Mean: h.Mean() / 1000, P50: ms(50), P90: ms(90), P99: ms(99), P999: ms(99.9), Max: float64(h.Max()) / 1000}
}

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes the report for people.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", name, fmt.Sprintf(format, args...)) }
	c := r.Conditions
	line("workload", "%s of %s rows into %s (%d buckets)", r.Workload, r.Shape, r.Table, c.Buckets)
	line("conditions", "%d writers (%d producers), %d rows a request, %d in flight, %d CPUs, load %.1f to %.1f, %s",
		c.Writers, c.Producers, c.BatchRows, c.InFlight, c.CPUs, c.LoadStart, c.LoadEnd, c.Go)
	if a := r.Append; a != nil {
		line("append", "%s rows/s, %.1f MB/s (%d rows in %d requests, %.1f s)%s", grouped(a.RowsPerSecond), a.MBPerSecond, a.Rows, a.Requests, a.Seconds,
			beside(a.CeilingRowsPerSecond, a.OfCeiling))
		line("acknowledgement", "%s", a.Ack)
	}
	if s := r.Tail; s != nil {
		line("tail", "%s rows/s over %d followers%s", grouped(s.RowsPerSecond), s.Reads, beside(s.CeilingRowsPerSecond, s.OfCeiling))
		line("commit to follower", "%s", s.Delay)
	}
	if s := r.Scan; s != nil {
		line("scan", "%s rows/s in %d scans%s", grouped(s.RowsPerSecond), s.Reads, beside(s.CeilingRowsPerSecond, s.OfCeiling))
		line("a scan takes", "%s", s.Delay)
	}
	a := r.Agent
	line("agent", "%d WAL objects, %.1f MB, %.3f PUT a flush, %.3f PUT an acknowledged request, %d folds, %d PUTs in all",
		a.WALObjects, float64(a.WALBytes)/1e6, a.PutsPerFlush, a.PutsPerAck, a.Folds, a.Puts)
	if a.RSSPeakBytes > 0 {
		line("agent memory", "%d MiB at its peak", a.RSSPeakBytes>>20)
	}
	if r.Verified.OK {
		line("verified", "%d rows, each once, at dense offsets in %d buckets, every value; %d rows checked in all reads", r.Verified.Rows, r.Verified.Buckets, r.Verified.Reads)
	} else {
		line("NOT VERIFIED", "%s", r.Verified.Failure)
	}
	return t.Flush()
}

// String returns the quantiles.
func (l Latency) String() string {
	return fmt.Sprintf("p50 %.2f ms, p99 %.2f ms, p999 %.2f ms, max %.2f ms (%d)", l.P50, l.P99, l.P999, l.Max, l.Count)
}

func beside(ceiling, share float64) string {
	if ceiling == 0 {
		return ""
	}
	return fmt.Sprintf("; ceiling %s rows/s, %.2f of it", grouped(ceiling), share)
}

// grouped writes a number with commas.
func grouped(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return b.String()
}
