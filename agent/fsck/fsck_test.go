package fsck_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/agent/fsck"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// filled is a store with a table of three buckets: folded rows, live rows, and an
// agent that still serves it.
func filled(t *testing.T) (objstore.Store, *agent.Agent) {
	t.Helper()
	store := objstore.NewMem()
	cfg := agent.DefaultConfig()
	cfg.Listen, cfg.AgentID, cfg.FlushAge, cfg.MemoryLimitBytes = "127.0.0.1:0", "fsck", time.Millisecond, -1
	a, err := agent.New(cfg, store, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, a.Open(t.Context()))
	t.Cleanup(func() { stop(t, a) })
	post(t, a, "/v1/databases", `{"name":"d"}`)
	post(t, a, "/v1/databases/d/tables", `{"name":"t","columns":[{"name":"id","type":"long"}],"buckets":3,"bucket_key":["id"],"properties":{"fold_interval":"1h"}}`)
	appendRows(t, a, 0, 300)
	post(t, a, "/v1/databases/d/tables/t/fold", "")
	appendRows(t, a, 300, 400)
	return store, a
}

func stop(t *testing.T, a *agent.Agent) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, a.Close(ctx))
}

func post(t *testing.T, a *agent.Agent, path, body string) {
	t.Helper()
	resp, err := http.Post("http://"+a.Addr()+path, "", strings.NewReader(body))
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	require.Equal(t, 200, resp.StatusCode, "%s", text)
}

func appendRows(t *testing.T, a *agent.Agent, from, to int) {
	t.Helper()
	var b strings.Builder
	for i := from; i < to; i++ {
		fmt.Fprintf(&b, "{\"id\":%d}\n", i)
	}
	post(t, a, "/v1/databases/d/tables/t/rows", b.String())
}

func check(t *testing.T, s objstore.Store, o fsck.Options) *fsck.Report {
	t.Helper()
	r, err := fsck.Check(t.Context(), s, o)
	require.NoError(t, err)
	return r
}

// keysOf lists the keys below a prefix that contain a text.
func keysOf(t *testing.T, s objstore.Store, prefix, contains string) (out []string) {
	t.Helper()
	for info, err := range s.List(t.Context(), prefix, "") {
		require.NoError(t, err)
		if strings.Contains(info.Key, contains) {
			out = append(out, info.Key)
		}
	}
	return out
}

func TestAHealthyStoreHasNoFindingsWhileServedAndAtRest(t *testing.T) {
	store, a := filled(t)
	for range 2 {
		r := check(t, store, fsck.Options{Deep: true})
		require.Empty(t, damageOf(r))
		require.Equal(t, int64(300), r.Rows)
		require.Equal(t, int64(100), r.LiveRows)
		require.Equal(t, 1, r.Tables)
		stop(t, a)
	}
}

func damageOf(r *fsck.Report) (out []fsck.Finding) {
	for _, f := range r.Findings {
		if f.Level != fsck.Garbage {
			out = append(out, f)
		}
	}
	return out
}

func TestEveryLostOrBrokenObjectIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		prefix, contains string
		level            fsck.Level
		flip             bool
	}{
		"live rows lost":          {prefix: "wal/", level: fsck.Missing},
		"live rows flipped":       {prefix: "wal/", level: fsck.Corrupt, flip: true},
		"data file lost":          {prefix: "lake/", contains: "/data/", level: fsck.Missing},
		"manifest lost":           {prefix: "lake/", contains: ".avro", level: fsck.Missing},
		"current checkpoint lost": {prefix: "checkpoint/", level: fsck.Missing},
		"checkpoint flipped":      {prefix: "checkpoint/", level: fsck.Corrupt, flip: true},
	} {
		t.Run(name, func(t *testing.T) {
			store, a := filled(t)
			stop(t, a)
			keys := keysOf(t, store, tc.prefix, tc.contains)
			require.NotEmpty(t, keys)
			key := keys[len(keys)-1]
			if tc.flip {
				body, _, err := store.Get(t.Context(), key)
				require.NoError(t, err)
				body = bytes.Clone(body)
				body[len(body)/2] ^= 0x10
				require.NoError(t, store.Put(t.Context(), key, body))
			} else {
				require.NoError(t, store.Delete(t.Context(), key))
			}
			r := check(t, store, fsck.Options{})
			require.False(t, r.OK())
			levels := map[fsck.Level]bool{}
			for _, f := range damageOf(r) {
				levels[f.Level] = true
			}
			require.True(t, levels[tc.level], "%s: %+v", key, damageOf(r))
		})
	}
}

