package lakehouse

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

const (
	// keepSnapshots is how many Iceberg snapshots are kept by default: commits
	// slow down with their number.
	keepSnapshots = 100
	// expireMinAge is how young a snapshot is never expired by default: a scan
	// that began on it may still be reading.
	expireMinAge = 10 * time.Minute
)

// ExpireOptions configures an expiry. The zero value is ready to use.
type ExpireOptions struct {
	// Keep is how many snapshots are kept at least (default: the table's
	// PropKeepSnapshots, or 100).
	Keep int
	// MinAge keeps younger snapshots in any case (default 10 min; negative is 0).
	MinAge time.Duration
	// Pinned reports whether a reader still uses a snapshot; nil: none does.
	Pinned func(snapshotID int64) bool
}

// ExpireResult says what an expiry removed.
type ExpireResult struct {
	Snapshots     int
	DataFiles     int
	MetadataFiles int // manifests and manifest lists
	IndexObjects  int // runs and manifests of the key index
	Left          int // objects that could not be deleted; the orphan sweep will
}

// Expire removes old Iceberg snapshots from the table's metadata, and then the
// files that only they named. Little and often: it is meant to follow each few
// folds. A crash between the two leaves the files to the orphan sweep.
func (l *Lake) Expire(ctx context.Context, def TableDef, o ExpireOptions) (ExpireResult, error) {
	op := "expire snapshots of " + def.String()
	if o.Keep <= 0 {
		n, err := def.intProperty(PropKeepSnapshots, keepSnapshots)
		if err != nil {
			return ExpireResult{}, errs.In(op, err)
		}
		o.Keep = int(n)
	}
	if o.MinAge == 0 {
		o.MinAge = expireMinAge
	}
	var expired []table.Snapshot
	v, err := l.commitMetadata(ctx, &def, func(b *table.MetadataBuilder, base table.Metadata) (bool, error) {
		expired = chooseExpired(base, o, l.opts.Now())
		if len(expired) == 0 {
			return false, nil
		}
		ids := make([]int64, len(expired))
		for i, s := range expired {
			ids[i] = s.SnapshotID
		}
		return true, errs.Wrap(errs.Internal, "remove snapshots", b.RemoveSnapshots(ids, true))
	})
	if err != nil {
		return ExpireResult{}, errs.In(op, err)
	}
	r := ExpireResult{Snapshots: len(expired)}
	for v.oldest > 0 && v.number-v.oldest >= l.opts.KeepVersions {
		before := v.oldest
		if v = l.trimVersions(ctx, &def, v); v.oldest == before {
			break
		}
	}
	if len(expired) == 0 {
		return r, nil
	}
	data, metadata, err := l.unreachable(ctx, &def, v, expired)
	if err != nil {
		return r, errs.In(op, err)
	}
	indexes, err := l.unreachableIndex(ctx, &def, v, expired)
	if err != nil {
		return r, errs.In(op, err)
	}
	for _, key := range slices.Concat(data, metadata, indexes) {
		if err := l.store.Delete(ctx, key); err != nil {
			l.opts.Logger.Info("expired lake file left for the orphan sweep", "key", key, "error", err)
			r.Left++
		}
	}
	r.DataFiles, r.MetadataFiles, r.IndexObjects = len(data), len(metadata), len(indexes)
	return r, nil
}

// chooseExpired returns the snapshots to remove, oldest first.
func chooseExpired(meta table.Metadata, o ExpireOptions, now time.Time) []table.Snapshot {
	current := meta.CurrentSnapshot()
	if current == nil {
		return nil
	}
	keep := map[int64]bool{current.SnapshotID: true}
	for _, ref := range meta.Refs() {
		keep[ref.SnapshotID] = true
	}
	if id, ok := stateHolder(meta, current); ok {
		keep[id] = true
	}
	all := meta.Snapshots()
	slices.SortStableFunc(all, func(a, b table.Snapshot) int {
		return cmp.Or(cmp.Compare(a.SequenceNumber, b.SequenceNumber), cmp.Compare(a.TimestampMs, b.TimestampMs))
	})
	var out []table.Snapshot
	for i, s := range all {
		young := o.MinAge > 0 && now.Sub(time.UnixMilli(s.TimestampMs)) < o.MinAge
		newest := len(all)-i <= o.Keep
		if newest || young || keep[s.SnapshotID] || o.Pinned != nil && o.Pinned(s.SnapshotID) {
			continue
		}
		out = append(out, s)
	}
	return out
}

