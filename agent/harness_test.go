package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// harness is an agent on a store, with an HTTP client.
type harness struct {
	t     testing.TB
	agent *Agent
	url   string
}

// start opens an agent on a free port of the loopback interface.
func start(t testing.TB, store objstore.Store, change ...func(*Config)) *harness {
	t.Helper()
	logs := io.Discard
	if testing.Verbose() {
		logs = t.Output()
	}
	return startLogging(t, store, logs, change...)
}

// startLogging is start with a place for the log.
func startLogging(t testing.TB, store objstore.Store, logs io.Writer, change ...func(*Config)) *harness {
	t.Helper()
	cfg := DefaultConfig()
	cfg.Store, cfg.Listen, cfg.AgentID = store.URL(), "127.0.0.1:0", "test"
	cfg.FlushAge = time.Millisecond
	cfg.MemoryLimitBytes = -1
	for _, f := range change {
		f(&cfg)
	}
	a, err := New(cfg, store, slog.New(slog.NewTextHandler(logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	h := &harness{t: t, agent: a, url: "http://" + a.Addr()}
	t.Cleanup(h.stop)
	return h
}

// stop closes the agent in order; a second call does nothing.
func (h *harness) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := h.agent.Close(ctx); err != nil {
		h.t.Errorf("close: %v", err)
	}
}

// do sends a request and returns status and body.
func (h *harness) do(method, path, body string, header ...string) (int, string) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, h.url+path, strings.NewReader(body))
	if err != nil {
		h.t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	out, err := io.ReadAll(res.Body)
	if err != nil {
		h.t.Fatalf("%s %s: read body: %v", method, path, err)
	}
	return res.StatusCode, string(out)
}

// must sends a request that has to succeed and decodes its JSON answer.
func (h *harness) must(method, path, body string, header ...string) map[string]any {
	h.t.Helper()
	status, text := h.do(method, path, body, header...)
	if status != http.StatusOK {
		h.t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		h.t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return out
}

// createTable makes shop.<name> with columns id long, name string.
func (h *harness) createTable(name string, buckets int) {
	h.t.Helper()
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", fmt.Sprintf(
		`{"name":%q,"columns":[{"name":"id","type":"long","required":true},{"name":"name","type":"string"}],"buckets":%d,"properties":{"fold_interval":"0"}}`, name, buckets))
}

const tableURL = "/v1/databases/shop/tables/"

func rowsBody(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, `{"id":%d,"name":"row %d"}`+"\n", i, i)
	}
	return b.String()
}

func (h *harness) count(table, layer string) int {
	h.t.Helper()
	return int(h.must("GET", tableURL+table+"/count?layer="+layer, "")["count"].(float64))
}
