package lakehouse

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
)

// FoldInput is the durable rows of some buckets of one table, to be committed to
// the lake together.
type FoldInput struct {
	Buckets []BucketFold
}

// BucketFold is one bucket's rows: every offset in [From, To).
type BucketFold struct {
	Bucket   int32
	From, To int64
	// Generation is the bucket's generation in the snapshot that From comes from.
	Generation uint64
	// Next returns the rows in offset order, without holes, and io.EOF after the
	// last. The batch is released by Fold. Batches are in the current schema.
	Next func(ctx context.Context) (FoldBatch, error)
}

// FoldBatch is some consecutive rows of a bucket with one commit timestamp.
type FoldBatch struct {
	Rows       arrow.RecordBatch
	BaseOffset int64
	Timestamp  int64 // µs since the epoch
}

// FoldResult says what a fold committed. When there was nothing to fold,
// SnapshotID is the table's current snapshot and the counts are zero.
type FoldResult struct {
	SnapshotID int64
	Rows       int64
	Files      int
	Bytes      int64
	Offsets    map[int32]int64 // all buckets of the table, as Snapshot.Offsets
	// Generations are all buckets', as Snapshot.Generations.
	Generations map[int32]uint64
}
