package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/objstore"
)

// startAgent runs an agent on a store in memory and points the command line at it.
func startAgent(t *testing.T) {
	t.Helper()
	cfg := agent.DefaultConfig()
	cfg.Listen, cfg.AgentID, cfg.FlushAge, cfg.MemoryLimitBytes = "127.0.0.1:0", "cli", time.Millisecond, -1
	a, err := agent.New(cfg, objstore.NewMem(), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, a.Open(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, a.Close(ctx))
	})
	t.Setenv("FIRN_SERVER", "http://"+a.Addr())
}

// ok runs a command that must succeed and returns its result.
func ok(t *testing.T, in string, args ...string) string {
	t.Helper()
	code, out, errOut := firn(t, in, args...)
	require.Equal(t, exitOK, code, "firn %v\n%s%s", args, out, errOut)
	return out
}

func createOrders(t *testing.T) {
	t.Helper()
	ok(t, "", "db", "create", "shop")
	ok(t, "", "table", "create", "shop.orders", "--column", "id long required", "--column", "name string", "--column", "x double", "--buckets", "3", "--bucket-key", "id")
}

func ndjson(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"id\":%d,\"name\":\"n%d\",\"x\":%d.5}\n", i, i, i)
	}
	return b.String()
}

func TestATableLivesFromCreateToDrop(t *testing.T) {
	startAgent(t)
	createOrders(t)
	require.Contains(t, ok(t, "", "db", "list"), "shop")
	require.Contains(t, ok(t, "", "table", "list"), "shop.orders")
	require.Contains(t, ok(t, "", "table", "describe", "shop.orders"), "bucket key      id")
	code, _, errOut := firn(t, "", "db", "create", "shop")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errOut, "already_exists")
	ok(t, "", "db", "create", "shop", "--if-not-exists")

	require.Contains(t, ok(t, ndjson(0, 100), "append", "shop.orders"), "100 rows appended")
	require.Equal(t, "100\n", ok(t, "", "count", "shop.orders"))
	require.Equal(t, "9\n", ok(t, "", "count", "shop.orders", "--where", "id > 90"))
	out := ok(t, "", "scan", "shop.orders", "--where", "id = 7", "--columns", "name,id", "--format", "table")
	require.Equal(t, "name  id\nn7    7\n", out)
	require.JSONEq(t, `{"id":7,"name":"n7","x":7.5}`, ok(t, "", "scan", "shop.orders", "--where", "id = 7"))

	file := filepath.Join(t.TempDir(), "out.parquet")
	ok(t, "", "scan", "shop.orders", "--format", "parquet", "-o", file)
	ok(t, "", "table", "create", "shop.copy", "--column", "id long", "--column", "name string", "--column", "x double")
	require.Contains(t, ok(t, "", "append", "shop.copy", file), "100 rows appended")
	code, _, _ = firn(t, "", "scan", "shop.missing", "-o", file+".2")
	require.Equal(t, exitFailed, code)
	require.NoFileExists(t, file+".2")
	ok(t, "", "table", "drop", "shop.copy")

	ok(t, "", "lake", "fold", "shop.orders")
	require.Equal(t, "100\n", ok(t, "", "count", "shop.orders", "--layer", "lake"))
	require.Contains(t, ok(t, "", "lake", "snapshots", "shop.orders"), "append")
	ok(t, "", "lake", "compact", "shop.orders")
	ok(t, "", "lake", "expire", "shop.orders")

	ok(t, "", "table", "alter", "shop.orders", "--add-column", "note string default 'none' after id", "--rename-column", "x=total")
	require.JSONEq(t, `{"id":7,"note":"none","name":"n7","total":7.5}`, ok(t, "", "scan", "shop.orders", "--where", "id = 7"))

	code, _, _ = firn(t, "", "db", "drop", "shop")
	require.Equal(t, exitFailed, code)
	ok(t, "", "table", "drop", "shop.orders")
	ok(t, "", "db", "drop", "shop")
	code, _, errOut = firn(t, "", "--json", "table", "describe", "shop.orders")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errOut, `"class":"not found"`)
}

