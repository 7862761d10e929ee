package agent

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

func TestErrorsHaveTheirStatusCodeAndForm(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 3))
	const tables = "/v1/databases/shop/tables"
	for _, c := range [][]string{
		{"GET", "/", "", "404 not_found"},
		{"GET", "/v1/nope", "", "404 not_found"},
		{"GET", "/v1/databases/", "", "404 not_found"},
		{"GET", "//v1/databases", "", "404 not_found"},
		{"POST", "//v1/databases", `{"name":"lost"}`, "404 not_found"},
		{"GET", "/v1//databases", "", "404 not_found"},
		{"GET", "/v1/./databases", "", "404 not_found"},
		{"GET", "/v1/x/../databases", "", "404 not_found"},
		{"GET", "/v1/databases/shop//tables/o/rows", "", "404 not_found"},
		{"POST", tableURL + "o/rows/", "{}", "404 not_found"},
		{"GET", "/v1/databases/a%2F..%2Fb/tables", "", "404 not_found"},
		{"TRACE", "/v1/databases", "", "405 unimplemented"},
		{"PROPFIND", "/metrics", "", "405 unimplemented"},
		{"PUT", "/v1/nope", "", "404 not_found"},
		{"PUT", "/v1/databases", "", "405 unimplemented"},
		{"DELETE", tableURL + "o/rows", "", "405 unimplemented"},
		{"POST", tableURL + "o/count", "", "405 unimplemented"},
		{"GET", tableURL + "o/fold", "", "405 unimplemented"},
		{"POST", "/health", "", "405 unimplemented"},
		{"POST", "/firn.v1.CatalogService/Nope", "{}", "404 unimplemented"},
		{"POST", "/firn.v1.Nope/Nope", "{}", "404 unimplemented"},
		{"PUT", "/firn.v1.CatalogService/GetTable", "{}", "405 unimplemented"},
		{"POST", "/firn.v1.CatalogService/GetTable", "{}", "415 unimplemented", "Content-Type", "text/plain"},

		{"POST", "/v1/databases", `{"name":"shop"}`, "409 already_exists"},
		{"POST", "/v1/databases", `{"name":"a b"}`, "400 invalid_argument"},
		{"POST", "/v1/databases", `{"name":1}`, "400 invalid_argument"},
		{"POST", "/v1/databases", `{"nmae":"x"}`, "400 invalid_argument"},
		{"POST", "/v1/databases", `{"name":`, "400 invalid_argument"},
		{"POST", "/v1/databases", `[]`, "400 invalid_argument"},
		{"POST", "/v1/databases", `{"name":"x"}`, "415 unimplemented", "Content-Type", "text/plain"},
		{"POST", "/v1/databases", `{"name":"x"}`, "415 unimplemented", "Content-Encoding", "gzip"},
		{"POST", "/v1/databases", `{"name":"` + strings.Repeat("x", 5<<20) + `"}`, "413 resource_exhausted"},
		{"DELETE", "/v1/databases/shop", "", "409 failed_precondition"},
		{"DELETE", "/v1/databases/nope", "", "404 not_found"},
		{"DELETE", "/v1/databases/shop?cascade=maybe", "", "400 invalid_argument"},
		{"DELETE", "/v1/databases/shop?cascade=%zz", "", "400 invalid_argument"},

		{"POST", tables, `{"database":"other","name":"t","columns":[{"name":"a","type":"int"}]}`, "400 invalid_argument"},
		{"PATCH", tableURL + "o", `{"table":"p","changes":[{"set_comment":"x"}]}`, "400 invalid_argument"},
		{"PATCH", tableURL + "o", `{"database":"p","changes":[{"set_comment":"x"}]}`, "400 invalid_argument"},
		{"POST", tableURL + "o/fold", `{"table":"nope"}`, "400 invalid_argument"},
		{"POST", tableURL + "o/fold?table=nope", "", "400 invalid_argument"},
		{"POST", tableURL + "o/compact?target_file_bytes=1000000", `{"target_file_bytes":2000000}`, "400 invalid_argument"},
		{"GET", "/v1/databases/nope/tables", "", "404 not_found"},
		{"POST", "/v1/databases/nope/tables", `{"name":"t","columns":[{"name":"a","type":"int"}]}`, "404 not_found"},
		{"POST", tables, `{"name":"o","columns":[{"name":"a","type":"int"}]}`, "409 already_exists"},
		{"POST", tables, `{"name":"t","columns":[{"name":"a","type":"int"}],"primary_key":["b"]}`, "400 invalid_argument"},
		{"POST", tables, `{"name":"t","columns":[{"name":"a","type":"tint"}]}`, "400 invalid_argument"},
		{"GET", tableURL + "nope", "", "404 not_found"},
		{"PATCH", tableURL + "nope", `{"changes":[{"drop_column":{"name":"x"}}]}`, "404 not_found"},
		{"PATCH", tableURL + "o", `{"changes":[]}`, "400 invalid_argument"},
		{"PATCH", tableURL + "o", `{"changes":[{"drop_column":{"name":"x"}}]}`, "400 invalid_argument"},
		{"DELETE", tableURL + "nope", "", "404 not_found"},
		{"GET", tableURL + "nope/offsets", "", "404 not_found"},
		{"GET", tableURL + "nope/snapshots", "", "404 not_found"},
		{"POST", tableURL + "nope/fold", "", "404 not_found"},
		{"POST", tableURL + "nope/compact", "", "404 not_found"},
		{"POST", tableURL + "nope/expire", "", "404 not_found"},
		{"POST", tableURL + "o/expire", `{"older_than":"soon"}`, "400 invalid_argument"},
		{"POST", tableURL + "o/compact", `{"target_file_bytes":-1}`, "400 invalid_argument"},
		{"POST", tableURL + "o/expire", `{"keep_last":-1}`, "400 invalid_argument"},
		{"GET", tableURL + "o/producers/nobody", "", "404 not_found"},

		{"POST", tableURL + "nope/rows", "{}", "404 not_found"},
		{"POST", tableURL + "o/rows?op=upsert", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?op=delete", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?op=nope", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?columns=name", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?envelope=debezium", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?on_error=x", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?on_error=%zz", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?nope=1", "{}", "400 invalid_argument"},
		{"POST", tableURL + "o/rows?stream=true", "{}", "400 invalid_argument", "Idempotency-Key", "k"},
		{"POST", tableURL + "o/rows", "{}", "415 unimplemented", "Content-Type", "application/xml"},
		{"POST", tableURL + "o/rows", "{}", "415 unimplemented", "Content-Type", "application/json; charset=latin1"},
		{"POST", tableURL + "o/rows", "{}", "415 unimplemented", "Content-Encoding", "br"},
		{"POST", tableURL + "o/rows", "{", "400 invalid_argument"},
		{"POST", tableURL + "o/rows", "[{\"id\":1}", "400 invalid_argument", "Content-Type", "application/json"},
		{"POST", tableURL + "o/rows", "nonsense", "400 invalid_argument", "Content-Type", "application/vnd.apache.arrow.stream"},
		{"POST", tableURL + "o/rows", "nonsense", "400 invalid_argument", "Content-Type", "application/vnd.apache.parquet"},
		{"POST", tableURL + "o/rows", "id,nope\n1,2\n", "400 invalid_argument", "Content-Type", "text/csv"},

		{"GET", tableURL + "nope/rows", "", "404 not_found"},
		{"GET", tableURL + "o/rows", "", "406 unimplemented", "Accept", "text/html"},
		{"GET", tableURL + "o/rows", "", "406 unimplemented", "Accept", "text/event-stream"},
		{"GET", tableURL + "o/rows", "", "406 unimplemented", "Accept", "application/vnd.apache.arrow.file"},
		{"POST", tableURL + "o/rows", "id\n1\n", "415 unimplemented", "Content-Type", "text/csv; header=absent"},
		{"GET", tableURL + "o/rows", "", "406 unimplemented", "Accept", "*/*;q=0"},
		{"GET", tableURL + "o/rows?columns=nope", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?columns=id,id", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?where=id%20%3E", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?limit=x", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?limit=1&limit=2", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?layer=x", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?layer=x&snapshot=1", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?snapshot=1&as_of=2020-01-01T00:00:00Z", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?snapshot=1", "", "404 not_found"},
		{"GET", tableURL + "o/rows?as_of=2020-01-01T00:00:00Z", "", "404 not_found"},
		{"GET", tableURL + "o/rows?as_of=yesterday", "", "400 invalid_argument"},
		{"GET", tableURL + "o/rows?long=int", "", "400 invalid_argument"},
		{"GET", tableURL + "o/count?layer=x", "", "400 invalid_argument"},
		{"GET", tableURL + "o/count?where=x", "", "400 invalid_argument"},
		{"GET", tableURL + "o/changes?follow=true", "", "400 invalid_argument", "Accept", "application/vnd.apache.parquet"},
		{"POST", tableURL + "o/lookup", `{"keys":[{"id":1}]}`, "400 invalid_argument"},
	} {
		h.wantError(c[0], c[1], c[2], c[3], c[4:]...)
	}
	if n := h.count("o", ""); n != 3 {
		t.Errorf("%d rows after errors", n)
	}
}