func TestADataFileThatWasCutIsCorrupt(t *testing.T) {
	store, a := filled(t)
	stop(t, a)
	key := keysOf(t, store, "lake/", "/data/")[0]
	body, _, err := store.Get(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, store.Put(t.Context(), key, body[:len(body)-10]))
	r := check(t, store, fsck.Options{})
	require.Len(t, damageOf(r), 1)
	require.Equal(t, fsck.Corrupt, damageOf(r)[0].Level)
	require.Equal(t, key, damageOf(r)[0].Key)
}

// A recovery cannot pass an object whose footer is lost: it names no segments, and
// only the position tells that it is needed.
func TestAWALObjectOfATailThatWasCutIsCorrupt(t *testing.T) {
	store, a := filled(t)
	crashed := objstore.NewMem()
	for info, err := range store.List(t.Context(), "", "") { // what a kill leaves: no checkpoint covers the tail
		require.NoError(t, err)
		body, _, err := store.Get(t.Context(), info.Key)
		require.NoError(t, err)
		require.NoError(t, crashed.Put(t.Context(), info.Key, body))
	}
	stop(t, a)
	keys := keysOf(t, crashed, "wal/", "")
	key := keys[len(keys)-1]
	body, _, err := crashed.Get(t.Context(), key)
	require.NoError(t, err)
	require.NoError(t, crashed.Put(t.Context(), key, body[:len(body)/2]))
	r := check(t, crashed, fsck.Options{})
	require.Len(t, damageOf(r), 1)
	require.Equal(t, fsck.Corrupt, damageOf(r)[0].Level)
	require.Equal(t, key, damageOf(r)[0].Key)
}

func TestALostMetadataEntryIsFoundThoughTheLogReadsWell(t *testing.T) {
	store, a := filled(t)
	stop(t, a)
	keys := keysOf(t, store, "meta/log/", "")
	lost := keys[len(keys)-2]
	require.NoError(t, store.Delete(t.Context(), lost))
	damage := damageOf(check(t, store, fsck.Options{}))
	require.Contains(t, damage, fsck.Finding{Level: fsck.Missing, Key: lost, Reason: "the metadata log ends before this entry, and later ones exist"})
}

func TestWhatNothingNeedsIsGarbageAndNoDamage(t *testing.T) {
	store, a := filled(t)
	stop(t, a)
	before := check(t, store, fsck.Options{})
	for _, key := range []string{"wal/20200101T000000000Z-000000000000/00000000000000000000", "lake/d/t-1/data/orphan.parquet", "probe/left", "lake/gone/x-9/metadata/v1.metadata.json"} {
		require.NoError(t, store.Put(t.Context(), key, []byte("x")))
	}
	r := check(t, store, fsck.Options{})
	require.True(t, r.OK())
	require.Equal(t, before.Garbage+4, r.Garbage)
	require.Equal(t, before.GarbageOld, r.GarbageOld, "it is young")
	old := check(t, store, fsck.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }})
	require.Equal(t, r.Garbage, old.GarbageOld)
}

func TestAnEmptyStoreIsNoFirnStore(t *testing.T) {
	_, err := fsck.Check(t.Context(), objstore.NewMem(), fsck.Options{})
	require.True(t, errs.Is(err, errs.NotFound), err)
}
