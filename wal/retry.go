package wal

import (
	"context"
	"hash/fnv"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Reads during recovery outlast bursts of refusals: with three of ten requests
// refused, one read in a million fails for good after this many attempts.
const (
	maxReadAttempts = 12
	minReadBackoff  = 20 * time.Millisecond
	maxReadBackoff  = 2 * time.Second
)

// retryRead repeats a read that failed for a passing reason. A read that came
// back damaged is repeated maxReadBacks times before it is believed: the fault may
// be in the answer, not in the object.
// The pauses are spread by what is read, which needs no random numbers.
func retryRead[T any](ctx context.Context, name string, read func(context.Context) (T, error)) (T, error) {
	backoff, damaged := minReadBackoff, 0
	for attempt := 1; ; attempt++ {
		v, err := read(ctx)
		switch class := errs.ClassOf(err); {
		case err == nil, attempt >= maxReadAttempts:
			return v, err
		case class == errs.Corrupt && damaged+1 < maxReadBacks:
			damaged++
		case class != errs.Unavailable && class != errs.Exhausted && class != errs.Unknown:
			return v, err
		}
		pause := max(errs.RetryAfter(err), backoff/2+spread(name, attempt, backoff/2))
		backoff = min(2*backoff, maxReadBackoff)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return v, errs.In("give up at the caller's deadline", err)
		case <-timer.C:
		}
	}
}

// spread returns a duration in [0, d) that depends on what is read and how often.
func spread(name string, attempt int, d time.Duration) time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	_, _ = h.Write([]byte{byte(attempt)})
	return time.Duration(h.Sum64() % uint64(d))
}

// listAll calls fn with every object under prefix that sorts after start, until fn
// returns false. A listing of many pages that breaks in a passing way goes on
// behind the last object seen; only attempts without any progress are counted.
// From a store that lists out of order fn may hear of an object twice.
func listAll(ctx context.Context, store objstore.Store, prefix, start string, fn func(objstore.Info) bool) error {
	after, inOrder := start, true
	for {
		progress := false
		done, err := retryRead(ctx, prefix+after, func(ctx context.Context) (bool, error) {
			for info, err := range store.List(ctx, prefix, after) {
				if err != nil {
					if progress {
						return false, nil // go on from there with fresh attempts
					}
					return false, err
				}
				progress = true
				inOrder = inOrder && info.Key > after
				after = info.Key
				if !fn(info) {
					return true, nil
				}
			}
			return true, nil
		})
		if done || err != nil {
			return err
		}
		if !inOrder {
			after, inOrder = start, true
		}
	}
}
