package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"time"

	"connectrpc.com/connect"
)

// RetryPolicy bounds the retries of passing faults.
type RetryPolicy struct {
	// Attempts of one operation, the first included. An acknowledgement or a row
	// that gets through starts the count of a writer or reader anew.
	Attempts int
	// MinPause and MaxPause bound the pause before an attempt; it doubles from the
	// former to the latter and is varied at random by half. An agent's Retry-After
	// counts when it is longer, up to MaxPause.
	MinPause time.Duration
	MaxPause time.Duration
}

// DefaultRetry hides the restart of an agent, and its takeover after a lost
// lease, from callers: its pauses add up to about 40 seconds.
var DefaultRetry = RetryPolicy{Attempts: 16, MinPause: 50 * time.Millisecond, MaxPause: 5 * time.Second}

// NoRetry returns the first failure.
var NoRetry = RetryPolicy{Attempts: 1}

func (p RetryPolicy) check() error {
	if p.Attempts < 1 || p.MinPause < 0 || p.MaxPause < p.MinPause {
		return invalid("retry policy %+v: at least one attempt, and 0 <= MinPause <= MaxPause", p)
	}
	return nil
}

// pause returns how long to wait after a number of failures in a row.
func (p RetryPolicy) pause(failures int, err error) time.Duration {
	d := p.MinPause << min(failures-1, 20)
	if d > p.MaxPause || d < 0 {
		d = p.MaxPause
	}
	if d > 0 { // spread clients that failed together
		d = d/2 + rand.N(d/2+1)
	}
	var e *Error
	if errors.As(err, &e) && e.RetryAfter > d {
		d = min(e.RetryAfter, p.MaxPause)
	}
	return d
}

// wait sleeps before the next attempt; it returns the failure when there is none.
func (p RetryPolicy) wait(ctx context.Context, failures int, err error) error {
	if failures >= p.Attempts {
		return err
	}
	t := time.NewTimer(p.pause(failures, err))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// retryable decides whether the same request may be sent again. repeatable says
// that applying it twice is the same as once.
func retryable(err error, repeatable bool) bool {
	switch ClassOf(err) {
	case Unavailable, Exhausted, Fenced, Closed:
		// The agent did not apply it.
		return !errors.Is(err, errClosed)
	case Unknown:
		// It may have been applied: only a request that bears it is sent again.
		return repeatable
	default:
		return false
	}
}

// neverSent reports whether err happened before anything reached an agent.
func neverSent(err error) bool {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Op == "dial"
	}
	var dns *net.DNSError
	return errors.As(err, &dns)
}

// transport classifies a failure of net/http: what reached an agent and got no
// answer has an unknown outcome.
func transport(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	e := &Error{Class: Unknown, Code: connect.CodeUnavailable.String(), Message: err.Error(), cause: err}
	if neverSent(err) {
		e.Class = Unavailable
	}
	return e
}

// interceptor authorizes calls, classifies their errors, and retries unary ones.
func (c *Client) interceptor() connect.Interceptor { return (*interceptor)(c) }

type interceptor Client

// WrapUnary implements connect.Interceptor.
func (i *interceptor) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		(*Client)(i).authorize(req.Header())
		repeatable := req.Spec().IdempotencyLevel == connect.IdempotencyNoSideEffects ||
			req.Spec().IdempotencyLevel == connect.IdempotencyIdempotent
		for failures := 1; ; failures++ {
			resp, err := next(ctx, req)
			if err == nil {
				return resp, nil
			}
			err = fromConnect(err)
			if !retryable(err, repeatable) {
				return nil, err
			}
			if werr := i.retry.wait(ctx, failures, err); werr != nil {
				return nil, werr
			}
		}
	}
}

// WrapStreamingClient implements connect.Interceptor.
func (i *interceptor) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		(*Client)(i).authorize(conn.RequestHeader())
		return conn
	}
}

// WrapStreamingHandler implements connect.Interceptor; a client has none.
func (i *interceptor) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}
