package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments/rows"
)

// keyed makes shop.users: keys org and id, a required column, and others.
func (h *harness) usersTable(properties string) {
	h.t.Helper()
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"users","columns":[{"name":"name","type":"string","required":true},{"name":"org","type":"long"},
		{"name":"id","type":"string"},{"name":"age","type":"int"},{"name":"plan","type":"string","default":"free"}],
		"primary_key":["org","id"],"bucket_key":["org"],"buckets":4,"properties":{"fold_interval":"0"`+properties+`}}`)
}

const usersURL = tableURL + "users"

// scanned is a table's rows in order, as NDJSON.
func (h *harness) scanned(table string) string {
	h.t.Helper()
	status, text := h.do("GET", tableURL+table+"/rows", "")
	require.Equal(h.t, http.StatusOK, status, text)
	lines := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// errorOf sends a request that has to fail, and returns its answer.
func (h *harness) errorOf(status int, method, path, body string, header ...string) (message string, answer map[string]any) {
	h.t.Helper()
	got, text := h.do(method, path, body, header...)
	require.Equal(h.t, status, got, text)
	require.NoError(h.t, json.Unmarshal([]byte(text), &answer))
	return answer["message"].(string), answer
}

const twoUsers = `{"org":1,"id":"a","name":"Ann","age":30}` + "\n" + `{"org":1,"id":"b","name":"Bo","plan":"pro"}` + "\n"

func TestRowsOfAKeyedTableAreUpsertedAndDeleted(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	res := h.must("POST", usersURL+"/rows", twoUsers)
	require.EqualValues(t, 2, res["rows"])
	bucket := res["buckets"].([]any)[0].(map[string]any)
	require.EqualValues(t, 0, bucket["base_offset"])
	require.EqualValues(t, 2, bucket["count"])
	require.EqualValues(t, 2, bucket["end_offset"])

	// An update is two changes, and a repetition none.
	res = h.must("POST", usersURL+"/rows?op=upsert", `{"org":1,"id":"a","name":"Anna","age":31}`+"\n"+`{"org":1,"id":"b","name":"Bo","plan":"pro"}`)
	bucket = res["buckets"].([]any)[0].(map[string]any)
	require.EqualValues(t, 2, res["rows"])
	require.EqualValues(t, 2, bucket["base_offset"])
	require.EqualValues(t, 2, bucket["count"])
	require.EqualValues(t, 4, bucket["end_offset"])

	// A delete holds keys: what else the body has of the table does not matter.
	res = h.must("POST", usersURL+"/rows?op=delete", `{"org":1,"id":"b","age":"no number"}`+"\n"+`{"org":7,"id":"none"}`)
	require.EqualValues(t, 2, res["rows"])
	require.JSONEq(t, `{"name":"Anna","org":1,"id":"a","age":31,"plan":"free"}`, h.scanned("users"))
	require.Equal(t, 1, h.count("users", "union"))

	message, _ := h.errorOf(400, "POST", usersURL+"/rows?op=delete", `{"org":1,"id":"a","zip":1}`)
	require.Contains(t, message, `zip`)
	message, _ = h.errorOf(400, "POST", usersURL+"/rows?op=delete", `{"org":1}`)
	require.Contains(t, message, `column "id": the column is required and missing`)
	message, _ = h.errorOf(400, "POST", usersURL+"/rows?op=append", twoUsers)
	require.Contains(t, message, "op=append needs a log table: table shop.users has a primary key")
	message, _ = h.errorOf(400, "POST", usersURL+"/rows?op=merge", twoUsers)
	require.Contains(t, message, "must be append, upsert or delete")
	message, _ = h.errorOf(400, "POST", usersURL+"/rows?envelope=avro", twoUsers)
	require.Contains(t, message, "must be debezium")
}

func TestPartialWritesTouchTheColumnsTheyName(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	h.must("POST", usersURL+"/rows", twoUsers)
	// Columns that are not named may be missing, or there: they are not written.
	h.must("POST", usersURL+"/rows?columns=age", `{"org":1,"id":"a","age":44,"name":"nobody"}`)
	h.must("POST", usersURL+"/rows?columns=plan,id", `{"org":1,"id":"a","plan":"pro"}`)
	h.must("POST", usersURL+"/rows?columns=name,age", `{"org":2,"id":"c","name":"Cy"}`)
	h.must("POST", usersURL+"/rows?op=delete&columns=plan,age", `{"org":1,"id":"b"}`)
	require.Equal(t, strings.Join([]string{
		`{"name":"Ann","org":1,"id":"a","age":44,"plan":"pro"}`,
		`{"name":"Bo","org":1,"id":"b","age":null,"plan":null}`,
		`{"name":"Cy","org":2,"id":"c","age":null,"plan":"free"}`,
	}, "\n"), h.scanned("users"))

	for query, want := range map[string]string{
		"columns=":          "empty name",
		"columns=age,,plan": "empty name",
		"columns=zip":       `unknown column "zip"`,
		"columns=age,age":   `"age" is named twice`,
		"columns=id,org":    "names key columns only",
	} {
		message, _ := h.errorOf(400, "POST", usersURL+"/rows?"+query, twoUsers)
		require.Contains(t, message, want, query)
	}
	// A row that is not there yet needs every required column.
	message, answer := h.errorOf(400, "POST", usersURL+"/rows?columns=age", `{"org":1,"id":"a","age":1}`+"\n"+`{"org":9,"id":"x","age":1}`)
	require.Contains(t, message, `row 1, column "name": the column is required`)
	require.EqualValues(t, 1, answer["rejected"])
	detail := answer["details"].([]any)[0].(map[string]any)
	require.EqualValues(t, 1, detail["row"])
	require.Equal(t, "name", detail["column"])
	require.Contains(t, h.scanned("users"), `"age":44`, "nothing of the request is applied")
	message, _ = h.errorOf(400, "POST", usersURL+"/rows?op=delete&columns=name", `{"org":1,"id":"a"}`)
	require.Contains(t, message, "cannot be set to NULL")

	h.createTable("log", 1)
	for _, query := range []string{"columns=name", "op=delete", "op=upsert", "envelope=debezium"} {
		message, _ := h.errorOf(400, "POST", tableURL+"log/rows?"+query, rowsBody(0, 1))
		require.Contains(t, message, "needs a primary key", query)
	}
}

func TestSkippedRowsAreThoseOfTheDecoderAndOfTheTable(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	body := strings.Join([]string{
		`{"org":9,"id":"x","age":1}`, `{"org":1,"id":"a","age":"old"}`, `{"org":1,"id":"a","age":5}`, `{"org":8,"id":"x","age":1}`,
	}, "\n")
	h.must("POST", usersURL+"/rows", twoUsers)
	for _, more := range []string{"", "&stream=true", "&producer_id=p&first_sequence=0", "&stream=true&producer_id=q&first_sequence=0"} {
		res := h.must("POST", usersURL+"/rows?columns=age&on_error=skip"+more, body)
		require.EqualValues(t, 1, res["rows"], more)
		require.EqualValues(t, 3, res["rejected"], more)
		var at []any
		for _, e := range res["errors"].([]any) {
			at = append(at, e.(map[string]any)["row"])
		}
		require.Equal(t, []any{0.0, 1.0, 3.0}, at, more)
	}
	message, answer := h.errorOf(400, "POST", usersURL+"/rows?columns=age&stream=true", body[:strings.Index(body, "\n")])
	require.Contains(t, message, "row 0")
	require.EqualValues(t, 0, answer["stopped_at_row"])
	require.EqualValues(t, 1, answer["rejected"])
}

func TestRejectedDeletesAreErrorsOfTheirRows(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable(`,"delete_behavior":"reject"`)
	h.must("POST", usersURL+"/rows", twoUsers)
	message, _ := h.errorOf(400, "POST", usersURL+"/rows?op=delete", `{"org":1,"id":"a"}`)
	require.Contains(t, message, "rejects deletes")
	require.Equal(t, 2, h.count("users", "union"))
}

func TestARepeatedWriteIsAppliedOnce(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"sums","columns":[{"name":"k","type":"string"},{"name":"n","type":"long","aggregate":"sum"}],
		"primary_key":["k"],"buckets":2,"properties":{"merge_engine":"aggregation","fold_interval":"0"}}`)
	body := `{"k":"a","n":1}` + "\n" + `{"k":"b","n":2}` + "\n" + `{"k":"a","n":3}`
	for i := range 3 {
		res := h.must("POST", tableURL+"sums/rows", body, "Idempotency-Key", "one")
		require.Equal(t, i > 0, res["duplicate"] == true)
		res = h.must("POST", tableURL+"sums/rows?producer_id=p&first_sequence=0", body)
		if i > 0 {
			require.EqualValues(t, 3, res["skipped"])
		}
	}
	require.Equal(t, `{"k":"a","n":8}`+"\n"+`{"k":"b","n":4}`, h.scanned("sums"))
	message, _ := h.errorOf(409, "POST", tableURL+"sums/rows?columns=n", body, "Idempotency-Key", "one")
	require.Contains(t, message, "another request")
	h.must("POST", tableURL+"sums/rows?op=delete", body) // ignored, as by default in an aggregation
	require.Equal(t, `{"k":"a","n":8}`+"\n"+`{"k":"b","n":4}`, h.scanned("sums"))
	// An overflow refuses its row.
	message, _ = h.errorOf(400, "POST", tableURL+"sums/rows", `{"k":"a","n":9223372036854775807}`)
	require.Contains(t, message, `column "n"`)
}

