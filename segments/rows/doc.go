// Package rows turns bytes from outside into Arrow batches of a table's
// schema, and Arrow batches into bytes: NDJSON, JSON, CSV, Arrow IPC and
// Parquet, in and out.
//
// It owns the value forms of the rows API (with package literal), the limits
// on what a body may cost, and the report of bad rows. It refuses to guess: a
// value that does not fit its column is an error with row, column and reason,
// never cut, wrapped or rounded. It knows nothing of HTTP, producers or storage.
//
// # Decoding
//
// [NewDecoder] gives a [Decoder] whose Next returns a [Chunk] at a time, each
// within ChunkRows and ChunkBytes, so that an endless body runs in bounded
// memory. Rows are numbered from 0 in the order of the body: an NDJSON row is a
// line that is not blank, a CSV row a record after the header, a row of Arrow or
// Parquet a row of its batches in order. Bad rows have numbers too.
//
// With SkipBadRows a bad row is left out and the rest keep their numbers
// ([Chunk].Ordinals). Without it, the rows before the first bad one are
// returned, then Next fails with class Invalid; a body with a byte limit is
// read to its end first, so that the error tells how many rows are bad. A body
// that cannot be split into rows (broken JSON array, truncated gzip or Arrow)
// is Invalid as a whole in both modes; a body over a limit is TooLarge and the
// message names the limit.
//
// Text formats are decoded by a scanner that knows the schema and writes
// straight into column buffers; large bodies are split between rows and
// decoded by several workers, in order. Arrow batches whose types match are
// passed on without a copy, others are cast when that loses nothing.
//
// # Change events
//
// With Debezium set, each row of NDJSON or JSON is a change event: its after image,
// or of a delete the key columns of its before image ([Chunk].Deletes). Values come
// in the forms of Debezium and Kafka Connect, and are told apart by the event's
// schema, or without one by the column. A tombstone is a row that is passed over.
//
// # Invariants
//
//   - Every batch that Next returns has exactly the schema of the selected
//     columns, its required columns hold no NULL (but in deletes, beside the key), its strings are UTF-8, its
//     decimals fit their precision and its times are times of a day.
//   - No input makes a decoder panic or allocate without a bound.
//   - Encode then decode gives equal batches, for every type, in every format
//     (CSV cannot tell a required empty string apart from none unless it is quoted; it is).
//
// A Decoder or Encoder is for one goroutine. The goroutines that a Decoder
// starts end with the Next that started them, but for the reader that MaxDelay
// asks for: that one ends with the body or with Close.
package rows
