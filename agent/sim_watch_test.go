package agent

import (
	"context"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// watch looks at the store all the time: what the newest checkpoint of an owner names
// must be there. Nothing need read it any more, because its rows may be in the lake
// since; but a recovery that begins there relies on nothing else having happened.
func (w *simWorld) watch(ctx context.Context) {
	for ctx.Err() == nil {
		if gone := namedAndGone(context.Background(), w.store); gone != "" {
			w.t.Errorf("seed %d: %s", w.seed, gone)
			return
		}
		pause(ctx, 4*time.Millisecond)
	}
}

// namedAndGone returns what the newest checkpoint of an owner names and the store
// does not hold, or "". What changes meanwhile is no finding.
func namedAndGone(ctx context.Context, store objstore.Store) string {
	for incarnation, ref := range newestCheckpoints(ctx, store) {
		_, manifests, err := wal.LoadCheckpoint(ctx, store, ref)
		if err != nil {
			continue // it was collected meanwhile
		}
		objects := map[wal.ObjectID]bool{}
		for _, m := range manifests {
			for _, s := range m.Segments {
				objects[s.Object] = true
			}
		}
		for id := range objects {
			_, err := store.Head(ctx, id.Key())
			if !errs.Is(err, errs.NotFound) || newestCheckpoints(ctx, store)[incarnation] != ref {
				continue
			}
			log, err := metastore.Open(ctx, store, metastore.Options{Manual: true})
			if err != nil {
				continue
			}
			owner := len(log.State().SlotsOf(incarnation)) > 0
			_ = log.Close(ctx)
			if owner {
				return id.Key() + " is gone, and " + ref.Key() + ", the newest checkpoint of an owner, names it"
			}
		}
	}
	return ""
}

func newestCheckpoints(ctx context.Context, store objstore.Store) map[string]wal.CheckpointRef {
	newest := map[string]wal.CheckpointRef{}
	for info, err := range store.List(ctx, "checkpoint/", "") {
		if ref, ok := wal.ParseCheckpointKey(info.Key); ok && err == nil {
			newest[ref.Incarnation] = ref // listed in order
		}
	}
	return newest
}
