package lakehouse

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
)

// maxCachedRunNames bounds the names of index runs that are kept over all manifests.
const maxCachedRunNames = 64 << 10

// indexPrefix is where the key index of a table lies.
func indexPrefix(tableID uint64) string { return fmt.Sprintf("index/%d/", tableID) }

// parseIndexKey returns the bucket of a key-index object.
func parseIndexKey(key string) (bucket int32, ok bool) {
	parts := strings.Split(key, "/")
	if len(parts) != 4 || parts[0] != "index" {
		return 0, false
	}
	n, err := strconv.ParseInt(parts[2], 10, 32)
	return int32(n), err == nil && n >= 0
}

// indexObjects calls f with the keys of the index that a snapshot names: manifests,
// and the runs that they list. INVARIANT(key-3): while the snapshot is kept, they
// stand; absent says what to do about a manifest that does not.
func (l *Lake) indexObjects(ctx context.Context, def TableDef, snap *table.Snapshot, absent func(error) error, f func(key string)) error {
	if snap.Summary == nil {
		return nil
	}
	names, err := indexNames(snap)
	if err != nil {
		return err
	}
	for bucket, name := range names {
		owner := index.Owner{Table: def.ID, Bucket: bucket}
		key := owner.Key(name)
		f(key)
		runs, err := l.indexRuns(ctx, owner, key)
		if err != nil {
			if err = absent(err); err != nil {
				return err
			}
			continue
		}
		for _, run := range runs {
			f(owner.Key(run))
		}
	}
	return nil
}

// indexRuns returns the names of the runs that an index manifest lists, cached.
func (l *Lake) indexRuns(ctx context.Context, owner index.Owner, key string) ([]string, error) {
	if runs, ok := l.indexes.get(key); ok {
		return runs, nil
	}
	body, _, err := l.store.Get(ctx, key)
	if err != nil {
		return nil, errs.In("read index manifest "+key, err)
	}
	m, err := index.DecodeManifest(body, key, owner)
	if err != nil {
		return nil, err
	}
	runs := make([]string, len(m.Runs))
	for i, r := range m.Runs {
		runs[i] = r.Name
	}
	l.indexes.put(key, runs, len(runs)+1)
	return runs, nil
}

// unreachableIndex returns the index objects that removed snapshots named and no kept
// one does.
func (l *Lake) unreachableIndex(ctx context.Context, def *TableDef, v *version, removed []table.Snapshot) ([]string, error) {
	gone := map[string]bool{}
	for i := range removed {
		// A manifest that is not there: an expiry that was cut short. Its runs are the sweep's.
		err := l.indexObjects(ctx, *def, &removed[i], ignoreAbsent, func(key string) { gone[key] = true })
		if err != nil {
			return nil, err
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	for _, s := range v.meta.Snapshots() {
		if err := l.indexObjects(ctx, *def, &s, isError, func(key string) { delete(gone, key) }); err != nil {
			return nil, err
		}
	}
	keys := make([]string, 0, len(gone))
	for key := range gone {
		keys = append(keys, key)
		l.indexes.remove(key)
	}
	slices.Sort(keys)
	return keys, nil
}

func isError(err error) error { return err }

func ignoreAbsent(err error) error {
	if errs.Is(err, errs.NotFound) {
		return nil
	}
	return err
}

// removeIndex deletes the key index of a table that was dropped.
func (l *Lake) removeIndex(ctx context.Context, tableID uint64) (n int, err error) {
	for info, err := range l.store.List(ctx, indexPrefix(tableID), "") {
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
