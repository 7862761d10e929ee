package objstore

import (
	"context"
	"iter"
	"time"
)

// Info describes one object. ModTime is by the store's clock.
type Info struct {
	Key     string
	Size    int64 // bytes of the whole object, also on a ranged read
	ModTime time.Time
}

// Outcome is what is known after a conditional put.
type Outcome uint8

// The three outcomes of PutIfAbsent.
const (
	// Unknown: the put may have been applied, or may still be; only the same
	// bytes at the same key may be tried again.
	Unknown Outcome = iota
	// Created: this call's bytes stand at the key.
	Created
	// Exists: some object stands at the key. It may be our own (a lost answer):
	// read it back and compare before believing in a lost race.
	Exists
)

// Store is one prefix of an object store: the only durable thing in Firn. It
// asks for strong read-after-write and put-if-absent, and nothing else.
//
// Keys are relative to the prefix, slash-separated, never empty, never
// starting or ending with a slash. All methods are safe for concurrent use.
// Errors are classified by package errs: NotFound, Unavailable, Unknown (only
// where a write may have been applied), PermissionDenied, Unauthenticated,
// Exhausted (full), Invalid, Canceled.
type Store interface {
	// Get returns a whole object; the caller owns the bytes.
	Get(ctx context.Context, key string) ([]byte, Info, error)
	// GetRange returns n bytes from start, fewer at the object's end. A negative
	// start asks for the last n bytes (start's magnitude is ignored). A start at
	// or past the end returns no bytes and no error.
	GetRange(ctx context.Context, key string, start, n int64) ([]byte, Info, error)
	// Head returns an object's Info.
	Head(ctx context.Context, key string) (Info, error)
	// Put writes an object, replacing what stood there. The bytes must not
	// change until it returns.
	Put(ctx context.Context, key string, body []byte) error
	// PutIfAbsent writes an object unless the key is taken. With Unknown the
	// error says why; with Created and Exists it is nil. A failure before
	// anything was sent (bad key, refused credentials) is Unknown too unless the
	// store surely did not apply it; callers use [Create] and need not care.
	PutIfAbsent(ctx context.Context, key string, body []byte) (Outcome, error)
	// List yields the objects whose keys start with prefix and sort after
	// startAfter, in lexical order.
	List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error]
	// Delete removes an object; removing what is not there is no error.
	Delete(ctx context.Context, key string) error
	// URL names the store, without credentials.
	URL() string
	// Close releases connections; it waits for nothing.
	Close() error
}
