package metastore

import (
	"context"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// maxTrimmed bounds the objects that one upkeep deletes of each kind; the rest
// waits for the next.
const maxTrimmed = 1000

func (l *Log) snapshotDue(s *State) bool { return s.Seq%l.o.SnapshotEvery == 0 }

// consider remembers a proved state that a snapshot is due for.
func (l *Log) consider(s *State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s != nil && (l.mu.candidate == nil || s.Seq > l.mu.candidate.Seq) {
		l.mu.candidate = s
	}
}

// noteKept remembers that the snapshot seq exists.
func (l *Log) noteKept(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.kept = max(l.mu.kept, seq)
}

// due returns the state to write a snapshot of, or nil.
func (l *Log) due() *State {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.mu.candidate; c != nil && c.Seq > l.mu.kept {
		return c
	}
	return nil
}

// outdated reports whether the view had no contact with the store for too long.
func (l *Log) outdated() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Since(l.mu.contact) > l.o.MaxViewAge
}

// Maintain writes the snapshot that is due, when nobody else did, and deletes
// what two snapshots made superfluous. A Log that is not Manual does so by
// itself after its appends.
func (l *Log) Maintain(ctx context.Context) error {
	if err := l.keeping.take(ctx); err != nil {
		return err
	}
	defer l.keeping.give()
	s := l.due()
	if s == nil {
		return nil
	}
	newer, err := l.snapshotsAfter(ctx, s.Seq-1)
	if err != nil {
		return errs.In("write metadata snapshot", err)
	}
	if len(newer) > 0 {
		return nil
	}
	body, err := EncodeSnapshot(s)
	if err != nil {
		return err
	}
	// No nonce: equal states are equal bytes, and another's snapshot is as good.
	if _, err := objstore.Create(ctx, l.store, snapshotKey(s.Seq), body, l.o.Create); err != nil {
		return errs.In("write metadata snapshot", err)
	}
	l.noteKept(s.Seq)
	return errs.In("trim metadata log", l.trim(ctx))
}

// trim deletes the entries that two snapshots hold, and the snapshots before
// those two, oldest first, each delete after the one before it was confirmed.
//
// INVARIANT(meta-5): at any time after the deletion of entry n, two snapshots at
// or past n exist. The newest two, as listed, are at or past n; whoever deletes
// snapshots keeps the newest two of its own, later or equal, listing.
func (l *Log) trim(ctx context.Context) error {
	var snapshots []objstore.Info
	for info, err := range l.store.List(ctx, snapshotPrefix, "") {
		if err != nil {
			return err
		}
		snapshots = append(snapshots, info)
	}
	if len(snapshots) < 2 {
		return nil
	}
	old, newest := snapshots[len(snapshots)-2], snapshots[len(snapshots)-1]
	floor, ok := parseSeqKey(snapshotPrefix, old.Key)
	if !ok {
		return errs.New(errs.Corrupt, "unexpected object %s", old.Key)
	}
	for _, info := range []objstore.Info{old, newest} {
		seq, _ := parseSeqKey(snapshotPrefix, info.Key)
		if _, err := l.loadOne(ctx, seq); err != nil {
			return err // an unreadable snapshot makes nothing superfluous
		}
	}
	// The store's clock: the newest snapshot was written just now.
	before := newest.ModTime.Add(-max(0, l.o.TrimAge))
	if err := l.deleteWhile(ctx, logPrefix, func(info objstore.Info) bool {
		seq, ok := parseSeqKey(logPrefix, info.Key)
		return ok && seq <= floor && !info.ModTime.After(before)
	}); err != nil {
		return err
	}
	return l.deleteWhile(ctx, snapshotPrefix, func(info objstore.Info) bool {
		return info.Key < old.Key && !info.ModTime.After(before)
	})
}

// deleteWhile deletes objects in order as long as they may go.
func (l *Log) deleteWhile(ctx context.Context, prefix string, may func(objstore.Info) bool) error {
	var keys []string
	for info, err := range l.store.List(ctx, prefix, "") {
		if err != nil {
			return err
		}
		if !may(info) || len(keys) == maxTrimmed {
			break
		}
		keys = append(keys, info.Key)
	}
	for _, key := range keys {
		if err := l.store.Delete(ctx, key); err != nil {
			return err
		}
	}
	return nil
}

// keep writes snapshots when appends ask for it.
func (l *Log) keep(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.upkeep:
		}
		if err := l.Maintain(ctx); err != nil && ctx.Err() == nil {
			l.o.Logger.Warn("metadata upkeep failed; the next append tries again", "error", err)
		}
	}
}

// follow looks for new entries until ctx ends: often after a change, seldom when
// nothing happens. An idle look is one GET.
func (l *Log) follow(ctx context.Context) {
	for pause := l.o.PollMin; ; {
		if l.pause(ctx, pause) != nil {
			return
		}
		before := l.State().Seq
		l.mu.Lock()
		certain := time.Since(l.mu.certain) > l.o.MaxViewAge
		l.mu.Unlock()
		s, err := l.advance(ctx, certain)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.o.Logger.Warn("reading the metadata log failed", "error", err)
			pause = l.o.PollMax
		case s.Seq > before:
			pause = l.o.PollMin
		default:
			pause = min(2*pause, l.o.PollMax)
		}
	}
}
