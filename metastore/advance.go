package metastore

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
)

const (
	// maxReadAhead is how many entries are fetched at once by a reader that is behind.
	maxReadAhead = 16
	// maxReloads bounds how often one look starts over from a newer snapshot.
	maxReloads = 20
)

// Refresh returns a view that holds every entry which was written before the
// call. It costs one GET and one LIST when there is nothing new.
func (l *Log) Refresh(ctx context.Context) (*State, error) {
	s, err := l.advance(ctx, true)
	return s, errs.In("read metadata log", err)
}

// advance reads on from the view and publishes what it finds.
//
// What it reads may lie: a position that was freed by deletion can be created
// again by an appender that slept through it all, and an absent position may be
// one that was freed. Both are possible only where the log was trimmed, and it is
// trimmed only behind two snapshots, which stay (INVARIANT(meta-5)). So entries
// read after a base are genuine, and the end is the end, when afterwards at most
// one snapshot newer than the base exists. Otherwise the newest snapshot becomes
// the base. See docs/decisions/0003.
//
// A look that is not certain trusts an absent next entry, which is right unless
// this process slept for as long as entries are kept.
func (l *Log) advance(ctx context.Context, certain bool) (*State, error) {
	if err := l.reading.take(ctx); err != nil {
		return nil, err
	}
	defer l.reading.give()
	start := time.Now()
	base := l.State()
	for range maxReloads {
		if base.Seq == 0 {
			first, err := l.loadFirst(ctx)
			if err != nil {
				return nil, err
			}
			base = first
		}
		r := l.readOn(ctx, base)
		if r.err != nil && !errs.Is(r.err, errs.Corrupt) {
			return nil, r.err
		}
		if r.state == base && r.err == nil && !certain {
			return l.arrived(r, start, false), nil
		}
		newer, err := l.snapshotsAfter(ctx, base.Seq)
		if err != nil {
			return nil, err
		}
		if len(newer) < 2 || l.o.check == trustReads && r.state != base && r.err == nil {
			if r.err != nil {
				return nil, r.err
			}
			return l.arrived(r, start, true), nil
		}
		loaded, err := l.load(ctx, newer)
		if err != nil {
			return nil, err
		}
		if loaded != nil {
			base = loaded
		}
	}
	return nil, errs.New(errs.Unavailable, "the metadata log moved on %d times while it was read", maxReloads)
}

// loadFirst returns where a Log without a view starts: the newest snapshot, or
// the empty state when there is none, or one that is damaged while the log still
// has its first entries.
func (l *Log) loadFirst(ctx context.Context) (*State, error) {
	for range maxReloads {
		seqs, err := l.snapshotsAfter(ctx, 0)
		if err != nil || len(seqs) == 0 {
			return &State{}, err
		}
		s, err := l.load(ctx, seqs)
		if len(seqs) == 1 && errs.Is(err, errs.Corrupt) {
			return &State{}, nil
		}
		if s != nil || err != nil {
			return s, err
		}
	}
	return nil, errs.New(errs.Unavailable, "snapshots were replaced %d times while they were read", maxReloads)
}

// arrived publishes a proved view and remembers when it was looked for.
func (l *Log) arrived(r reading, start time.Time, certain bool) *State {
	l.publish(r.state)
	l.consider(r.due)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.contact = start
	if certain {
		l.mu.certain = start
	}
	return l.mu.state
}

// reading is what readOn found.
type reading struct {
	state *State // after the last good entry
	due   *State // the last state that a snapshot is due for, or nil
	err   error  // Corrupt: the entry after state is no entry, or does not follow
}

// readOn applies the entries that follow base until one is absent.
func (l *Log) readOn(ctx context.Context, base *State) reading {
	r := reading{state: base}
	for ahead := 1; ; ahead = min(2*ahead, l.readAhead()) {
		bodies, err := l.fetch(ctx, r.state.Seq+1, ahead)
		if err != nil {
			r.err = err
			return r
		}
		for _, body := range bodies {
			if body == nil {
				return r
			}
			e, err := DecodeEntry(body)
			if err != nil {
				r.err = errs.In("read "+entryKey(r.state.Seq+1), err)
				return r
			}
			next, err := Apply(r.state, e)
			if err != nil {
				r.err = err
				return r
			}
			if r.state = next; l.snapshotDue(next) {
				r.due = next
			}
		}
	}
}

func (l *Log) readAhead() int {
	if l.o.Manual {
		return 1 // one call at a time, in an order that a test can rely on
	}
	return maxReadAhead
}

// fetch gets n entries from seq; absent ones are nil.
func (l *Log) fetch(ctx context.Context, seq uint64, n int) ([][]byte, error) {
	bodies := make([][]byte, n)
	get := func(ctx context.Context, i int) error {
		body, _, err := l.store.Get(ctx, entryKey(seq+uint64(i)))
		if errs.Is(err, errs.NotFound) {
			return nil
		}
		bodies[i] = body
		return err
	}
	if n == 1 {
		return bodies, get(ctx, 0)
	}
	group, ctx := errgroup.WithContext(ctx)
	for i := range n {
		group.Go(func() error { return get(ctx, i) })
	}
	return bodies, group.Wait()
}

// snapshotsAfter lists the snapshots past seq, ascending. There are about two of
// them in all.
func (l *Log) snapshotsAfter(ctx context.Context, seq uint64) ([]uint64, error) {
	var found []uint64
	for info, err := range l.store.List(ctx, snapshotPrefix, snapshotKey(seq)) {
		if err != nil {
			return nil, err
		}
		if n, ok := parseSeqKey(snapshotPrefix, info.Key); ok {
			found = append(found, n)
		}
	}
	if len(found) > 0 {
		l.noteKept(found[len(found)-1])
	}
	return found, nil
}

// load reads the newest of the listed snapshots, or, when its bytes are damaged,
// the one before: entries are kept from there on. It returns nil when they were
// deleted meanwhile, so that newer ones exist.
func (l *Log) load(ctx context.Context, seqs []uint64) (*State, error) {
	var damage error
	for i := len(seqs) - 1; i >= max(0, len(seqs)-2); i-- {
		s, err := l.loadOne(ctx, seqs[i])
		switch {
		case err == nil:
			return s, nil
		case errs.Is(err, errs.Corrupt):
			l.o.Logger.Error("metadata snapshot is damaged; falling back to the one before", "error", err)
			damage = err
		case errs.Is(err, errs.NotFound):
			return nil, nil
		default:
			return nil, err
		}
	}
	return nil, damage
}

func (l *Log) loadOne(ctx context.Context, seq uint64) (*State, error) {
	body, _, err := l.store.Get(ctx, snapshotKey(seq))
	if err != nil {
		return nil, err
	}
	s, err := DecodeSnapshot(body)
	if err == nil && s.Seq != seq {
		err = errs.New(errs.Corrupt, "it holds sequence %d", s.Seq)
	}
	return s, errs.In("read "+snapshotKey(seq), err)
}
