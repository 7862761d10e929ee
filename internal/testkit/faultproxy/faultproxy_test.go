package faultproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/testkit/faultproxy"
)

func TestFaultsDoToTheServerAndTheClientWhatTheySay(t *testing.T) {
	var served atomic.Int32
	var host atomic.Value
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		host.Store(r.Host)
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "got %s", body)
	}))
	defer server.Close()
	for _, c := range []struct {
		rule   faultproxy.Rule
		served int32
		want   string // status and body, or "error"
	}{
		{faultproxy.Rule{Kind: faultproxy.Delay, Delay: time.Millisecond}, 1, "200 got hello"},
		{faultproxy.Rule{Kind: faultproxy.Answer, Status: 409, Body: "odd"}, 0, "409 odd"},
		{faultproxy.Rule{Kind: faultproxy.Answer}, 0, "503 "},
		{faultproxy.Rule{Kind: faultproxy.AnswerLate, Status: 500}, 1, "500 "},
		{faultproxy.Rule{Kind: faultproxy.LoseAnswer}, 1, "error"},
		{faultproxy.Rule{Kind: faultproxy.Reset}, 0, "error"},
		{faultproxy.Rule{Kind: faultproxy.Truncate}, 1, "error"},
		{faultproxy.Rule{Kind: faultproxy.Reset, Method: "PUT"}, 1, "200 got hello"},
		{faultproxy.Rule{Kind: faultproxy.Reset, Path: "/other"}, 1, "200 got hello"},
		{faultproxy.Rule{Kind: faultproxy.Reset, After: 1}, 1, "200 got hello"},
	} {
		served.Store(0)
		p := faultproxy.Start(t, server.URL, 1, c.rule)
		got := "error"
		if answer, err := http.Post(p.URL+"/path?q=1", "text/plain", strings.NewReader("hello")); err == nil {
			if body, err := io.ReadAll(answer.Body); err == nil {
				got = fmt.Sprintf("%d %s", answer.StatusCode, body)
			}
			_ = answer.Body.Close()
		}
		if got != c.want || served.Load() != c.served {
			t.Errorf("%+v: client saw %q, server served %d", c.rule, got, served.Load())
		}
		if served.Load() > 0 && "http://"+host.Load().(string) != p.URL {
			t.Errorf("the server saw host %v, which would break a signature", host.Load())
		}
		if seen := p.Seen(); len(seen) != 1 || seen[0].Method != "POST" || seen[0].Query != "q=1" {
			t.Errorf("seen: %+v", seen)
		}
	}
}
