// Package producers decides which rows of a producer a bucket has not applied
// yet. It is the pure half of exactly-once: no clock, no goroutine, no I/O.
//
// It owns [State] (what one bucket knows about one producer), [Set] (all
// producers of one bucket) and [Delta] (what one WAL segment adds). It refuses
// to order requests: a producer with several requests in flight may be seen in
// any order, and every row is still applied exactly once.
//
// The contract with the producer: row i of a request has sequence First+i, the
// same sequence always means the same row, and AckedBelow promises that every
// row below it was acknowledged, so that it will never be needed again.
//
// # Invariants
//
//   - INVARIANT(producers-1): a row is skipped only when it is below the largest
//     AckedBelow seen, or inside a recorded range.
//   - INVARIANT(producers-2): ranges are ascending, disjoint, never adjacent, end
//     above the watermark and start at or above it.
//   - INVARIANT(producers-3): Record never fails, whatever the state holds, so that
//     replay works after any state was expired.
//   - INVARIANT(producers-4): recording the same deltas in any order gives the same
//     watermark and ranges.
//
// A row that is skipped was applied, but perhaps not durably yet: whoever answers
// for it waits until the bucket's log is durable up to its present end.
//
// # Concurrency
//
// Nothing here locks. The bucket's owner calls it under the bucket's lock.
package producers