func TestHeadAndOptionsAnswerWithoutReadingRows(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 3))
	for path, want := range map[string]string{
		tableURL + "o": "200 application/json", tableURL + "o/rows": "200 application/x-ndjson", tableURL + "o/rows?where=nope": "400 application/json",
		tableURL + "o/changes?follow=true": "200 application/x-ndjson", tableURL + "o/count": "200 application/json", "/v1/nope": "404 application/json",
		tableURL + "nope/rows": "404 application/json", "/health": "200 application/json",
	} {
		res, err := http.Head(h.url + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := fmt.Sprint(res.StatusCode, " ", res.Header.Get("Content-Type")); got != want {
			t.Errorf("HEAD %s: %s, want %s", path, got, want)
		}
	}
	for path, allow := range map[string]string{
		tableURL + "o/rows": "GET, HEAD, POST, OPTIONS", tableURL + "o": "GET, HEAD, PATCH, DELETE, OPTIONS", "/v1/databases": "GET, HEAD, POST, OPTIONS", tableURL + "o/fold": "POST, OPTIONS",
	} {
		req, _ := http.NewRequest(http.MethodOptions, h.url+path, http.NoBody)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNoContent || res.Header.Get("Allow") != allow {
			t.Errorf("OPTIONS %s: %d %s", path, res.StatusCode, res.Header.Get("Allow"))
		}
	}
}

