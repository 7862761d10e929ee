package client

import (
	"io"
	"net/http"
	"testing"

	"connectrpc.com/connect"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

func TestAWriterSaysWhatItsRowsDo(t *testing.T) {
	for _, unordered := range []bool{false, true} {
		for seed := range uint64(2) { // streams of HTTP/2, and connections of their own
			p, c := newPeer(t, seed, nil)
			w, err := c.Table("d", "t").NewWriter(WriterOptions{Op: OpDelete, Columns: []string{"a", "b"}, Unordered: unordered})
			require.NoError(t, err)
			require.NoError(t, w.Write(t.Context(), values(1, 2)))
			require.NoError(t, w.Close(t.Context()))
			require.Equal(t, []string{"delete a,b"}, p.ops)
		}
	}
}

func TestLookupReturnsRowsInTheOrderOfTheKeys(t *testing.T) {
	_, c := newPeer(t, 1, nil)
	found, err := c.Table("d", "t").Lookup(t.Context(), values(4, 3, 2), LookupOptions{})
	require.NoError(t, err)
	require.Equal(t, []int32{1, 0, 1}, found.Counts)
	require.Equal(t, []int64{4, 2}, found.Rows.Column(0).(*array.Int64).Int64Values())
	found, err = c.Table("d", "t").Lookup(t.Context(), values(3), LookupOptions{})
	require.NoError(t, err)
	require.Equal(t, []int32{0}, found.Counts)
}

func TestRowsAreWrittenAndLookedUpAsJSON(t *testing.T) {
	var requests []string
	failing := 1
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests = append(requests, r.URL.Path+"?"+r.URL.RawQuery+" "+string(body))
		if failing--; failing == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"rows":[{"id":1}]}`)
	})
	users := c.Table("d", "t")
	rows, err := users.LookupRows(t.Context(), LookupOptions{Prefix: true}, map[string]any{"id": 1})
	require.NoError(t, err)
	require.Equal(t, `{"id":1}`, string(rows[0]))
	const lookup = `/v1/databases/d/tables/t/lookup? {"columns":null,"keys":[{"id":1}],"prefix":true}`
	require.Equal(t, []string{lookup, lookup}, requests, "a lookup is retried")
	requests = nil
	_, _ = users.Upsert(t.Context(), map[string]any{"id": 1})
	_, _ = users.UpsertColumns(t.Context(), []string{"a", "b"}, map[string]any{"id": 1})
	_, _ = users.Delete(t.Context(), map[string]any{"id": 1})
	_, _ = users.Append(t.Context(), []byte("x"), AppendOptions{Debezium: true})
	require.Len(t, requests, 4*3) // the answer is none of a write: each is tried three times
	require.Equal(t, "/v1/databases/d/tables/t/rows?op=upsert {\"id\":1}\n", requests[0])
	require.Equal(t, "/v1/databases/d/tables/t/rows?columns=a%2Cb&op=upsert {\"id\":1}\n", requests[3])
	require.Equal(t, "/v1/databases/d/tables/t/rows?op=delete {\"id\":1}\n", requests[6])
	require.Equal(t, "/v1/databases/d/tables/t/rows?envelope=debezium x", requests[9])
}

func TestAStreamThatBreaksWithinItsSnapshotDoesNotRepeatRows(t *testing.T) {
	_, c := newPeer(t, 1, nil)
	broken := connect.NewError(connect.CodeUnavailable, io.ErrUnexpectedEOF)
	s := c.Table("d", "t").Changes(t.Context(), ChangesOptions{Start: Snapshot})
	s.cursor, s.returned = map[int32]int64{0: -1}, 1
	require.Empty(t, s.Cursor())
	require.True(t, s.inSnapshot())
	require.Equal(t, Unavailable, ClassOf(s.broke(fromConnect(broken))))
	s.returned = 0
	require.NoError(t, s.broke(fromConnect(broken)), "without rows the snapshot begins anew")
	require.Equal(t, string(Snapshot), s.request().Start)
	require.Equal(t, &firnv1.ChangesRequest{Database: "d", Table: "t", Start: "snapshot"}, s.request())
}
