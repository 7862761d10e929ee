package agent

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
)

func TestReadersOfTheSameLiveRowsDoNotDisturbEachOtherOrWriters(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	h.createTable("o", 1)
	var body strings.Builder
	for i := range 200 {
		if i%3 == 0 {
			fmt.Fprintf(&body, "{\"id\":%d}\n", i)
		} else {
			fmt.Fprintf(&body, "{\"id\":%d,\"name\":\"row %d\"}\n", i, i)
		}
	}
	paths := []string{
		"rows", "rows?limit=150", "rows?columns=name&where=" + url.QueryEscape("name IS NULL OR id > 100"), "changes?start=offsets:0=7",
		"changes?where=" + url.QueryEscape("name IS NOT NULL"), "count?where=" + url.QueryEscape("name IS NULL"),
	}
	for round := range 3 {
		var wg sync.WaitGroup
		for _, table := range []string{"k", "o"} {
			url := fmt.Sprintf("%s%s/rows?stream=true&producer_id=p&first_sequence=%d", tableURL, table, 200*round)
			h.must("POST", url, body.String())
			for i := range 12 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					method, path, send := "GET", tableURL+table+"/"+paths[i%len(paths)], ""
					if i%4 == 3 { // the same rows once more: all skipped
						method, path, send = "POST", url, body.String()
					}
					media := []string{"application/x-ndjson", "application/vnd.apache.arrow.stream"}[i/6]
					if method == "POST" {
						media = "*/*"
					}
					if status, text := h.do(method, path, send, "Accept", media); status != http.StatusOK {
						t.Errorf("%s %s: %d %s", method, path, status, text)
					}
				}()
			}
		}
		wg.Wait()
		for _, table := range []string{"k", "o"} {
			if n := h.count(table, ""); n != 200*(round+1) {
				t.Fatalf("round %d: %d rows of %s", round, n, table)
			}
		}
	}
}
