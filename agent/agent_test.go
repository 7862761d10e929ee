package agent

import (
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
)

func TestRowsAreReadBackLiveFoldedAndAfterARestart(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store)
	h.createTable("orders", 1)
	answer := h.must("POST", tableURL+"orders/rows", rowsBody(0, 1000))
	if answer["rows"].(float64) != 1000 {
		t.Fatalf("answer %v", answer)
	}
	if n := h.count("orders", "union"); n != 1000 {
		t.Fatalf("live count %d", n)
	}
	fold := h.must("POST", tableURL+"orders/fold", "")
	if fold["rows"].(float64) != 1000 {
		t.Fatalf("fold %v", fold)
	}
	if n := h.count("orders", "lake"); n != 1000 {
		t.Fatalf("lake count %d", n)
	}
	h.must("POST", tableURL+"orders/rows", rowsBody(1000, 1500))
	h.stop()

	h = start(t, store)
	if n := h.count("orders", "union"); n != 1500 {
		t.Fatalf("count after restart %d", n)
	}
	_, body := h.do("GET", tableURL+"orders/rows", "")
	if n := strings.Count(body, "\n"); n != 1500 {
		t.Fatalf("scan after restart: %d rows", n)
	}
	_, body = h.do("GET", tableURL+"orders/changes", "")
	lines := strings.Split(strings.TrimSpace(body), "\n")
	if len(lines) != 1500 || !strings.Contains(lines[1499], `"_offset":1499`) || !strings.Contains(lines[1499], `"id":1499`) {
		t.Fatalf("stream after restart: %d rows, last %s", len(lines), lines[len(lines)-1])
	}
}
