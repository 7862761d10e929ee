package agent

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// keyed makes a table whose rows go to four buckets by id.
func (h *harness) keyed(name string) {
	h.t.Helper()
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"`+name+`","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"buckets":4,"bucket_key":["id"],"properties":{"fold_interval":"0"}}`)
}

// ids returns how often each id of a table is there.
func (h *harness) ids(table string) map[string]int {
	h.t.Helper()
	_, body := h.do("GET", tableURL+table+"/rows?columns=id", "", "Accept", "text/csv")
	out := map[string]int{}
	for _, line := range strings.Fields(body)[1:] {
		out[line]++
	}
	return out
}

func (h *harness) wantOnce(table string, n int) {
	h.t.Helper()
	got := h.ids(table)
	for i := range n {
		if got[fmt.Sprint(i)] != 1 {
			h.t.Errorf("row %d is there %d times", i, got[fmt.Sprint(i)])
		}
	}
	if len(got) != n {
		h.t.Errorf("%d different rows, want %d", len(got), n)
	}
}

func TestARequestRepeatedWithItsIdempotencyKeyIsAppliedOnce(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store)
	h.keyed("k")
	h.createTable("o", 3)
	for _, table := range []string{"k", "o"} {
		first := h.must("POST", tableURL+table+"/rows", rowsBody(0, 50), "Idempotency-Key", "a")
		if first["rows"] != 50.0 || first["duplicate"] != nil {
			t.Fatalf("%v", first)
		}
		again := h.must("POST", tableURL+table+"/rows", rowsBody(0, 50), "Idempotency-Key", "a")
		if again["rows"] != 0.0 || again["skipped"] != 50.0 || again["duplicate"] != true {
			t.Fatalf("%v", again)
		}
		if !reflect.DeepEqual(first["buckets"], again["buckets"]) {
			t.Fatalf("the repetition says that the rows are at %v, the first answer %v", again["buckets"], first["buckets"])
		}
		h.must("POST", tableURL+table+"/rows", rowsBody(50, 60), "Idempotency-Key", "b")
	}
	h.must("POST", tableURL+"k/fold", "")
	h.stop()
	h = start(t, store)
	for _, table := range []string{"k", "o"} {
		if again := h.must("POST", tableURL+table+"/rows", rowsBody(0, 50), "Idempotency-Key", "a"); again["duplicate"] != true {
			t.Fatalf("after a restart: %v", again)
		}
		h.wantOnce(table, 60)
		h.wantError("POST", tableURL+table+"/rows", rowsBody(60, 110), "409 already_exists", "Idempotency-Key", "a")
	}
	for _, header := range [][]string{{"Idempotency-Key", strings.Repeat("x", 300)}} {
		if status, body := h.do("POST", tableURL+"k/rows", rowsBody(0, 1), header...); status != http.StatusBadRequest {
			t.Errorf("%d %s", status, body)
		}
	}
}

func TestAKeyBelongsToOneRequestAndToOneTable(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	h.keyed("other")
	one := `{"id":1}` + "\n"
	h.must("POST", tableURL+"k/rows", one, "Idempotency-Key", "a")
	for _, c := range [][]string{
		{"", `{"id":2}` + "\n"}, // as many rows, and most likely in another bucket
		{"", `{"id":3}` + "\n"},
		{"", `{"id":1,"name":"x"}` + "\n"},
		{"", one + `{"id":2}` + "\n"},
		{"", one + "\n"}, // the same rows in other bytes: not told from another request
		{"?on_error=skip", one},
		{"?unknown=ignore", one},
		{"", `{"id":1}`, "Content-Type", "application/json"},
	} {
		h.wantError("POST", tableURL+"k/rows"+c[0], c[1], "409 already_exists", append(c[2:], "Idempotency-Key", "a")...)
	}
	// How the bytes travel does not count, nor does a parameter that says what is so anyway.
	for _, c := range [][]string{{"?on_error=reject&op=append&stream=false", one}, {"", zipped(t, one, 1), "Content-Encoding", "gzip"}, {"", zipped(t, one, 9), "Content-Encoding", "gzip"}} {
		if again := h.must("POST", tableURL+"k/rows"+c[0], c[1], append(c[2:], "Idempotency-Key", "a")...); again["duplicate"] != true {
			t.Errorf("%v", again)
		}
	}
	if a := h.must("POST", tableURL+"other/rows", `{"id":2}`, "Idempotency-Key", "a"); a["rows"] != 1.0 {
		t.Errorf("the same key on another table: %v", a)
	}
	// What was refused leaves the key free.
	h.wantError("POST", tableURL+"k/rows", `{"id":"x"}`, "400 invalid_argument", "Idempotency-Key", "b")
	if a := h.must("POST", tableURL+"k/rows", `{"id":4}`, "Idempotency-Key", "b"); a["rows"] != 1.0 {
		t.Errorf("%v", a)
	}
	if n := h.count("k", ""); n != 2 {
		t.Errorf("%d rows", n)
	}
}

