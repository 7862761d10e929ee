// Package index knows where the row of each primary key lies: in a live segment,
// or in a data file of the lake, by position.
//
// # What the room owns
//
// [Key] is 128 bits of hash; a [Hasher] makes them of a table's rows. [State] is
// the owner's live part of a bucket: which change of a key is the newest, which
// the newest durable one, and what of the lake these hide. It is a pure state
// machine. [Index] is the lake's part: immutable sorted runs, listed by a
// [Manifest] for each generation of the lake, whose blocks a [Cache] holds.
//
// It refuses to know rows, merge engines, commits or clocks: a fold tells it
// where it put each key, and stores what [Index.Next] makes.
//
// # Invariants
//
//   - INVARIANT(key-1): for every key, at every high watermark, exactly one of these
//     holds: it has no row; one current offset; one position of a data file that
//     is neither deleted nor hidden.
//   - INVARIANT(key-2): at most one live delete file or vector for a data file; no
//     position twice.
//   - INVARIANT(key-3): the manifest that a lake snapshot names exists before it.
//   - INVARIANT(key-4): the levels of a manifest at least halve in size from old to
//     new, or there are no more than maxLevels of them; a key's entry in a newer
//     level replaces that in an older one.
//
// # Concurrency
//
// A State belongs to its bucket and is guarded by the bucket's lock. Index, Run
// and Cache are safe for concurrent use; the cache's lock is never held over I/O.
//
// Formats: docs/format/index.md; the use of it all:
// docs/decisions/0006-primary-key-tables.md.
package index
