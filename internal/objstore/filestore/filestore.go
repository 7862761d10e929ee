package filestore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

const (
	// tempFolder below the root holds files that are being written.
	tempFolder = objstore.ReservedPrefix + "tmp"
	// tempMaxAge is when a temporary file's writer is surely gone.
	tempMaxAge = time.Hour
)

// Store is a folder. Make one with Open.
type Store struct {
	root    string // absolute
	temp    string
	folders folders
}

var _ objstore.Store = (*Store)(nil)

// ParseURL returns the folder that a file:// URL names: everything after the
// scheme as it stands, relative ("file://./firn-data", "file://firn-data") or
// absolute ("file:///var/firn"). Nothing is decoded.
func ParseURL(url string) (string, error) {
	path, ok := strings.CutPrefix(url, "file://")
	if !ok || path == "" {
		return "", errs.New(errs.Invalid, "store URL %q names no folder; write file://./firn-data or file:///path", url)
	}
	return path, nil
}

// Open makes the folder when it is missing and returns it as a store. Temporary
// files of writers that died over an hour ago are removed.
func Open(path string) (*Store, error) {
	root, err := filepath.Abs(path)
	if err != nil {
		return nil, errs.Wrap(errs.Invalid, "open store folder", err)
	}
	s := &Store{root: root, temp: filepath.Join(root, tempFolder), folders: folders{root: root}}
	if err := s.folders.ensure(s.temp); err != nil {
		return nil, classify("open store folder "+root, err)
	}
	s.sweep(time.Now().Add(-tempMaxAge))
	return s, nil
}

// sweep removes temporary files last written before limit. It is a courtesy:
// what it cannot remove stays.
func (s *Store) sweep(limit time.Time) {
	entries, err := os.ReadDir(s.temp)
	if err != nil {
		return
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && info.ModTime().Before(limit) {
			_ = os.Remove(filepath.Join(s.temp, e.Name()))
		}
	}
}

// path returns the file of a key, or why the key or the context forbids it.
func (s *Store) path(ctx context.Context, op, key string) (string, error) {
	if err := objstore.CheckKey(key); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", errs.Wrap(errs.Canceled, op+" "+key, err)
	}
	return filepath.Join(s.root, filepath.FromSlash(key)), nil
}

// open opens a key's file for reading.
func (s *Store) open(ctx context.Context, key string) (*os.File, objstore.Info, error) {
	path, err := s.path(ctx, "read", key)
	if err != nil {
		return nil, objstore.Info{}, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, objstore.Info{}, classify("read "+key, err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close()
		return nil, objstore.Info{}, classify("read "+key, err)
	}
	return f, infoOf(key, st), nil
}

func infoOf(key string, st fs.FileInfo) objstore.Info {
	return objstore.Info{Key: key, Size: st.Size(), ModTime: st.ModTime()}
}

// Get reads a whole file.
func (s *Store) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	f, info, err := s.open(ctx, key)
	if err != nil {
		return nil, objstore.Info{}, err
	}
	defer f.Close()
	return readAt(f, info, 0, info.Size)
}

// GetRange reads a part of a file.
func (s *Store) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	f, info, err := s.open(ctx, key)
	if err != nil {
		return nil, objstore.Info{}, err
	}
	defer f.Close()
	from, to := objstore.Window(info.Size, start, n)
	return readAt(f, info, from, to)
}

func readAt(f *os.File, info objstore.Info, from, to int64) ([]byte, objstore.Info, error) {
	body := make([]byte, to-from)
	if _, err := io.ReadFull(io.NewSectionReader(f, from, to-from), body); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = errs.New(errs.Corrupt, "the file shrank while it was read; something else writes in the store's folder")
		}
		return nil, objstore.Info{}, classify("read "+info.Key, err)
	}
	return body, info, nil
}

// Head returns a file's size and time.
func (s *Store) Head(ctx context.Context, key string) (objstore.Info, error) {
	path, err := s.path(ctx, "head", key)
	if err != nil {
		return objstore.Info{}, err
	}
	st, err := os.Lstat(path)
	if err == nil && !st.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		return objstore.Info{}, classify("head "+key, err)
	}
	return infoOf(key, st), nil
}

// Put replaces a file atomically and durably.
func (s *Store) Put(ctx context.Context, key string, body []byte) error {
	path, err := s.path(ctx, "put", key)
	if err != nil {
		return err
	}
	_, err = s.write("put "+key, path, body, os.Rename)
	return err
}

// PutIfAbsent creates a file atomically and durably unless its name is taken.
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	path, err := s.path(ctx, "put", key)
	if err != nil {
		return objstore.Unknown, err
	}
	op := "put " + key
	if st, err := os.Lstat(path); err == nil { // spares a loser the file and its fsync
		return s.taken(op, path, st)
	}
	return s.write(op, path, body, os.Link)
}

// taken answers for a name that is in use, once that is durable.
func (s *Store) taken(op, path string, st fs.FileInfo) (objstore.Outcome, error) {
	if st.IsDir() {
		return objstore.Unknown, errs.New(errs.Invalid, "%s: other keys start with this key and a slash", op)
	}
	if err := s.folders.sync(filepath.Dir(path)); err != nil {
		return objstore.Unknown, errs.Wrap(errs.Unknown, op, err)
	}
	return objstore.Exists, nil
}

// write stores body in a temporary file and gives it its name with place
// (os.Link or os.Rename).
func (s *Store) write(op, path string, body []byte, place func(from, to string) error) (objstore.Outcome, error) {
	temp, err := s.writeTemp(body)
	if err != nil {
		return objstore.Unknown, classify(op, err)
	}
	defer func() { _ = os.Remove(temp) }() // after a rename there is nothing left to remove
	folder := filepath.Dir(path)
	if err := s.folders.ensure(folder); err != nil {
		return objstore.Unknown, classify(op, err)
	}
	if err := place(temp, path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			if st, statErr := os.Lstat(path); statErr == nil {
				return s.taken(op, path, st)
			}
			// Taken and gone at once: the caller asks again.
			return objstore.Unknown, errs.Wrap(errs.Unavailable, op, err)
		}
		return objstore.Unknown, classify(op, err)
	}
	if err := s.folders.sync(folder); err != nil {
		return objstore.Unknown, errs.Wrap(errs.Unknown, op, err)
	}
	return objstore.Created, nil
}

// writeTemp makes a durable temporary file and returns its path.
func (s *Store) writeTemp(body []byte) (path string, err error) {
	path = filepath.Join(s.temp, fmt.Sprintf("%d-%s", os.Getpid(), rand.Text()))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return "", err
	}
	_, err = f.Write(body)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = os.Remove(path)
		return "", err
	}
	return path, nil
}

// Delete removes a file; a missing one is fine.
func (s *Store) Delete(ctx context.Context, key string) error {
	path, err := s.path(ctx, "delete", key)
	if err != nil {
		return err
	}
	if st, err := os.Lstat(path); err == nil && st.IsDir() {
		return nil // a folder is no object
	}
	if err := os.Remove(path); err != nil && !isMissing(err) {
		return classify("delete "+key, err)
	}
	return nil
}

// URL returns file:// and the absolute folder.
func (s *Store) URL() string { return "file://" + filepath.ToSlash(s.root) }

// Close does nothing: no handle is kept open.
func (s *Store) Close() error { return nil }