func zipped(t testing.TB, body string, level int) string {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		t.Fatal(err)
	}
	w.Comment = fmt.Sprint(level)
	_, _ = w.Write([]byte(body))
	_ = w.Close()
	return b.String()
}

func TestOfDifferentRequestsAtOnceUnderOneKeyOneIsApplied(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	for round := range 20 {
		var applied atomic.Int32
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				status, body := h.do("POST", tableURL+"k/rows", fmt.Sprintf(`{"id":%d}`, 8*round+i), "Idempotency-Key", fmt.Sprint(round))
				switch {
				case status == http.StatusOK:
					applied.Add(1)
				case status != http.StatusConflict:
					t.Errorf("%d %s", status, body)
				}
			}()
		}
		wg.Wait()
		if n := applied.Load(); n != 1 {
			t.Fatalf("%d of 8 different requests under one key were applied", n)
		}
	}
}

func TestAReplayInOtherBatchSizesSkipsWhatWasApplied(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	h.createTable("o", 3)
	for _, table := range []string{"k", "o"} {
		post := func(from, to int, more string) map[string]any {
			return h.must("POST", fmt.Sprintf("%s%s/rows?producer_id=p&first_sequence=%d%s", tableURL, table, from, more), rowsBody(from, to))
		}
		if a := post(0, 100, ""); a["rows"] != 100.0 {
			t.Fatal(a)
		}
		if a := post(0, 100, ""); a["rows"] != 0.0 || a["skipped"] != 100.0 {
			t.Fatalf("retry: %v", a)
		}
		if a := post(90, 120, ""); a["rows"] != 20.0 || a["skipped"] != 10.0 {
			t.Fatalf("overlap: %v", a)
		}
		if a := post(200, 230, "&acked_below=120"); a["rows"] != 30.0 {
			t.Fatalf("overtaking: %v", a)
		}
		if a := post(120, 200, "&acked_below=120"); a["rows"] != 80.0 || a["skipped"] != 0.0 {
			t.Fatalf("overtaken: %v", a)
		}
		applied := 0.0
		for from := 0; from < 300; from += 37 {
			applied += post(from, min(from+37, 300), "&acked_below=0")["rows"].(float64)
		}
		if applied != 70 {
			t.Fatalf("replay applied %v rows, want 70", applied)
		}
		h.wantOnce(table, 300)
		// A replay says nothing new about what is done; the next request does.
		post(300, 301, "&acked_below=300")
		got := h.must("GET", tableURL+table+"/producers/p", "")
		if w := got["watermark"].(float64); w < 120 || w > 301 {
			t.Fatalf("%v", got)
		}
		if got["producer_id"] != "p" || len(got["buckets"].([]any)) == 0 {
			t.Fatalf("%v", got)
		}
	}
}

func TestEightRequestsInFlightThatOvertakeEachOtherLoseAndRepeatNothing(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	const rows, batch, inFlight = 2400, 30, 8
	rng := rand.New(rand.NewPCG(5, 6))
	for base := 0; base < rows; base += batch * inFlight {
		order := rng.Perm(inFlight)
		var wg sync.WaitGroup
		for _, i := range append(order, order[:4]...) { // some of them twice
			wg.Add(1)
			go func() {
				defer wg.Done()
				from := base + i*batch
				status, body := h.do("POST", fmt.Sprintf("%sk/rows?producer_id=p&first_sequence=%d&acked_below=%d", tableURL, from, base), rowsBody(from, from+batch))
				if status != http.StatusOK {
					t.Errorf("%d %s", status, body)
				}
			}()
		}
		wg.Wait()
	}
	h.wantOnce("k", rows)
}

func TestAnEndlessBodyOfAProducerThatBreaksIsReplayedWithoutLossOrRepetition(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	url := tableURL + "k/rows?stream=true&producer_id=p&first_sequence=0"
	status, body := h.do("POST", url, rowsBody(0, 700)+"{\"id\":\"broken\"}\n"+rowsBody(701, 1000))
	if status != http.StatusBadRequest || !strings.Contains(body, `"stopped_at_row":700`) || !strings.Contains(body, `"rows":700`) {
		t.Fatalf("%d %s", status, body)
	}
	if a := h.must("POST", url, rowsBody(0, 1000)); a["rows"] != 300.0 || a["skipped"] != 700.0 {
		t.Fatalf("%v", a)
	}
	h.wantOnce("k", 1000)
}

