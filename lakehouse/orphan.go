package lakehouse

import (
	"context"
	"strings"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// SweepResult says what an orphan sweep found.
type SweepResult struct {
	Deleted int
	Bytes   int64
	// Waiting are unreferenced objects that may not be deleted yet: too young, or
	// a stalled commit might still name them.
	Waiting int
	Left    int // objects that could not be deleted
}

// SweepOrphans deletes the objects of a table's directory that no snapshot of the
// newest metadata names and no commit can name any more:
//
//   - they are older than SafeAge by the store's clock, and
//   - a data file starts below its bucket's lake offset: a fold that wrote it
//     would have to move that offset from where it no longer is;
//   - a manifest or manifest list is older than the newest metadata version: a
//     commit that wrote it would have to create a version that exists.
//
// INVARIANT(lake-2). Metadata versions are not orphans; see trimVersions.
func (l *Lake) SweepOrphans(ctx context.Context, def TableDef) (SweepResult, error) {
	op := "sweep orphans of " + def.String()
	now, err := l.storeClock(ctx, def)
	if err != nil {
		return SweepResult{}, errs.In(op, err)
	}
	r, stuck, err := l.sweep(ctx, def, now)
	if err == nil && stuck {
		// Old manifests of a commit that was given up stay sweepable only behind a
		// newer version: make one, so that a table at rest gets clean, too.
		err = l.touch(ctx, def)
	}
	return r, errs.In(op, err)
}

// storeClock returns the time by the store's clock.
func (l *Lake) storeClock(ctx context.Context, def TableDef) (time.Time, error) {
	v, err := l.newest(ctx, def, verifyAged)
	if err != nil {
		return time.Time{}, err
	}
	l.writeHint(ctx, def, v.number)
	info, err := l.store.Head(ctx, def.hintKey())
	return info.ModTime, err
}

func (l *Lake) sweep(ctx context.Context, def TableDef, now time.Time) (r SweepResult, stuck bool, err error) {
	type object struct {
		key  string
		size int64
		at   time.Time
	}
	// Listed before the metadata is read: what is committed meanwhile is then seen.
	var old []object
	for info, err := range l.store.List(ctx, def.Prefix+"/", "") {
		if err != nil {
			return r, false, err
		}
		if _, version := parseVersionKey(info.Key); version || info.Key == def.hintKey() {
			continue
		}
		old = append(old, object{info.Key, info.Size, info.ModTime})
	}
	v, err := l.newest(ctx, def, verifyAged)
	if err != nil {
		return r, false, err
	}
	state, err := lakeStateOf(v.meta, v.meta.CurrentSnapshot())
	if err != nil {
		return r, false, err
	}
	head, err := l.store.Head(ctx, v.key)
	if err != nil {
		return r, false, err
	}
	referenced, err := l.referenced(ctx, v)
	if err != nil {
		return r, false, err
	}
	for _, o := range old {
		if referenced[o.key] {
			continue
		}
		if age := now.Sub(o.at); age < l.opts.SafeAge {
			r.Waiting++
			continue
		}
		if strings.HasPrefix(o.key, def.metadataPrefix()) && !o.at.Before(head.ModTime) {
			r.Waiting++
			stuck = true
			continue
		}
		if name, ok := parseDataKey(o.key); ok && name.base >= state.offsets[name.bucket] {
			r.Waiting++
			continue
		}
		if err := l.store.Delete(ctx, o.key); err != nil {
			l.opts.Logger.Info("orphan lake file left", "key", o.key, "error", err)
			r.Left++
			continue
		}
		r.Deleted++
		r.Bytes += o.size
	}
	return r, stuck, nil
}

// referenced returns the keys that a metadata version's snapshots name.
func (l *Lake) referenced(ctx context.Context, v *version) (map[string]bool, error) {
	out := map[string]bool{}
	add := func(uri string) {
		if key, ok := l.key(uri); ok {
			out[key] = true
		}
	}
	for _, s := range v.meta.Snapshots() {
		add(s.ManifestList)
		manifests, err := l.manifestList(ctx, s.ManifestList)
		if err != nil {
			return nil, err
		}
		for _, m := range manifests {
			if key, ok := l.key(m.FilePath()); ok && out[key] {
				continue
			}
			add(m.FilePath())
			entries, err := l.entries(ctx, m)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				add(e.DataFile().FilePath())
			}
		}
	}
	for s := range v.meta.Statistics() {
		add(s.StatisticsPath)
	}
	for s := range v.meta.PartitionStatistics() {
		add(s.StatisticsPath)
	}
	return out, nil
}

// touch commits a metadata version that changes nothing.
func (l *Lake) touch(ctx context.Context, def TableDef) error {
	_, err := l.commitMetadata(ctx, &def, func(*table.MetadataBuilder, table.Metadata) (bool, error) { return true, nil })
	return err
}

// RemoveTable deletes the directory of a table that was dropped, and returns how
// many objects it deleted. It may be repeated: a stalled fold may have put a last
// file meanwhile. The hint goes first, so that path readers stop finding the table.
func (l *Lake) RemoveTable(ctx context.Context, prefix string) (int, error) {
	def := TableDef{Prefix: prefix}
	op := "remove lake directory " + prefix
	l.versions.remove(prefix)
	if err := l.store.Delete(ctx, def.hintKey()); err != nil {
		return 0, errs.In(op, err)
	}
	n := 0
	for info, err := range l.store.List(ctx, prefix+"/", "") {
		if err == nil {
			err = l.store.Delete(ctx, info.Key)
		}
		if err != nil {
			return n, errs.In(op, err)
		}
		n++
	}
	return n, nil
}

// References returns the keys that the table's newest metadata needs: the
// metadata version itself, and the manifest lists, manifests and live data files
// of every snapshot. One that is missing in the store is corruption.
func (l *Lake) References(ctx context.Context, def TableDef) (map[string]bool, error) {
	v, err := l.newest(ctx, def, verifyAged)
	if err != nil {
		return nil, errs.In("read references of "+def.String(), err)
	}
	out := map[string]bool{v.key: true, def.hintKey(): true}
	for _, snap := range v.meta.Snapshots() {
		s, err := l.snapshotOf(def, v, &snap)
		if err != nil {
			return nil, errs.In("read references of "+def.String(), err)
		}
		files, err := s.Files(ctx)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			out[f.Key] = true
		}
		manifests, err := l.manifestList(ctx, snap.ManifestList)
		if err != nil {
			return nil, err
		}
		for _, m := range manifests {
			if key, ok := l.key(m.FilePath()); ok {
				out[key] = true
			}
		}
		if key, ok := l.key(snap.ManifestList); ok {
			out[key] = true
		}
	}
	return out, nil
}
