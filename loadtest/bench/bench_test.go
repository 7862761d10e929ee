package bench_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/firn-data/firn/loadtest/bench"
)

// FIRN_BENCH=1 measures all cases and prints the table of docs/benchmarks.md;
// FIRN_BENCH=ack,fold only some.
func TestFiguresOfTheBenchmarkPage(t *testing.T) {
	want := os.Getenv("FIRN_BENCH")
	if want == "" {
		t.Skip("FIRN_BENCH is not set: benchmarks need a quiet machine and some minutes")
	}
	o := bench.Options{Large: os.Getenv("FIRN_BENCH_LARGE") != "", Progress: os.Stderr}
	if want != "1" {
		o.Cases = strings.Split(want, ",")
	}
	r, err := bench.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text, table bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteMarkdown(&table); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s\n%s", &text, &table)
}

func TestOneCaseRunsAndReportsItsFigures(t *testing.T) {
	r, err := bench.Run(t.Context(), bench.Options{Cases: []string{"ack"}, Repeat: 1, PutDelay: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Figures) != 4 {
		t.Fatalf("%d figures", len(r.Figures))
	}
	var js bytes.Buffer
	if err := r.WriteJSON(&js); err != nil || !json.Valid(js.Bytes()) {
		t.Errorf("JSON report: %v", err)
	}
	if _, err := bench.Run(t.Context(), bench.Options{Cases: []string{"none"}}); err == nil {
		t.Error("an unknown case was taken")
	}
}

func TestTheThroughputCasesRunAndReportTheirFigures(t *testing.T) {
	r, err := bench.Run(t.Context(), bench.Options{Cases: []string{"arrow", "ndjson"}, Repeat: 1, Measure: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Figures) < 8 {
		t.Fatalf("%d figures", len(r.Figures))
	}
	for _, f := range r.Figures {
		if f.Value <= 0 || f.Ceiling <= 0 || f.Ratio <= 0 {
			t.Errorf("%s, %s: %g of %g", f.Case, f.Name, f.Value, f.Ceiling)
		}
	}
}