func TestAKeyedTableTakesEveryFormat(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	h.must("POST", usersURL+"/rows", twoUsers)
	want := h.scanned("users")
	for f := rows.NDJSON; f <= rows.Parquet; f++ {
		status, text := h.do("GET", usersURL+"/rows", "", "Accept", f.ContentType())
		require.Equal(t, 200, status)
		res := h.must("POST", usersURL+"/rows?op=delete", text, "Content-Type", f.ContentType())
		require.EqualValues(t, 2, res["rows"], f)
		require.Equal(t, 0, h.count("users", "union"), f)
		h.must("POST", usersURL+"/rows", text, "Content-Type", f.ContentType())
		require.Equal(t, want, h.scanned("users"), f)
		h.must("POST", usersURL+"/rows?columns=age", text, "Content-Type", f.ContentType())
		require.Equal(t, want, h.scanned("users"), f)
	}
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write([]byte(twoUsers))
	require.NoError(t, z.Close())
	h.must("POST", usersURL+"/rows?stream=true", zipped.String(), "Content-Encoding", "gzip")
	require.Equal(t, want, h.scanned("users"))
}

// A body of many blocks is many chunks, which a bucket's share joins: the marks of
// deletes have to find their rows again.
func TestDeletesOfALongBodyFindTheirRows(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"users","columns":[{"name":"id","type":"long"},{"name":"v","type":"long"}],
		"primary_key":["id"],"buckets":8,"properties":{"fold_interval":"0"}}`)
	var events strings.Builder
	const n = 20000
	for i := range n {
		fmt.Fprintf(&events, `{"op":"c","after":{"id":%d,"v":%d},"source":{"connector":"postgresql","table":"users"}}`+"\n", i, i)
		if i%3 == 0 {
			fmt.Fprintf(&events, `{"op":"d","before":{"id":%d}}`+"\nnull\n", i/2)
		}
	}
	h.must("POST", usersURL+"/rows?envelope=debezium", events.String())
	live := n - ((n+2)/3 - 0)
	seen := map[int]bool{}
	for i := 0; i < n; i += 3 {
		seen[i/2] = true
	}
	require.Equal(t, live, n-len(seen))
	require.Equal(t, live, h.count("users", "union"))
	var keys strings.Builder
	for i := range n {
		fmt.Fprintf(&keys, `{"id":%d}`+"\n", i)
	}
	h.must("POST", usersURL+"/rows?op=delete", keys.String())
	require.Equal(t, 0, h.count("users", "union"))
}

func TestChangeEventsOfDebeziumAreApplied(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.usersTable("")
	schema := `{"type":"struct","fields":[{"type":"struct","field":"after","fields":[{"type":"int64","field":"org"},{"type":"string","field":"id"}]}]}`
	body := strings.Join([]string{
		`{"op":"r","before":null,"after":{"org":1,"id":"a","name":"Ann"},"source":{},"ts_ms":1}`,
		`{"op":"c","before":null,"after":{"org":1,"id":"b","name":"Bo"}}`,
		`{"schema":` + schema + `,"payload":{"op":"u","before":{"org":1,"id":"a","name":"Ann"},"after":{"org":1,"id":"a","name":"Anna","age":3}}}`,
		`{"op":"d","before":{"org":1,"id":"b"},"after":null}`, `null`,
		`{"op":"c","after":{"org":1,"id":"b","name":"Bob"}}`,
		`{"op":"d","before":{"org":1,"id":"b"},"after":null}`,
		`{"op":"c","after":{"org":2,"id":"c","name":"Cy"}}`,
	}, "\n")
	res := h.must("POST", usersURL+"/rows?envelope=debezium", body)
	require.EqualValues(t, 7, res["rows"])
	want := `{"name":"Anna","org":1,"id":"a","age":3,"plan":"free"}` + "\n" + `{"name":"Cy","org":2,"id":"c","age":null,"plan":"free"}`
	require.Equal(t, want, h.scanned("users"))
	h.must("POST", usersURL+"/rows?envelope=debezium&stream=true&producer_id=d&first_sequence=0", body)
	require.Equal(t, want, h.scanned("users"))

	message, answer := h.errorOf(400, "POST", usersURL+"/rows?envelope=debezium", `{"op":"t"}`+"\n"+`{"op":"z","after":{}}`)
	require.Contains(t, message, "truncates")
	require.Len(t, answer["details"], 2)
	message, _ = h.errorOf(400, "POST", usersURL+"/rows?envelope=debezium&op=delete", body)
	require.Contains(t, message, "leave out op and columns")
	message, _ = h.errorOf(415, "POST", usersURL+"/rows?envelope=debezium", "a", "Content-Type", "text/csv")
	require.Contains(t, message, "Debezium")
}
