package filestore

import (
	"cmp"
	"context"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// List walks the folders in the order of the keys. One folder's names are held
// in memory at a time for each level.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[objstore.Info, error] {
	return func(yield func(objstore.Info, error) bool) {
		if err := objstore.CheckPrefix(prefix); err != nil {
			yield(objstore.Info{}, err)
			return
		}
		w := walk{ctx: ctx, store: s, prefix: prefix, startAfter: startAfter, yield: yield}
		w.folder(prefix[:strings.LastIndexByte(prefix, '/')+1])
	}
}

type walk struct {
	ctx                context.Context // lives as long as one List
	store              *Store
	prefix, startAfter string
	yield              func(objstore.Info, error) bool
}

// folder lists the keys below base, which is empty or ends in a slash. It
// returns false when the walk is over.
func (w *walk) folder(base string) bool {
	if err := w.ctx.Err(); err != nil {
		w.yield(objstore.Info{}, errs.Wrap(errs.Canceled, "list "+w.prefix, err))
		return false
	}
	entries, err := os.ReadDir(filepath.Join(w.store.root, filepath.FromSlash(base)))
	if err != nil {
		if isMissing(err) {
			return true
		}
		w.yield(objstore.Info{}, classify("list "+base, err))
		return false
	}
	// A folder's keys go on with a slash, and sort as if its name ended in one.
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return cmp.Compare(sortName(a), sortName(b)) })
	for _, e := range entries {
		if !w.entry(base+sortName(e), e) {
			return false
		}
	}
	return true
}

func sortName(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

// entry visits one name: a key, or a folder's base when it ends in a slash.
func (w *walk) entry(name string, e fs.DirEntry) bool {
	if strings.HasPrefix(name, objstore.ReservedPrefix) {
		return true
	}
	if e.IsDir() {
		if !strings.HasPrefix(name, w.prefix) && !strings.HasPrefix(w.prefix, name) {
			return true
		}
		if name <= w.startAfter && !strings.HasPrefix(w.startAfter, name) {
			return true // all of its keys come before
		}
		return w.folder(name)
	}
	if name <= w.startAfter || !strings.HasPrefix(name, w.prefix) || !e.Type().IsRegular() || objstore.CheckKey(name) != nil {
		return true
	}
	st, err := e.Info()
	if err != nil {
		if isMissing(err) {
			return true // deleted a moment ago
		}
		return w.yield(objstore.Info{}, classify("list "+name, err))
	}
	return w.yield(infoOf(name, st), nil)
}
