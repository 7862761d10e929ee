// Package s3store keeps a store in an S3 bucket: the s3:// driver, on
// aws-sdk-go-v2's PutObject with If-None-Match: * and nothing above it.
//
// It owns the client: its connection pool, its request limits, its retries and
// hedges, and the translation of S3's answers into Firn's classes. It refuses
// what not every S3 has: multipart uploads, bulk deletes, ETags, If-Match,
// checksum trailers when the endpoint is not AWS's own.
//
// # Answers to a conditional put
//
//	200                                   Created
//	412                                   Exists (perhaps our own: objstore.Create reads it back)
//	409                                   Unknown: another put is under way; never "exists"
//	5xx, time-out, reset, broken answer   Unknown: it may have been applied
//	no connection at all, 403, 400, 507   Unknown outcome with an error that says "not applied" by its class
//
// Conditional puts are sent once; objstore.Create repeats them for as long as
// its context lives. Everything else is idempotent and retried here, at most
// Options.MaxAttempts times with jittered backoff.
//
// # Reads
//
// A GET whose answer has not begun after about the 95th percentile of recent
// ones is sent a second time, and the first answer wins. The extra requests are
// at most one in twenty.
//
// # Concurrency
//
// A Store is safe for concurrent use. The goroutines of a hedged GET end with
// their requests, which are cancelled when the winner's answer has been read.
package s3store
