package restfront_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/api/jsonwire"
	"github.com/firn-data/firn/internal/apierr"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/restfront"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
)

// catalog records the last request and answers with what the test wants.
type catalog struct {
	firnv1connect.UnimplementedCatalogServiceHandler
	got  proto.Message
	auth string
	err  error
}

func (c *catalog) CreateTable(_ context.Context, r *connect.Request[firnv1.CreateTableRequest]) (*connect.Response[firnv1.Table], error) {
	c.got, c.auth = r.Msg, r.Header().Get("Authorization")
	if c.err != nil {
		return nil, apierr.Connect(c.err)
	}
	return connect.NewResponse(&firnv1.Table{Name: r.Msg.Name, Id: 1 << 60}), nil
}

func (c *catalog) AlterTable(_ context.Context, r *connect.Request[firnv1.AlterTableRequest]) (*connect.Response[firnv1.Table], error) {
	c.got = r.Msg
	return connect.NewResponse(&firnv1.Table{}), nil
}

func (c *catalog) DropDatabase(_ context.Context, r *connect.Request[firnv1.DropDatabaseRequest]) (*connect.Response[firnv1.DropDatabaseResponse], error) {
	c.got = r.Msg
	return connect.NewResponse(&firnv1.DropDatabaseResponse{}), nil
}

func (c *catalog) FoldTable(_ context.Context, r *connect.Request[firnv1.FoldTableRequest]) (*connect.Response[firnv1.FoldTableResponse], error) {
	c.got = r.Msg
	return connect.NewResponse(&firnv1.FoldTableResponse{}), nil
}

func (c *catalog) GetProducer(_ context.Context, r *connect.Request[firnv1.GetProducerRequest]) (*connect.Response[firnv1.Producer], error) {
	c.got = r.Msg
	return connect.NewResponse(&firnv1.Producer{ProducerId: r.Msg.ProducerId}), nil
}

func serve(t *testing.T, c *catalog) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	path, h := firnv1connect.NewCatalogServiceHandler(c, connect.WithCodec(jsonwire.Codec{}))
	mux.Handle(path, h)
	routes, err := restfront.Routes(path, h)
	require.NoError(t, err)
	for _, r := range routes {
		mux.Handle(r.Pattern(), r)
	}
	srv := httptest.NewServer(restfront.JSONErrors(mux))
	t.Cleanup(srv.Close)
	return srv
}

func do(t *testing.T, method, url, contentType, body string) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer t")
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(b), resp.Header
}

const createBody = `{"name": "orders",
 "columns": [{"name": "order_id", "type": "long", "required": true},
             {"name": "ts", "type": "timestamptz"}, {"name": "amount", "type": "decimal(10,2)"}],
 "primary_key": ["order_id"],
 "buckets": 4, "bucket_key": ["order_id"],
 "partition_by": ["day(ts)"],
 "properties": {"merge_engine": "last_row", "fold_interval": "60s"}}`

func TestTheDocumentedCreateBodyArrivesWhole(t *testing.T) {
	c := &catalog{}
	status, body, _ := do(t, "POST", serve(t, c).URL+"/v1/databases/shop/tables", "application/json; charset=utf-8", createBody)
	require.Equal(t, 200, status, body)
	require.Contains(t, body, `"id":1152921504606846976`)
	got := c.got.(*firnv1.CreateTableRequest)
	require.Equal(t, "shop", got.Database)
	require.Equal(t, "orders", got.Name)
	require.Len(t, got.Columns, 3)
	require.Equal(t, "60s", got.Properties["fold_interval"])
	require.Equal(t, "Bearer t", c.auth)
}

func TestTheDocumentedAlterBodyArrivesWhole(t *testing.T) {
	c := &catalog{}
	status, body, _ := do(t, "PATCH", serve(t, c).URL+"/v1/databases/shop/tables/orders", "", `{"changes": [
	 {"add_column": {"name": "note", "type": "string", "default": "", "after": "ts"}}, {"rename_column": {"from": "amount", "to": "total"}},
	 {"drop_column": {"name": "x"}}, {"widen_column": {"name": "qty", "type": "long"}}, {"make_optional": {"name": "y"}},
	 {"set_properties": {"fold_interval": "10s"}}, {"unset_properties": ["retention"]}, {"set_partition_by": ["day(ts)"]}]}`)
	require.Equal(t, 200, status, body)
	ch := c.got.(*firnv1.AlterTableRequest).Changes
	require.Len(t, ch, 8)
	require.Equal(t, "", ch[0].AddColumn.Default.AsInterface())
	require.Equal(t, "total", ch[1].RenameColumn.To)
	require.Equal(t, "10s", ch[5].SetProperties["fold_interval"])
	require.Equal(t, []string{"retention"}, ch[6].UnsetProperties)
	require.Equal(t, []any{"day(ts)"}, ch[7].SetPartitionBy.AsSlice())
}

