// Package wal is the write-ahead log of an incarnation: one object-store PUT
// makes rows of many tables durable.
//
// It owns WAL objects (package format: docs/format/wal.md), the pipelined writer
// ([Log]), fences ([Fence]), replay ([Replay]), reading footers and segments
// ([ReadFooter], [ReadSegment]), and checkpoints ([CheckpointWriter],
// [LoadCheckpoint]; docs/format/checkpoint.md). Package producers below it is the
// exactly-once state. It refuses to know what a bucket, a slot or a reader is:
// offsets are assigned by the caller, and who may fence whom is decided in the
// metadata log.
//
// # How rows become durable
//
// [Log.Append] takes entries under a bound of bytes. One goroutine cuts them into
// objects (by bytes, by age, or soon when nothing is in flight; never when there
// are none), has the segments encoded in parallel, mints the next position, and
// lets up to InFlight conditional puts run. What is created is acknowledged in
// sequence order: OnCommit, then the entries' Done. The decisions are the pure
// sequencer and batcher; goroutines only carry I/O, encoding and callbacks.
//
// # Invariants
//
//   - INVARIANT(wal-1): positions are dense, and at most InFlight of them are
//     minted beyond the first that is not acknowledged.
//   - INVARIANT(wal-2): position n+1 is acknowledged only after n.
//   - INVARIANT(wal-3): while an outcome is unknown nothing is minted, and only the
//     same bytes are put at the same name.
//   - INVARIANT(wal-4): "exists" is believed only after reading back what stands
//     there; damaged answers are read again.
//   - INVARIANT(wal-5): after a fence, a foreign object or a put that failed for
//     good, the incarnation mints and acknowledges nothing, ever.
//   - INVARIANT(wal-6): a position that was taken is never put again, even when it
//     was freed by a collector.
//   - INVARIANT(wal-7): the log of an incarnation is what lies before its first
//     absent or fenced position; only that is ever acknowledged.
//   - INVARIANT(wal-8): a fence is never deleted while its incarnation may live.
//   - INVARIANT(wal-9): a fence behind a gap means that the view is stale: nothing
//     is put.
//   - INVARIANT(wal-10): an idle log asks nothing of the store and runs no timer.
//
// # Concurrency
//
// A Log is safe for concurrent use. Its goroutines: run (decides), the completer
// (calls back), and one for each object being put and each segment being encoded,
// bounded by the options. [Log.Close] waits for all of them. Log.mu is never held
// over I/O or a callback; room's lock is a leaf. A CheckpointWriter belongs to one
// goroutine. All package functions are safe for concurrent use.
package wal
