package loadtest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/loadtest"
)

// serve runs an agent in this process until the test ends and returns its URL.
func serve(t *testing.T, store objstore.Store) string {
	t.Helper()
	cfg := agent.DefaultConfig()
	cfg.Store, cfg.Listen, cfg.AgentID, cfg.MemoryLimitBytes = store.URL(), "127.0.0.1:0", "loadtest", -1
	a, err := agent.New(cfg, store, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := a.Close(ctx); err != nil {
			t.Errorf("close agent: %v", err)
		}
	})
	return "http://" + a.Addr()
}

func TestEveryWorkloadVerifiesWhatItReads(t *testing.T) {
	url := serve(t, objstore.NewMem())
	for _, o := range []loadtest.Options{
		{Workload: loadtest.Append, Shape: loadtest.Flights, Writers: 3, Producers: 2, Buckets: 2},
		{Workload: loadtest.Append, Shape: loadtest.Tiny, Rate: 20_000, BatchRows: 100},
		{Workload: loadtest.Tail, Shape: loadtest.Tiny, Writers: 2, Producers: 2, Readers: 2, Buckets: 3},
		{Workload: loadtest.Scan, Shape: loadtest.Wide, ScanRows: 2_000},
		{Workload: loadtest.Mixed, Shape: loadtest.Flights, Writers: 2, Producers: 1, Buckets: 2},
	} {
		o.Server, o.Duration, o.SkipCeiling, o.AgentPID = url, 250*time.Millisecond, true, os.Getpid()
		t.Run(string(o.Workload)+" "+string(o.Shape), func(t *testing.T) {
			r, err := loadtest.Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if !r.Verified.OK || r.Verified.Rows != r.Append.Rows || r.Append.Rows == 0 {
				t.Errorf("verified %+v of %d rows", r.Verified, r.Append.Rows)
			}
			if r.Agent.PutsPerFlush != 1 || r.Agent.PutsPerAck > 1 {
				t.Errorf("%v PUTs a flush, %v an acknowledgement", r.Agent.PutsPerFlush, r.Agent.PutsPerAck)
			}
			t.Logf("%s rows/s, %s", bytesOf(t, r), r.Append.Ack)
		})
	}
}

func bytesOf(t *testing.T, r loadtest.Report) string {
	t.Helper()
	var text, js bytes.Buffer
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := r.WriteJSON(&js); err != nil || !json.Valid(js.Bytes()) {
		t.Errorf("JSON report: %v", err)
	}
	return strings.TrimSpace(text.String())
}

func TestARunWithoutAnAgentSaysSo(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := loadtest.Run(ctx, loadtest.Options{Server: "http://127.0.0.1:1", SkipCeiling: true}); err == nil {
		t.Error("no error")
	}
	for _, o := range []loadtest.Options{{Workload: "x"}, {Shape: "y"}, {Writers: -1}, {Writers: 1, Producers: 2}, {Rate: -1}, {BatchRows: 1 << 30}} {
		if _, err := loadtest.Run(t.Context(), o); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}
