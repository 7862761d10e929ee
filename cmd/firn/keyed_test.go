package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func createUsers(t *testing.T) {
	t.Helper()
	ok(t, "", "db", "create", "shop")
	ok(t, "", "table", "create", "shop.users", "--column", "org long", "--column", "id string", "--column", "name string required", "--column", "age int",
		"--primary-key", "org,id", "--bucket-key", "org", "--buckets", "3")
}

const threeUsers = `{"org":1,"id":"a","name":"Ann","age":30}
{"org":1,"id":"b","name":"Bo"}
{"org":2,"id":"c,d","name":"Cy","age":5}
`

func TestRowsAreUpsertedFoundAndDeletedByKey(t *testing.T) {
	startAgent(t)
	createUsers(t)
	require.Contains(t, ok(t, threeUsers, "upsert", "shop.users"), "3 rows upserted")
	require.Contains(t, ok(t, "id,org,age\na,1,31\n", "upsert", "shop.users", "--format", "csv", "--columns", "age"), "1 row upserted")
	require.Equal(t, `{"org":1,"id":"a","name":"Ann","age":31}`+"\nnull\n"+`{"org":2,"id":"c,d","name":"Cy","age":5}`+"\n",
		ok(t, "", "get", "shop.users", "org=1,id=a", "org=9,id=a", "id=c,d,org=2"))
	require.Equal(t, `{"name":"Bo"}`+"\n", ok(t, "", "--json", "get", "shop.users", `{"org":1,"id":"b"}`, "--columns", "name"))
	var list []map[string]any
	require.NoError(t, json.Unmarshal([]byte(ok(t, "", "get", "shop.users", "1", "--prefix", "--columns", "id")), &list))
	require.ElementsMatch(t, []map[string]any{{"id": "a"}, {"id": "b"}}, list)

	require.Contains(t, ok(t, threeUsers[:strings.Index(threeUsers, "\n")], "delete", "shop.users"), "1 row deleted")
	ok(t, `{"org":2,"id":"c,d"}`, "delete", "shop.users", "--columns", "age")
	require.Equal(t, "2\n", ok(t, "", "count", "shop.users"))
	require.Equal(t, "null\n"+`{"org":2,"id":"c,d","name":"Cy","age":null}`+"\n", ok(t, "", "get", "shop.users", "org=1,id=a", "org=2,id=c,d"))
	kinds := ""
	for line := range strings.Lines(ok(t, "", "tail", "shop.users", "--where", "id = 'a'")) {
		var row map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		kinds += row["_change_type"].(string) + " "
	}
	require.Equal(t, "INSERT UPDATE_BEFORE UPDATE_AFTER DELETE ", kinds)
	require.Equal(t, 2, strings.Count(ok(t, "", "tail", "shop.users", "--start", "snapshot"), "INSERT"))
}

func TestChangeEventsOfFilesAreAppliedInOrderAndOnce(t *testing.T) {
	startAgent(t)
	createUsers(t)
	var events bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&events, `{"op":"c","after":{"org":%d,"id":"x","name":"n"}}`+"\n", i)
		if i%2 == 0 {
			fmt.Fprintf(&events, `{"payload":{"op":"d","before":{"org":%d,"id":"x"},"after":null}}`+"\n"+"null\n", i)
		}
	}
	dir := t.TempDir()
	lines := filepath.Join(dir, "events.ndjson.gz")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = z.Write(events.Bytes())
	require.NoError(t, z.Close())
	require.NoError(t, os.WriteFile(lines, zipped.Bytes(), 0o600))
	list := filepath.Join(dir, "more.json")
	require.NoError(t, os.WriteFile(list, []byte(`[{"op":"u","after":{"org":1,"id":"x","name":"last"}}, {"op":"c","after":{"org":7,"id":"y","name":"z"}}]`), 0o600))
	require.Contains(t, ok(t, "", "upsert", "shop.users", "--envelope", "debezium", "--producer-id", "cdc", lines, list), "152 rows upserted")
	require.Equal(t, "51\n", ok(t, "", "count", "shop.users"))
	out := ok(t, "", "upsert", "shop.users", "--envelope", "debezium", "--producer-id", "cdc", lines, list)
	require.Contains(t, out, "0 rows upserted")
	require.Contains(t, out, "152 rows had been applied before")
	require.Contains(t, ok(t, "", "get", "shop.users", "org=1,id=x"), `"last"`)

	out = ok(t, `{"op":"t"}`+"\n"+`{"op":"c","after":{"org":8,"id":"y","name":"z"}}`, "upsert", "shop.users", "--envelope", "debezium", "--on-error", "skip")
	require.Contains(t, out, "1 row upserted")
	require.Contains(t, out, "1 row rejected")
}

