package lakehouse

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

const sampleMetadata = `{"format-version":2,"current-snapshot-id":9007199254740993,"snapshots":[{"snapshot-id":1},{"snapshot-id":7},{"snapshot-id":9007199254740993}],"refs":{"main":{"snapshot-id":9007199254740993,"type":"branch"},"pin":{"snapshot-id":7,"type":"tag"}},"last-sequence-number":12345678901234567}`

// fakeBackend holds two databases; failure, when set, is every call's answer.
type fakeBackend struct {
	failure error
	folds   []string
}

func (f *fakeBackend) ListNamespaces(context.Context) ([]string, error) {
	return []string{"shop", "empty"}, f.failure
}

func (f *fakeBackend) ListTables(_ context.Context, database string) ([]string, error) {
	if f.failure != nil {
		return nil, f.failure
	}
	switch database {
	case "shop":
		return []string{"orders", "a-b", "clicks"}, nil
	case "empty":
		return nil, nil
	}
	return nil, errs.New(errs.NotFound, "database %s does not exist", database)
}

func (f *fakeBackend) Load(_ context.Context, database, table string, foldFirst bool) (string, []byte, error) {
	if f.failure != nil {
		return "", nil, f.failure
	}
	if database != "shop" || (table != "orders" && table != "a-b") {
		return "", nil, errs.New(errs.NotFound, "table %s.%s does not exist", database, table)
	}
	f.folds = append(f.folds, fmt.Sprint(table, " fold=", foldFirst))
	return "s3://bucket/lake/" + table + "/metadata/v3.metadata.json", []byte(sampleMetadata), nil
}

func newCatalogServer(t *testing.T, backend CatalogBackend, opts CatalogOptions) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(CatalogPath+"/", NewCatalogHandler(backend, opts))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server
}