func TestQueryParametersAndEscapedPathVariablesAreRead(t *testing.T) {
	c := &catalog{}
	url := serve(t, c).URL
	for q, want := range map[string]bool{"?cascade=true": true, "?cascade": true, "?cascade=false": false, "": false} {
		status, body, _ := do(t, "DELETE", url+"/v1/databases/a%20b"+q, "", "")
		require.Equal(t, 200, status, body)
		require.Equal(t, "{}\n", body)
		require.Equal(t, want, c.got.(*firnv1.DropDatabaseRequest).Cascade, q)
		require.Equal(t, "a b", c.got.(*firnv1.DropDatabaseRequest).Database)
	}
	status, body, _ := do(t, "GET", url+"/v1/databases/d/tables/t/producers/a%2Fb%C3%A9", "", "")
	require.Equal(t, 200, status)
	require.JSONEq(t, `{"producer_id":"a/bé","watermark":0,"buckets":[]}`, body)
}

func TestAnEmptyBodyIsAnEmptyRequest(t *testing.T) {
	c := &catalog{}
	status, body, _ := do(t, "POST", serve(t, c).URL+"/v1/databases/d/tables/t/fold", "", "")
	require.Equal(t, 200, status, body)
	require.Equal(t, "t", c.got.(*firnv1.FoldTableRequest).Table)
}

func TestBadRequestsAreRefusedInTheErrorForm(t *testing.T) {
	c := &catalog{}
	url := serve(t, c).URL
	for _, tc := range []struct {
		method, path, contentType, body string
		status                          int
		code, says                      string
	}{
		{"POST", "/v1/databases/d/tables", "", `{"name":"t","bucket_kee":["a"]}`, 400, "invalid_argument", "bucket_kee"},
		{"POST", "/v1/databases/d/tables", "", `{"name":`, 400, "invalid_argument", "JSON"},
		{"POST", "/v1/databases/d/tables", "", `{"database":"other","name":"t"}`, 400, "invalid_argument", "differs from the path"},
		{"POST", "/v1/databases/d/tables", "text/plain", `{"name":"t"}`, 415, "unimplemented", "application/json"},
		{"POST", "/v1/databases/d/tables", "", `{"name":"` + strings.Repeat("x", restfront.MaxBodyBytes) + `"}`, 413, "resource_exhausted", "4194304"},
		{"DELETE", "/v1/databases/d?cascade=maybe", "", "", 400, "invalid_argument", "cascade"},
		{"DELETE", "/v1/databases/d?kascade=true", "", "", 400, "invalid_argument", "cascade, if_exists"},
		{"DELETE", "/v1/databases/d?cascade=true&cascade=true", "", "", 400, "invalid_argument", "2 times"},
		{"DELETE", "/v1/databases/d", "", "{}", 400, "invalid_argument", "takes no body"},
		{"GET", "/v1/nothing", "", "", 404, "not_found", "/v1/nothing"},
		{"PUT", "/v1/databases", "", "", 405, "unimplemented", "GET, HEAD, POST"},
		{"GET", "/v1/databases/d/tables/t", "", "", 501, "unimplemented", "GetTable"},
	} {
		status, body, header := do(t, tc.method, url+tc.path, tc.contentType, tc.body)
		require.Equal(t, tc.status, status, "%s %s: %s", tc.method, tc.path, body)
		require.Equal(t, "application/json", header.Get("Content-Type"))
		var got struct {
			Code, Message string
			Details       []any
		}
		require.NoError(t, json.Unmarshal([]byte(body), &got), body)
		require.Equal(t, tc.code, got.Code)
		require.Contains(t, got.Message, tc.says)
		require.NotNil(t, got.Details)
	}
}

func TestHandlerErrorsKeepClassDetailsAndRetryAfter(t *testing.T) {
	c := &catalog{}
	url := serve(t, c).URL
	for class, want := range map[errs.Class]int{errs.OutOfRange: 410, errs.Conflict: 409, errs.TooLarge: 413, errs.Exhausted: 429, errs.Unavailable: 503} {
		c.err = &errs.Error{Class: class, Msg: "because", Details: []any{map[string]any{"earliest": 12}}}
		status, body, header := do(t, "POST", url+"/v1/databases/d/tables", "", `{"name":"t"}`)
		require.Equal(t, want, status)
		require.Contains(t, body, `"message":"because","details":[{"earliest":12}]`)
		require.Equal(t, want == 429 || want == 503, header.Get("Retry-After") != "")
	}
}

func TestEveryAnnotatedMethodHasARoute(t *testing.T) {
	h := http.NotFoundHandler()
	n := 0
	for _, name := range []string{firnv1connect.CatalogServiceName, firnv1connect.ClusterServiceName, firnv1connect.DataServiceName} {
		routes, err := restfront.Routes("/"+name+"/", h)
		require.NoError(t, err)
		n += len(routes)
	}
	require.Equal(t, 16, n)
	_, err := restfront.Routes("/firn.v1.NoService/", h)
	require.Error(t, err)
}
