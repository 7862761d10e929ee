package agent

import (
	"context"
	"slices"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
)

// moveBatch is how many rows of a compacted file are hashed at a time.
const moveBatch = 64 << 10

// keyedMove is what a compaction does to one bucket's index.
type keyedMove struct {
	b     *bucket
	lake  *index.Index
	next  *index.Manifest
	name  string
	moved map[index.Key]movedRow
}

type movedRow struct{ from, to index.Location }

// compactKeyed joins data files of a primary-key table. The caller holds foldMu.
func (n *incarnation) compactKeyed(ctx context.Context, t *table, def *metastore.Table, o lakehouse.CompactOptions) (lakehouse.CompactResult, error) {
	rules, err := t.keyed.rulesOf(def)
	if err != nil {
		return lakehouse.CompactResult{}, err
	}
	lakeDef := n.agent.lakeDef(def)
	var moves []*keyedMove
	res, err := n.agent.lake.CompactKeyed(ctx, lakeDef, o, func(ctx context.Context, bucket int32, _ uint64, files []lakehouse.MovedFile) (string, error) {
		m := &keyedMove{b: t.buckets[bucket], moved: map[index.Key]movedRow{}}
		m.b.mu.Lock()
		m.lake = m.b.keyed.lake
		m.b.mu.Unlock()
		moves = append(moves, m)
		err := n.indexMove(ctx, m, def, rules, files)
		return m.name, err
	})
	if err != nil {
		if errs.Is(err, errs.Conflict) || errs.Is(err, errs.Unknown) {
			t.keyed.opened.Store(false)
		}
		return res, err
	}
	if res.SnapshotID == 0 {
		return res, nil
	}
	if err := n.adoptMoves(ctx, t, lakeDef, moves); err != nil {
		t.keyed.opened.Store(false)
		return res, err
	}
	return res, nil
}

// indexMove writes the index of a bucket whose rows were written again.
func (n *incarnation) indexMove(ctx context.Context, m *keyedMove, def *metastore.Table, rules *keyedRules, files []lakehouse.MovedFile) error {
	numbers := make(map[string]uint32, len(m.lake.Manifest.Files))
	for _, f := range m.lake.Manifest.Files {
		numbers[f.Key] = f.Number
	}
	schema, err := def.Current().SelectIDs(def.PrimaryKey)
	if err != nil {
		return err
	}
	u := index.Update{Gone: map[string]bool{}}
	for i, f := range files {
		number := m.lake.Manifest.NextFile + uint32(i) //nolint:gosec // a compaction writes few files
		u.NewFiles = append(u.NewFiles, index.File{Number: number, Key: f.Key, Rows: f.Rows})
		for first := 0; first < len(f.From); first += moveBatch {
			part := f.From[first:min(first+moveBatch, len(f.From))]
			keys, err := n.keysOfFile(ctx, def, rules, schema, f.Key, first, len(part))
			if err != nil {
				return err
			}
			for j, k := range keys {
				from, ok := numbers[part[j].Key]
				if !ok {
					return errs.New(errs.Corrupt, "data file %s of bucket %v is not in its key index", part[j].Key, m.b.id)
				}
				to := index.At(number, uint32(first+j)) //nolint:gosec // a file has fewer rows
				m.moved[k] = movedRow{index.At(from, part[j].Row), to}
				u.Changes = append(u.Changes, index.Placed{Key: k, At: to})
				u.Gone[part[j].Key] = true
			}
		}
	}
	slices.SortFunc(u.Changes, func(a, b index.Placed) int { return a.Key.Compare(b.Key) })
	m.next, m.name, err = n.nextIndex(ctx, m.lake, u)
	return err
}

// keysOfFile hashes the keys of some rows of a data file.
func (n *incarnation) keysOfFile(ctx context.Context, def *metastore.Table, rules *keyedRules, schema *segments.Schema, file string, first, count int) ([]index.Key, error) {
	refs := make([]lakehouse.RowRef, count)
	for i := range refs {
		refs[i] = lakehouse.RowRef{Key: file, Row: uint32(first + i)} //nolint:gosec // a file has fewer rows
	}
	rec, err := n.agent.lake.FetchRows(ctx, n.agent.lakeDef(def), def.Current(), refs, fieldIDs(schema))
	if err != nil {
		return nil, err
	}
	return rules.hasher.KeysOf(rec, schema)
}

// adoptMoves takes over what a compaction committed, in one moment for all buckets.
func (n *incarnation) adoptMoves(ctx context.Context, t *table, lakeDef lakehouse.TableDef, moves []*keyedMove) error {
	snap, err := n.agent.loadLake(ctx, lakeDef)
	if err != nil {
		return err
	}
	opened := make([]*index.Index, len(moves))
	for i, m := range moves {
		if opened[i], err = index.Open(ctx, n.agent.indexCache, m.next, m.lake); err != nil {
			return err
		}
	}
	n.publishMu.Lock()
	defer n.publishMu.Unlock()
	for i, m := range moves {
		if snap.IndexName(m.b.id.Bucket) != m.name {
			return errs.New(errs.Conflict, "bucket %v: another commit followed the compaction", m.b.id)
		}
		m.b.mu.Lock()
		m.b.gen = snap.Generation(m.b.id.Bucket)
		m.b.keyed.state.Move(func(k index.Key, at index.Location) (index.Location, bool) {
			r, ok := m.moved[k]
			return r.to, ok && r.from == at
		})
		m.b.keyed.lake, m.b.keyed.name = opened[i], m.name
		m.b.mu.Unlock()
		m.lake.Forget(opened[i])
		n.checkpoints.mark(m.b)
	}
	t.snap.Store(&cachedSnapshot{snap, n.agent.clock()})
	return nil
}
