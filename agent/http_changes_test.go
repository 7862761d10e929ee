package agent

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// follower reads a streaming answer line by line.
type follower struct {
	t      testing.TB
	res    *http.Response
	lines  chan string
	cancel context.CancelFunc
}

func (h *harness) follow(path string, header ...string) *follower {
	h.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	h.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", h.url+path, http.NoBody)
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
	f := &follower{h.t, res, make(chan string, 4096), cancel}
	go func() {
		defer close(f.lines)
		defer func() { _ = res.Body.Close() }()
		in := bufio.NewScanner(res.Body)
		for in.Scan() {
			f.lines <- in.Text()
		}
	}()
	return f
}

// next returns the next line; ok is false at the end of the answer.
func (f *follower) next() (string, bool) {
	f.t.Helper()
	select {
	case line, ok := <-f.lines:
		return line, ok
	case <-time.After(20 * time.Second):
		f.t.Fatal("no line came")
		return "", false
	}
}

// until returns the next line that holds a text.
func (f *follower) until(text string) string {
	f.t.Helper()
	for {
		line, ok := f.next()
		if !ok {
			f.t.Fatalf("the answer ended before %s", text)
		}
		if strings.Contains(line, text) {
			return line
		}
	}
}

func (h *harness) lines(path string, header ...string) []string {
	h.t.Helper()
	status, body := h.do("GET", path, "", header...)
	if status != http.StatusOK {
		h.t.Fatalf("%s: %d %s", path, status, body)
	}
	return strings.FieldsFunc(body, func(r rune) bool { return r == '\n' })
}

func TestEveryStartOfAStreamGivesExactlyTheRowsFromThere(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	for i := range 4 { // four segments; the first two of them in the lake
		h.must("POST", tableURL+"o/rows", rowsBody(10*i, 10*i+10))
		if i == 1 {
			h.must("POST", tableURL+"o/fold", "")
		}
	}
	all := h.lines(tableURL + "o/changes")
	if len(all) != 40 {
		t.Fatalf("%d rows", len(all))
	}
	var stamps []string
	for i, line := range all {
		var row struct {
			Bucket    int    `json:"_bucket"`
			Offset    int    `json:"_offset"`
			Timestamp string `json:"_timestamp"`
			Kind      string `json:"_change_type"`
			ID        int    `json:"id"`
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatal(err)
		}
		if row.Bucket != 0 || row.Offset != i || row.ID != i || row.Kind != "INSERT" {
			t.Fatalf("row %d: %s", i, line)
		}
		stamps = append(stamps, row.Timestamp)
	}
	for start, first := range map[string]int{
		"": 0, "earliest": 0, "latest": 40, "offsets:0=0": 0, "offsets:0=7": 7, "offsets:0=20": 20, "offsets:0=39": 39, "offsets:0=40": 40,
		"timestamp:" + stamps[0]: 0, "timestamp:" + stamps[15]: 10, "timestamp:" + stamps[39]: 30, "timestamp:0": 0, "timestamp:2000-01-01T00:00:00Z": 0, "timestamp:2100-01-01T00:00:00+02:00": 40,
	} {
		got := h.lines(tableURL + "o/changes?start=" + url.QueryEscape(start))
		if len(got) != 40-first || (len(got) > 0 && got[0] != all[first]) {
			t.Errorf("start=%s: %d rows", start, len(got))
		}
	}
	if got := h.lines(tableURL + "o/changes?start=offsets:0=5&limit=3&columns=name&where=" + url.QueryEscape("id IN (6,7) OR id = 8")); len(got) != 3 || !strings.Contains(got[0], `"_offset":6`) || !strings.HasSuffix(got[2], `"_change_type":"INSERT","name":"row 8"}`) {
		t.Errorf("%q", got)
	}
	for q, want := range map[string]string{
		"start=offsets:0=41": "400 out_of_range", "start=offsets:1=0": "400 invalid_argument", "start=offsets:0=-1": "400 invalid_argument", "start=offsets:": "400 invalid_argument", "start=offsets:0=1,0=2": "400 invalid_argument",
		"start=offsets:x": "400 invalid_argument", "start=timestamp:": "400 invalid_argument", "start=timestamp:now": "400 invalid_argument", "start=nowhere": "400 invalid_argument",
		"start=snapshot": "400 invalid_argument", "buckets=1": "400 invalid_argument", "buckets=x": "400 invalid_argument", "columns=x": "400 invalid_argument",
		"where=x": "400 invalid_argument", "limit=-1": "400 invalid_argument", "follow=maybe": "400 invalid_argument", "foo=1": "400 invalid_argument",
	} {
		h.wantError("GET", tableURL+"o/changes?"+q, "", want)
	}
}

// wantError checks status, code and form of an error, given as "404 not_found".
func (h *harness) wantError(method, path, body, want string, header ...string) string {
	h.t.Helper()
	status, text := h.do(method, path, body, header...)
	var e struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Details *[]any `json:"details"`
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil || e.Message == "" || e.Details == nil {
		h.t.Errorf("%s %s: not the error form: %d %s", method, path, status, text)
	}
	if got := fmt.Sprint(status, " ", e.Code); got != want {
		h.t.Errorf("%s %s: %s, want %s: %s", method, path, got, want, text)
	}
	return text
}

