package objstore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// Creation is the resolved outcome of a conditional creation.
type Creation struct {
	Created  bool   // our bytes stand at the key
	Existing []byte // what stands there when !Created
	Info     Info   // of Existing when !Created; key and size otherwise
	Attempts int    // conditional puts sent
}

// CreatePolicy says how patiently an unknown outcome is resolved. The zero
// policy is ready to use; tests and simulations set the functions.
type CreatePolicy struct {
	// MinBackoff and MaxBackoff bound the pause between attempts, which doubles
	// each time and is jittered down to its half. Zero: 50 ms and 5 s.
	MinBackoff, MaxBackoff time.Duration
	// Sleep waits, or returns early with the context's error. Nil: a timer.
	Sleep func(context.Context, time.Duration) error
	// Rand returns a number in [0, 1) for the jitter. Nil: math/rand.
	Rand func() float64
	// OnRetry, when set, hears why the attempt (counted from one) settled
	// nothing, before the pause. It must not block.
	OnRetry func(attempt int, err error)
}

// vanishedReads is how often a read-back is repeated when a key answers
// "exists" and then "not found". A store with the promised consistency says so
// only when the object was deleted in between.
const vanishedReads = 4

// peekAfter unsettled puts, each further one is preceded by a read. A store that
// breaks the connection instead of answering 412 to a large body would never
// settle otherwise, and a body that is known to be there is not sent again.
const peekAfter = 2

// Create puts body at key unless another object stands there, and resolves what
// a single PutIfAbsent leaves open. The body must be unique to its writer (an id
// and a nonce inside), because equality of bytes is what tells our own object
// from another's. Attempts are bounded by ctx alone.
//
// Errors: the class of the store's refusal when the store surely never applied
// any attempt; Unknown when ctx ended, or the object vanished, while an attempt
// may have been applied. After Unknown only the same bytes may be tried at key.
func Create(ctx context.Context, s Store, key string, body []byte, p CreatePolicy) (Creation, error) {
	c := creator{store: s, key: key, body: body, policy: p.withDefaults()}
	for {
		if err := ctx.Err(); err != nil {
			return Creation{}, c.giveUp(err)
		}
		outcome, err := s.PutIfAbsent(ctx, key, body)
		c.attempts++
		switch outcome {
		case Created:
			return Creation{Created: true, Info: Info{Key: key, Size: int64(len(body))}, Attempts: c.attempts}, nil
		case Exists:
			return c.readBack(ctx)
		case Unknown:
		}
		if fatal := c.note(err); fatal != nil {
			return Creation{}, fatal
		}
		if err := c.pause(ctx, err); err != nil {
			return Creation{}, c.giveUp(err)
		}
		if c.maybe && c.attempts >= peekAfter {
			if found, ok := c.peek(ctx); ok {
				return found, nil
			}
		}
	}
}

// creator is the state of one Create call.
type creator struct {
	store    Store
	key      string
	body     []byte
	policy   CreatePolicy
	attempts int
	pauses   int
	maybe    bool  // some attempt may have been applied
	last     error // why the last attempt settled nothing
}

func (p CreatePolicy) withDefaults() CreatePolicy {
	if p.MinBackoff <= 0 {
		p.MinBackoff = 50 * time.Millisecond
	}
	if p.MaxBackoff < p.MinBackoff {
		p.MaxBackoff = max(5*time.Second, p.MinBackoff)
	}
	if p.Sleep == nil {
		p.Sleep = sleep
	}
	if p.Rand == nil {
		p.Rand = rand.Float64
	}
	return p
}

// note records an attempt that ended without an outcome. It returns the error to
// give to the caller when the store refused for good and nothing can have been
// applied.
func (c *creator) note(err error) error {
	if err == nil {
		err = errs.New(errs.Unknown, "store gave no outcome")
	}
	c.last = err
	switch errs.ClassOf(err) {
	case errs.Unavailable, errs.Exhausted:
		return nil // surely not applied, and it passes
	case errs.Invalid, errs.NotFound, errs.TooLarge, errs.Unauthenticated, errs.PermissionDenied,
		errs.Unsupported, errs.Closed, errs.Corrupt:
		if !c.maybe {
			return errs.In(c.op(), err)
		}
		return nil // an earlier attempt is still open: keep asking
	default:
		c.maybe = true
		return nil
	}
}

// readBack finds out whose object stands at the key.
func (c *creator) readBack(ctx context.Context) (Creation, error) {
	c.maybe = true // until the bytes are compared, the object may be ours
	for gone := 0; ; {
		existing, info, err := c.store.Get(ctx, c.key)
		switch {
		case err == nil:
			return c.compare(existing, info), nil
		case errs.Is(err, errs.NotFound):
			// Never put again: the key was taken and freed, and whoever freed it
			// had a reason (a collected WAL position, for one, must stay lost).
			if gone++; gone >= vanishedReads {
				return Creation{}, &errs.Error{Class: errs.Unknown, Op: c.op(),
					Msg: "an object stood at the key and was deleted before it could be read; whose it was cannot be told", Cause: err}
			}
		}
		c.last = err
		if err := c.pause(ctx, err); err != nil {
			return Creation{}, c.giveUp(err)
		}
	}
}

// peek settles the outcome when an object stands at the key already.
func (c *creator) peek(ctx context.Context) (Creation, bool) {
	existing, info, err := c.store.Get(ctx, c.key)
	if err != nil {
		return Creation{}, false
	}
	return c.compare(existing, info), true
}

// compare tells our own object from another's by its bytes.
func (c *creator) compare(existing []byte, info Info) Creation {
	if bytes.Equal(existing, c.body) {
		return Creation{Created: true, Info: info, Attempts: c.attempts}
	}
	return Creation{Existing: existing, Info: info, Attempts: c.attempts}
}

// pause waits before the next request, at least as long as the store asked for.
func (c *creator) pause(ctx context.Context, cause error) error {
	if c.policy.OnRetry != nil {
		c.policy.OnRetry(c.attempts, cause)
	}
	d := c.policy.MaxBackoff
	if c.pauses < 30 {
		d = min(d, c.policy.MinBackoff<<c.pauses)
	}
	c.pauses++
	d = d/2 + time.Duration(c.policy.Rand()*float64(d)/2)
	return c.policy.Sleep(ctx, max(d, errs.RetryAfter(cause)))
}

// giveUp makes the error for a context that ended.
func (c *creator) giveUp(end error) error {
	switch {
	case c.maybe:
		return &errs.Error{Class: errs.Unknown, Op: c.op(),
			Msg: fmt.Sprintf("unresolved after %d attempts (%v)", c.attempts, end), Cause: c.last}
	case c.last != nil:
		return &errs.Error{Class: errs.ClassOf(c.last), Op: c.op(), RetryAfter: errs.RetryAfter(c.last),
			Msg: fmt.Sprintf("gave up after %d attempts (%v)", c.attempts, end), Cause: c.last}
	}
	return errs.Wrap(errs.Canceled, c.op(), end)
}

func (c *creator) op() string { return "create " + c.key }

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
