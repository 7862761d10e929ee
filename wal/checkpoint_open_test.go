package wal

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// A checkpoint was put, and the answer came too late for the context. A second
// write then failed before, or without, putting anything: the writer took that for
// "never written", gave the number other contents, and met its own object there as
// another process's. An agent that left could not release its slots.
func TestAFailureWithoutAPutDoesNotForgetAnOpenCheckpoint(t *testing.T) {
	refused := func(class errs.Class) func(context.CancelFunc) error {
		return func(end context.CancelFunc) error { end(); return errs.New(class, "refused") }
	}
	for name, second := range map[string]func(end context.CancelFunc) error{
		"the context had ended":  nil,
		"unavailable":            refused(errs.Unavailable),
		"exhausted":              refused(errs.Exhausted),
		"refused for good":       refused(errs.PermissionDenied),
		"canceled below":         refused(errs.Canceled),
		"an error of no class":   func(end context.CancelFunc) error { end(); return context.DeadlineExceeded },
		"no error and no answer": func(end context.CancelFunc) error { end(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			store := newHookStore()
			w := newWriter(t, store)
			_, err := w.Write(t.Context(), 1, []BucketManifest{testManifest(1, 10)}, nil)
			require.NoError(t, err)

			ctx, end := context.WithCancel(t.Context())
			store.put = func(ctx context.Context, _ string, apply func() (objstore.Outcome, error)) (objstore.Outcome, error) {
				_, err := apply()
				require.NoError(t, err)
				end()
				return objstore.Unknown, errs.Wrap(errs.Unknown, "put", ctx.Err())
			}
			_, err = w.Write(ctx, 2, []BucketManifest{testManifest(1, 20)}, nil)
			require.True(t, errs.Is(err, errs.Unknown), "%v", err)

			ctx, end = context.WithCancel(t.Context())
			if second == nil {
				end()
			}
			store.put = func(context.Context, string, func() (objstore.Outcome, error)) (objstore.Outcome, error) {
				return objstore.Unknown, second(end)
			}
			_, err = w.Write(ctx, 3, []BucketManifest{testManifest(1, 30)}, nil)
			require.Error(t, err)

			store.put = nil
			ref, err := w.Write(t.Context(), 4, []BucketManifest{testManifest(1, 40)}, nil)
			require.NoError(t, err)
			require.EqualValues(t, 3, ref.Seq)
			_, got, err := LoadCheckpoint(t.Context(), store, ref)
			require.NoError(t, err)
			require.Equal(t, []BucketManifest{testManifest(1, 40)}, got)
		})
	}
}

// What was surely never put does not keep its number and its contents.
func TestACheckpointThatWasRefusedIsPlannedAnew(t *testing.T) {
	store := newHookStore()
	w := newWriter(t, store)
	store.put = func(context.Context, string, func() (objstore.Outcome, error)) (objstore.Outcome, error) {
		return objstore.Unknown, errs.New(errs.TooLarge, "too large")
	}
	_, err := w.Write(t.Context(), 1, []BucketManifest{testManifest(1, 10), testManifest(2, 10)}, nil)
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	store.put = nil
	ref, err := w.Write(t.Context(), 1, []BucketManifest{testManifest(1, 10)}, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, ref.Seq)
}
