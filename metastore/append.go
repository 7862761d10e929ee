package metastore

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	// maxAppendAttempts bounds the races that one append may lose. Each lost race
	// is another's progress.
	maxAppendAttempts = 100
	// appendBackoff is the largest pause after a lost race.
	appendBackoff = 20 * time.Millisecond
)

// Append decides on the newest state and writes the command as the next entry.
// When another entry was first, decide is called again with the state after it;
// decide must be pure. It returns a state that holds the entry.
//
// A nil command, or an error, writes nothing and is returned (with the state it
// was decided on) once the state is certain to be the newest. So is a command
// that the state machine refuses; Append never writes one.
//
// Errors: Unknown when ctx ended, or the store failed for good, while the entry
// may have been written; otherwise nothing was written.
func (l *Log) Append(ctx context.Context, decide Decision) (*State, error) {
	if l.o.Writer == "" {
		return nil, errs.New(errs.Invalid, "append metadata entry: the log is open for reading only")
	}
	if err := l.appending.take(ctx); err != nil {
		return nil, err
	}
	defer l.appending.give()
	s, fresh := l.State(), false
	if l.outdated() {
		var err error
		if s, err = l.Refresh(ctx); err != nil {
			return nil, err
		}
		fresh = true
	}
	for attempt := range maxAppendAttempts {
		p, err := l.propose(s, decide)
		if p == nil {
			if fresh {
				return s, err
			}
			newest, refreshErr := l.Refresh(ctx)
			if refreshErr != nil {
				return nil, refreshErr
			}
			fresh = true
			if newest.Seq == s.Seq {
				return s, err
			}
			s = newest
			continue
		}
		won, err := l.put(ctx, p)
		if err != nil {
			return nil, err
		}
		if won {
			l.won(p)
			return p.next, nil
		}
		var applied bool
		if s, applied, err = l.settle(ctx, p.entry); applied || err != nil {
			return s, err
		}
		fresh = true
		if attempt > 0 {
			if err := l.pause(ctx, time.Duration(rand.Int64N(int64(appendBackoff)))); err != nil {
				return nil, errs.Wrap(errs.Canceled, "append metadata entry", err)
			}
		}
	}
	return nil, errs.New(errs.Unavailable, "append metadata entry: lost %d races in a row", maxAppendAttempts)
}

// proposal is an entry on its way, and the state it makes.
type proposal struct {
	entry *Entry
	body  []byte
	next  *State
}

// propose returns nil and decide's answer (or the state machine's refusal) when
// there is nothing to write.
func (l *Log) propose(s *State, decide Decision) (*proposal, error) {
	command, err := decide(s)
	if err != nil || command == nil {
		return nil, err
	}
	nonce, err := newNonce(l.o.Rand)
	if err != nil {
		return nil, err
	}
	e := &Entry{
		Format: EntryFormat, Seq: s.Seq + 1, Prev: s.Sum, Writer: l.o.Writer, Nonce: nonce,
		Time: entryTime(l.o.Now()), Command: command,
	}
	body, err := e.Encode()
	if err != nil {
		return nil, err
	}
	// What others will read is what is applied here: not the command in memory.
	if e, err = DecodeEntry(body); err != nil {
		return nil, errs.Wrap(errs.Internal, "check metadata entry", err)
	}
	next, err := step(s, e)
	if err != nil {
		return nil, err
	}
	return &proposal{entry: e, body: body, next: next}, nil
}

// entryTime is a time as entries hold it.
func entryTime(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

// positionCheck says how a Log makes sure that a position is genuine. Only the first is right; the others are what the
// simulation proves wrong.
type positionCheck uint8

const (
	provePositions positionCheck = iota // no two snapshots at or past it exist
	trustPositions                      // created is won
	headPositions                       // created is won when the entry before it is there
	trustReads                          // what is read is genuine
)

// put creates the entry and proves that its position is genuine. It returns false
// without an error when the race was lost or the outcome must be looked up.
//
// INVARIANT(meta-2): a position is won by whoever creates it first, ever. After
// our create, fewer than two snapshots at or past it show that no entry there was
// ever deleted (INVARIANT(meta-5)), so ours is the first.
func (l *Log) put(ctx context.Context, p *proposal) (won bool, err error) {
	key := entryKey(p.entry.Seq)
	c, err := objstore.Create(ctx, l.store, key, p.body, l.o.Create)
	switch {
	case err != nil && errs.Is(err, errs.Unknown) && ctx.Err() == nil:
		return false, nil // taken, and freed before it could be read
	case err != nil:
		return false, errs.In("append metadata entry", err)
	case !c.Created:
		return false, nil
	}
	if l.o.check == trustPositions {
		return true, nil
	}
	if l.o.check == headPositions && p.entry.Seq > 1 {
		_, err := l.store.Head(ctx, entryKey(p.entry.Seq-1))
		return err == nil, nil
	}
	err = l.persist(ctx, func() error {
		newer, err := l.snapshotsAfter(ctx, p.entry.Seq-1)
		won = len(newer) < 2
		return err
	})
	return won, unresolved(p.entry, err)
}

// settle finds out what stands at the entry's position in the one log.
func (l *Log) settle(ctx context.Context, e *Entry) (s *State, applied bool, err error) {
	err = l.persist(ctx, func() error {
		var err error
		if s, err = l.Refresh(ctx); err == nil && s.Seq < e.Seq {
			err = errs.New(errs.Unavailable, "the log ends at entry %d", s.Seq)
		}
		return err
	})
	if err != nil {
		return nil, false, unresolved(e, err)
	}
	yes, known := s.applied(e.Writer, e.Nonce, e.Seq)
	if !known {
		return nil, false, errs.New(errs.Unknown, "append metadata entry: entry %d was written so long ago that the log no longer tells by whom", e.Seq)
	}
	return s, yes, nil
}

// unresolved makes err say that the entry may stand.
func unresolved(e *Entry, err error) error {
	if err == nil {
		return nil
	}
	return &errs.Error{Class: errs.Unknown, Op: "append metadata entry", Msg: "whether " + entryKey(e.Seq) + " is ours was not found out", Cause: err}
}

// persist repeats fn while the store is in passing trouble, until ctx ends.
func (l *Log) persist(ctx context.Context, fn func() error) error {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := fn()
		switch errs.ClassOf(err) {
		case errs.Unavailable, errs.Exhausted, errs.Unknown:
		default:
			return err
		}
		if l.pause(ctx, max(wait, errs.RetryAfter(err))) != nil {
			return err
		}
	}
}

func (l *Log) pause(ctx context.Context, d time.Duration) error {
	if l.o.Create.Sleep != nil {
		return l.o.Create.Sleep(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// won publishes a won entry and lets a due snapshot be written.
func (l *Log) won(p *proposal) {
	l.publish(p.next)
	if l.snapshotDue(p.next) {
		l.consider(p.next)
	}
	select {
	case l.upkeep <- struct{}{}:
	default: // one is asked for already
	}
}
