package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/firn-data/firn/loadtest"
)

// Options say what is measured. Zero values mean the defaults.
type Options struct {
	Cases    []string      // names of [Cases]; empty = all
	Repeat   int           // default 3
	Large    bool          // also 10,000 tables and 20,000 live segments
	PutDelay time.Duration // of the store in the latency cases; default 30 ms
	Measure  time.Duration // of a workload in the throughput cases, after a warm-up; default 2 s
	// AgentProgram is the path of firn, for the figures of an agent in a process of
	// its own; empty = they are left out.
	AgentProgram string
	Progress     io.Writer // a line for each repeat; nil = none
}

// Figure is one measured value beside its ceiling or goal.
type Figure struct {
	Case    string    `json:"case"`
	Name    string    `json:"name"`
	Unit    string    `json:"unit"`
	Value   float64   `json:"value"`             // median
	Beside  string    `json:"beside,omitempty"`  // what it is compared with
	Ceiling float64   `json:"ceiling,omitempty"` // median
	Ratio   float64   `json:"ratio,omitempty"`   // median of Value / Ceiling within a repeat
	ByCPU   float64   `json:"by_cpu,omitempty"`  // the same ratio of processor time a row, the client's included
	Goal    string    `json:"goal,omitempty"`
	Reached *bool     `json:"reached,omitempty"`
	Runs    []float64 `json:"runs"`
}

// Report is all figures and the conditions they were measured under.
type Report struct {
	Started   time.Time `json:"started"`
	Go        string    `json:"go"`
	CPUs      int       `json:"cpus"`
	LoadStart float64   `json:"load_start"`
	LoadEnd   float64   `json:"load_end"`
	Figures   []Figure  `json:"figures"`
}

// sample is one repeat's measurement of a figure.
type sample struct {
	name, unit     string
	value, ceiling float64
	byCPU          float64 // ratio of processor time; 0 = unknown
	beside         string
	goal           string
	reached        func(value, ceiling, ratio float64) bool // judged on the medians
}

// Case is one thing that is measured.
type Case struct {
	Name, About string
	run         func(context.Context, Options) ([]sample, error)
}

// Cases lists everything that can be measured.
var Cases = []Case{
	{"ack", "acknowledgement latency over a store whose puts take 30 ms", ackLatency},
	{"arrow", "Arrow append beside hashing, ZSTD and putting the same rows", arrowAppend},
	{"ndjson", "NDJSON append beside decoding the same lines", ndjsonAppend},
	{"fold", "fold beside writing the same rows to Parquet", fold},
	{"scan", "union scan beside reading the same Parquet files", scan},
	{"columns", "one of 20 columns beside all 20", columns},
	{"idle", "puts of an idle agent", idle},
	{"tables", "acknowledgement latency by number of tables", manyTables},
	{"segments", "acknowledgement latency by number of live segments", manySegments},
}

// Run measures the chosen cases.
func Run(ctx context.Context, o Options) (Report, error) {
	if o.Repeat == 0 {
		o.Repeat = 3
	}
	if o.PutDelay == 0 {
		o.PutDelay = 30 * time.Millisecond
	}
	if o.Measure == 0 {
		o.Measure = 2 * time.Second
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Repeat < 1 || o.PutDelay < 0 || o.Measure < 0 {
		return Report{}, fmt.Errorf("repeats and times must be positive")
	}
	r := Report{Started: time.Now(), Go: runtime.Version(), CPUs: runtime.NumCPU(), LoadStart: loadtest.LoadAverage()}
	for _, name := range o.Cases {
		if !slices.ContainsFunc(Cases, func(c Case) bool { return c.Name == name }) {
			return r, fmt.Errorf("there is no case %q", name)
		}
	}
	for _, c := range Cases {
		if len(o.Cases) > 0 && !slices.Contains(o.Cases, c.Name) {
			continue
		}
		figures, err := repeat(ctx, c, o)
		if err != nil {
			return r, fmt.Errorf("case %s: %w", c.Name, err)
		}
		r.Figures = append(r.Figures, figures...)
	}
	r.LoadEnd = loadtest.LoadAverage()
	return r, nil
}

// repeat runs a case and takes medians.
func repeat(ctx context.Context, c Case, o Options) ([]Figure, error) {
	var names []string
	samples := map[string][]sample{}
	for i := range o.Repeat {
		fmt.Fprintf(o.Progress, "%s (%d of %d)\n", c.Name, i+1, o.Repeat)
		got, err := c.run(ctx, o)
		if err != nil {
			return nil, err
		}
		for _, s := range got {
			if samples[s.name] == nil {
				names = append(names, s.name)
			}
			samples[s.name] = append(samples[s.name], s)
		}
	}
	var out []Figure
	for _, name := range names {
		out = append(out, figureOf(c.Name, samples[name]))
	}
	return out, nil
}

func figureOf(name string, samples []sample) Figure {
	first := samples[0]
	f := Figure{Case: name, Name: first.name, Unit: first.unit, Beside: first.beside, Goal: first.goal}
	var ceilings, ratios, cpus []float64
	for _, s := range samples {
		f.Runs = append(f.Runs, s.value)
		ceilings = append(ceilings, s.ceiling)
		if s.byCPU != 0 {
			cpus = append(cpus, s.byCPU)
		}
		if s.ceiling != 0 {
			ratios = append(ratios, s.value/s.ceiling)
		}
	}
	f.Value, f.Ceiling, f.Ratio, f.ByCPU = median(f.Runs), median(ceilings), median(ratios), median(cpus)
	if first.reached != nil {
		ok := first.reached(f.Value, f.Ceiling, f.Ratio)
		f.Reached = &ok
	}
	return f
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// WriteJSON writes the report as indented JSON.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteText writes a table for people.
func (r *Report) WriteText(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "case\tfigure\tvalue\tbeside\tof it\tby CPU\tgoal\treached\n")
	for _, f := range r.Figures {
		fmt.Fprintf(t, "%s\n", strings.Join(f.cells(), "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s, %d CPUs, load %.1f to %.1f\n", r.Go, r.CPUs, r.LoadStart, r.LoadEnd)
	return err
}

// WriteMarkdown writes the table of docs/benchmarks.md.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| case | figure | value | beside | of it | by CPU | goal | reached |\n|---|---|---|---|---|---|---|---|\n")
	for _, f := range r.Figures {
		b.WriteString("| " + strings.Join(f.cells(), " | ") + " |\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (f *Figure) cells() []string {
	beside, ratio, cpu, reached := "", "", "", ""
	if f.ByCPU != 0 {
		cpu = fmt.Sprintf("%.2f", f.ByCPU)
	}
	if f.Ceiling != 0 {
		beside, ratio = fmt.Sprintf("%s %s (%s)", short(f.Ceiling), f.Unit, f.Beside), fmt.Sprintf("%.2f", f.Ratio)
	}
	if f.Reached != nil {
		reached = map[bool]string{true: "yes", false: "no"}[*f.Reached]
	}
	return []string{f.Case, f.Name, short(f.Value) + " " + f.Unit, beside, ratio, cpu, f.Goal, reached}
}

// short writes three digits of a value, or all of a large one.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2f M", v/1e6)
	case v >= 10_000:
		return fmt.Sprintf("%.0f k", v/1e3)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.3g", v)
	}
}

func atLeast(goal float64) func(_, _, ratio float64) bool {
	return func(_, _, ratio float64) bool { return ratio >= goal }
}