func call(t *testing.T, server *httptest.Server, method, path string, header http.Header) (*http.Response, map[string]any) {
	t.Helper()
	req, err := http.NewRequest(method, server.URL+CatalogPath+path, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var body map[string]any
	if len(data) > 0 {
		if err := json.Unmarshal(data, &body); err != nil {
			t.Fatalf("%s %s: body is not JSON: %q", method, path, data)
		}
	}
	return resp, body
}

func TestCatalogAnswersEachRouteWithItsStatusAndErrorType(t *testing.T) {
	server := newCatalogServer(t, &fakeBackend{}, CatalogOptions{})
	cases := []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/v1/config", 200, ""},
		{"GET", "/v1/config?warehouse=anything", 200, ""},
		{"GET", "/v1/namespaces", 200, ""},
		{"GET", "/v1/namespaces?parent=shop", 200, ""},
		{"GET", "/v1/namespaces?parent=none", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/shop", 200, ""},
		{"HEAD", "/v1/namespaces/shop", 204, ""},
		{"HEAD", "/v1/namespaces/none", 404, ""},
		{"GET", "/v1/namespaces/none", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/shop%1Fdeep", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/shop/tables", 200, ""},
		{"GET", "/v1/namespaces/empty/tables", 200, ""},
		{"GET", "/v1/namespaces/none/tables", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/shop%1Fdeep/tables", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/shop/tables/orders", 200, ""},
		{"GET", "/v1/namespaces/shop/tables/orders%24lake", 200, ""},
		{"GET", "/v1/namespaces/shop/tables/orders$lake", 200, ""},
		{"GET", "/v1/namespaces/shop/tables/a%2Db", 200, ""},
		{"HEAD", "/v1/namespaces/shop/tables/orders", 204, ""},
		{"HEAD", "/v1/namespaces/shop/tables/none", 404, ""},
		{"GET", "/v1/namespaces/shop/tables/none", 404, "NoSuchTableException"},
		{"GET", "/v1/namespaces/none/tables/orders", 404, "NoSuchTableException"},
		{"GET", "/v1/namespaces/shop%1Fdeep/tables/orders", 404, "NoSuchTableException"},
		{"GET", "/v1/namespaces/shop/tables/orders%24changelog", 404, "NoSuchTableException"},
		{"GET", "/v1/namespaces/shop/tables/orders%2Flake", 404, "NoSuchTableException"},
		{"GET", "/v1/namespaces/shop/tables/orders?snapshots=some", 400, "BadRequestException"},
		{"GET", "/v1/namespaces/shop/tables?pageSize=x", 400, "BadRequestException"},
		{"POST", "/v1/namespaces/shop/tables/orders/metrics", 204, ""},
		{"GET", "/v1/namespaces/shop/views", 200, ""},
		{"GET", "/v1/namespaces/none/views", 404, "NoSuchNamespaceException"},
		{"GET", "/v1/namespaces/shop/views/orders", 404, "NoSuchViewException"},
		{"HEAD", "/v1/namespaces/shop/views/orders", 404, ""},
		{"POST", "/v1/namespaces", 406, "UnsupportedOperationException"},
		{"DELETE", "/v1/namespaces/shop", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/shop/properties", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/shop/tables", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/shop/tables/orders", 406, "UnsupportedOperationException"},
		{"DELETE", "/v1/namespaces/shop/tables/orders", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/shop/register", 406, "UnsupportedOperationException"},
		{"POST", "/v1/namespaces/shop/views", 406, "UnsupportedOperationException"},
		{"POST", "/v1/tables/rename", 406, "UnsupportedOperationException"},
		{"POST", "/v1/transactions/commit", 406, "UnsupportedOperationException"},
		{"GET", "/v1/unheard-of", 404, "NoSuchEndpointException"},
		{"GET", "/v2/config", 404, "NoSuchEndpointException"},
	}
	for _, c := range cases {
		t.Run(c.method+" "+c.path, func(t *testing.T) {
			resp, body := call(t, server, c.method, c.path, nil)
			if resp.StatusCode != c.status {
				t.Fatalf("status %d, want %d: %v", resp.StatusCode, c.status, body)
			}
			if c.kind == "" {
				if _, isError := body["error"]; isError {
					t.Fatalf("unexpected error %v", body)
				}
				return
			}
			e := body["error"].(map[string]any)
			if e["type"] != c.kind || e["code"] != float64(c.status) || e["message"] == "" {
				t.Fatalf("error %v, want type %s", e, c.kind)
			}
		})
	}
	if resp, _ := call(t, server, "POST", "/v1/oauth/tokens", nil); resp.StatusCode != 400 {
		t.Errorf("token endpoint answered %d", resp.StatusCode)
	}
}

func TestCatalogConfigNamesEndpointsAndWhereTheFilesAre(t *testing.T) {
	server := newCatalogServer(t, &fakeBackend{}, CatalogOptions{
		Properties:  StorageProperties("http://127.0.0.1:9000", "", true),
		Credentials: S3Credentials("key", "secret", ""),
	})
	_, body := call(t, server, "GET", "/v1/config?warehouse=w", nil)
	defaults := body["defaults"].(map[string]any)
	if _, ok := body["overrides"].(map[string]any); !ok {
		t.Errorf("no overrides: %v", body)
	}
	if defaults["s3.endpoint"] != "http://127.0.0.1:9000/" || defaults["s3.region"] != "us-east-1" || defaults["s3.path-style-access"] != "true" {
		t.Errorf("defaults %v", defaults)
	}
	if _, leaked := defaults["s3.secret-access-key"]; leaked {
		t.Error("credentials stand in the catalog's configuration")
	}
	if len(body["endpoints"].([]any)) == 0 {
		t.Error("no endpoints")
	}
	_, body = call(t, server, "GET", "/v1/namespaces/shop/tables/orders", nil)
	config := body["config"].(map[string]any)
	if config["s3.access-key-id"] != "key" || config["s3.secret-access-key"] != "secret" || config["client.region"] != "us-east-1" {
		t.Errorf("table config %v", config)
	}
	plain := newCatalogServer(t, &fakeBackend{}, CatalogOptions{Properties: map[string]string{"s3.endpoint": "http://h:1"}})
	_, body = call(t, plain, "GET", "/v1/namespaces/shop/tables/orders", nil)
	config = body["config"].(map[string]any)
	if config["s3.endpoint"] != "http://h:1/" || config["s3.region"] != "us-east-1" || config["s3.access-key-id"] != nil {
		t.Errorf("table config without credentials %v", config)
	}
}

func TestOnlyLoadingThePlainNameFolds(t *testing.T) {
	backend := &fakeBackend{}
	server := newCatalogServer(t, backend, CatalogOptions{})
	call(t, server, "GET", "/v1/namespaces/shop/tables/orders", nil)
	call(t, server, "GET", "/v1/namespaces/shop/tables/orders%24lake", nil)
	call(t, server, "HEAD", "/v1/namespaces/shop/tables/orders", nil)
	got := strings.Join(backend.folds, ", ")
	if want := "orders fold=true, orders fold=false, orders fold=false"; got != want {
		t.Errorf("loads %q, want %q", got, want)
	}
}

func TestLoadTableKeepsMetadataExactAndFiltersSnapshots(t *testing.T) {
	server := newCatalogServer(t, &fakeBackend{}, CatalogOptions{})
	for _, c := range []struct{ query, snapshots string }{
		{"", `[{"snapshot-id":1},{"snapshot-id":7},{"snapshot-id":9007199254740993}]`},
		{"?snapshots=all", `[{"snapshot-id":1},{"snapshot-id":7},{"snapshot-id":9007199254740993}]`},
		{"?snapshots=refs", `[{"snapshot-id":7},{"snapshot-id":9007199254740993}]`},
	} {
		resp, err := server.Client().Get(server.URL + CatalogPath + "/v1/namespaces/shop/tables/orders" + c.query)
		if err != nil {
			t.Fatal(err)
		}
		var loaded struct {
			Location string `json:"metadata-location"`
			Metadata struct {
				Snapshots json.RawMessage `json:"snapshots"`
				Sequence  json.RawMessage `json:"last-sequence-number"`
			} `json:"metadata"`
		}
		err = json.NewDecoder(resp.Body).Decode(&loaded)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if string(loaded.Metadata.Snapshots) != c.snapshots || string(loaded.Metadata.Sequence) != "12345678901234567" {
			t.Errorf("%s: snapshots %s, sequence %s", c.query, loaded.Metadata.Snapshots, loaded.Metadata.Sequence)
		}
		if loaded.Location == "" {
			t.Errorf("%s: no metadata-location", c.query)
		}
	}
}

func TestLoadTableIsNotModifiedForTheSameETag(t *testing.T) {
	server := newCatalogServer(t, &fakeBackend{}, CatalogOptions{})
	path := "/v1/namespaces/shop/tables/orders"
	resp, _ := call(t, server, "GET", path, nil)
	etag := resp.Header.Get("ETag")
	if etag == "" {
		t.Fatal("no ETag")
	}
	resp, _ = call(t, server, "GET", path, http.Header{"If-None-Match": {`"other", ` + etag}})
	if resp.StatusCode != http.StatusNotModified {
		t.Errorf("status %d, want 304", resp.StatusCode)
	}
	resp, _ = call(t, server, "GET", path+"?snapshots=refs", http.Header{"If-None-Match": {etag}})
	if resp.StatusCode != http.StatusOK {
		t.Errorf("other content with status %d, want 200", resp.StatusCode)
	}
}

func TestCatalogPagesNames(t *testing.T) {
	server := newCatalogServer(t, &fakeBackend{}, CatalogOptions{})
	var names []string
	token := ""
	for range 5 {
		_, body := call(t, server, "GET", "/v1/namespaces/shop/tables?pageSize=2&pageToken="+token, nil)
		for _, item := range body["identifiers"].([]any) {
			names = append(names, item.(map[string]any)["name"].(string))
		}
		next, more := body["next-page-token"].(string)
		if !more {
			break
		}
		token = next
	}
	if got := strings.Join(names, " "); got != "a-b clicks orders" {
		t.Errorf("pages gave %q", got)
	}
}

func TestCatalogMapsErrorClassesToIcebergErrors(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		kind   string
	}{
		{errs.New(errs.Unavailable, "store is away"), 503, "ServiceUnavailableException"},
		{errs.New(errs.Conflict, "lost"), 503, "ServiceUnavailableException"},
		{&errs.Error{Class: errs.Exhausted, Msg: "slow down", RetryAfter: 1500 * time.Millisecond}, 429, "TooManyRequestsException"},
		{errs.New(errs.PermissionDenied, "no"), 403, "ForbiddenException"},
		{errs.New(errs.Unauthenticated, "who"), 401, "NotAuthorizedException"},
		{errs.New(errs.Corrupt, "bad bytes"), 500, "InternalServerError"},
	} {
		server := newCatalogServer(t, &fakeBackend{failure: c.err}, CatalogOptions{})
		resp, body := call(t, server, "GET", "/v1/namespaces/shop/tables/orders", nil)
		e := body["error"].(map[string]any)
		if resp.StatusCode != c.status || e["type"] != c.kind {
			t.Errorf("%v: %d %v, want %d %s", c.err, resp.StatusCode, e, c.status, c.kind)
		}
		if retriable := c.status == 503 || c.status == 429; retriable != (resp.Header.Get("Retry-After") != "") {
			t.Errorf("%v: Retry-After %q", c.err, resp.Header.Get("Retry-After"))
		}
	}
}
