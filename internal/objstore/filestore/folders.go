package filestore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
)

// maxFolders bounds how many folders are remembered; past it all are forgotten
// and learned again, which costs fsyncs but no safety.
const maxFolders = 1 << 16

// folders remembers which folders are durable in their parents and shares
// fsyncs of one folder among the writers that wait for it.
type folders struct {
	root string // folders below it are made durable up to it, not beyond

	mu    sync.Mutex
	known map[string]*folder
}

// folder is one folder's state. The zero value is ready.
type folder struct {
	durable atomic.Bool  // its name is durable in its parent, and so on up
	started atomic.Int64 // fsyncs begun
	waiting atomic.Int64 // callers of sync, for tests

	syncMu   sync.Mutex // held over the fsync; covers what follows
	finished int64      // number of the last fsync that ended
	err      error      // of that fsync
}

func (f *folders) get(path string) *folder {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := f.known[path]
	if d == nil {
		if f.known == nil || len(f.known) >= maxFolders {
			f.known = make(map[string]*folder)
		}
		d = new(folder)
		f.known[path] = d
	}
	return d
}

// ensure makes the folder and its parents when they are missing, and makes
// their names durable once in this process's life.
func (f *folders) ensure(path string) error {
	d := f.get(path)
	if d.durable.Load() {
		return nil
	}
	parent := filepath.Dir(path)
	if len(path) > len(f.root) {
		if err := f.ensure(parent); err != nil {
			return err
		}
	}
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrNotExist) && parent != path {
		if err = f.ensure(parent); err == nil {
			err = os.Mkdir(path, 0o755)
		}
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		if st, statErr := os.Stat(path); statErr != nil {
			return statErr
		} else if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: path, Err: errNotFolder}
		}
	case err != nil && isFolder(path): // a read-only parent says EROFS for what exists
	case err != nil:
		return err
	}
	// Someone else may have made it a moment ago and not synced it yet, so a
	// folder that exists is synced too. A parent that may not be opened was
	// not made by us, and neither was this folder.
	if err := f.sync(parent); err != nil && !errors.Is(err, fs.ErrPermission) {
		return err
	}
	d.durable.Store(true)
	return nil
}

func isFolder(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.IsDir()
}

// sync makes the names in a folder durable. It returns after an fsync that began
// after the call did; callers that wait meanwhile share the next one.
func (f *folders) sync(path string) error {
	d := f.get(path)
	want := d.started.Load() + 1
	d.waiting.Add(1)
	defer d.waiting.Add(-1)
	d.syncMu.Lock()
	defer d.syncMu.Unlock()
	if d.finished >= want {
		return d.err
	}
	number := d.started.Add(1)
	d.err = fsyncFolder(path)
	d.finished = number
	return d.err
}

// fsyncCount counts folder fsyncs, for tests.
var fsyncCount atomic.Int64

func fsyncFolder(path string) error {
	if runtime.GOOS == "windows" { // folders cannot be synced there; NTFS journals names
		return nil
	}
	fsyncCount.Add(1)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
