package lakehouse

import (
	"context"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	// maxCommitAttempts bounds how often a commit is rebuilt on a parent that
	// somebody else moved. Each lost attempt means that another commit of the
	// same table succeeded.
	maxCommitAttempts = 30
	// maxCommitPause bounds the jittered pause between two attempts.
	maxCommitPause = 500 * time.Millisecond
	// maxPutAttempts bounds how often an object with a fresh name is put.
	maxPutAttempts = 5
)

// change is what one commit does to a table. It is fixed before the first
// attempt; only what it is built on differs between attempts.
type change struct {
	id        uuid.UUID // of the commit; stands in the snapshot's summary
	operation table.Operation
	moves     []bucketMove
	add       []iceberg.DataFile
	remove    map[string]bool // URIs of data files; all of them must be live
	deletes   []newDelete
	indexes   map[int32]string // bucket → its index manifest, for keyed tables
}

// bucketMove is what a commit needs a bucket to be, and makes of it.
type bucketMove struct {
	bucket     int32
	from, to   int64  // lake offset
	generation uint64 // before the commit
}

// decide says whether a change may be committed on a parent, and what the state
// is then. It is the whole of "exactly once": a bucket moves only from the
// offset and the generation that the change was made from. INVARIANT(lake-1).
func decide(parent lakeState, moves []bucketMove) (lakeState, error) {
	next := lakeState{offsets: maps.Clone(parent.offsets), generations: maps.Clone(parent.generations), indexes: parent.indexes}
	seen := make(map[int32]bool, len(moves))
	for _, m := range moves {
		if seen[m.bucket] {
			return lakeState{}, errs.New(errs.Internal, "bucket %d is moved twice by one commit", m.bucket)
		}
		seen[m.bucket] = true
		if at := parent.offsets[m.bucket]; at != m.from {
			return lakeState{}, errs.New(errs.Conflict, "bucket %d: the lake offset is %d and not %d: another commit moved it", m.bucket, at, m.from)
		}
		if g := parent.generations[m.bucket]; g != m.generation {
			return lakeState{}, errs.New(errs.Conflict, "bucket %d: the lake generation is %d and not %d: another commit changed its files", m.bucket, g, m.generation)
		}
		if m.to < m.from {
			return lakeState{}, errs.New(errs.Internal, "bucket %d: the lake offset would go back from %d to %d", m.bucket, m.from, m.to)
		}
		next.offsets[m.bucket] = m.to
		next.generations[m.bucket] = m.generation + 1
	}
	return next, nil
}

