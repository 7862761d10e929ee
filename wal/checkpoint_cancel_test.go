package wal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// A checkpoint whose writer was canceled may stand all the same. The next write,
// with other contents, took its number for another process's.
func TestCanceledCheckpointWriteIsSettledBeforeTheNext(t *testing.T) {
	store := newHookStore()
	canceled := false
	store.put = func(_ context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
		out, err := apply()
		if !canceled {
			canceled = true
			return objstore.Unknown, errs.New(errs.Canceled, "the caller gave up")
		}
		return out, err
	}
	w, err := NewCheckpointWriter(store, "inc-1")
	require.NoError(t, err)
	manifest := BucketManifest{Bucket: BucketID{Table: 1}, NextOffset: 1, LakeOffset: 1}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = w.Write(ctx, 1, []BucketManifest{manifest}, nil)
	require.Error(t, err)
	manifest.NextOffset, manifest.LakeOffset = 2, 2
	ref, err := w.Write(t.Context(), 2, []BucketManifest{manifest}, nil)
	require.NoError(t, err)
	_, got, err := LoadCheckpoint(t.Context(), store, ref)
	require.NoError(t, err)
	require.Equal(t, int64(2), got[0].NextOffset)
}
