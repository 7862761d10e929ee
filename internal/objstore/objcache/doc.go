// Package objcache remembers what was read of immutable objects, within a bound
// on bytes, and lets callers that want the same bytes at the same time share one
// request.
//
// It owns the cached bytes and the requests in flight. It refuses mutable
// objects (heartbeats, version hints): it never asks again about a key, so only
// names whose content cannot change belong here. It also refuses to promise: a
// hit is luck, and nothing may depend on one.
//
// # Bytes are shared
//
// What Get and Range return belongs to the cache and to every other caller; it
// must not be changed. It stays valid for as long as anyone holds it.
//
// # Concurrency
//
// A Cache is safe for concurrent use. One goroutine runs each request; it ends
// when the store answers, or when its last caller has left. ristretto's own
// goroutines end with Close. The bytes in flight are bounded by the callers, not
// by the cache.
//
// ristretto drops entries under load and admits by estimated frequency; it
// compares hashes, not keys, so entries carry their key and are checked.
package objcache
