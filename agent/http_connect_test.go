package agent

import (
	"context"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/internal/objstore"
)

// h2c is a client of HTTP/2 without TLS, which gRPC needs.
func h2c() *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{Protocols: &p}}
}

func TestEveryProtocolServesTheSameMethods(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	ctx := t.Context()
	for name, c := range map[string]struct {
		http *http.Client
		opts []connect.ClientOption
	}{
		"connect-proto":    {http.DefaultClient, nil},
		"connect-proto-h2": {h2c(), nil},
		"connect-json":     {http.DefaultClient, []connect.ClientOption{connect.WithProtoJSON()}},
		"connect-get":      {http.DefaultClient, []connect.ClientOption{connect.WithHTTPGet()}},
		"grpc":             {h2c(), []connect.ClientOption{connect.WithGRPC()}},
		"grpc-web":         {http.DefaultClient, []connect.ClientOption{connect.WithGRPCWeb()}},
	} {
		catalog := firnv1connect.NewCatalogServiceClient(c.http, h.url, c.opts...)
		data := firnv1connect.NewDataServiceClient(c.http, h.url, c.opts...)
		made, err := catalog.CreateTable(ctx, connect.NewRequest(&firnv1.CreateTableRequest{
			Database: "shop", Name: name, Buckets: 2, BucketKey: []string{"id"}, Columns: []*firnv1.Column{
				{Name: "id", Type: "bigint", Required: true}, {Name: "name", Type: "text", Default: structpb.NewStringValue("-")},
			},
		}))
		if err != nil || made.Msg.Columns[0].Type != "long" || made.Msg.Columns[1].Default.GetStringValue() != "-" {
			t.Fatalf("%s: %v %v", name, made, err)
		}
		h.must("POST", tableURL+name+"/rows", rowsBody(0, 5))
		_, ipc := h.do("GET", tableURL+name+"/rows", "", "Accept", "application/vnd.apache.arrow.stream")
		first := int64(0)
		for i, want := range []int64{5, 0} {
			res, err := data.Append(ctx, connect.NewRequest(&firnv1.AppendRequest{Database: "shop", Table: name, ArrowIpc: []byte(ipc), ProducerId: "p", FirstSequence: &first}))
			if err != nil || res.Msg.Rows != want || res.Msg.Skipped != 5-want {
				t.Fatalf("%s: append %d: %v %v", name, i, res, err)
			}
		}
		count, err := data.Count(ctx, connect.NewRequest(&firnv1.CountRequest{Database: "shop", Table: name, Where: "id < 3"}))
		if err != nil || count.Msg.Count != 6 {
			t.Fatalf("%s: %v %v", name, count, err)
		}
		stream, err := data.Changes(ctx, connect.NewRequest(&firnv1.ChangesRequest{Database: "shop", Table: name}))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var progress map[int32]int64
		for stream.Receive() {
			if p := stream.Msg().Progress; len(p) > 0 {
				progress = p
			}
		}
		if stream.Err() != nil || progress[0]+progress[1] != 10 {
			t.Errorf("%s: %v %v", name, progress, stream.Err())
		}
		_, err = catalog.GetTable(ctx, connect.NewRequest(&firnv1.GetTableRequest{Database: "shop", Table: "nope"}))
		wantConnectError(t, name, err, connect.CodeNotFound, "not found")
		_, err = catalog.CreateTable(ctx, connect.NewRequest(&firnv1.CreateTableRequest{Database: "shop", Name: "pk", PrimaryKey: []string{"nope"}, Columns: made.Msg.Columns}))
		wantConnectError(t, name, err, connect.CodeInvalidArgument, "invalid")
		_, err = data.Append(ctx, connect.NewRequest(&firnv1.AppendRequest{Database: "shop", Table: name, ArrowIpc: []byte(ipc)[:len(ipc)/2]}))
		wantConnectError(t, name, err, connect.CodeInvalidArgument, "invalid")
		gone, err := data.Changes(ctx, connect.NewRequest(&firnv1.ChangesRequest{Database: "shop", Table: name, Start: "offsets:0=1000"}))
		if err == nil {
			for gone.Receive() {
			}
			err = gone.Err()
		}
		wantConnectError(t, name, err, connect.CodeOutOfRange, "out of range")
	}
}

func wantConnectError(t *testing.T, name string, err error, code connect.Code, class string) {
	t.Helper()
	if connect.CodeOf(err) != code {
		t.Errorf("%s: %v, want %s", name, err, code)
		return
	}
	var e *connect.Error
	if !asConnect(err, &e) || len(e.Details()) == 0 {
		t.Errorf("%s: no details in %v", name, err)
		return
	}
	v, verr := e.Details()[0].Value()
	if info, ok := v.(*firnv1.ErrorInfo); verr != nil || !ok || info.Class != class {
		t.Errorf("%s: details %v %v, want class %s", name, v, verr, class)
	}
}

func asConnect(err error, target **connect.Error) bool {
	e, ok := err.(*connect.Error) //nolint:errorlint // what clients return
	*target = e
	return ok
}

func TestAnAppendStreamAnswersInOrderAndStopsAtTheFirstFailure(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 5))
	_, ipc := h.do("GET", tableURL+"o/rows", "", "Accept", "application/vnd.apache.arrow.stream")
	for name, opts := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}} {
		ctx, cancel := context.WithCancel(t.Context())
		stream := firnv1connect.NewDataServiceClient(h2c(), h.url, opts...).AppendStream(ctx)
		for i := range int64(6) {
			first := i * 5
			m := &firnv1.AppendStreamRequest{Database: "shop", Table: "o", ProducerId: name, RequestId: i + 1, FirstSequence: &first, ArrowIpc: []byte(ipc)}
			if i == 4 {
				m.ArrowIpc = []byte("nonsense")
			}
			if err := stream.Send(m); err != nil && i < 4 {
				t.Fatal(err)
			}
		}
		_ = stream.CloseRequest()
		for i := range int64(5) {
			res, err := stream.Receive()
			if err != nil || res.RequestId != i+1 {
				t.Fatalf("%s: answer %d: %v %v", name, i, res, err)
			}
			if i < 4 && res.GetResult().GetRows() != 5 || i == 4 && res.GetError().GetCode() != "invalid_argument" {
				t.Errorf("%s: answer %d: %v", name, i, res)
			}
		}
		if res, err := stream.Receive(); err == nil {
			t.Errorf("%s: an answer behind the failure: %v", name, res)
		}
		_ = stream.CloseResponse()
		cancel()
	}
	if n := h.count("o", ""); n != 45 {
		t.Errorf("%d rows", n)
	}
}