func TestTailShowsEveryRowOnceWithItsPlace(t *testing.T) {
	startAgent(t)
	createOrders(t)
	ok(t, ndjson(0, 50), "append", "shop.orders")
	ok(t, "", "lake", "fold", "shop.orders")
	ok(t, ndjson(50, 60), "append", "shop.orders")
	seen := map[int]bool{}
	next := map[int]int{}
	for line := range strings.Lines(ok(t, "", "tail", "shop.orders")) {
		var row struct {
			Bucket int `json:"_bucket"`
			Offset int `json:"_offset"`
			ID     int `json:"id"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &row))
		require.Equal(t, next[row.Bucket], row.Offset)
		next[row.Bucket]++
		require.False(t, seen[row.ID])
		seen[row.ID] = true
	}
	require.Len(t, seen, 60)
	require.Equal(t, 3, strings.Count(ok(t, "", "tail", "shop.orders", "--limit", "3"), "\n"))
	require.Equal(t, 2, strings.Count(ok(t, "", "tail", "shop.orders", "--where", "id >= 58", "--format", "ndjson"), "\n"))
	code, _, errOut := firn(t, "", "tail", "shop.orders", "--start", "offsets:0=99999")
	require.NotEqual(t, exitOK, code)
	require.Contains(t, errOut, "out_of_range")
}

// files writes the same rows in every format and returns the names.
func files(t *testing.T, n int) []string {
	t.Helper()
	dir := t.TempDir()
	text := []byte(ndjson(0, n))
	var c bytes.Buffer
	w := csv.NewWriter(&c)
	require.NoError(t, w.Write([]string{"x", "id", "name"}))
	for i := range n {
		require.NoError(t, w.Write([]string{fmt.Sprintf("%d.5", i), fmt.Sprint(i), fmt.Sprintf("n%d", i)}))
	}
	w.Flush()
	var gz, zs bytes.Buffer
	g := gzip.NewWriter(&gz)
	_, _ = g.Write(text)
	require.NoError(t, g.Close())
	z, err := zstd.NewWriter(&zs)
	require.NoError(t, err)
	_, _ = z.Write(c.Bytes())
	require.NoError(t, z.Close())
	rec := record(n)
	var ar, pq bytes.Buffer
	aw := ipc.NewWriter(&ar, ipc.WithSchema(rec.Schema()))
	require.NoError(t, aw.Write(rec))
	require.NoError(t, aw.Close())
	pw, err := pqarrow.NewFileWriter(rec.Schema(), &pq, parquet.NewWriterProperties(parquet.WithMaxRowGroupLength(int64(n/3))), pqarrow.DefaultWriterProps())
	require.NoError(t, err)
	require.NoError(t, pw.Write(rec))
	require.NoError(t, pw.Close())
	var out []string
	for name, body := range map[string][]byte{
		"a.ndjson": text, "b.jsonl.gz": gz.Bytes(), "c.csv": c.Bytes(), "d.csv.zst": zs.Bytes(), "e.arrow": ar.Bytes(), "f.parquet": pq.Bytes(),
		"g.json": []byte("[" + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", ",") + "]"),
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, body, 0o600))
		out = append(out, path)
	}
	return out
}

func record(n int) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "name", Type: arrow.BinaryTypes.String}, {Name: "x", Type: arrow.PrimitiveTypes.Float64},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for i := range n {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("n%d", i))
		b.Field(2).(*array.Float64Builder).Append(float64(i) + 0.5)
	}
	return b.NewRecordBatch()
}

func TestEveryFormatOfFileArrivesWhole(t *testing.T) {
	startAgent(t)
	createOrders(t)
	const n = 1000
	list := files(t, n)
	for i, f := range list {
		out := ok(t, "", "append", "--json", "--batch-rows", "300", "shop.orders", f)
		require.Contains(t, out, `"rows":1000,"skipped":0,"rejected":0`, f)
		require.Equal(t, fmt.Sprintf("%d\n", (i+1)*n), ok(t, "", "count", "shop.orders"))
		require.Equal(t, fmt.Sprintf("%d\n", i+1), ok(t, "", "count", "shop.orders", "--where", "id = 777 AND name = 'n777' AND x = 777.5"), f)
	}
}

func TestAProducerMayBeRunAgainOverAnyFilesInAnyBatches(t *testing.T) {
	startAgent(t)
	createOrders(t)
	for _, f := range files(t, 900) {
		producer := "p-" + filepath.Base(f)
		ok(t, "", "append", "shop.orders", f, "--producer-id", producer, "--batch-rows", "250")
		out := ok(t, "", "append", "--json", "shop.orders", f, "--producer-id", producer, "--batch-rows", "77")
		require.Contains(t, out, `"rows":0`, "nothing is new the second time")
	}
	require.Equal(t, "6300\n", ok(t, "", "count", "shop.orders"))
	dir := t.TempDir()
	grown := filepath.Join(dir, "grown.ndjson")
	require.NoError(t, os.WriteFile(grown, []byte(ndjson(0, 300)), 0o600))
	ok(t, "", "append", "shop.orders", grown, "--producer-id", "grown")
	require.NoError(t, os.WriteFile(grown, []byte(ndjson(0, 500)), 0o600))
	out := ok(t, "", "append", "--json", "shop.orders", grown, "--producer-id", "grown")
	require.Contains(t, out, `"rows":200`)
}

func TestBadRowsStopAnAppendOrAreSkippedAndListed(t *testing.T) {
	startAgent(t)
	createOrders(t)
	bad := ndjson(0, 3) + "{\"id\":\"no\"}\n{\"nam\":1,\"id\":4}\n" + ndjson(5, 8)
	code, _, errOut := firn(t, bad, "append", "shop.orders")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errOut, "row 3")
	out := ok(t, bad, "append", "--json", "shop.orders", "--on-error", "skip", "--producer-id", "p")
	require.Contains(t, out, `"rejected":2,"errors":[{"row":3,`)
	out = ok(t, bad+ndjson(8, 10), "append", "--json", "shop.orders", "--on-error", "skip", "--producer-id", "p", "--batch-rows", "1")
	require.Contains(t, out, `"rows":2,`, "good rows keep their sequences around the bad ones")
	code, _, errOut = firn(t, `{"id":1,"extra":2}`, "append", "shop.orders")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errOut, "extra")
	ok(t, `{"id":1,"extra":2}`, "append", "shop.orders", "--unknown", "ignore")
}

func TestWALObjectsAreShownAndMissed(t *testing.T) {
	dir := t.TempDir()
	cfg := agent.DefaultConfig()
	cfg.Store, cfg.Listen, cfg.AgentID, cfg.MemoryLimitBytes = "file://"+dir, "127.0.0.1:0", "cli", -1
	ctx := t.Context()
	store, err := openStore(ctx, cfg.Store)
	require.NoError(t, err)
	a, err := agent.New(cfg, store, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, a.Open(ctx))
	t.Setenv("FIRN_SERVER", "http://"+a.Addr())
	createOrders(t)
	ok(t, ndjson(0, 10), "append", "shop.orders")
	object, err := filepath.Glob(filepath.Join(dir, "wal", "*", "*"))
	require.NoError(t, err)
	require.NotEmpty(t, object)
	require.Contains(t, ok(t, "", "wal", "dump", object[0]), "segment 0")
	key, err := filepath.Rel(dir, object[0])
	require.NoError(t, err)
	require.Contains(t, ok(t, "", "--json", "wal", "dump", "--store", cfg.Store, filepath.ToSlash(key)), `"kind": "data"`)
	code, _, errOut := firn(t, "not a WAL object", "wal", "dump", "-")
	require.Equal(t, exitFailed, code, errOut)
	require.Contains(t, ok(t, "", "fsck", "--store", cfg.Store, "--deep"), "the store is whole; 0 objects are garbage")
	require.NoError(t, a.Close(ctx)) // its last checkpoint names the object
	require.NoError(t, os.Remove(object[0]))
	code, out, _ := firn(t, "", "fsck", "--store", cfg.Store)
	require.Equal(t, exitFailed, code)
	require.Contains(t, out, "missing  "+filepath.ToSlash(key))
	code, _, errOut = firn(t, "", "fsck", "--store", "file://"+t.TempDir())
	require.Equal(t, exitFailed, code)
	require.Contains(t, errOut, "holds no Firn")
}

func TestTailPrintsAFixedOf16BytesAsScanDoes(t *testing.T) {
	startAgent(t)
	ok(t, "", "db", "create", "shop")
	ok(t, "", "table", "create", "shop.t", "--column", "u uuid", "--column", "f fixed(16)", "--column", "s struct<f:fixed(16)>")
	const row = `{"u":"01020304-0506-0708-090a-0b0c0d0e0f10","f":"AQIDBAUGBwgJCgsMDQ4PEA==","s":{"f":"AQIDBAUGBwgJCgsMDQ4PEA=="}}` + "\n"
	ok(t, row, "append", "shop.t")
	require.Equal(t, row, ok(t, "", "scan", "shop.t"))
	require.Contains(t, ok(t, "", "tail", "shop.t", "--limit", "1"), row[1:])
}

func TestWhatACommandCannotMeanIsRefusedAndSaysWhatToDo(t *testing.T) {
	startAgent(t)
	createOrders(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"scan", "shop.orders", "--limit", "-1"}, exitUsage, "--limit -1"},
		{[]string{"tail", "shop.orders", "--limit", "-1"}, exitUsage, "--limit -1"},
		{[]string{"scan", "shop.orders", "--where", "id = 'x'"}, exitUsage, "(at character 6: 'x')\n"},
		{[]string{"table", "drop", "shop.nope"}, exitFailed, "not_found"},
		{[]string{"table", "drop", "shop.nope", "--if-exists"}, exitOK, "there is no table shop.nope"},
		{[]string{"db", "drop", "nope"}, exitFailed, "not_found"},
		{[]string{"db", "drop", "nope", "--if-exists"}, exitOK, "there is no database nope"},
		{[]string{"db", "drop", "shop", "--if-exists"}, exitFailed, "cascade"},
		{[]string{"--server", "http://127.0.0.1:1", "db", "list"}, exitUnavailable, "no agent answers at http://127.0.0.1:1: start one"},
		{[]string{"--server", "http://127.0.0.1:1", "count", "shop.orders"}, exitUnavailable, "no agent answers at http://127.0.0.1:1: start one"},
		{[]string{"--server", "http://127.0.0.1:1", "scan", "shop.orders"}, exitUnavailable, "no agent answers at http://127.0.0.1:1: start one"},
	} {
		code, out, errOut := firn(t, "", c.args...)
		require.Equal(t, c.code, code, "%v: %s", c.args, errOut)
		require.Contains(t, errOut, c.want, "%v", c.args)
		require.Empty(t, out, "%v", c.args)
		require.NotContains(t, errOut, `"position"`, "the message has it")
	}
}

func TestACheckOfAStoreThatIsNotThereMakesNone(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "typo")
	for _, args := range [][]string{{"fsck", "--store", "file://" + folder}, {"wal", "dump", "--store", "file://" + folder, "wal/x/00000000000000000000"}} {
		code, _, errOut := firn(t, "", args...)
		require.Equal(t, exitUsage, code, errOut)
		require.Contains(t, errOut, folder)
		require.NoDirExists(t, folder)
	}
}
