// Package objstore is the one door to the object store, the only durable thing
// in Firn.
//
// It owns the [Store] interface, the rules for conditional creation ([Create]),
// key validation ([CheckKey]), the in-process store ([NewMem], [SharedMem]), and
// the wrappers that any store can wear: [WithPrefix] and [Ledger]. Drivers live
// below it (filestore, s3store, gcsstore, azstore) and are chosen by package open, the
// only place that imports all of them. storetest is the contract every driver
// passes; faultstore breaks a store on purpose; probe asks a real store whether
// it keeps the contract; objcache remembers immutable ranges.
//
// It refuses whatever not every object store offers alike: If-Match, meaning of
// ETags, rename, append, bulk delete, list orders other than lexical. All
// coordination in Firn is built from put-if-absent and read-after-write.
//
// # Invariants
//
//   - INVARIANT(store-1): Created is reported for at most one body per key
//     between two deletes of that key.
//   - INVARIANT(store-2): Exists says nothing about whose object stands there;
//     only a read-back that compares bytes does. Bodies of conditional puts
//     therefore carry their writer's id and a nonce.
//   - INVARIANT(store-3): an error of class Unknown from a write means that the
//     write may have been applied or may still be; every other class from a
//     write means that it surely was not and will not be.
//   - INVARIANT(store-4): an unknown outcome is resolved by the same bytes at the
//     same key, and by nothing else; it is never followed by a delete.
//   - INVARIANT(store-5): once Put, PutIfAbsent or Delete has returned without an
//     error, every later Get, Head and List on any handle shows it.
//
// # Concurrency
//
// A Store is safe for concurrent use. No lock is held over I/O except where a
// driver says so. Nothing here starts a goroutine that outlives its call.
package objstore
