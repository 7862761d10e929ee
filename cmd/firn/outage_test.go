package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/objstore/open"
	"github.com/firn-data/firn/internal/testkit/faultproxy"
	"github.com/firn-data/firn/internal/testkit/s3test"
)

// The store goes away in mid-flight, in every way that a store does, and comes
// back: callers hear a retryable error that tells an unknown outcome, repeats are
// applied once, memory stays bounded, and nobody has to restart anything.
func TestAnAgentOutlivesEveryOutageOfItsStore(t *testing.T) {
	s3 := s3test.Start(t)
	s3.Setenv()
	late := http.Header{"Date": {time.Now().Add(20 * time.Minute).UTC().Format(http.TimeFormat)}}
	for name, fault := range map[string]faultproxy.Rule{
		"unreachable":      {Kind: faultproxy.Reset},
		"answers are lost": {Kind: faultproxy.LoseAnswer},
		"full":             refusal(507, "InsufficientStorage", nil),
		"key revoked":      refusal(403, "InvalidAccessKeyId", nil),
		"secret changed":   refusal(403, "SignatureDoesNotMatch", nil),
		"forbidden":        refusal(403, "AccessDenied", nil),
		"bucket gone":      refusal(404, "NoSuchBucket", nil),
		"clock skewed":     refusal(403, "RequestTimeTooSkewed", late),
	} {
		t.Run(name, func(t *testing.T) { outage(t, s3, fault) })
	}
}

func outage(t *testing.T, s3 *s3test.Server, fault faultproxy.Rule) {
	proxy := faultproxy.Start(t, s3.Endpoint, 1)
	cfg := agent.DefaultConfig()
	cfg.Store = s3.URL(strings.ReplaceAll(t.Name(), "/", "-"), proxy.URL)
	cfg.Listen, cfg.AgentID, cfg.MemoryLimitBytes, cfg.FlushAge = "127.0.0.1:0", "outage", -1, time.Millisecond
	cfg.AckTimeout, cfg.Lease = 300*time.Millisecond, 3*time.Second
	cfg.MaxPendingBytes, cfg.MaxRequestBytes = 1<<20, 1<<20
	store, err := open.Open(t.Context(), cfg.Store, open.Options{})
	require.NoError(t, err)
	a, err := agent.New(cfg, store, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, a.Open(t.Context()))
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, a.Close(ctx))
	}()
	base := "http://" + a.Addr()
	ask := func(method, path, body string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		require.NoError(t, err)
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		if res.StatusCode == 503 || res.StatusCode == 429 {
			require.NotEmpty(t, res.Header.Get("Retry-After"))
			require.Contains(t, string(text), `"details":[{"class":"`)
		}
		return res.StatusCode, string(text)
	}
	const table = "/v1/databases/d/tables/t"
	ask("POST", "/v1/databases", `{"name":"d"}`)
	status, text := ask("POST", "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"id","type":"long"},{"name":"s","type":"string"}],"properties":{"fold_interval":"0"}}`)
	require.Equal(t, 200, status, text)
	post := func(i int) (int, string) {
		return ask("POST", fmt.Sprintf("%s/rows?producer_id=p&first_sequence=%d", table, i), fmt.Sprintf(`{"id":%d,"s":"%s"}`, i, strings.Repeat("x", 1000)))
	}
	for i := range 3 {
		status, text := post(i)
		require.Equal(t, 200, status, text)
	}
	var before, during runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)

	proxy.Add(fault)
	status, text = post(3)
	require.Contains(t, []int{503, 200}, status, text) // an answer that was lost may be found again
	if status == 503 && strings.Contains(text, "ack_timeout") {
		require.Contains(t, text, `"class":"unknown outcome"`)
	}
	for i := range 40 { // writers that do not give up; the pending rows are bounded
		status, text := ask("POST", table+"/rows?producer_id=q&first_sequence=0", fmt.Sprintf(`{"id":%d,"s":"%s"}`, 1000, strings.Repeat("y", 1000)))
		require.Contains(t, []int{503, 429, 200}, status, text)
		if i == 0 {
			status, text := ask("POST", "/v1/databases/d/tables", `{"name":"never","columns":[{"name":"id","type":"nonsense"}]}`)
			require.Contains(t, []int{503, 429}, status, text) // a definition needs the store
		}
		if status != 503 || !strings.Contains(text, "ack_timeout") {
			break
		}
		if i == 3 {
			break
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&during)
	require.Less(t, during.HeapAlloc, before.HeapAlloc+64<<20)

	proxy.Clear()
	require.Eventually(t, func() bool { status, _ := ask("GET", "/readyz", ""); return status == 200 }, 30*time.Second, 20*time.Millisecond)
	for i := range 6 { // from the start: what was applied is skipped
		require.Eventually(t, func() bool { status, _ := post(i); return status == 200 }, 30*time.Second, 20*time.Millisecond)
	}
	require.Eventually(t, func() bool {
		status, _ := ask("POST", table+"/rows?producer_id=q&first_sequence=0", `{"id":1000,"s":"y"}`)
		return status == 200
	}, 30*time.Second, 20*time.Millisecond)
	status, text = ask("GET", table+"/count", "")
	require.Equal(t, `200 {"count":7}`, fmt.Sprint(status, " ", strings.TrimSpace(text)))
	status, text = ask("POST", table+"/fold", "")
	require.Equal(t, 200, status, text)
	status, text = ask("GET", table+"/count?layer=lake", "")
	require.Equal(t, `200 {"count":7}`, fmt.Sprint(status, " ", strings.TrimSpace(text)))
}
