package lakehouse

import (
	"context"
	"iter"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
)

// mergeLane is one lane of a k-way merge: an ordered scan that is pulled.
type mergeLane struct {
	files []DataFile
	pull  func() (scanPiece, error, bool)
	stop  func()
	piece scanPiece // the current one
	pos   int       // its rows that were delivered
}

// merge reads the lanes together. A round takes, from the current piece of each
// lane, the rows below the smallest end of all pieces: no lane can have another
// one there. A lane starts when the merge comes to its first offset.
func (b *bucketStream) merge(ctx context.Context, yield func(StreamBatch, error) bool) error {
	idle := make([]*mergeLane, len(b.lanes)) // by first offset, as cutLanes makes them
	for i, files := range b.lanes {
		idle[i] = &mergeLane{files: files}
	}
	var active []*mergeLane
	defer func() {
		for _, lane := range active {
			lane.stop()
		}
	}()
	for {
		bound := int64(math.MaxInt64)
		for i := 0; i < len(active); i++ {
			more, err := active[i].advance(b.consumed)
			if err != nil {
				return err
			}
			if !more {
				active[i].stop()
				active = slices.Delete(active, i, i+1)
				i--
				continue
			}
			bound = min(bound, active[i].piece.next)
		}
		for len(idle) > 0 && idle[0].files[0].BaseOffset < bound {
			lane := idle[0]
			idle = idle[1:]
			lane.start(ctx, b.engine(len(b.lanes)))
			active = append(active, lane)
			more, err := lane.advance(b.consumed)
			if err != nil {
				return err
			}
			if more { // else the next round takes it off
				bound = min(bound, lane.piece.next)
			}
		}
		if len(active) == 0 {
			return nil
		}
		if bound == math.MaxInt64 {
			continue
		}
		batch, err := takeBelow(active, bound, b.empty)
		if err != nil {
			return err
		}
		if !b.deliver(batch, bound, yield) {
			return nil
		}
	}
}

func (l *mergeLane) start(ctx context.Context, e *scanEngine) {
	l.pull, l.stop = iter.Pull2(func(yield func(scanPiece, error) bool) {
		if err := e.run(ctx, l.files, func(p scanPiece) bool { return yield(p, nil) }); err != nil {
			yield(scanPiece{}, err)
		}
	})
}

// advance makes sure that the current piece reaches past consumed; false at the lane's end.
func (l *mergeLane) advance(consumed int64) (bool, error) {
	for l.piece.batch.Rows == nil || l.piece.next <= consumed {
		piece, err, ok := l.pull()
		if err != nil || !ok {
			return false, err
		}
		l.piece, l.pos = piece, 0
	}
	return true, nil
}

// takeBelow moves the rows below bound out of the lanes, by ascending offset.
func takeBelow(lanes []*mergeLane, bound int64, empty arrow.RecordBatch) (ScanBatch, error) {
	var parts []ScanBatch
	for _, lane := range lanes {
		offsets := lane.piece.batch.Offsets
		end, _ := slices.BinarySearch(offsets, bound)
		if end > lane.pos {
			parts = append(parts, ScanBatch{
				Rows:       lane.piece.batch.Rows.NewSlice(int64(lane.pos), int64(end)),
				Offsets:    offsets[lane.pos:end],
				Timestamps: lane.piece.batch.Timestamps[lane.pos:end],
			})
			lane.pos = end
		}
	}
	switch len(parts) {
	case 0:
		return ScanBatch{Rows: empty}, nil
	case 1:
		return parts[0], nil
	}
	return interleave(parts)
}

// interleave joins batches whose offsets ascend into one whose offsets ascend.
func interleave(parts []ScanBatch) (ScanBatch, error) {
	rows := 0
	for _, p := range parts {
		rows += len(p.Offsets)
	}
	out := ScanBatch{Offsets: make([]int64, 0, rows), Timestamps: make([]int64, 0, rows)}
	starts := make([]int, len(parts)) // of each part in the concatenation
	for i := 1; i < len(parts); i++ {
		starts[i] = starts[i-1] + len(parts[i-1].Offsets)
	}
	indices := make([]int32, 0, rows)
	heads := make([]int, len(parts))
	for len(indices) < rows {
		least, limit := nextPart(parts, heads)
		p := &parts[least]
		for heads[least] < len(p.Offsets) && p.Offsets[heads[least]] < limit {
			h := heads[least]
			out.Offsets = append(out.Offsets, p.Offsets[h])
			out.Timestamps = append(out.Timestamps, p.Timestamps[h])
			indices = append(indices, int32(starts[least]+h))
			heads[least]++
		}
	}
	batches := make([]arrow.RecordBatch, len(parts))
	for i := range parts {
		batches[i] = parts[i].Rows
	}
	joined, err := segments.Concat(batches)
	if err != nil {
		return out, err
	}
	out.Rows, err = segments.Take(joined, indices)
	return out, err
}

// nextPart returns the part with the smallest head, and the smallest head of the others.
func nextPart(parts []ScanBatch, heads []int) (least int, limit int64) {
	least, limit = -1, math.MaxInt64
	smallest := int64(math.MaxInt64)
	for i := range parts {
		if heads[i] == len(parts[i].Offsets) {
			continue
		}
		switch head := parts[i].Offsets[heads[i]]; {
		case least < 0 || head < smallest:
			limit, smallest, least = smallest, head, i
		case head < limit:
			limit = head
		}
	}
	return least, limit
}
