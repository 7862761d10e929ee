package wal

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// Reads during recovery outlast bursts of refusals: with three of ten requests
// refused, one read in a million fails for good after this many attempts.
const (
	maxReadAttempts = 12
	minReadBackoff  = 20 * time.Millisecond
	maxReadBackoff  = 2 * time.Second
)

// retryRead repeats a read that failed for a passing reason. A read that came
// back corrupt is repeated once: the fault may be in the answer, not in the object.
func retryRead[T any](ctx context.Context, read func(context.Context) (T, error)) (T, error) {
	backoff, corruptSeen := minReadBackoff, false
	for attempt := 1; ; attempt++ {
		v, err := read(ctx)
		switch class := errs.ClassOf(err); {
		case err == nil, attempt >= maxReadAttempts:
			return v, err
		case class == errs.Corrupt && !corruptSeen:
			corruptSeen = true
		case class != errs.Unavailable && class != errs.Exhausted && class != errs.Unknown:
			return v, err
		}
		pause := max(errs.RetryAfter(err), backoff/2+rand.N(backoff/2))
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