func TestAnOffsetBeforeTheLogsStartIsGoneAndNamesTheEarliest(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("PATCH", tableURL+"o", `{"changes":[{"set_properties":{"retention":"1s"}}]}`)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 10))
	h.must("POST", tableURL+"o/fold", "")
	h.eventually(func() bool {
		h.must("POST", tableURL+"o/expire", "")
		b := h.must("GET", tableURL+"o/offsets", "")["buckets"].([]any)[0].(map[string]any)
		return b["earliest"] == 10.0
	})
	text := h.wantError("GET", tableURL+"o/changes?start=offsets:0=3", "", "410 out_of_range")
	if !strings.Contains(text, `"earliest":10`) {
		t.Error(text)
	}
	if got := h.lines(tableURL + "o/changes"); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestAFollowerGetsRowsAndProgressAndItsEndIsNoticed(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 2)
	f := h.follow(tableURL + "o/changes?start=latest&follow=true&where=" + url.QueryEscape("id >= 100"))
	if line, _ := f.next(); line != `{"_progress":{"0":0,"1":0}}` {
		t.Fatalf("first line of a quiet table: %s", line)
	}
	a := h.must("POST", tableURL+"o/rows", rowsBody(0, 5))
	bucket := a["buckets"].([]any)[0].(map[string]any)["bucket"]
	f.until(fmt.Sprintf(`"%v":5`, bucket)) // nothing matches: progress alone
	h.must("POST", tableURL+"o/rows", rowsBody(100, 101))
	f.until(`"id":100`)
	f.cancel()

	g := h.follow(tableURL + "o/changes?follow=true&limit=2")
	g.until(`"id"`)
	g.until(`"id"`)
	if line, ok := g.next(); ok {
		t.Fatalf("behind the limit: %s", line)
	}
	before := runtime.NumGoroutine()
	var all []*follower
	for range 20 {
		all = append(all, h.follow(tableURL+"o/changes?follow=true"))
	}
	for _, f := range all {
		f.until(`"id":100`)
		f.cancel()
	}
	h.eventually(func() bool {
		http.DefaultClient.CloseIdleConnections()
		return runtime.NumGoroutine() <= before+2
	})
}

func TestADroppedTableEndsItsFollowersAndAnewOneStartsEmpty(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 5))
	f := h.follow(tableURL + "o/changes?follow=true")
	f.until(`"id":4`)
	c := h.dial()
	c.send("POST " + tableURL + "o/rows?stream=true HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(rowsBody(5, 8)))
	f.until(`"id":7`)
	h.must("DELETE", tableURL+"o", "")
	h.createTable("o", 1)
	if line := f.until("_error"); !strings.Contains(line, `"code":"not_found"`) {
		t.Errorf("%s", line)
	}
	c.send(chunk(rowsBody(8, 9)))
	if res, text := c.answer(); res.StatusCode != http.StatusNotFound || !strings.Contains(text, `"rows":3`) {
		t.Errorf("%d %s", res.StatusCode, text)
	}
	if n := h.count("o", ""); n != 0 {
		t.Errorf("the new table holds %d rows of the old one", n)
	}
	h.must("POST", tableURL+"o/rows", rowsBody(20, 22))
	h.must("POST", tableURL+"o/fold", "")
	if n := h.count("o", "lake"); n != 2 {
		t.Errorf("the new table folded %d rows", n)
	}
}

func TestEventsResumeAfterAnyOfThem(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	h.must("POST", tableURL+"k/rows", rowsBody(0, 40))
	h.must("POST", tableURL+"k/fold", "")
	h.must("POST", tableURL+"k/rows", rowsBody(40, 60))
	events := func(header ...string) (ids, data []string) {
		for _, line := range h.lines(tableURL+"k/changes", append(header, "Accept", "text/event-stream")...) {
			if id, ok := strings.CutPrefix(line, "id: "); ok {
				ids = append(ids, id)
			} else if d, ok := strings.CutPrefix(line, "data: "); ok {
				data = append(data, d)
			}
		}
		return ids, data
	}
	ids, data := events()
	if len(ids) != 60 || len(data) != 60 {
		t.Fatalf("%d ids, %d events", len(ids), len(data))
	}
	for _, at := range []int{0, 1, 17, 39, 40, 58, 59} {
		_, rest := events("Last-Event-ID", ids[at])
		// Buckets come one after the other, lake before live; the rest is the same set.
		if len(rest) != 59-at {
			t.Fatalf("after event %d (%s): %d events, want %d", at, ids[at], len(rest), 59-at)
		}
		seen := map[string]bool{}
		for _, d := range data[:at+1] {
			seen[d] = true
		}
		for _, d := range rest {
			if seen[d] {
				t.Fatalf("after event %d: %s came again", at, d)
			}
		}
	}
	h.wantError("GET", tableURL+"k/changes", "", "400 invalid_argument", "Accept", "text/event-stream", "Last-Event-ID", "nonsense")

	f := h.follow(tableURL+"k/changes?follow=true&start=latest", "Accept", "text/event-stream")
	f.until("event: progress")
	if id := f.until("id: "); id != "id: "+ids[59] {
		t.Errorf("%s, want %s", id, ids[59])
	}
	h.must("POST", tableURL+"k/rows", rowsBody(60, 61))
	f.until(`"id":60`)
}

func TestAnAgeOfZeroExpiresYoungSnapshotsToo(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("PATCH", tableURL+"o", `{"changes":[{"set_properties":{"iceberg.snapshots_kept":"1","fold_interval":"0"}}]}`)
	for i := range 3 {
		h.must("POST", tableURL+"o/rows", rowsBody(i, i+1))
		h.must("POST", tableURL+"o/fold", "")
	}
	if got := h.must("POST", tableURL+"o/expire", "{}")["snapshots"]; got != 0.0 {
		t.Errorf("without an age %v young snapshots expire", got)
	}
	if got := h.must("POST", tableURL+"o/expire", `{"older_than":"0s"}`)["snapshots"]; got != 2.0 {
		t.Errorf("with an age of zero %v snapshots expire, want 2", got)
	}
}
