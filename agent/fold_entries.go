package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/firn-data/firn/wal"
)

// foldEntries are the footer entries that a fold needs. A fold goes bucket by
// bucket, and with many buckets comes to every WAL object many times: each footer
// is read once, before, and only the entries of what is folded are kept.
type foldEntries struct {
	n     *incarnation
	known map[*liveSegment]wal.Segment
}

// maxFoldEntryBytes bounds the entries of one commit.
const maxFoldEntryBytes = 48 << 20

// load reads the footers of segments whose rows are not in memory.
func (e *foldEntries) load(ctx context.Context, segs []*liveSegment) error {
	missing := make([]*liveSegment, 0, len(segs))
	for _, s := range segs {
		if !e.n.buffer.has(segmentKey{s.ref.Object, s.ref.Index}) {
			missing = append(missing, s)
		}
	}
	slices.SortFunc(missing, func(a, b *liveSegment) int {
		return cmp.Or(cmp.Compare(a.ref.Object.Incarnation, b.ref.Object.Incarnation), cmp.Compare(a.ref.Object.Seq, b.ref.Object.Seq))
	})
	e.known = make(map[*liveSegment]wal.Segment, len(missing))
	for _, s := range missing {
		entry, err := e.n.footerEntry(ctx, s)
		if err != nil {
			return err
		}
		e.known[s] = *entry // a copy: the entry in place would keep its whole footer
	}
	return nil
}

func (e *foldEntries) get(ctx context.Context, s *liveSegment) (*wal.Segment, error) {
	if entry, ok := e.known[s]; ok {
		return &entry, nil
	}
	return e.n.footerEntry(ctx, s)
}
