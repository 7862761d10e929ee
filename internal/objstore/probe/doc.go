// Package probe asks a store whether it keeps what Firn's safety rests on:
// put-if-absent with one winner, read-after-write, lexical listing, ranges.
//
// It owns the keys below probe/, and removes what it wrote. It refuses to guess:
// a check that could not run is a failure with the store's own error.
//
// [StartupProbe] is what every agent runs before it serves: one conditional put, a
// second one that must be refused, a read (four requests and a delete). [Doctor]
// is the whole examination behind firn doctor; it takes some hundred requests
// and says in words what a person can act on.
package probe