func TestATokenIsAskedForEverywhereButByProbes(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.Token = "secret" })
	for _, path := range []string{"/health", "/healthz", "/livez", "/readyz", "/metrics"} {
		if status, body := h.do("GET", path, ""); status != http.StatusOK {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, header := range [][]string{nil, {"Authorization", "Bearer wrong"}, {"Authorization", "Bearer"}, {"Authorization", "Basic c2VjcmV0"}, {"Authorization", "secret"}} {
		h.wantError("GET", "/v1/databases", "", "401 unauthenticated", header...)
		h.wantError("POST", "/firn.v1.CatalogService/ListDatabases", "{}", "401 unauthenticated", append(header, "Content-Type", "application/json")...)
	}
	for _, scheme := range []string{"Bearer", "bearer"} {
		if status, body := h.do("GET", "/v1/databases", "", "Authorization", scheme+" secret"); status != http.StatusOK {
			t.Errorf("%s: %d %s", scheme, status, body)
		}
	}
	status, body := h.do("GET", "/iceberg/v1/config", "")
	if status != http.StatusUnauthorized || !strings.Contains(body, `"error"`) {
		t.Errorf("iceberg: %d %s", status, body)
	}
}

func TestMetricsTellRowsRequestsAndStoreOperations(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 7))
	h.must("POST", tableURL+"o/fold", "")
	h.do("GET", tableURL+"o/rows", "")
	h.do("GET", tableURL+"nope/rows", "")
	_, body := h.do("GET", "/metrics", "")
	for _, want := range []string{
		"firn_rows_appended_total 7", "firn_rows_read_total 7", "firn_folds_total 1", "firn_fold_rows_total 7", "firn_wal_objects_total 1", "firn_unfolded_bytes 0",
		`firn_http_requests_total{route="GET /v1/databases/{database}/tables/{table}/rows",status="404"} 1`,
		`firn_store_operations_total{class="wal"`, "firn_append_seconds_count 1", "go_goroutines",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
}

