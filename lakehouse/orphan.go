package lakehouse

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// SweepResult says what an orphan sweep found.
type SweepResult struct {
	Deleted int
	Bytes   int64
	// Waiting are unreferenced objects that may not be deleted yet: too young, or
	// their rows are still to be folded.
	Waiting int
	Left    int // objects that could not be deleted
	// Raised reports that generations were raised: whoever folds from remembered
	// ones loads them anew.
	Raised bool
}

// SweepOrphans deletes the objects of a table's directory and of its key index that no snapshot names
// and none can come to name:
//
//   - they were there, unreferenced and older than SafeAge by the store's clock,
//     before the sweep made a commit of its own that refuses the commits which could
//     still name them (see refuse), and
//   - they are unreferenced after that commit, too, and
//   - a data file starts below its bucket's lake offset: the rows of one that does
//     not are still to be folded, perhaps by whoever wrote it.
//
// So safety rests on no clock and on nobody's liveness; the age only keeps the
// sweep from refusing commits that are merely slow. A sweep that finds nothing to
// delete commits nothing. INVARIANT(lake-7). Metadata versions are not orphans; see
// trimVersions.
func (l *Lake) SweepOrphans(ctx context.Context, def TableDef) (SweepResult, error) {
	r, err := l.sweep(ctx, def)
	return r, errs.In("sweep orphans of "+def.String(), err)
}

func (l *Lake) sweep(ctx context.Context, def TableDef) (r SweepResult, err error) {
	now, err := l.storeClock(ctx, def)
	if err != nil {
		return r, err
	}
	// Listed before the metadata is read: what is committed meanwhile is then seen.
	listed, err := l.listOrphanable(ctx, def)
	if err != nil {
		return r, err
	}
	found, waiting, err := l.orphansAmong(ctx, def, listed, now)
	r.Waiting = waiting
	if err != nil || len(found) == 0 {
		return r, err
	}
	if doubtful := l.doubtful(found); len(doubtful) > 0 {
		if r.Raised, err = l.refuse(ctx, def, doubtful); err != nil {
			return r, err
		}
		if found, _, err = l.orphansAmong(ctx, def, found, now); err != nil {
			return r, err
		}
	}
	for _, o := range found {
		if err := l.store.Delete(ctx, o.key); err != nil {
			l.opts.Logger.Info("orphan lake file left", "key", o.key, "error", err)
			l.refused.put(o.key, struct{}{}, 1)
			r.Left++
			continue
		}
		l.refused.remove(o.key)
		r.Deleted++
		r.Bytes += o.size
	}
	return r, nil
}

