package fsck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/wal"
)

// tails follows each owner's WAL from where its checkpoint ends: a recovery would
// read every position, so none may be missing below the last one.
func (c *checker) tails(ctx context.Context, n *needs, there map[string]objstore.Info, r *Report) error {
	for owner, s := range n.tails {
		var last uint64
		found := false
		for key := range there {
			id, ok := wal.ParseObjectKey(key)
			if ok && id.Incarnation == owner && id.Seq >= s.from && id.Seq < s.end {
				last, found = max(last, id.Seq), true
			}
		}
		if s.end != wal.ToEnd && s.end > s.from { // everything below the fence was written
			last, found = s.end-1, true
		}
		for seq := s.from; found && seq <= last; seq++ {
			id := wal.ObjectID{Incarnation: owner, Seq: seq}
			if _, ok := there[id.Key()]; !ok {
				if s.end == wal.ToEnd && n.state.IsLive(owner) && last-seq < inFlight {
					break // puts in flight land in any order; nothing past it is acknowledged
				}
				r.damage(Missing, id.Key(), "a recovery reads this WAL position; later ones exist")
				continue
			}
			n.need(id.Key(), "the WAL's tail of "+owner)
			if err := c.tailObject(ctx, n, id, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// inFlight bounds how far a live agent's puts may be ahead of a missing position.
const inFlight = 64

// tailObject adds the segments of an object in a tail to its buckets' logs.
func (c *checker) tailObject(ctx context.Context, n *needs, id wal.ObjectID, r *Report) error {
	f, err := wal.ReadFooter(ctx, c.store, id)
	if passing(err) {
		return err
	}
	if errs.Is(err, errs.NotFound) {
		return nil // collected since it was listed; a checkpoint has moved on
	}
	if err != nil {
		r.damage(Corrupt, id.Key(), "the WAL's tail of "+id.Incarnation+", which a recovery reads: "+err.Error())
		return nil
	}
	for i, s := range f.Segments {
		owner := n.state.Slot(n.state.SlotOf(s.Bucket.Table, s.Bucket.Bucket)).Owner
		if !n.hasBucket(s.Bucket) || owner != id.Incarnation {
			continue
		}
		ref := wal.SegmentRef{
			Object: id, Index: int32(i), BaseOffset: s.BaseOffset, Rows: s.Rows, Bytes: s.BodyLen, Timestamp: s.Timestamp, SchemaID: s.SchemaID,
		}
		n.live[s.Bucket] = append(n.live[s.Bucket], ref)
		n.segments[id] = append(n.segments[id], ref)
	}
	return nil
}

// objects reads every WAL object that holds live segments and checks all its
// checksums, and that the segments are those that the manifests tell.
func (c *checker) objects(ctx context.Context, n *needs, there map[string]objstore.Info, r *Report) error {
	ids := slices.SortedFunc(maps.Keys(n.segments), func(a, b wal.ObjectID) int {
		return cmp.Or(cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Seq, b.Seq))
	})
	for _, id := range ids {
		if _, ok := there[id.Key()]; !ok {
			continue // told by presence
		}
		body, _, err := c.store.Get(ctx, id.Key())
		if errs.Is(err, errs.NotFound) {
			continue // collected since it was listed; a checkpoint has moved on
		}
		if err != nil {
			return err
		}
		f, err := wal.ParseObject(body)
		if err != nil {
			r.damage(Corrupt, id.Key(), err.Error())
			continue
		}
		for _, want := range n.segments[id] {
			if problem := c.segment(n, id, body, f, want); problem != "" {
				r.damage(Corrupt, id.Key(), problem)
			}
		}
	}
	return nil
}

func (c *checker) segment(n *needs, id wal.ObjectID, body []byte, f *wal.Footer, want wal.SegmentRef) string {
	if int(want.Index) >= len(f.Segments) {
		return fmt.Sprintf("segment %d is needed, it holds %d", want.Index, len(f.Segments))
	}
	s := &f.Segments[want.Index]
	if s.BaseOffset != want.BaseOffset || s.Rows != want.Rows {
		return fmt.Sprintf("segment %d holds offsets [%d, %d), the manifest says [%d, %d)",
			want.Index, s.BaseOffset, s.EndOffset(), want.BaseOffset, want.EndOffset())
	}
	if !c.o.Deep {
		return ""
	}
	schema, err := n.state.Schema(s.Bucket.Table, s.SchemaID)
	if err != nil {
		return fmt.Sprintf("segment %d: %v", want.Index, err)
	}
	rec, err := wal.DecodeSegment(id, body, s, schema, nil)
	if err != nil {
		return fmt.Sprintf("segment %d: %v", want.Index, err)
	}
	rec.Release()
	return ""
}

// logs checks that each bucket's live segments follow each other without a hole,
// and begin at or before the lake's end.
func (n *needs) logs(r *Report) {
	for b, list := range n.live {
		r.Buckets++
		slices.SortFunc(list, func(x, y wal.SegmentRef) int { return cmp.Compare(x.BaseOffset, y.BaseOffset) })
		list = slices.CompactFunc(list, func(x, y wal.SegmentRef) bool { return x == y })
		at := n.offsets[b]
		for i, s := range list {
			r.LiveRows += max(0, s.EndOffset()-max(s.BaseOffset, n.offsets[b]))
			switch {
			case i == 0 && s.BaseOffset > at:
				r.damage(Missing, s.Object.Key(), fmt.Sprintf("bucket %s: offsets [%d, %d) are neither in the lake nor live", b, at, s.BaseOffset))
			case i > 0 && s.BaseOffset != list[i-1].EndOffset():
				r.damage(Corrupt, s.Object.Key(), fmt.Sprintf("bucket %s: a segment begins at %d where %d is due", b, s.BaseOffset, list[i-1].EndOffset()))
			}
		}
	}
}

// deep decodes every row of every table's current snapshot.
func (c *checker) deep(ctx context.Context, n *needs, r *Report) error {
	for _, db := range n.state.Databases() {
		for _, t := range n.state.Tables(db.Name) {
			def := agent.LakeDef(t)
			snap, err := c.lake.Load(ctx, def)
			if err != nil {
				continue // told by gather
			}
			rows := int64(0)
			for batch, err := range snap.Scan(ctx, lakehouse.ScanOptions{}) {
				if passing(err) {
					return err
				}
				if err != nil {
					r.damage(Corrupt, def.Prefix, err.Error())
					rows = snap.Rows
					break
				}
				rows += batch.Rows.NumRows()
				batch.Rows.Release()
			}
			if rows != snap.Rows {
				r.damage(Corrupt, def.Prefix, fmt.Sprintf("snapshot %d holds %d rows, its summary says %d", snap.ID, rows, snap.Rows))
			}
		}
	}
	return nil
}
