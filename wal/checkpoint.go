package wal

import (
	"cmp"
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// CheckpointRef names a checkpoint: a numbered object of an incarnation.
type CheckpointRef struct {
	Incarnation string
	Seq         uint64
}

// Key returns the object's key in the store.
func (r CheckpointRef) Key() string { return seqKey("checkpoint", r.Incarnation, r.Seq) }

// IsZero reports whether r names nothing.
func (r CheckpointRef) IsZero() bool { return r.Incarnation == "" }

// ParseCheckpointKey is the inverse of Key; ok is false for any other key.
func ParseCheckpointKey(key string) (r CheckpointRef, ok bool) {
	inc, seq, ok := parseSeqKey("checkpoint", key)
	return CheckpointRef{inc, seq}, ok
}

// SegmentRef points at a live segment.
type SegmentRef struct {
	Object     ObjectID
	Index      int32 // in the object's footer
	BaseOffset int64
	Rows       int64
	Bytes      int64 // as stored
	Timestamp  int64 // commit time in µs
	SchemaID   int32
}

// EndOffset returns the first offset after the segment.
func (s *SegmentRef) EndOffset() int64 { return s.BaseOffset + s.Rows }

// BucketManifest is the state of a bucket that recovery starts from.
type BucketManifest struct {
	Bucket         BucketID
	NextOffset     int64 // the next offset to assign
	LakeOffset     int64 // every offset below it is in the lake
	Generation     uint64
	EarliestOffset int64
	Segments       []SegmentRef    // live, ascending by base offset
	Producers      []ProducerState // ascending by id
}

// maxParallelParts bounds the parts of a checkpoint that are read at a time.
const maxParallelParts = 4

// NewestCheckpoint finds the newest checkpoint of an incarnation that can be
// read; ok is false when there is none. One that is corrupt is passed over: the
// one before it is still a valid start, as long as its WAL tail is there, and
// Replay says so when it is not. Errors: Unavailable, Canceled.
func NewestCheckpoint(ctx context.Context, store objstore.Store, incarnation string) (ref CheckpointRef, ok bool, err error) {
	if err := CheckIncarnation(incarnation); err != nil {
		return ref, false, err
	}
	refs, err := listCheckpoints(ctx, store, incarnation)
	if err != nil {
		return ref, false, errs.In("list checkpoints of "+incarnation, err)
	}
	for _, ref := range slices.Backward(refs) {
		_, err := readCheckpoint(ctx, store, ref)
		switch {
		case err == nil:
			return ref, true, nil
		case !errs.Is(err, errs.Corrupt) && !errs.Is(err, errs.NotFound):
			return CheckpointRef{}, false, err
		}
	}
	return CheckpointRef{}, false, nil
}

func listCheckpoints(ctx context.Context, store objstore.Store, incarnation string) ([]CheckpointRef, error) {
	var refs []CheckpointRef
	err := listAll(ctx, store, "checkpoint/"+incarnation+"/", "", func(info objstore.Info) bool {
		if ref, ok := ParseCheckpointKey(info.Key); ok {
			refs = append(refs, ref)
		}
		return true
	})
	slices.SortFunc(refs, func(a, b CheckpointRef) int { return cmp.Compare(a.Seq, b.Seq) })
	return refs, err
}

// LoadCheckpoint returns the position that the checkpoint covers up to (replay
// begins there) and every bucket's manifest, ascending by bucket. Errors:
// NotFound (the checkpoint itself), Corrupt (also when a part is missing),
// Unavailable.
func LoadCheckpoint(ctx context.Context, store objstore.Store, ref CheckpointRef) (covers uint64, manifests []BucketManifest, err error) {
	head, err := readCheckpoint(ctx, store, ref)
	if err != nil {
		return 0, nil, err
	}
	parts := make([]*checkpoint, len(head.parts))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallelParts)
	for i, p := range head.parts {
		g.Go(func() (err error) {
			parts[i], err = readCheckpoint(gctx, store, CheckpointRef{ref.Incarnation, p.seq})
			if errs.Is(err, errs.NotFound) {
				return corrupt(ref.Key(), 0, "part %d is missing: %v", p.seq, err)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return 0, nil, err
	}
	for _, p := range parts { // newest first: what is named already stays
		head.absorb(p)
	}
	return head.covers, head.sorted(), nil
}

// CheckpointParts returns the keys of all objects that a checkpoint needs, itself
// first: what a collector must keep.
func CheckpointParts(ctx context.Context, store objstore.Store, ref CheckpointRef) ([]string, error) {
	head, err := readCheckpoint(ctx, store, ref)
	if err != nil {
		return nil, err
	}
	keys := []string{ref.Key()}
	for _, p := range head.parts {
		keys = append(keys, CheckpointRef{ref.Incarnation, p.seq}.Key())
	}
	return keys, nil
}

func readCheckpoint(ctx context.Context, store objstore.Store, ref CheckpointRef) (*checkpoint, error) {
	return retryRead(ctx, ref.Key(), func(ctx context.Context) (*checkpoint, error) {
		object, info, err := store.Get(ctx, ref.Key())
		if err != nil {
			return nil, errs.In("read "+ref.Key(), err)
		}
		if int64(len(object)) != info.Size {
			return nil, short(ref.Key(), len(object), info.Size)
		}
		return decodeCheckpoint(ref.Key(), ref, object)
	})
}