// orphan is an object that a sweep looks at.
type orphan struct {
	key  string
	size int64
	at   time.Time
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

// listOrphanable lists what may be an orphan: all but metadata versions and the hint.
func (l *Lake) listOrphanable(ctx context.Context, def TableDef) ([]orphan, error) {
	var out []orphan
	for info, err := range l.store.List(ctx, def.Prefix+"/", "") {
		if err != nil {
			return nil, err
		}
		if _, version := parseVersionKey(info.Key); version || info.Key == def.hintKey() {
			continue
		}
		out = append(out, orphan{info.Key, info.Size, info.ModTime})
	}
	if v, err := l.newest(ctx, def, verifyAged); err != nil {
		return nil, err
	} else if state, err := lakeStateOf(v.meta, v.meta.CurrentSnapshot()); err != nil || len(state.indexes) == 0 {
		return out, err // no key index, or none that was ever committed
	}
	for info, err := range l.store.List(ctx, indexPrefix(def.ID), "") {
		if err != nil {
			return nil, err
		}
		out = append(out, orphan{info.Key, info.Size, info.ModTime})
	}
	return out, nil
}

// orphansAmong returns those that the newest version does not name and that need
// not wait, and how many of the unnamed must.
func (l *Lake) orphansAmong(ctx context.Context, def TableDef, listed []orphan, now time.Time) (found []orphan, waiting int, err error) {
	v, err := l.newest(ctx, def, verifyAged)
	if err != nil {
		return nil, 0, err
	}
	state, err := lakeStateOf(v.meta, v.meta.CurrentSnapshot())
	if err != nil {
		return nil, 0, err
	}
	referenced, err := l.referenced(ctx, def, v)
	if err != nil {
		return nil, 0, err
	}
	for _, o := range listed {
		if referenced[o.key] {
			continue
		}
		name, data := parseDataKey(o.key)
		if now.Sub(o.at) < l.opts.SafeAge || data && name.base >= state.offsets[name.bucket] {
			waiting++
			continue
		}
		found = append(found, o)
	}
	return found, waiting, nil
}

// doubtful returns the orphans that a commit might still name: all but those that an
// earlier sweep of this process proved dead and could not delete. Without that, an
// object that cannot be deleted would cost a commit at each sweep.
func (l *Lake) doubtful(found []orphan) (out []orphan) {
	for _, o := range found {
		if _, known := l.refused.get(o.key); !known {
			out = append(out, o)
		}
	}
	return out
}

// refuse makes a commit after which no commit can succeed that was prepared before
// it and names one of the orphans. A manifest belongs to one attempt at one version
// number: any newer version refuses that. A data or delete file, or an object of the key
// index, is carried from attempt to
// attempt, by a fold or a compaction that needs each of its buckets at the generation
// from which it began: raising that of the file's bucket refuses both. It reports
// whether generations were raised.
func (l *Lake) refuse(ctx context.Context, def TableDef, orphans []orphan) (raised bool, err error) {
	buckets := map[int32]bool{}
	for _, o := range orphans {
		if bucket, ok := bucketOfKey(o.key); ok {
			buckets[bucket] = true
		}
	}
	if len(buckets) == 0 {
		_, err := l.commitMetadata(ctx, &def, func(*table.MetadataBuilder, table.Metadata) (bool, error) { return true, nil })
		return false, err
	}
	snap, err := l.Load(ctx, def)
	if err != nil {
		return false, err
	}
	_, err = l.commit(ctx, &def, change{id: l.opts.NewID(), operation: table.OpReplace, moves: standing(snap, buckets)})
	return err == nil || errs.Is(err, errs.Unknown), err
}

// bucketOfKey returns the bucket whose commits may name an object that is carried
// from attempt to attempt.
func bucketOfKey(key string) (int32, bool) {
	if name, ok := parseDataKey(key); ok {
		return name.bucket, true
	}
	if bucket, ok := parseIndexKey(key); ok {
		return bucket, true
	}
	return parseDeleteKey(key)
}

// referenced returns the keys that a metadata version's snapshots name.
func (l *Lake) referenced(ctx context.Context, def TableDef, v *version) (map[string]bool, error) {
	out := map[string]bool{}
	add := func(uri string) {
		if key, ok := l.key(uri); ok {
			out[key] = true
		}
	}
	for _, s := range v.meta.Snapshots() {
		if err := l.indexObjects(ctx, def, &s, isError, func(key string) { out[key] = true }); err != nil {
			return nil, err
		}
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
			if err := l.eachLive(ctx, m, add); err != nil {
				return nil, err
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

// eachLive calls f with the URI of each file that is live in a manifest. One that a
// snapshot removed is named there, too, and needed by the snapshots before it only.
func (l *Lake) eachLive(ctx context.Context, m iceberg.ManifestFile, f func(uri string)) error {
	if m.ManifestContent() == iceberg.ManifestContentData {
		files, err := l.liveFiles(ctx, m)
		for i := range files {
			f(files[i].URI)
		}
		return err
	}
	files, err := l.liveDeletes(ctx, m)
	for i := range files {
		f(files[i].URI)
	}
	return err
}

// RemoveTable deletes the directory of a table that was dropped, its changelog's and its
// key index, and returns how many objects it deleted. It may be repeated: a stalled fold
// may have put a last file meanwhile. The hint goes first, so that path readers stop
// finding the table.
func (l *Lake) RemoveTable(ctx context.Context, prefix string) (int, error) {
	op := "remove lake directory " + prefix
	n, err := l.removeDirectory(ctx, prefix)
	if err != nil || TablePrefix(prefix) != prefix {
		return n, errs.In(op, err)
	}
	more, err := l.removeDirectory(ctx, ChangelogPrefix(prefix))
	if n += more; err != nil {
		return n, errs.In(op, err)
	}
	if id, ok := tableOfPrefix(prefix); ok {
		more, err = l.removeIndex(ctx, id)
		n += more
	}
	return n, errs.In(op, err)
}

// tableOfPrefix returns the id in "lake/<database>/<table>-<id>".
func tableOfPrefix(prefix string) (uint64, bool) {
	id, err := strconv.ParseUint(prefix[strings.LastIndexByte(prefix, '-')+1:], 10, 64)
	return id, err == nil
}

func (l *Lake) removeDirectory(ctx context.Context, prefix string) (int, error) {
	def := TableDef{Prefix: prefix}
	l.versions.remove(prefix)
	if err := l.store.Delete(ctx, def.hintKey()); err != nil {
		return 0, err
	}
	n := 0
	for info, err := range l.store.List(ctx, prefix+"/", "") {
		if err == nil {
			err = l.store.Delete(ctx, info.Key)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}

// References returns the keys that the table's newest metadata needs: the
// metadata version itself, and the manifest lists, manifests and live data files
// of every snapshot. One that is missing in the store is corruption. The version hint
// is none of them: it is written after the commit, and again by the next one.
func (l *Lake) References(ctx context.Context, def TableDef) (map[string]bool, error) {
	v, err := l.newest(ctx, def, verifyAged)
	if err != nil {
		return nil, errs.In("read references of "+def.String(), err)
	}
	out := map[string]bool{v.key: true}
	for _, snap := range v.meta.Snapshots() {
		// A manifest that is missing stays in the result: its runs are not known.
		if err := l.indexObjects(ctx, def, &snap, ignoreAbsent, func(key string) { out[key] = true }); err != nil {
			return nil, errs.In("read references of "+def.String(), err)
		}
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
			if f.Deletes != nil {
				out[f.Deletes.Key] = true
			}
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
