package agent

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments/rows"
)

func TestLookupsAnswerInTheOrderOfTheKeys(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	h.must("POST", usersURL+"/rows", twoUsers+`{"org":2,"id":"c","name":"Cy"}`)
	body := `{"keys":[{"id":"c","org":2},{"org":3,"id":"a"},{"org":1,"id":"b"},{"org":"2","id":"c"}],"columns":["name","id"]}`
	_, text := h.do("POST", usersURL+"/lookup", body)
	require.Equal(t, `{"rows":[{"name":"Cy","id":"c"},null,{"name":"Bo","id":"b"},{"name":"Cy","id":"c"}]}`+"\n", text)
	_, text = h.do("POST", usersURL+"/lookup", body, "Accept", "application/x-ndjson", "Content-Type", "application/json")
	require.Equal(t, `{"name":"Cy","id":"c"}`+"\nnull\n"+`{"name":"Bo","id":"b"}`+"\n"+`{"name":"Cy","id":"c"}`+"\n", text)
	_, text = h.do("POST", usersURL+"/lookup", body, "Accept", "text/csv")
	require.Equal(t, "_key,name,id\n0,Cy,c\n2,Bo,b\n3,Cy,c\n", text)
	_, text = h.do("POST", usersURL+"/lookup", `{"keys":[{"org":3,"id":"a"}]}`, "Accept", "text/csv")
	require.Equal(t, "_key,name,org,id,age,plan\n", text)
	_, text = h.do("POST", usersURL+"/lookup", `{"keys":[]}`)
	require.Equal(t, `{"rows":[]}`+"\n", text)
	_, text = h.do("POST", usersURL+"/lookup?long=string", `{"keys":[{"org":2,"id":"c"}],"columns":["org"]}`)
	require.Equal(t, `{"rows":[{"org":"2"}]}`+"\n", text)

	h.must("POST", usersURL+"/rows?op=delete", `{"org":2,"id":"c"}`)
	_, text = h.do("POST", usersURL+"/lookup", `{"keys":[{"org":2,"id":"c"}]}`)
	require.Equal(t, `{"rows":[null]}`+"\n", text)
}

func TestPrefixLookupsListTheRowsOfEachPrefix(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	h.must("POST", usersURL+"/rows", twoUsers+`{"org":2,"id":"c","name":"Cy"}`)
	res := h.must("POST", usersURL+"/lookup", `{"keys":[{"org":2},{"org":5},{"org":1}],"columns":["id"],"prefix":true}`)
	lists := res["rows"].([]any)
	require.Len(t, lists, 3)
	require.Equal(t, []any{map[string]any{"id": "c"}}, lists[0])
	require.Equal(t, []any{}, lists[1])
	require.ElementsMatch(t, []any{map[string]any{"id": "a"}, map[string]any{"id": "b"}}, lists[2])

	h.must("POST", "/v1/databases/shop/tables", `{"name":"kv","columns":[{"name":"k","type":"long"}],"primary_key":["k"]}`)
	message, _ := h.errorOf(400, "POST", tableURL+"kv/lookup", `{"keys":[{"k":2}],"prefix":true}`)
	require.Contains(t, message, "bucket_key that is a prefix")
}

func TestLookupsThatCannotBeAnsweredSayWhy(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	h.createTable("log", 1)
	many := strings.Repeat(`{"org":1,"id":"a"},`, maxLookupKeys) + `{"org":1,"id":"a"}`
	for _, c := range []struct {
		status     int
		body, want string
	}{
		{400, `{"keys":[{"org":1,"id":"a"},{"org":1.5,"id":"a"}]}`, `keys[1]: column "org"`},
		{400, `{"keys":[{"org":1,"id":"a"},{"org":1}]}`, `keys[1]: column "id": the column is required and missing`},
		{400, `{"keys":[{"org":1,"id":null}]}`, `keys[0]: column "id"`},
		{400, `{"keys":[{"org":1,"id":"a","age":3}]}`, `keys[0]: column "age"`},
		{400, `{"keys":[7]}`, `keys[0]: a row must be a JSON object`},
		{400, `{"keys":{"org":1,"id":"a"}}`, `"keys" must be a list`},
		{400, `{}`, `"keys" must be a list`},
		{400, `{"keys":[`, "no lookup"},
		{400, `{"key":[]}`, `unknown field "key"`},
		{400, `{"keys":[]} {}`, "goes on"},
		{400, `{"keys":[{"org":1,"id":"a"}],"columns":["zip"]}`, `unknown column "zip"`},
		{413, `{"keys":[` + many + `]}`, "the limit is 10000"},
		{501, `{"keys":[{"org":1,"id":"a"}],"insert_if_not_exists":true}`, "insert_if_not_exists"},
	} {
		message, answer := h.errorOf(c.status, "POST", usersURL+"/lookup", c.body)
		require.Contains(t, message, c.want)
		if c.status == 413 {
			require.Equal(t, map[string]any{"limit": 10000.0}, answer["details"].([]any)[0])
		}
	}
	message, _ := h.errorOf(400, "POST", tableURL+"log/lookup", `{"keys":[]}`)
	require.Contains(t, message, "no primary key")
	h.errorOf(404, "POST", tableURL+"none/lookup", `{"keys":[]}`)
	h.errorOf(415, "POST", usersURL+"/lookup", "x", "Content-Type", "text/csv")
	h.errorOf(406, "POST", usersURL+"/lookup", `{"keys":[]}`, "Accept", "text/html")
}

