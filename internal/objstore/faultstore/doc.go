// Package faultstore wraps a store and breaks it by rule, for tests and
// simulations: what a network, a busy service or a paused process does to a
// writer, without any of them.
//
// It owns the rules, their counters and the writes that it holds back. It
// changes nothing of the store below but through the calls it passes on: a fault
// never invents an object, a duplicate or a late write is the caller's own.
//
// # Determinism
//
// A rule that counts (After, Times) does so in order of arrival. A rule with a
// Chance, and the place of a cut or a flipped bit, depend only on the seed, the
// rule's index, the operation, the key, and how often that operation met that
// key before: concurrent calls on different keys see the same faults in every
// run.
//
// # Late writes
//
// A LateApply answers Unknown and keeps the write. It is applied for real by
// [Store.Release], or Rule.Delay later by the clock, whatever has happened to
// the key meanwhile. Writes held back at Close are lost.
package faultstore
