package lakehouse

import (
	"context"
	"slices"

	"github.com/apache/iceberg-go/table"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
)

// Defaults of CompactOptions.
const (
	compactMinFiles = 4
	compactMaxBytes = 512 << 20
	// compactFloor is a size below which a file joins any neighbours: smaller
	// ones are all overhead.
	compactFloor = 256 << 10
)

// CompactOptions configures a compaction. The zero value compacts all buckets.
type CompactOptions struct {
	// Buckets are the buckets to look at: those that the caller owns; nil is all.
	Buckets []int32
	// MinFiles is how many small neighbours make it worth while to join them (default 4).
	MinFiles int
	// MaxBytes bounds the bytes of the files that one call joins (default 512 MiB).
	MaxBytes int64
	// All joins every run of two or more small neighbours, whatever their sizes.
	All bool
}

// CompactResult says what a compaction did. SnapshotID is 0 when there was nothing to do.
type CompactResult struct {
	SnapshotID              int64
	FilesBefore, FilesAfter int // of those that were rewritten
	BytesBefore, BytesAfter int64
	Rows                    int64
}

// Compact joins small data files of one bucket and partition whose offset ranges
// are neighbours, keeping order, offsets and timestamps, in one commit that bumps
// the generation of each bucket that it touches. Files are joined size tier by
// size tier, so that a row is rewritten a logarithmic number of times. Errors are
// those of Fold.
func (l *Lake) Compact(ctx context.Context, def TableDef, o CompactOptions) (CompactResult, error) {
	op := "compact " + def.String()
	snap, err := l.Load(ctx, def)
	if err != nil {
		return CompactResult{}, errs.In(op, err)
	}
	files, err := snap.Files(ctx)
	if err != nil {
		return CompactResult{}, errs.In(op, err)
	}
	target, err := def.intProperty(PropTargetFileBytes, l.opts.TargetFileBytes)
	if err != nil {
		return CompactResult{}, errs.In(op, err)
	}
	groups := planCompaction(files, target, o)
	if len(groups) == 0 {
		return CompactResult{}, nil
	}
	c := change{id: l.opts.NewID(), operation: table.OpReplace, remove: map[string]bool{}}
	var r CompactResult
	touched := map[int32]bool{}
	for _, g := range groups {
		for _, f := range g {
			c.remove[f.URI] = true
			r.FilesBefore++
			r.BytesBefore += f.Size
			r.Rows += f.Rows
			touched[f.Bucket] = true
		}
	}
	c.moves = standing(snap, touched)
	written, discard, err := l.rewrite(ctx, &def, snap, groups, false)
	if err != nil {
		return CompactResult{}, errs.In(op, err)
	}
	var rows int64
	for _, f := range written {
		c.add = append(c.add, f.entry)
		r.FilesAfter++
		r.BytesAfter += f.entry.FileSizeBytes()
		rows += f.entry.Count()
	}
	if rows != r.Rows {
		discard()
		return CompactResult{}, errs.In(op, errs.New(errs.Internal, "%d rows were read from files with %d", rows, r.Rows))
	}
	committed, err := l.commit(ctx, &def, c)
	if err != nil {
		if !errs.Is(err, errs.Unknown) {
			discard()
		}
		return CompactResult{}, errs.In(op, err)
	}
	r.SnapshotID = committed.ID
	return r, nil
}

// standing returns moves that leave the lake offsets of buckets where they are.
func standing(s *Snapshot, buckets map[int32]bool) []bucketMove {
	var out []bucketMove
	for b := range buckets {
		out = append(out, bucketMove{bucket: b, from: s.Offset(b), to: s.Offset(b), generation: s.Generation(b)})
	}
	slices.SortFunc(out, func(a, b bucketMove) int { return int(a.bucket) - int(b.bucket) })
	return out
}

// rewrite writes the rows of each group of files to new files, in the form of a keyed
// table when they will be looked up.
func (l *Lake) rewrite(ctx context.Context, def *TableDef, snap *Snapshot, groups [][]DataFile, keyed bool) ([]writtenFile, func(), error) {
	base := &version{number: snap.MetadataVersion, key: snap.MetadataKey, meta: snap.Metadata}
	w, err := l.newTableWriter(ctx, def, base)
	if err != nil {
		return nil, nil, err
	}
	if keyed {
		w.opts = w.opts.forLookups()
	}
	lanes := min(len(groups), l.opts.Parallel)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(lanes)
	for _, files := range groups {
		g.Go(func() error {
			out := w.bucket(files[0].Bucket, lanes)
			for batch, err := range snap.Scan(gctx, ScanOptions{Files: files, Ordered: true, WithOffsets: true, Parallel: 1}) {
				if err != nil {
					return err
				}
				err = out.add(gctx, rowBatch{rows: batch.Rows, offsets: batch.Offsets, timestamps: batch.Timestamps})
				batch.Rows.Release()
				if err != nil {
					return err
				}
			}
			return out.closeAll(gctx)
		})
	}
	written, err := w.finish(g.Wait())
	return written, w.discard, err
}
