package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/require"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/internal/objstore"
)

// changesOf returns type, name and age of each change.
func (h *harness) changesOf(query string) (out []string) {
	h.t.Helper()
	status, text := h.do("GET", usersURL+"/changes?"+query, "")
	require.Equal(h.t, http.StatusOK, status, text)
	for line := range strings.Lines(text) {
		var row map[string]any
		require.NoError(h.t, json.Unmarshal([]byte(line), &row))
		if row["_progress"] != nil {
			continue
		}
		age, _ := json.Marshal(row["age"])
		out = append(out, row["_change_type"].(string)+" "+row["id"].(string)+" "+string(age))
	}
	return out
}

// oneOrg writes an insert, an update and a delete into one bucket.
func (h *harness) oneOrg(properties string) {
	h.usersTable(properties)
	h.must("POST", usersURL+"/rows", `{"org":1,"id":"a","name":"A","age":1}`+"\n"+`{"org":1,"id":"b","name":"B","age":5}`)
	h.must("POST", usersURL+"/rows?columns=age", `{"org":1,"id":"a","age":7}`)
	h.must("POST", usersURL+"/rows?op=delete", `{"org":1,"id":"b"}`)
}

func TestChangesOfAKeyedTableTellTheirTypes(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.oneOrg("")
	require.Equal(t, []string{"INSERT a 1", "INSERT b 5", "UPDATE_BEFORE a 1", "UPDATE_AFTER a 7", "DELETE b 5"}, h.changesOf(""))
	// A predicate sees old and new rows alike.
	require.Equal(t, []string{"INSERT b 5", "UPDATE_AFTER a 7", "DELETE b 5"}, h.changesOf("where=age>1"))
	require.Equal(t, []string{"INSERT a 1", "UPDATE_BEFORE a 1"}, h.changesOf("where=age=1&limit=9"))
	require.Equal(t, []string{"INSERT a 1", "INSERT b 5", "UPDATE_BEFORE a 1"}, h.changesOf("limit=3"))
}

func TestChangesWithTheRowAfterAlone(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.oneOrg(`,"changelog_image":"after"`)
	require.Equal(t, []string{"INSERT a 1", "INSERT b 5", "UPDATE_AFTER a 7", "DELETE b 5"}, h.changesOf(""))
}

func TestAStreamFromASnapshotIsTheRowsAndThenTheChanges(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.oneOrg("")
	h.must("POST", usersURL+"/rows", `{"org":1,"id":"c","name":"C","age":2}`)
	require.ElementsMatch(t, []string{"INSERT a 7", "INSERT c 2"}, h.changesOf("start=snapshot"))
	require.Equal(t, []string{"INSERT a 7"}, h.changesOf("start=snapshot&where=age=7"))
	require.Empty(t, h.changesOf("start=snapshot&limit=0"))

	c := firnv1connect.NewDataServiceClient(h2c(), h.url)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s, err := c.Changes(ctx, connect.NewRequest(&firnv1.ChangesRequest{Database: "shop", Table: "users", Start: "snapshot"}))
	require.NoError(t, err)
	var last map[int32]int64
	rows := 0
	for s.Receive() {
		if len(s.Msg().ArrowIpc) > 0 && len(last) > 0 {
			rows++
		}
		if len(s.Msg().Progress) > 0 {
			last = s.Msg().Progress
		}
	}
	require.NoError(t, s.Err())
	require.Positive(t, rows)
	for b, at := range last {
		require.GreaterOrEqual(t, at, int64(0), "the end of the snapshot is told for bucket %d", b)
	}

	// An event stream that broke among the rows begins anew, one behind them goes on.
	status, text := h.do("GET", usersURL+"/changes?start=snapshot", "", "Accept", "text/event-stream")
	require.Equal(t, 200, status)
	ids := []string{}
	for line := range strings.Lines(text) {
		if id, ok := strings.CutPrefix(line, "id: "); ok {
			ids = append(ids, strings.TrimSpace(id))
		}
	}
	require.Contains(t, ids[0], "=-1")
	_, again := h.do("GET", usersURL+"/changes?start=snapshot", "", "Accept", "text/event-stream", "Last-Event-ID", ids[0])
	require.Equal(t, text, again)
	h.must("POST", usersURL+"/rows?op=delete", `{"org":1,"id":"c"}`)
	require.Equal(t, []string{"INSERT a 7"}, h.changesOf("start=snapshot"))
	_, after := h.do("GET", usersURL+"/changes", "", "Accept", "text/event-stream", "Last-Event-ID", formatOffsets(last))
	require.Equal(t, 1, strings.Count(after, `"_change_type":"DELETE"`))
	require.Equal(t, 1, strings.Count(after, "data:"))

	h.createTable("log", 1)
	message, _ := h.errorOf(400, "GET", tableURL+"log/changes?start=snapshot", "")
	require.Contains(t, message, "needs a primary key")
}
