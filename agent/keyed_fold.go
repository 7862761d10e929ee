package agent

import (
	"context"
	"crypto/rand"
	"io"
	"slices"

	"github.com/RoaringBitmap/roaring/v2"
	"github.com/google/uuid"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
)

// frozenRow is a key of a cut and what it leaves.
type frozenRow struct {
	key index.Key
	index.Entry
}

// keyedFold is the fold of one bucket's cut.
type keyedFold struct {
	n    *incarnation
	b    *bucket
	cut  int64
	lake *index.Index // what the fold is built on
	rows []frozenRow  // by offset
	next *index.Manifest
	name string
	at   map[index.Key]index.Location // where the rows that are left lie now
}

// foldKeyed moves the final rows of a primary-key table's live keys into the lake,
// with a deletion for each position that they replace. The caller holds foldMu.
func (n *incarnation) foldKeyed(ctx context.Context, t *table, def *metastore.Table) (lakehouse.FoldResult, error) {
	if err := n.openKeyed(ctx, t, def); err != nil {
		return lakehouse.FoldResult{}, err
	}
	var folds []*keyedFold
	for _, b := range t.buckets {
		f, err := n.freeze(ctx, b)
		if err != nil {
			return lakehouse.FoldResult{}, err
		}
		if f != nil {
			folds = append(folds, f)
		}
	}
	lakeDef := n.agent.lakeDef(def)
	if len(folds) == 0 {
		snap, err := n.agent.loadLake(ctx, lakeDef)
		if err != nil {
			return lakehouse.FoldResult{}, err
		}
		return lakehouse.FoldResult{SnapshotID: snap.ID}, nil
	}
	p := &readPlan{def: def, refs: n.refs}
	defer p.close()
	var in lakehouse.FoldInput
	for _, f := range folds {
		in.Buckets = append(in.Buckets, f.input(def, p))
	}
	res, err := n.agent.lake.Fold(ctx, lakeDef, in)
	if err != nil || t.folds.Load() == 0 {
		n.collector.suspectOrphans(def.ID)
	}
	n.collector.folded(def.ID)
	if err != nil {
		// What was frozen stays frozen, and is folded again. After a conflict, or when
		// the outcome is not known, the lake says what is still to be done.
		if errs.Is(err, errs.Conflict) || errs.Is(err, errs.Unknown) {
			t.keyed.opened.Store(false)
		}
		return res, err
	}
	return res, n.adoptFolds(ctx, t, lakeDef, folds)
}

// freeze cuts a bucket at its next offset, waits until all below is durable, and
// returns what there is to fold; nil if there is nothing.
func (n *incarnation) freeze(ctx context.Context, b *bucket) (*keyedFold, error) {
	b.mu.Lock()
	cut, frozen := b.keyed.state.Cut()
	if !frozen {
		if b.next == b.lake {
			b.mu.Unlock()
			return nil, nil
		}
		cut = b.next
		if err := b.keyed.state.Freeze(cut); err != nil {
			b.mu.Unlock()
			return nil, err
		}
	}
	tail := b.tail
	durable := b.hw >= cut
	b.mu.Unlock()
	if !durable && tail != nil {
		if err := n.settleFlights(ctx, b); err != nil {
			return nil, err
		}
	}
	f := &keyedFold{n: n, b: b, cut: cut, at: map[index.Key]index.Location{}}
	b.mu.Lock()
	defer b.mu.Unlock()
	f.lake = b.keyed.lake
	for k, e := range b.keyed.state.Frozen() {
		f.rows = append(f.rows, frozenRow{k, e})
	}
	slices.SortFunc(f.rows, func(a, b frozenRow) int { return int(a.Offset - b.Offset) })
	return f, nil
}

// input is what the lake is handed.
func (f *keyedFold) input(def *metastore.Table, p *readPlan) lakehouse.BucketFold {
	n := f.n
	n.publishMu.RLock()
	v := f.b.view()
	for _, s := range v.live {
		n.refs.pin(s.ref.Object, 1)
		p.pinned = append(p.pinned, s.ref.Object)
	}
	n.publishMu.RUnlock()
	deletes := map[string]*roaring.Bitmap{}
	for _, r := range f.rows {
		if r.Lake == index.Nowhere {
			continue
		}
		file, _ := f.lake.Manifest.File(r.Lake.File())
		if deletes[file.Key] == nil {
			deletes[file.Key] = roaring.New()
		}
		deletes[file.Key].Add(r.Lake.Row())
	}
	return lakehouse.BucketFold{
		Bucket: f.b.id.Bucket, From: v.lake, To: f.cut, Generation: v.gen, Next: f.source(def, v),
		Keyed: &lakehouse.KeyedFold{Deletes: deletes, Written: f.written},
	}
}

