// Package client is the Go SDK of Firn.
//
// A [Client] talks to any agent of a store; a [Table] names one table of it.
// Control calls are unary and return the protobuf messages of api/firn/v1. Rows
// move as Arrow record batches:
//
//   - [Table.NewWriter] batches rows, keeps several requests in flight over one
//     ordered stream, retries, and applies each row exactly once.
//   - [Table.Append] sends one body in any format as one atomic request.
//   - [Table.Upsert], [Table.Delete] and [Table.Lookup] write and read a primary-key
//     table by key; a writer does so with many rows ([WriterOptions].Op).
//   - [Table.Scan] reads the table as of one point in time.
//   - [Table.Changes] follows its log, and resumes by itself after a break.
//
// # Exactly once
//
// A writer with a producer id numbers its rows (the producer's sequences); the
// same number must always mean the same row. After a restart [Table.Producer]
// tells the sequence to resume from; replaying from an older one, in any batch
// sizes, is harmless. A writer without a producer id sends each batch under an
// idempotency key of its own: its retries are exact, a restarted program has no
// memory.
//
// # Errors
//
// Every error of an agent is an [*Error] with a [Class] that says what to do
// about it. Passing faults are retried here, with growing pauses and by the
// agent's Retry-After, as [RetryPolicy] says; what is returned is final.
//
// # Concurrency and memory
//
// Client, Table and Writer are safe for concurrent use; readers belong to one
// goroutine. A writer holds at most [WriterOptions].MaxPendingBytes of rows not
// yet acknowledged and makes its caller wait beyond that. Record batches handed
// in are retained as long as they are needed and may be released by the caller at
// once; batches handed out belong to the caller.
package client
