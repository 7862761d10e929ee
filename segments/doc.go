// Package segments owns what a table's rows look like: the schema and its
// evolution by field id, the Arrow form of every type, the encoded body of a
// segment with its statistics and checksums, projection between schema
// versions, the bucket function, and the partition transforms.
//
// It refuses to know where bytes live: callers hand in and take out byte
// slices and a range-reading function. Rows in other formats (NDJSON, CSV,
// Parquet) are package segments/rows; SQL predicates are segments/filter.
//
// Main types: [Schema], [Field] and [Type] describe columns; [Encode] turns a
// record batch into [Encoded], whose [ColumnChunk] values let [Decode] read
// some columns only; [ColumnStats] lets a reader skip a segment; [Project]
// reads rows of one schema version as another; [BucketRows] and
// [PartitionField] place rows.
//
// Invariants, tagged in the code as INVARIANT(seg-n), stand in
// docs/format/segment.md together with the byte layout.
//
// Concurrency: schemas are immutable once shared, and every function here is
// safe for concurrent use on values that nobody changes meanwhile. Pools of
// compressors and scratch buffers are package-wide and bounded.
//
// Memory: record batches come from Go's heap; Retain and Release are honoured
// but nothing leaks when a Release is forgotten.
package segments
