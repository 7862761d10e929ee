// Package loadtest drives an agent with rows that it can recognise again, and
// checks everything that it reads: dense offsets, each row once, every value.
//
// It owns the workloads of `firn loadtest` ([Run]) and the benchmarks with their
// ceilings (package loadtest/bench); package loadtest/crash holds the tests that
// kill agents. It reaches agents through the client SDK and their /metrics page
// only. It refuses to report a speed of rows that it did not verify.
//
// A row is a function of (seed, writer, sequence) and its [Shape]; [Generator]
// makes it and [Checker] recognises it, so that nothing has to be remembered
// about a row but one bit.
//
// Concurrency: a Generator is immutable; a Checker is locked inside. Memory: a
// Checker holds one bit for each row and the rows of no more than one batch.
package loadtest