func TestLookupsAreBoundedByTheBytesOfTheirRows(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.MaxRequestBytes = 1 << 20 })
	h.usersTable("")
	h.must("POST", usersURL+"/rows", fmt.Sprintf(`{"org":1,"id":"a","name":%q}`, strings.Repeat("x", 500<<10)))
	_, answer := h.errorOf(413, "POST", usersURL+"/lookup", `{"keys":[`+strings.Repeat(`{"org":1,"id":"a"},`, 5)+`{"org":1,"id":"a"}]}`)
	require.Equal(t, map[string]any{"limit": float64(1 << 20)}, answer["details"].([]any)[0])
}

func TestTheServiceLooksUpAndWritesArrow(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	c := firnv1connect.NewDataServiceClient(h2c(), h.url)
	ctx := context.Background()
	def, _, err := h.agent.tableAndOwner(ctx, "shop", "users")
	require.NoError(t, err)
	all := def.Current()
	body, err := encodeRows(batch(t, all, []any{"Ann", int64(1), "a", int32(30), "free"}), rows.EncodeOptions{Schema: all.Arrow(), Table: all, Format: rows.ArrowStream})
	require.NoError(t, err)
	_, err = c.Append(ctx, connect.NewRequest(&firnv1.AppendRequest{Database: "shop", Table: "users", ArrowIpc: body}))
	require.NoError(t, err)

	key, err := all.Select([]string{"org", "id"})
	require.NoError(t, err)
	keys, err := encodeRows(batch(t, key, []any{int64(2), "a"}, []any{int64(1), "a"}), rows.EncodeOptions{Schema: key.Arrow(), Table: key, Format: rows.ArrowStream})
	require.NoError(t, err)
	lookup := func() *firnv1.LookupResponse {
		res, err := c.Lookup(ctx, connect.NewRequest(&firnv1.LookupRequest{Database: "shop", Table: "users", Keys: keys, Columns: []string{"age"}}))
		require.NoError(t, err)
		return res.Msg
	}
	found := lookup()
	require.Equal(t, []int32{0, 1}, found.Counts)
	rd, err := ipc.NewReader(bytes.NewReader(found.Rows))
	require.NoError(t, err)
	require.True(t, rd.Next())
	require.Equal(t, int32(30), rd.RecordBatch().Column(0).(*array.Int32).Value(0))

	part, err := all.Select([]string{"org", "id", "age"})
	require.NoError(t, err)
	older, err := encodeRows(batch(t, part, []any{int64(1), "a", int32(31)}), rows.EncodeOptions{Schema: part.Arrow(), Table: part, Format: rows.ArrowStream})
	require.NoError(t, err)
	_, err = c.Append(ctx, connect.NewRequest(&firnv1.AppendRequest{Database: "shop", Table: "users", ArrowIpc: older, Columns: []string{"age"}}))
	require.NoError(t, err)
	require.Contains(t, h.scanned("users"), `"name":"Ann","org":1,"id":"a","age":31`)

	stream := c.AppendStream(ctx)
	require.NoError(t, stream.Send(&firnv1.AppendStreamRequest{Database: "shop", Table: "users", Op: "delete", ArrowIpc: older, RequestId: 1}))
	answer, err := stream.Receive()
	require.NoError(t, err)
	require.EqualValues(t, 1, answer.GetResult().GetRows())
	require.NoError(t, stream.CloseRequest())
	require.Equal(t, []int32{0, 0}, lookup().Counts)
	_, err = c.Append(ctx, connect.NewRequest(&firnv1.AppendRequest{Database: "shop", Table: "users", ArrowIpc: body, Op: "append"}))
	require.Equal(t, connect.CodeInvalidArgument, connect.CodeOf(err))
}