// commit makes a change the table's next Iceberg snapshot. An error of class
// Unknown means that it may have been committed: nothing of it may be deleted,
// and a reload tells. After any other error it surely was not and will not be.
func (l *Lake) commit(ctx context.Context, def *TableDef, c change) (*Snapshot, error) {
	for attempt := range maxCommitAttempts {
		base, err := l.newest(ctx, *def, verifyLater)
		if err != nil {
			return nil, err
		}
		state, err := lakeStateOf(base.meta, base.meta.CurrentSnapshot())
		if err != nil {
			return nil, err
		}
		next, err := decide(state, c.moves)
		if err != nil {
			return nil, err
		}
		next.indexes = withIndexes(state.indexes, c.indexes)
		b, err := l.buildSnapshot(ctx, def, base, c, next)
		if err != nil {
			l.discard(ctx, b.keys)
			return nil, err
		}
		v, err := l.install(ctx, def, base, b.body, c.id)
		switch {
		case errs.Is(err, errs.Unknown):
			return nil, err
		case err != nil:
			l.discard(ctx, b.keys)
			return nil, err
		case v != nil:
			snap, err := l.snapshotOf(*def, v, v.meta.CurrentSnapshot())
			// Committed: whatever is wrong now, nothing of it may be deleted.
			return snap, errs.Wrap(errs.Unknown, "read back commit", err)
		}
		l.discard(ctx, b.keys)
		if err := l.pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
	return nil, errs.New(errs.Unavailable, "commit to %s: lost %d races in a row", def, maxCommitAttempts)
}

// commitMetadata commits a metadata version without a snapshot. edit returns
// false when base needs nothing, and is called again for each new parent.
func (l *Lake) commitMetadata(ctx context.Context, def *TableDef, edit func(*table.MetadataBuilder, table.Metadata) (bool, error)) (*version, error) {
	for attempt := range maxCommitAttempts {
		base, err := l.newest(ctx, *def, verifyLater)
		if err != nil {
			return nil, err
		}
		b, err := table.MetadataBuilderFromBase(inTime(base.meta), l.uri(base.key))
		if err != nil {
			return nil, errs.Wrap(errs.Internal, "build metadata", err)
		}
		if needed, err := edit(b, base.meta); err != nil || !needed {
			return base, err
		}
		id := l.opts.NewID()
		if err := b.SetProperties(iceberg.Properties{metaCommit: id.String()}); err != nil {
			return nil, errs.Wrap(errs.Internal, "build metadata", err)
		}
		meta, err := b.Build()
		if err != nil {
			return nil, errs.Wrap(errs.Internal, "build metadata", err)
		}
		body, err := encodeMetadata(meta)
		if err != nil {
			return nil, err
		}
		if v, err := l.install(ctx, def, base, body, id); err != nil || v != nil {
			return v, err
		}
		if err := l.pause(ctx, attempt); err != nil {
			return nil, err
		}
	}
	return nil, errs.New(errs.Unavailable, "commit to %s: lost %d races in a row", def, maxCommitAttempts)
}

// SyncSchema brings the lake's metadata up to the table's definition: schemas,
// partition spec, properties. A fold does the same in its own commit. Nothing is
// written when nothing changed.
func (l *Lake) SyncSchema(ctx context.Context, def TableDef) error {
	_, err := l.commitMetadata(ctx, &def, func(b *table.MetadataBuilder, base table.Metadata) (bool, error) {
		err := applyDefinition(b, base, &def)
		return b.HasChanges(), err
	})
	return errs.In("sync lake schema of "+def.String(), err)
}

// install puts body as the version after base. It returns the version that holds
// the commit, or nil when somebody else's stands there. It is the protocol of
// docs/decisions/0004-lake-commit.md.
func (l *Lake) install(ctx context.Context, def *TableDef, base *version, body []byte, id uuid.UUID) (*version, error) {
	n := base.number + 1
	created, err := objstore.Create(ctx, l.store, def.versionKey(n), body, l.opts.Create)
	if err != nil {
		return nil, err
	}
	if !created.Created {
		return nil, nil
	}
	span, err := l.listPatiently(ctx, *def)
	if err != nil {
		return nil, errs.Wrap(errs.Unknown, "verify commit "+def.versionKey(n), err)
	}
	var v *version
	if span.highest == n {
		if v, err = l.parseVersion(*def, n, body); err != nil {
			return nil, errs.Wrap(errs.Unknown, "read back commit "+def.versionKey(n), err)
		}
		v.oldest = span.lowest
	} else if v, err = l.settle(ctx, def, n, id); err != nil {
		return nil, err
	}
	v = l.remember(*def, v)
	l.writeHint(ctx, *def, v.number)
	return l.trimVersions(ctx, def, v), nil
}

// settle tells whether a commit took place when a higher version stands: the position
// may have been freed before (then v(n) is a stray that nobody follows, and the next
// trim deletes), or commits came after it.
func (l *Lake) settle(ctx context.Context, def *TableDef, n int64, id uuid.UUID) (*version, error) {
	newest, err := l.relist(ctx, *def)
	if err != nil {
		return nil, errs.Wrap(errs.Unknown, "verify commit "+def.versionKey(n), err)
	}
	if newest.meta.Properties()[metaCommit] == id.String() {
		return newest, nil
	}
	for _, s := range newest.meta.Snapshots() {
		if s.Summary != nil && s.Summary.Properties[sumCommit] == id.String() {
			return newest, nil
		}
	}
	return nil, errs.New(errs.Unknown, "commit %s was put below the newest version %d, which does not name it: reload",
		def.versionKey(n), newest.number)
}

// listPatiently is listVersions over a store in passing trouble.
func (l *Lake) listPatiently(ctx context.Context, def TableDef) (versionSpan, error) {
	for attempt := 0; ; attempt++ {
		span, err := l.listVersions(ctx, def)
		if err == nil || attempt+1 >= maxPutAttempts || !errs.Is(err, errs.Unavailable) {
			return span, err
		}
		if err := l.pause(ctx, attempt); err != nil {
			return versionSpan{}, err
		}
	}
}

// trimmedVersions bounds the metadata versions that one commit deletes, so that
// no commit pays for many.
const trimmedVersions = 4

// trimVersions deletes the lowest metadata versions beyond KeepVersions, lowest first,
// one at a time. v is the newest one, which is never deleted: INVARIANT(lake-3).
func (l *Lake) trimVersions(ctx context.Context, def *TableDef, v *version) *version {
	oldest := v.oldest
	if oldest == 0 {
		return v // not listed yet; the next commit does
	}
	for range trimmedVersions {
		if v.number-oldest < l.opts.KeepVersions {
			break
		}
		if err := l.store.Delete(ctx, def.versionKey(oldest)); err != nil {
			l.opts.Logger.Warn("old lake metadata version left", "key", def.versionKey(oldest), "error", err)
			break
		}
		oldest++
	}
	kept := *v
	kept.oldest = oldest
	return l.remember(*def, &kept)
}

// put writes an object under a fresh name, patiently.
func (l *Lake) put(ctx context.Context, key string, body []byte) error {
	for attempt := 0; ; attempt++ {
		err := l.store.Put(ctx, key, body)
		if err == nil {
			return nil
		}
		again := errs.Is(err, errs.Unavailable) || errs.Is(err, errs.Unknown) && ctx.Err() == nil
		if attempt+1 >= maxPutAttempts || !again {
			if errs.Is(err, errs.Unknown) { // nothing names this key yet, so nothing is unknown to the caller
				err = errs.Wrap(errs.Unavailable, "put "+key, err)
			}
			return err
		}
		if err := l.pause(ctx, attempt); err != nil {
			return err
		}
	}
}

// discard deletes objects that were surely never committed, also when ctx has
// ended. What it cannot delete is left for the orphan sweep.
func (l *Lake) discard(ctx context.Context, keys []string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
	defer cancel()
	for _, key := range keys {
		if err := l.store.Delete(ctx, key); err != nil {
			l.opts.Logger.Info("uncommitted lake file left for the orphan sweep", "key", key, "error", err)
		}
	}
}

// pause waits a jittered, doubling time.
func (l *Lake) pause(ctx context.Context, attempt int) error {
	d := min(maxCommitPause, 5*time.Millisecond<<min(attempt, 10))
	d = time.Duration(float64(d) * (0.5 + 0.5*l.random()))
	if sleep := l.opts.Create.Sleep; sleep != nil {
		return sleep(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lake) random() float64 {
	if l.opts.Create.Rand != nil {
		return l.opts.Create.Rand()
	}
	return rand.Float64()
}
