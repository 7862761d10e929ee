package wal

import (
	"context"
	"crypto/rand"
	"io"
	"slices"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	// growth is the factor between neighbouring parts of a checkpoint. Two means
	// that a manifest is rewritten at most log2(buckets) times before it is at
	// the bottom, and that there are at most log2(buckets) parts.
	growth = 2
	// maxParts bounds the earlier objects that a checkpoint needs. With growth 2
	// it is reached only beyond 2^32 entries, or when a reader is lied to.
	maxParts = 32
)

// CheckpointWriter writes the checkpoints of one incarnation. Each holds the
// manifests that changed since the one before, and names the earlier objects
// that hold the rest; those are merged into it when they are not much larger
// than it. So the cost follows what changed, and a reader needs few objects.
//
// It is used by one goroutine at a time.
type CheckpointWriter struct {
	store       objstore.Store
	incarnation string
	policy      objstore.CreatePolicy
	random      io.Reader

	next    uint64
	covered uint64
	parts   []writtenPart // newest first; the first is the newest checkpoint itself
	holder  map[BucketID]uint64
	open    *openCheckpoint
}

// writtenPart is an object that the newest checkpoint needs.
type writtenPart struct {
	seq     uint64
	entries int // manifests and removals in it
	removed int // removals in it
	live    int // manifests in it that no newer object replaces
}

// openCheckpoint is a put without a known outcome: the same bytes are put again
// until it is known, before other bytes or another number are.
type openCheckpoint struct {
	c      *checkpoint
	gone   []BucketID // removed by this checkpoint
	kept   []writtenPart
	object []byte
	doubt  bool // an attempt may have been applied, or may still be
}

// NewCheckpointWriter returns a writer for an incarnation without checkpoints.
func NewCheckpointWriter(store objstore.Store, incarnation string) (*CheckpointWriter, error) {
	if err := CheckIncarnation(incarnation); err != nil {
		return nil, err
	}
	return &CheckpointWriter{
		store: store, incarnation: incarnation, random: rand.Reader,
		next: 1, holder: make(map[BucketID]uint64),
	}, nil
}

// SetPolicy sets the patience of the conditional puts.
func (w *CheckpointWriter) SetPolicy(p objstore.CreatePolicy) { w.policy = p }

// Newest returns the last checkpoint written, if any.
func (w *CheckpointWriter) Newest() (CheckpointRef, bool) {
	if len(w.parts) == 0 {
		return CheckpointRef{}, false
	}
	return CheckpointRef{w.incarnation, w.parts[0].seq}, true
}

// Write writes the next checkpoint: every WAL position below covers is reflected
// in the manifests, once changed replaces and removed takes away what earlier
// checkpoints said of those buckets. A bucket stands in one of the lists, once.
// The manifests must not change until Write returns. After an error Write may be
// called again with the same or newer manifests of the same buckets, and others.
// Errors: Fenced, Unknown, Unavailable, Corrupt (an earlier part cannot be read),
// TooLarge, Invalid.
func (w *CheckpointWriter) Write(ctx context.Context, covers uint64, changed []BucketManifest, removed []BucketID) (CheckpointRef, error) {
	if err := w.settle(ctx); err != nil {
		return CheckpointRef{}, err
	}
	ref := CheckpointRef{w.incarnation, w.next}
	o, err := w.plan(ctx, ref, covers, changed, removed)
	if err != nil {
		return CheckpointRef{}, errs.In("write "+ref.Key(), err)
	}
	w.open = o
	return ref, w.settle(ctx)
}