func TestKeysAndColumnsThatCannotBeMeantAreRefused(t *testing.T) {
	startAgent(t)
	createUsers(t)
	ok(t, "", "table", "create", "shop.log", "--column", "id long")
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"get", "shop.users", "1"}, "org=…,id=…"},
		{[]string{"get", "shop.users", "org=1"}, "org=…,id=…"},
		{[]string{"get", "shop.users", "org=one,id=a"}, `keys[0]: column "org"`},
		{[]string{"get", "shop.users"}, "usage: firn get"},
		{[]string{"get", "shop.log", "1"}, "no primary key"},
		{[]string{"delete", "shop.log"}, "needs a primary key"},
		{[]string{"upsert", "shop.log"}, "needs a primary key"},
		{[]string{"append", "shop.users", "--columns", "age"}, "unknown flag"},
		{[]string{"upsert", "shop.users", "--columns", "zip"}, `unknown column "zip"`},
		{[]string{"upsert", "shop.users", "--envelope", "avro"}, "avro"},
		{[]string{"upsert", "shop.users", "--envelope", "debezium", "--format", "csv"}, "ndjson or json"},
	} {
		code, _, errOut := firn(t, `{"org":1,"id":"a","name":"x"}`, c.args...)
		require.Equal(t, exitUsage, code, "%v: %s", c.args, errOut)
		require.Contains(t, errOut, c.want, c.args)
	}
}

func TestRowsThatTheTableRefusesAreListedBesideBadOnes(t *testing.T) {
	startAgent(t)
	createUsers(t)
	ok(t, threeUsers, "upsert", "shop.users")
	in := `{"org":1,"id":"a","age":1}` + "\n" + `{"org":1,"id":"b","age":"x"}` + "\n" + `{"org":8,"id":"new","age":1}` + "\n" + `{"org":1,"id":"b","age":2}`
	for _, more := range [][]string{nil, {"--producer-id", "p"}, {"--unordered"}} {
		var res struct {
			Rows, Rejected int64
			Errors         []struct{ Row int64 }
		}
		out := ok(t, in, append([]string{"--json", "upsert", "shop.users", "--columns", "age", "--on-error", "skip"}, more...)...)
		require.NoError(t, json.Unmarshal([]byte(out), &res))
		require.EqualValues(t, 2, res.Rows, "%v %s", more, out)
		require.EqualValues(t, 2, res.Rejected, "%v %s", more, out)
		rows := map[int64]bool{}
		for _, e := range res.Errors {
			rows[e.Row] = true
		}
		require.Equal(t, map[int64]bool{1: true, 2: true}, rows, "%v %s", more, out)
	}
	code, _, errOut := firn(t, in[strings.LastIndex(in, `{"org":8`):], "upsert", "shop.users", "--columns", "age")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errOut, `column "name"`)
}

func TestFoundRowsAreDrawnForPeople(t *testing.T) {
	var out, errOut bytes.Buffer
	a := &app{out: &out, errOut: &errOut}
	rows := []json.RawMessage{json.RawMessage(`{"id":1,"name":"Ann"}`), json.RawMessage("null"), json.RawMessage(`{"id":3,"name":null}`)}
	require.NoError(t, a.drawFound([]string{"id", "name"}, []string{"1", "2", "3"}, rows, false))
	require.Equal(t, "id  name\n1   Ann\n3   \n", out.String())
	require.Equal(t, "no row for 2\n", errOut.String())
}
