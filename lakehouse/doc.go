// Package lakehouse is the lake: every table as an ordinary Iceberg table on
// Firn's own object store.
//
// It owns the directory lake/<database>/<table>-<id>/: birth of a table, the
// metadata versions and the commit protocol, Iceberg manifests, Parquet data
// files with their offset runs, compaction, expiry, retention and the orphan
// sweep; and the read side: scans and the read-only Iceberg REST catalog. It
// refuses everything about live data: who owns a bucket, what is durable, when
// to fold. A caller hands it a plain [TableDef] and batches in offset order.
//
// # Main types
//
// [Lake] is the entry. [Lake.Load] gives a [Snapshot], whose Files are the
// [DataFile]s to scan. [Lake.Fold] turns durable rows into data files and one
// commit, with the rows that it deletes in a primary-key table ([KeyedFold]);
// [Lake.FetchRows] reads rows by position. [Lake.Compact], [Lake.CompactKeyed],
// [Lake.Expire], [Lake.Retain] and [Lake.SweepOrphans] keep the table small. [Run]
// says which offsets a file's rows have.
//
// # Invariants
//
//   - INVARIANT(lake-1): a commit takes effect by put-if-absent of the next
//     metadata version and by nothing else; it moves a bucket's lake offset only
//     from what the parent snapshot says it is, at the generation it says.
//   - INVARIANT(lake-2): a file that a committed metadata version may name is
//     never deleted; after an unknown outcome nothing is deleted.
//   - INVARIANT(lake-3): metadata versions are deleted lowest first, one at a time,
//     and the newest never: it is the highest one that a listing shows.
//   - INVARIANT(lake-4): names of data files, manifests and manifest lists hold a
//     fresh random id and are never reused.
//   - INVARIANT(lake-5): the rows of a bucket's files, with the offsets of their
//     runs, are exactly the offsets from the first one kept to the lake offset,
//     each once.
//   - INVARIANT(lake-6): a data file has exactly the columns of the schema it was
//     written with, with their field ids on every level.
//   - INVARIANT(lake-7): what no snapshot names is deleted only behind a commit that
//     refuses every earlier prepared commit which could name it.
//   - INVARIANT(key-2): a data file has at most one live delete file or vector, no
//     position stands twice, and totals are those of the manifests.
//   - INVARIANT(key-3): the index objects that a kept snapshot names stand.
//
// # Concurrency
//
// A Lake is safe for concurrent use and keeps no goroutine between calls. Caches
// are bounded by named constants in lake.go; no lock is held over I/O. Commits of
// one table from several goroutines or processes are correct, and slow: callers
// serialise them.
//
// Formats: docs/format/lake.md; the commit: docs/decisions/0004-lake-commit.md;
// the sweep: docs/decisions/0005-orphan-sweep.md.
package lakehouse