func TestNoRouteRedirects(t *testing.T) {
	h := start(t, objstore.NewMem())
	direct := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for path, form := range map[string]string{"/iceberg": `{"error":{`, "/iceberg//v1/config": `{"error":{`, "//iceberg/v1/config": `{"code":`, "//v1/databases": `{"code":`, "/metrics/": `{"code":`, "/firn.v1.DataService": `{"code":`} {
		res, err := direct.Get(h.url + path)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusNotFound || !strings.HasPrefix(string(body), form) {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

func TestAPathAndABodyThatAgreeAreServed(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"database":"shop","name":"o","columns":[{"name":"a","type":"int"}]}`)
	h.must("POST", tableURL+"o/fold", `{"database":"shop","table":"o"}`)
	h.must("POST", tableURL+"o/compact?target_file_bytes=1000000", `{}`)
}

// What a program needs to know stands in the details, not only in the text.
func TestErrorsTellProgramsTheLimitTheRowAndTheAcceptedTypes(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.MaxRequestBytes = 64 << 10 })
	h.createTable("o", 1)
	long := strings.Repeat(`{"id":1,"name":"abcdefgh"}`+"\n", 4000)
	limit := `{"limit":65536}`
	for _, c := range []struct {
		method, path, body, want string
		header                   []string
		detail                   []string
	}{
		{"POST", "rows", long, "413 resource_exhausted", nil, []string{limit}},
		{"POST", "rows", zipped(t, long, 9), "413 resource_exhausted", []string{"Content-Encoding", "gzip"}, []string{limit}},
		{"POST", "compact", `{"x":"` + strings.Repeat("x", 5<<20) + `"}`, "413 resource_exhausted", nil, []string{`{"limit":4194304}`}},
		{"POST", "rows", `{"id":1}` + "\n" + `{"id":"x"}`, "400 invalid_argument", nil, []string{`{"row":1,"column":"id","reason":"`, `"rejected":1`}},
		{"POST", "rows", strings.Repeat(`{"id":"x"}`+"\n", 250), "400 invalid_argument", nil, []string{`{"row":99,`, `"rejected":250`, "250 bad rows"}},
		{"GET", "rows?where=id%20=%20'x'", "", "400 invalid_argument", nil, []string{`{"position":6,"token":"'x'"}`}},
		{"POST", "rows", "{}", "415 unimplemented", []string{"Content-Type", "a/b"}, []string{`{"accepted":["application/x-ndjson","application/json","text/csv","application/vnd.apache.arrow.stream","application/vnd.apache.parquet"]}`}},
		{"POST", "rows", "{}", "415 unimplemented", []string{"Content-Encoding", "br"}, []string{`{"accepted":["identity","gzip","zstd"]}`}},
		{"GET", "rows", "", "406 unimplemented", []string{"Accept", "text/html"}, []string{`{"accepted":["application/x-ndjson",`}},
		{"GET", "changes", "", "406 unimplemented", []string{"Accept", "text/html"}, []string{`"text/event-stream"]}`}},
		{"POST", "compact", "{}", "415 unimplemented", []string{"Content-Type", "text/csv"}, []string{`{"accepted":["application/json"]}`}},
	} {
		text := h.wantError(c.method, tableURL+"o/"+c.path, c.body, c.want, c.header...)
		for _, d := range c.detail {
			if !strings.Contains(text, d) {
				t.Errorf("%s %s: no %s in %.300s", c.method, c.path, d, text)
			}
		}
		if strings.Contains(text, `{"row":100,`) {
			t.Errorf("more than 100 rows in %s", text)
		}
	}
}

func TestAnErrorThatPassesTellsWhetherTheRequestMayHaveBeenApplied(t *testing.T) {
	store := newBrokenStore()
	h := start(t, store, func(c *Config) { c.AckTimeout = 100 * time.Millisecond })
	h.createTable("o", 1)
	rule, held, open := gate(func(key string) bool { return strings.HasPrefix(key, "wal/") })
	store.breaks(rule)
	defer open()
	text := h.wantError("POST", tableURL+"o/rows", rowsBody(0, 1), "503 unavailable")
	<-held
	if !strings.Contains(text, `"details":[{"class":"unknown outcome","retry_after_ms":5000}]`) {
		t.Error(text)
	}
	_, err := clientOf(t, h).Table("shop", "o").AppendReader(t.Context(), strings.NewReader(rowsBody(1, 2)), client.AppendOptions{})
	if client.ClassOf(err) != client.Unknown {
		t.Errorf("the SDK takes %v for %s", err, client.ClassOf(err))
	}
	for class, want := range map[errs.Class]string{errs.Unavailable: "unavailable", errs.Fenced: "fenced", errs.Exhausted: "exhausted", errs.Closed: "closed", errs.Unknown: "unknown outcome"} {
		if b := bodyOf(errs.New(class, "x")); b.Details[0] != (refusal{want, 1000}) {
			t.Errorf("%s: %v", class, b.Details)
		}
	}
	for _, class := range []errs.Class{errs.Invalid, errs.NotFound, errs.TooLarge, errs.Corrupt} {
		if b := bodyOf(errs.New(class, "x")); len(b.Details) != 0 {
			t.Errorf("%s: %v", class, b.Details)
		}
	}
}

func clientOf(t testing.TB, h *harness) *client.Client {
	t.Helper()
	c, err := client.New(h.url, client.WithRetry(client.NoRetry))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestRefusalsThatPassSayWhenToComeBack(t *testing.T) {
	for class, face := range faces {
		if d := retryHint(errs.New(class, "x"), face.status); (d > 0) != (face.status == 429 || face.status == 503) {
			t.Errorf("%s: status %d, Retry-After %s", class, face.status, d)
		}
	}
}
