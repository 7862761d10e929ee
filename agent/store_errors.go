package agent

import (
	"context"
	"iter"

	"github.com/firn-data/firn/internal/objstore"
)

// storeError marks an error as the store's, so that the API does not take what
// happened between Firn and its store for the caller's own doing.
type storeError struct{ cause error }

// Error implements error.
func (e storeError) Error() string { return e.cause.Error() }

// Unwrap keeps the class.
func (e storeError) Unwrap() error { return e.cause }

func blame(err error) error {
	if err == nil {
		return nil
	}
	return storeError{err}
}

// blamed is a store whose errors are marked.
type blamed struct{ objstore.Store }

// Get implements objstore.Store.
func (b blamed) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	body, info, err := b.Store.Get(ctx, key)
	return body, info, blame(err)
}

// GetRange implements objstore.Store.
func (b blamed) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	body, info, err := b.Store.GetRange(ctx, key, start, n)
	return body, info, blame(err)
}

// Head implements objstore.Store.
func (b blamed) Head(ctx context.Context, key string) (objstore.Info, error) {
	info, err := b.Store.Head(ctx, key)
	return info, blame(err)
}

// Put implements objstore.Store.
func (b blamed) Put(ctx context.Context, key string, body []byte) error {
	return blame(b.Store.Put(ctx, key, body))
}

// PutIfAbsent implements objstore.Store.
func (b blamed) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	outcome, err := b.Store.PutIfAbsent(ctx, key, body)
	return outcome, blame(err)
}

// List implements objstore.Store.
func (b blamed) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		for info, err := range b.Store.List(ctx, prefix, startAfter) {
			if !yield(info, blame(err)) {
				return
			}
		}
	}
}

// Delete implements objstore.Store.
func (b blamed) Delete(ctx context.Context, key string) error {
	return blame(b.Store.Delete(ctx, key))
}

// Unwrap returns the store within.
func (b blamed) Unwrap() objstore.Store { return b.Store }
