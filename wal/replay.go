package wal

import (
	"context"
	"math"
	"sync"

	"github.com/firn-data/firn/internal/errs"
)

// replayAhead is how many footers are read ahead of the callback: it hides a
// store's latency and bounds the memory of footers waiting their turn.
const replayAhead = 16

// ToEnd as Replay's end means the first absent or fenced position.
const ToEnd = math.MaxUint64

// Replay reads the footers of an incarnation's positions [from, end) and calls
// fn with each, in order. Positions are dense: one that is missing before end is
// an error of class Corrupt that names it. With end ToEnd it stops at the first
// absent or fenced position, which is only a log's end if a fence stands there.
// fn may keep the footer. Errors: Corrupt, Unavailable, Canceled, fn's.
func Replay(ctx context.Context, r RangeReader, incarnation string, from, end uint64, fn func(ObjectID, *Footer) error) error {
	if err := CheckIncarnation(incarnation); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var reads sync.WaitGroup
	defer reads.Wait()
	defer cancel()

	type read struct {
		footer *Footer
		err    error
	}
	var ahead []chan read
	started := from
	for seq := from; seq < end; seq++ {
		for started < end && len(ahead) < replayAhead {
			id, c := ObjectID{incarnation, started}, make(chan read, 1)
			reads.Go(func() {
				f, err := ReadFooter(ctx, r, id)
				c <- read{f, err}
			})
			ahead = append(ahead, c)
			started++
		}
		id := ObjectID{incarnation, seq}
		got := <-ahead[0]
		ahead = ahead[1:]
		switch {
		case got.err == nil && got.footer.IsFence() && end == ToEnd, errs.Is(got.err, errs.NotFound) && end == ToEnd:
			return nil
		case errs.Is(got.err, errs.NotFound):
			return corrupt(id.Key(), 0, "position %d is missing, the log ends at %d", seq, end)
		case got.err != nil:
			return errs.In("replay "+id.Key(), got.err)
		case got.footer.IsFence():
			return corrupt(id.Key(), 0, "a fence stands at position %d, before the log's end %d", seq, end)
		}
		if err := fn(id, got.footer); err != nil {
			return err
		}
	}
	return nil
}