// stateHolder returns the nearest ancestor that carries the lake offsets.
func stateHolder(meta table.Metadata, s *table.Snapshot) (int64, bool) {
	for s != nil {
		if s.Summary != nil && s.Summary.Properties[sumOffsets] != "" {
			return s.SnapshotID, true
		}
		if s.ParentSnapshotID == nil {
			break
		}
		s = meta.SnapshotByID(*s.ParentSnapshotID)
	}
	return 0, false
}

// unreachable returns the keys that removed snapshots named and no kept one does:
// data and delete files, then manifests and manifest lists.
func (l *Lake) unreachable(ctx context.Context, def *TableDef, v *version, removed []table.Snapshot) (data, metadata []string, err error) {
	kept := map[string]iceberg.ManifestFile{}
	lists := map[string]bool{}
	for _, s := range v.meta.Snapshots() {
		lists[s.ManifestList] = true
		manifests, err := l.manifestList(ctx, s.ManifestList)
		if err != nil {
			return nil, nil, err
		}
		for _, m := range manifests {
			kept[m.FilePath()] = m
		}
	}
	candidates := map[string]bool{}
	seen := map[string]bool{}
	for _, s := range removed {
		if lists[s.ManifestList] || seen[s.ManifestList] {
			continue
		}
		seen[s.ManifestList] = true
		manifests, err := l.manifestList(ctx, s.ManifestList)
		if errs.Is(err, errs.NotFound) { // an expiry that was cut short
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		l.lists.remove(s.ManifestList)
		for _, m := range manifests {
			if _, ok := kept[m.FilePath()]; ok || seen[m.FilePath()] {
				continue
			}
			seen[m.FilePath()] = true
			entries, err := l.entries(ctx, m)
			if errs.Is(err, errs.NotFound) {
				continue
			}
			if err != nil {
				return nil, nil, err
			}
			l.manifests.remove(m.FilePath())
			l.deletes.remove(m.FilePath())
			for _, e := range entries {
				candidates[e.DataFile().FilePath()] = true
			}
		}
	}
	if err := l.dropReachable(ctx, def, v, kept, candidates); err != nil {
		return nil, nil, err
	}
	for uri := range candidates {
		if key, ok := l.key(uri); ok {
			data = append(data, key)
		}
	}
	for uri := range seen {
		if key, ok := l.key(uri); ok {
			metadata = append(metadata, key)
		}
	}
	slices.Sort(data)
	slices.Sort(metadata)
	return data, metadata, nil
}

// dropReachable removes from candidates the data and delete files that are live in a kept
// snapshot. Nearly all are live in the newest one (a merge copied their entries),
// so that older manifests are read only for what is left.
func (l *Lake) dropReachable(ctx context.Context, def *TableDef, v *version, kept map[string]iceberg.ManifestFile, candidates map[string]bool) error {
	current, err := l.snapshotOf(*def, v, v.meta.CurrentSnapshot())
	if err != nil {
		return err
	}
	files, err := current.Files(ctx)
	if err != nil {
		return err
	}
	for _, f := range files {
		delete(candidates, f.URI)
		if f.Deletes != nil {
			delete(candidates, f.Deletes.URI)
		}
	}
	for _, m := range kept {
		if len(candidates) == 0 {
			return nil
		}
		if err := l.eachLive(ctx, m, func(uri string) { delete(candidates, uri) }); err != nil {
			return err
		}
	}
	return nil
}
