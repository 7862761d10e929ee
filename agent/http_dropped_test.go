package agent

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/objstore"
)

// A table is dropped, and one of the same name is made, while readers follow and
// scan the old one on every face: each hears of its end, and no foreign row.
func TestReadersOfADroppedTableEndAndSeeNoRowOfItsSuccessor(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 5))
	h.must("POST", tableURL+"o/fold", "")
	h.must("POST", tableURL+"o/rows", rowsBody(5, 10))
	text := map[string]*follower{
		"ndjson": h.follow(tableURL + "o/changes?follow=true"),
		"sse":    h.follow(tableURL+"o/changes?follow=true", "Accept", "text/event-stream"),
		"none":   h.follow(tableURL + "o/changes?follow=true&where=" + url.QueryEscape("id < 0")),
	}
	text["ndjson"].until(`"id":9`)
	text["sse"].until(`"id":9`)
	text["none"].until("_progress")
	sdk := clientOf(t, h).Table("shop", "o").Changes(t.Context(), client.ChangesOptions{Follow: true})
	defer sdk.Close()
	for rows := int64(0); rows < 10; {
		rec, err := sdk.Next()
		if err != nil {
			t.Fatal(err)
		}
		rows += rec.NumRows()
	}

	h.must("DELETE", tableURL+"o", "")
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(100, 110))
	h.must("POST", tableURL+"o/fold", "")
	for name, f := range text {
		var last string
		for {
			line, ok := f.next()
			if !ok {
				break
			}
			if strings.Contains(line, `"id":1`) {
				t.Errorf("%s: a row of the new table: %s", name, line)
			}
			if line != "" {
				last = line
			}
		}
		if !strings.Contains(last, `"code":"not_found"`) {
			t.Errorf("%s ended with %q", name, last)
		}
	}
	if rec, err := sdk.Next(); client.ClassOf(err) != client.NotFound {
		t.Errorf("the SDK's follower: %v, %v", rec, err)
	}
	// A cursor of the old table lies within the new one by number alone: rows say where they are from.
	if got := h.lines(tableURL + "o/changes?start=offsets:0=0"); len(got) != 10 || !strings.Contains(got[0], `"id":100`) {
		t.Errorf("the new table: %q", got)
	}
}

// A scan that has begun goes on over the rows that it pinned, or breaks; it does
// not end early as if that were all, and does not turn to the new table.
func TestAScanUnderWayWhenItsTableIsDroppedIsWholeOrBroken(t *testing.T) {
	for _, layer := range []string{"lake", "live"} {
		store := newBrokenStore()
		h := start(t, store, func(c *Config) { c.CacheBytes, c.SafeAge = 1, 0 })
		h.createTable("o", 1)
		for i := range 4 {
			h.must("POST", tableURL+"o/rows", rowsBody(1000*i, 1000*i+1000))
			if layer == "lake" {
				h.must("POST", tableURL+"o/fold", "")
			}
		}
		reached, opened := make(chan struct{}, 64), make(chan struct{})
		store.breaks(func(op, key string) error {
			if op == "get" && (strings.HasSuffix(key, ".parquet") || strings.HasPrefix(key, "wal/")) {
				reached <- struct{}{}
				<-opened
			}
			return nil
		})
		type answer struct {
			body string
			err  error
		}
		done := make(chan answer, 1)
		go func() {
			res, err := http.Get(h.url + tableURL + "o/rows")
			if err != nil {
				done <- answer{"", err}
				return
			}
			defer func() { _ = res.Body.Close() }()
			body, err := io.ReadAll(res.Body)
			if res.StatusCode != http.StatusOK {
				err = http.ErrAbortHandler
			}
			done <- answer{string(body), err}
		}()
		select {
		case <-reached:
		case a := <-done: // all of it was in memory
			done <- a
		}
		h.must("DELETE", tableURL+"o", "")
		h.createTable("o", 1)
		close(opened)
		store.breaks(nil)
		h.must("POST", tableURL+"o/rows", rowsBody(9000, 9100))
		a := <-done
		if n := strings.Count(a.body, "\n"); a.err == nil && n != 4000 {
			t.Errorf("%s: the scan ended after %d of 4000 rows", layer, n)
		}
		if strings.Contains(a.body, `"id":90`+"00,") {
			t.Errorf("%s: rows of the new table", layer)
		}
		h.stop()
	}
}
