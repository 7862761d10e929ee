// Package storetest is the contract of objstore.Store as a test suite. Every
// driver and every wrapper that claims to be a store passes [Run].
//
// It owns no store and asks for nothing that the interface does not promise:
// put-if-absent with one winner, read-after-write, ranges, lexical listing,
// idempotent deletes, keys as objstore.CheckKey allows them, contexts.
package storetest