func TestSkippedBadRowsKeepTheirSequences(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	body := rowsBody(0, 3) + "{\"id\":\"x\"}\n" + rowsBody(4, 6)
	for i, want := range []float64{5, 0} {
		a := h.must("POST", tableURL+"k/rows?on_error=skip&producer_id=p&first_sequence=0", body)
		if a["rows"] != want || a["rejected"] != 1.0 || a["skipped"] != 5-want {
			t.Fatalf("time %d: %v", i, a)
		}
	}
	a := h.must("POST", tableURL+"k/rows?producer_id=p&first_sequence=4", rowsBody(4, 8))
	if a["rows"] != 2.0 || a["skipped"] != 2.0 {
		t.Fatalf("%v", a)
	}
}

func TestProducerParametersThatMakeNoSenseAreRefused(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.keyed("k")
	for _, q := range []string{
		"producer_id=p", "first_sequence=1", "acked_below=1", "producer_id=p&first_sequence=-1", "producer_id=p&first_sequence=x",
		"producer_id=p&first_sequence=9223372036854775808", "producer_id=p&first_sequence=9223372036854775807",
		"producer_id=p&first_sequence=5&acked_below=-1", "producer_id=%ff&first_sequence=0", "producer_id=a%C3&first_sequence=0", "producer_id=" + strings.Repeat("x", 300) + "&first_sequence=0",
	} {
		if status, body := h.do("POST", tableURL+"k/rows?"+q, rowsBody(0, 2)); status != http.StatusBadRequest {
			t.Errorf("%s: %d %s", q, status, body)
		}
	}
	if status, body := h.do("POST", tableURL+"k/rows?producer_id=p&first_sequence=0", rowsBody(0, 1), "Idempotency-Key", "k"); status != http.StatusBadRequest {
		t.Errorf("%d %s", status, body)
	}
	h.wantError("POST", tableURL+"k/rows", rowsBody(0, 1), "400 invalid_argument", "Idempotency-Key", "\xff")
	// None of them is the end of the log.
	h.must("POST", tableURL+"k/rows?producer_id=%00%20%C3%A4%2F&first_sequence=0", rowsBody(0, 1))
	if status, body := h.do("GET", tableURL+"k/producers/p", ""); status != http.StatusNotFound {
		t.Errorf("%d %s", status, body)
	}
}

func TestAProducerThatNeverAdvancesAckedBelowGetsAClearError(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	for i := 0; ; i++ {
		status, body := h.do("POST", fmt.Sprintf("%so/rows?producer_id=p&first_sequence=%d&acked_below=0", tableURL, 2*i), rowsBody(i, i+1))
		if status == http.StatusOK && i < 1100 {
			continue
		}
		if status != http.StatusBadRequest || !strings.Contains(body, "acked_below") {
			t.Fatalf("after %d requests: %d %s", i, status, body)
		}
		return
	}
}

// The process dies with the answer to a request on its way; the request is repeated at its successor.
func TestAKeyOutlivesTheProcess(t *testing.T) {
	for _, after := range []bool{false, true} {
		store := objstore.NewMem()
		h := start(t, store)
		h.keyed("k")
		h.stop()
		doomed := newMortal(store, "create", "wal/", 2, after)
		h, err := tryStart(t, doomed, func(*Config) {})
		if err != nil {
			t.Fatal(err)
		}
		h.must("POST", tableURL+"k/rows", rowsBody(0, 10), "Idempotency-Key", "answered")
		h.must("POST", tableURL+"k/rows", rowsBody(10, 11), "Idempotency-Key", "alone")
		ctx, cancel := untilDeath(20*time.Second, doomed.deadCh)
		req, _ := http.NewRequestWithContext(ctx, "POST", h.url+tableURL+"k/rows", strings.NewReader(rowsBody(11, 12)))
		req.Header.Set("Idempotency-Key", "lost")
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
		}
		cancel()
		h.kill()

		h = start(t, store)
		for key, rows := range map[string][2]int{"answered": {0, 10}, "alone": {10, 11}} {
			h.wantError("POST", tableURL+"k/rows", rowsBody(20, 20+rows[1]-rows[0]), "409 already_exists", "Idempotency-Key", key)
			if a := h.must("POST", tableURL+"k/rows", rowsBody(rows[0], rows[1]), "Idempotency-Key", key); a["duplicate"] != true {
				t.Errorf("%s: %v", key, a)
			}
		}
		if a := h.must("POST", tableURL+"k/rows", rowsBody(11, 12), "Idempotency-Key", "lost"); (a["duplicate"] == true) != after {
			t.Errorf("the object was written: %v; the repetition: %v", after, a)
		}
		h.wantOnce("k", 12)
		h.stop()
	}
}
