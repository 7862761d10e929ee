package gcsstore

import (
	"context"
	"time"

	"github.com/googleapis/gax-go/v2"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	maxAttempts    = 5
	requestTimeout = 30 * time.Second // of one attempt, plus the time that its bytes take
	minRate        = 1 << 20          // bytes per second that a slow attempt must reach
	minBackoff     = 50 * time.Millisecond
	maxBackoff     = 3 * time.Second
	unknownSize    = 64 << 20 // what a read of a whole object is taken to be
)

// do checks a key and runs an idempotent request on it, again while it fails in
// a way that may pass. run's errors are the client's; do's are classified.
func (s *Store) do(ctx context.Context, op, key string, size int64, write bool, run func(context.Context) error) error {
	if err := objstore.CheckKey(key); err != nil {
		return err
	}
	return s.try(ctx, op+" "+key, size, write, run)
}

func (s *Store) try(ctx context.Context, what string, size int64, write bool, run func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return errs.Wrap(errs.Canceled, what, err)
	}
	pause := gax.Backoff{Initial: minBackoff, Max: maxBackoff, Multiplier: 2}
	limit := requestTimeout + time.Duration(float64(size)/minRate*float64(time.Second))
	for attempt := 1; ; attempt++ {
		limited, cancel := context.WithTimeout(ctx, limit)
		err := classify(ctx, what, run(limited), write)
		cancel()
		if c := errs.ClassOf(err); err == nil || attempt == maxAttempts || (c != errs.Unavailable && c != errs.Unknown) {
			return err
		}
		if gax.Sleep(ctx, pause.Pause()) != nil {
			return err
		}
	}
}
