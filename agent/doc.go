// Package agent is the stateless process that serves Firn: it owns slots,
// takes rows in, publishes them once they are durable, folds them into the
// lake, answers reads, and collects what nobody needs any more.
//
// # What the room owns
//
// [Agent] is the process: one metadata log, one lake, one listener. Under it
// lives one incarnation at a time: the owner of one WAL and of the slots
// that it claimed. When an incarnation is fenced, everything that it holds in
// memory is dropped and a new one recovers from the store; nothing survives by
// memory alone.
//
// A bucket is the unit of order. Its state is small: the next offset, the high
// watermark, the lake offset, the live segments between the two, and the
// producers' states. Rows themselves are in WAL objects and in the lake; a
// bounded cache keeps the newest ones decoded.
//
// # Invariants
//
//   - INVARIANT(agent-1): offsets of a bucket are dense; they are assigned under
//     the bucket's lock, in the order in which entries reach the WAL.
//   - INVARIANT(agent-2): readers see a row only below the high watermark, and the
//     high watermark moves only when the WAL object is durable and every earlier
//     object of the incarnation is.
//   - INVARIANT(agent-3): a producer's state in a checkpoint or a WAL footer covers
//     durable rows only; what is in flight is kept apart.
//   - INVARIANT(agent-4): a read pairs one lake snapshot with the live rows from
//     exactly that snapshot's offsets, and pins the WAL objects it will read.
//   - INVARIANT(agent-5): a WAL object is deleted only when the two newest
//     checkpoints cover it and reference none of its segments.
//
// # Concurrency and lock order
//
// publishMu (readers share it, the commit callback takes it whole) comes before
// bucket.mu; table-level fold locks come before both. No lock is held over I/O.
// Record batches are shared freely and never released: the Go allocator's
// memory is the collector's to reclaim.
package agent
