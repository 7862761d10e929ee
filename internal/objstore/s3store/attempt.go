package s3store

import (
	"context"
	"errors"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// errTooSlow ends an attempt that outlived its limit while its caller still
// waits.
var errTooSlow = errors.New("the store did not answer in time")

// attempt is the time limit of one request: a context and the timer that ends
// it.
type attempt struct {
	ctx    context.Context // lives as long as one request
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

// begin starts an attempt that moves about size bytes.
func (s *Store) begin(ctx context.Context, size int64) *attempt {
	a := &attempt{}
	a.ctx, a.cancel = context.WithCancelCause(ctx)
	a.timer = time.AfterFunc(s.limit(size), func() { a.cancel(errTooSlow) })
	return a
}

// extend restarts the limit once the size is known.
func (s *Store) extend(a *attempt, size int64) { a.timer.Reset(s.limit(size)) }

func (s *Store) limit(size int64) time.Duration {
	return s.options.RequestTimeout + time.Duration(float64(size)/float64(s.options.MinRate)*float64(time.Second))
}

func (a *attempt) end() {
	a.timer.Stop()
	a.cancel(nil)
}

// do runs an idempotent request up to MaxAttempts times. run gets a fresh
// attempt and returns a classified error.
func (s *Store) do(ctx context.Context, size int64, run func(*attempt) error) error {
	for try := 1; ; try++ {
		a := s.begin(ctx, size)
		err := run(a)
		a.end()
		if err == nil || try >= s.options.MaxAttempts || ctx.Err() != nil {
			return err
		}
		if c := errs.ClassOf(err); c != errs.Unavailable && c != errs.Unknown {
			return err
		}
		if s.sleep(ctx, s.backoff(try, err)) != nil {
			return err
		}
	}
}

// backoff doubles with each try and is jittered down to its half; the store's
// own wish is a lower bound, itself bounded by MaxBackoff.
func (s *Store) backoff(try int, err error) time.Duration {
	d := s.options.MaxBackoff
	if try < 30 {
		d = min(d, s.options.MinBackoff<<(try-1))
	}
	d = d/2 + time.Duration(s.rand()*float64(d)/2)
	return max(d, min(errs.RetryAfter(err), s.options.MaxBackoff))
}

func sleepFor(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