// settle puts what is open until its outcome is known.
func (w *CheckpointWriter) settle(ctx context.Context) error {
	if w.open == nil {
		return nil
	}
	ref := w.open.c.ref
	made, err := objstore.Create(ctx, w.store, ref.Key(), w.open.object, w.policy)
	switch {
	case err != nil:
		// An error that is not Unknown says that this call wrote nothing. It says
		// nothing of the calls before: one whose context had ended before it began
		// answers Canceled, also when the object of an earlier one stands.
		w.open.doubt = w.open.doubt || errs.Is(err, errs.Unknown)
		if !w.open.doubt {
			w.open = nil
		}
		return errs.In("write "+ref.Key(), err)
	case !made.Created:
		if _, damage := decodeCheckpoint(ref.Key(), ref, made.Existing); damage != nil {
			// What was read back is no checkpoint at all: perhaps our own, damaged on its way.
			return errs.Wrap(errs.Unavailable, "read back "+ref.Key(), damage)
		}
		return errs.New(errs.Fenced, "write %s: the number is taken: another process uses the id of this incarnation", ref.Key())
	}
	w.written(w.open)
	w.open = nil
	return nil
}

// plan decides what the next object holds and which earlier ones it needs.
func (w *CheckpointWriter) plan(ctx context.Context, ref CheckpointRef, covers uint64, changed []BucketManifest, removed []BucketID) (*openCheckpoint, error) {
	c, err := w.gather(ref, covers, changed, removed)
	if err != nil {
		return nil, err
	}
	keep := w.liveParts(c)
	for len(keep) > 0 {
		p := keep[0]
		useless := p.live == 0 && (p.removed == 0 || len(keep) == 1)
		if !useless && p.entries >= growth*c.entries() && len(keep) < maxParts {
			break
		}
		if !useless {
			part, err := readCheckpoint(ctx, w.store, CheckpointRef{w.incarnation, p.seq})
			if err != nil {
				return nil, err
			}
			c.absorb(part)
		}
		keep = keep[1:]
	}
	for len(keep) > 0 && keep[len(keep)-1].live == 0 {
		keep = keep[:len(keep)-1] // nothing is older, so its removals hide nothing
	}
	if len(keep) == 0 {
		clear(c.removed)
	}
	for _, p := range keep {
		c.parts = append(c.parts, checkpointPart{p.seq, uint64(p.entries)})
	}
	var n nonce
	if _, err := io.ReadFull(w.random, n[:]); err != nil {
		return nil, errs.Wrap(errs.Internal, "read random nonce", err)
	}
	object, err := c.encode(n)
	return &openCheckpoint{c: c, gone: slices.Clone(removed), kept: keep, object: object}, err
}

func (w *CheckpointWriter) gather(ref CheckpointRef, covers uint64, changed []BucketManifest, removed []BucketID) (*checkpoint, error) {
	if covers < w.covered {
		return nil, errs.New(errs.Invalid, "covers up to position %d, the one before up to %d", covers, w.covered)
	}
	c := newCheckpoint(ref, covers)
	for i := range changed {
		m := &changed[i]
		if why := m.broken(); why != "" {
			return nil, errs.New(errs.Invalid, "manifest of bucket %s: %s", m.Bucket, why)
		}
		if !c.add(m) {
			return nil, errs.New(errs.Invalid, "bucket %s is changed twice", m.Bucket)
		}
	}
	for _, id := range removed {
		if !c.remove(id) {
			return nil, errs.New(errs.Invalid, "bucket %s is named twice", id)
		}
	}
	return c, nil
}

// liveParts returns the parts with their live counts as they are once c replaces
// what it names.
func (w *CheckpointWriter) liveParts(c *checkpoint) []writtenPart {
	parts := slices.Clone(w.parts)
	replaced := func(id BucketID) {
		if seq, ok := w.holder[id]; ok {
			i := slices.IndexFunc(parts, func(p writtenPart) bool { return p.seq == seq })
			parts[i].live--
		}
	}
	for id := range c.manifests {
		replaced(id)
	}
	for id := range c.removed {
		replaced(id)
	}
	return parts
}

// written notes a checkpoint that stands.
func (w *CheckpointWriter) written(o *openCheckpoint) {
	c := o.c
	w.next = c.ref.Seq + 1
	w.covered = c.covers
	for id := range c.manifests {
		w.holder[id] = c.ref.Seq
	}
	for _, id := range o.gone {
		delete(w.holder, id)
	}
	self := writtenPart{seq: c.ref.Seq, entries: c.entries(), removed: len(c.removed), live: len(c.manifests)}
	w.parts = append([]writtenPart{self}, o.kept...)
}
