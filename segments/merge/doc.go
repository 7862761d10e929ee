// Package merge decides what a write makes of a row: the merge engines of
// primary-key tables, and the changes that they emit.
//
// It owns the table of changes (docs/api.md, "Writes to primary-key tables"): which
// of INSERT, UPDATE_BEFORE, UPDATE_AFTER and DELETE a write causes, with which
// values, for each merge engine, aggregate function and kind of write. It refuses
// to know where old rows come from, what a key is, or when a change is durable:
// callers hand in the old rows and say which rows of a request share a key.
//
// [Engine.Apply] is a pure function of its request. A row that cannot be applied
// (an overflow, a required column left empty, a delete that is rejected) is an
// error of that row; the rows after it see the key as it was.
//
// # Concurrency
//
// An Engine is immutable and safe for concurrent use.
package merge
