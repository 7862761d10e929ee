package wal

import (
	"context"
	"crypto/rand"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	// maxFenceBytes is above the size of any fence object, and far below the data
	// objects that it has to be told from by more than size.
	maxFenceBytes = 2 << 10
	// maxFenceBy bounds the name in a fence.
	maxFenceBy = 256
	// patience is how many races for the first absent position a fencer loses
	// before it puts a barrier ahead of the writer.
	patience = 8
	// barrierDistance puts a barrier beyond anything a writer has in flight.
	barrierDistance = 4 * MaxInFlight
	// maxListGap bounds the objects that a listing may show behind a gap.
	maxListGap = 1 << 16
)

// barrierMark starts the By of a fence that only stops a writer from running
// away; the log's end is at it or below.
const barrierMark = "barrier:"

// Fence ends the log of an incarnation for good: it puts a fence at the first
// absent position at or after from and returns that position. Every position in
// [from, end) is then a durable part of the log, and nothing at or after end
// ever was or will be acknowledged. If a fence stands already, end is where it
// stands. Positions below from must be covered by a checkpoint.
//
// INVARIANT(wal-7): the log is what lies before the first absent or fenced position.
// INVARIANT(wal-8): whoever collects keeps every fence, barriers too.
//
// Fence is safe to repeat and to race. Errors: Conflict when positions at or
// after from were collected, which means that another taker is done long ago
// (reread the metadata); Unknown when ctx ended while the fence may or may not
// stand; Unavailable; Corrupt.
func Fence(ctx context.Context, store objstore.Store, incarnation string, from uint64, by string) (end uint64, err error) {
	return FenceWith(ctx, store, incarnation, from, by, objstore.CreatePolicy{})
}

// FenceWith is Fence with a policy for its conditional puts.
func FenceWith(ctx context.Context, store objstore.Store, incarnation string, from uint64, by string, p objstore.CreatePolicy) (end uint64, err error) {
	if err := CheckIncarnation(incarnation); err != nil {
		return 0, err
	}
	if by == "" || len(by) > maxFenceBy || strings.HasPrefix(by, barrierMark) {
		return 0, errs.New(errs.Invalid, "fence by %q: it needs 1 to %d bytes", by, maxFenceBy)
	}
	f := &fencer{store: store, incarnation: incarnation, by: by, policy: p}
	end, err = f.run(ctx, from)
	return end, errs.In("fence "+incarnation, err)
}

type fencer struct {
	store       objstore.Store
	incarnation string
	by          string
	policy      objstore.CreatePolicy
}

func (f *fencer) run(ctx context.Context, from uint64) (uint64, error) {
	pos, fenced, err := f.walk(ctx, from)
	if err != nil || fenced {
		return pos, err
	}
	for lost := 1; ; lost++ {
		done, err := f.put(ctx, pos, f.by)
		if err != nil || done {
			return pos, err
		}
		pos++ // the writer was faster
		if lost == patience {
			if _, err := f.put(ctx, pos+barrierDistance, barrierMark+f.by); err != nil {
				return 0, err
			}
		}
	}
}

// walk finds the first position at or after from that is absent or fenced. It
// lists, because that is one request for a thousand positions, and looks into
// every object that is small enough to be a fence.
func (f *fencer) walk(ctx context.Context, from uint64) (pos uint64, fenced bool, err error) {
	present, err := f.list(ctx, from)
	if err != nil {
		return 0, false, err
	}
	for pos = from; ; pos++ {
		size, ok := present[pos]
		if !ok {
			break
		}
		delete(present, pos)
		if size > maxFenceBytes {
			continue
		}
		footer, err := ReadFooter(ctx, f.store, ObjectID{f.incarnation, pos})
		if err != nil {
			return 0, false, err
		}
		if footer.IsFence() {
			return pos, true, nil
		}
	}
	stale := f.checkBehind(ctx, pos, present)
	if stale == nil {
		return pos, false, nil
	}
	// A listing of several pages may miss an object that was put meanwhile.
	key := ObjectID{f.incarnation, pos}.Key()
	_, err = retryRead(ctx, key, func(ctx context.Context) (objstore.Info, error) { return f.store.Head(ctx, key) })
	switch {
	case err == nil:
		return f.walk(ctx, pos)
	case errs.Is(err, errs.NotFound):
		return 0, false, stale
	}
	return 0, false, err
}

// list returns the sizes of the objects at or after from.
func (f *fencer) list(ctx context.Context, from uint64) (map[uint64]int64, error) {
	prefix := "wal/" + f.incarnation + "/"
	after := ""
	if from > 0 {
		after = ObjectID{f.incarnation, from - 1}.Key()
	}
	present := make(map[uint64]int64)
	next := from
	err := listAll(ctx, f.store, prefix, after, func(info objstore.Info) bool {
		id, ok := ParseObjectKey(info.Key)
		if !ok || id.Seq < from {
			return true
		}
		present[id.Seq] = info.Size
		for {
			if _, ok := present[next]; !ok {
				break
			}
			next++
		}
		return uint64(len(present)) <= next-from+maxListGap
	})
	return present, err
}

// checkBehind looks for a fence behind the gap at pos. One that stands there was
// put when the positions before it were present, so they were collected since
// (INVARIANT(wal-9)).
func (f *fencer) checkBehind(ctx context.Context, pos uint64, behind map[uint64]int64) error {
	for _, seq := range slices.Sorted(maps.Keys(behind)) {
		if behind[seq] > maxFenceBytes {
			continue
		}
		footer, err := ReadFooter(ctx, f.store, ObjectID{f.incarnation, seq})
		switch {
		case errs.Is(err, errs.NotFound):
		case err != nil:
			return err
		case footer.IsFence() && !footer.isBarrier():
			return &errs.Error{Class: errs.Conflict, Details: []any{FencedBy{footer.FencedBy}},
				Msg: "fenced at position " + itoa(int64(seq)) + " by " + footer.FencedBy + ", and position " + itoa(int64(pos)) +
					" was collected since: the view of the metadata is stale, reread it"}
		}
	}
	return nil
}

func (f *Footer) isBarrier() bool {
	return strings.HasPrefix(f.FencedBy, barrierMark)
}

// put reports whether a fence stands at pos after it, ours or another's.
func (f *fencer) put(ctx context.Context, pos uint64, by string) (bool, error) {
	id := ObjectID{f.incarnation, pos}
	object, err := fenceObject(id, by, time.Now().UnixMicro(), rand.Reader)
	if err != nil {
		return false, err
	}
	footer, err := createOrRead(ctx, f.store, id, object, f.policy)
	return err == nil && (footer == nil || footer.IsFence()), err
}

// fenceObject builds the bytes of a fence.
func fenceObject(id ObjectID, by string, timestamp int64, random io.Reader) ([]byte, error) {
	h := header{kind: kindFence, id: id}
	if _, err := io.ReadFull(random, h.nonce[:]); err != nil {
		return nil, errs.Wrap(errs.Internal, "read random nonce", err)
	}
	return appendFooter(h.append(nil), &h, &Footer{FencedBy: by, Timestamp: timestamp})
}
