package lakehouse

import (
	"context"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// KeyedFold makes a BucketFold one of a primary-key table: beside the rows that come,
// the rows of data files that go, and the bucket's index, all in one commit.
type KeyedFold struct {
	// Deletes are, by data file key, the positions of rows whose keys this fold
	// replaces or deletes, beside those that the snapshot deletes already. A file
	// of which nothing is left leaves the table.
	Deletes map[string]*roaring.Bitmap
	// Written is called once, before the commit and after the files stand in the
	// store, also when there are none. It writes the bucket's index for the
	// generation that the commit makes, and returns the name of its manifest.
	Written func(ctx context.Context, generation uint64, files []FoldedFile) (indexName string, err error)
}

// FoldedFile is a data file that a fold wrote. Row i has the offset that Runs say.
type FoldedFile struct {
	Key  string
	Rows int64
	Runs []Run
}

// anyKeyed reports whether the fold is of a primary-key table.
func anyKeyed(work []BucketFold) bool {
	return slices.ContainsFunc(work, func(b BucketFold) bool { return b.Keyed != nil })
}

// foldedFiles returns the files of one bucket, by their first offset.
func foldedFiles(files []writtenFile, bucket int32) []FoldedFile {
	var out []FoldedFile
	for _, f := range files {
		if f.bucket == bucket {
			out = append(out, FoldedFile{Key: f.key, Rows: f.entry.Count(), Runs: f.runs})
		}
	}
	slices.SortFunc(out, func(a, b FoldedFile) int {
		return int(min(max(a.Runs[0].FirstOffset-b.Runs[0].FirstOffset, -1), 1))
	})
	return out
}

// addKeyed adds to a change what keyed buckets delete, and their indexes.
func (l *Lake) addKeyed(ctx context.Context, w *tableWriter, snap *Snapshot, work []BucketFold, files []writtenFile, c *change) error {
	all := map[string]*roaring.Bitmap{}
	for _, b := range work {
		if b.Keyed == nil {
			return errs.New(errs.Internal, "bucket %d of a primary-key table is folded as a log", b.Bucket)
		}
		for key, rows := range b.Keyed.Deletes {
			if all[key] != nil {
				return errs.New(errs.Internal, "two buckets delete rows of data file %s", key)
			}
			all[key] = rows
		}
	}
	live, err := snap.Files(ctx)
	if err != nil {
		return err
	}
	plan, err := l.planDeletes(ctx, live, all)
	if err != nil {
		return err
	}
	specs := func(id int) *iceberg.PartitionSpec { return snap.Metadata.PartitionSpecByID(id) }
	if c.deletes, err = w.writeDeletes(ctx, plan, specs, snap.Metadata.Version()); err != nil {
		return err
	}
	if len(plan.remove) > 0 {
		c.remove = map[string]bool{}
		for _, uri := range plan.remove {
			c.remove[uri] = true
		}
	}
	switch came, went := len(c.add) > 0, len(c.deletes)+len(c.remove) > 0; {
	case came && went:
		c.operation = table.OpOverwrite
	case went:
		c.operation = table.OpDelete
	}
	c.indexes = map[int32]string{}
	for _, b := range work {
		name, err := b.Keyed.Written(ctx, b.Generation+1, foldedFiles(files, b.Bucket))
		if err != nil {
			return errs.In("write key index", err)
		}
		c.indexes[b.Bucket] = name
	}
	return nil
}

// foldKeyed writes one batch of a keyed bucket, whose rows have offsets of their own
// from next on, and returns the first offset that the next batch may have.
func foldKeyed(ctx context.Context, w *bucketWriter, b *BucketFold, batch FoldBatch, next int64) (int64, error) {
	n := int(batch.Rows.NumRows())
	if len(batch.Offsets) != n || len(batch.Timestamps) != n {
		return next, errs.New(errs.Internal, "bucket %d: %d rows were handed to the fold with %d offsets and %d timestamps", b.Bucket, n, len(batch.Offsets), len(batch.Timestamps))
	}
	for _, offset := range batch.Offsets {
		if offset < next || offset >= b.To {
			return next, errs.New(errs.Internal, "bucket %d: a row was handed to the fold with offset %d at %d of [%d, %d)", b.Bucket, offset, next, b.From, b.To)
		}
		next = offset + 1
	}
	if n == 0 {
		return next, nil
	}
	return next, w.add(ctx, rowBatch{rows: batch.Rows, offsets: batch.Offsets, timestamps: batch.Timestamps})
}