// source yields the rows that are left, in offset order.
func (f *keyedFold) source(def *metastore.Table, v view) func(context.Context) (lakehouse.FoldBatch, error) {
	schema := def.Current()
	whole := projection{out: schema, read: schema}
	entry := f.n.footerEntry
	next, row := 0, 0
	return func(ctx context.Context) (lakehouse.FoldBatch, error) {
		for next < len(v.live) {
			s := v.live[next]
			next++
			var offsets, stamps []int64
			var rows []int32
			for ; row < len(f.rows) && f.rows[row].Offset < s.end(); row++ {
				if r := f.rows[row]; !r.Deleted {
					offsets, stamps = append(offsets, r.Offset), append(stamps, s.ref.Timestamp)
					rows = append(rows, int32(r.Offset-s.ref.BaseOffset)) //nolint:gosec // a segment has far fewer rows
				}
			}
			if len(rows) == 0 {
				continue
			}
			rec, err := f.n.readEntry(ctx, def, s, whole, s.ref.BaseOffset, s.end(), entry)
			if err != nil {
				return lakehouse.FoldBatch{}, err
			}
			if rec, err = segments.Take(rec, rows); err != nil {
				return lakehouse.FoldBatch{}, err
			}
			return lakehouse.FoldBatch{Rows: rec, Offsets: offsets, Timestamps: stamps}, nil
		}
		return lakehouse.FoldBatch{}, io.EOF
	}
}

// written makes the index of the generation that the commit is about to make.
func (f *keyedFold) written(ctx context.Context, _ uint64, files []lakehouse.FoldedFile) (string, error) {
	u := index.Update{}
	place := map[int64]index.Location{}
	for i, file := range files {
		number := f.lake.Manifest.NextFile + uint32(i) //nolint:gosec // a fold writes few files
		u.NewFiles = append(u.NewFiles, index.File{Number: number, Key: file.Key, Rows: file.Rows})
		row := uint32(0)
		for _, run := range file.Runs {
			for o := range run.Count {
				place[run.FirstOffset+o] = index.At(number, row)
				row++
			}
		}
	}
	for _, r := range f.rows {
		switch at, ok := place[r.Offset]; {
		case !r.Deleted && !ok:
			return "", errs.New(errs.Internal, "bucket %v: the fold did not write offset %d", f.b.id, r.Offset)
		case !r.Deleted:
			f.at[r.key] = at
			u.Changes = append(u.Changes, index.Placed{Key: r.key, At: at})
		case r.Lake != index.Nowhere:
			u.Changes = append(u.Changes, index.Placed{Key: r.key, At: index.Nowhere})
		}
	}
	slices.SortFunc(u.Changes, func(a, b index.Placed) int { return a.Key.Compare(b.Key) })
	var err error
	f.next, f.name, err = f.n.nextIndex(ctx, f.lake, u)
	return f.name, err
}

// nextIndex writes the runs and the manifest of an index's next generation.
func (n *incarnation) nextIndex(ctx context.Context, lake *index.Index, u index.Update) (next *index.Manifest, name string, err error) {
	put := func(ctx context.Context, name string, body []byte) error {
		return n.agent.store.Put(ctx, lake.Manifest.Key(name), body)
	}
	if next, err = lake.Next(ctx, u, newIndexID, put); err != nil {
		return nil, "", err
	}
	body, err := next.Encode(newIndexID())
	if err != nil {
		return nil, "", err
	}
	name = index.ManifestName(next.Generation, uuid.NewString())
	return next, name, put(ctx, name, body)
}

func newIndexID() (id [16]byte) {
	_, _ = rand.Read(id[:]) // it never fails
	return id
}

// adoptFolds takes over what a fold committed, in one moment for all buckets.
func (n *incarnation) adoptFolds(ctx context.Context, t *table, lakeDef lakehouse.TableDef, folds []*keyedFold) error {
	snap, err := n.agent.loadLake(ctx, lakeDef)
	if err != nil {
		t.keyed.opened.Store(false)
		return err
	}
	opened := make([]*index.Index, len(folds))
	for i, f := range folds {
		if opened[i], err = index.Open(ctx, n.agent.indexCache, f.next, f.lake); err != nil {
			t.keyed.opened.Store(false)
			return err
		}
	}
	err = func() error {
		n.publishMu.Lock()
		defer n.publishMu.Unlock()
		for i, f := range folds {
			if snap.IndexName(f.b.id.Bucket) != f.name || snap.Offset(f.b.id.Bucket) != f.cut {
				return errs.New(errs.Conflict, "bucket %v: another commit followed the fold", f.b.id)
			}
			gone, _ := f.b.advanceLake(f.cut, snap.Generation(f.b.id.Bucket))
			f.b.mu.Lock()
			err := f.b.keyed.state.Adopt(func(k index.Key) (index.Location, bool) { at, ok := f.at[k]; return at, ok })
			f.b.keyed.lake, f.b.keyed.name = opened[i], f.name
			f.b.mu.Unlock()
			if err != nil {
				return err
			}
			f.b.raiseEarliest(f.cut) // the lake keeps rows, not changes
			n.checkpoints.mark(f.b)
			n.forget(gone)
		}
		t.noteLive()
		t.snap.Store(&cachedSnapshot{snap, n.agent.clock()})
		return nil
	}()
	if err != nil {
		t.keyed.opened.Store(false)
		return err
	}
	for i, f := range folds {
		f.lake.Forget(opened[i])
	}
	t.folds.Add(1)
	t.lastFold.Store(n.agent.clock().UnixNano())
	n.checkpoints.soon()
	return nil
}
