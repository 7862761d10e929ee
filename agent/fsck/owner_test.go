package fsck_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/agent/fsck"
	"github.com/firn-data/firn/internal/objstore"
)

// A recovery passes over a checkpoint that it cannot read and replays more of the
// WAL instead, so nothing is lost yet; it is damage all the same.
func TestADamagedNewestCheckpointOfALiveOwnerIsCorrupt(t *testing.T) {
	store, _ := filled(t)
	own := map[string][]string{}
	for _, key := range keysOf(t, store, "checkpoint/", "") {
		incarnation := strings.Split(key, "/")[1]
		own[incarnation] = append(own[incarnation], key)
	}
	require.Len(t, own, 1)
	for _, keys := range own {
		newest := keys[len(keys)-1]
		body, _, err := store.Get(t.Context(), newest)
		require.NoError(t, err)
		body = bytes.Clone(body)
		body[len(body)/2] ^= 0x10
		require.NoError(t, store.Put(t.Context(), newest, body))
		var found bool
		for _, f := range damageOf(check(t, store, fsck.Options{})) {
			found = found || f.Level == fsck.Corrupt && f.Key == newest
		}
		require.True(t, found)
	}
}

func TestALostFenceIsMissing(t *testing.T) {
	store := objstore.NewMem()
	former := opened(t, store)
	before := former.Incarnation()
	defer stop(t, opened(t, store))
	defer func() { _ = former.Close(t.Context()) }() // it was fenced, and says so
	fences := keysOf(t, store, "wal/"+before+"/", "")
	require.NotEmpty(t, fences)
	require.Empty(t, damageOf(check(t, store, fsck.Options{})))
	require.NoError(t, store.Delete(t.Context(), fences[len(fences)-1]))
	found := damageOf(check(t, store, fsck.Options{}))
	require.Len(t, found, 1)
	require.Equal(t, fsck.Missing, found[0].Level)
	require.Contains(t, found[0].Reason, "fence")
}

// opened starts an agent; a second one has the same id and fences the first.
func opened(t *testing.T, store objstore.Store) *agent.Agent {
	t.Helper()
	cfg := agent.DefaultConfig()
	cfg.Listen, cfg.AgentID, cfg.MemoryLimitBytes = "127.0.0.1:0", "fsck", -1
	a, err := agent.New(cfg, store, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	require.NoError(t, a.Open(t.Context()))
	return a
}
