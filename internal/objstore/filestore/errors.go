package filestore

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/firn-data/firn/internal/errs"
)

var errNotFolder = errors.New("exists and is not a folder")

// isMissing reports whether nothing stands at a path. A path that leads through
// a file names nothing.
func isMissing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// classify maps an error of the file system to what the caller does about it.
// Nothing that it is used on can have changed the store.
func classify(op string, err error) error {
	var classified *errs.Error
	var link *os.LinkError
	e := &errs.Error{Op: op, Cause: err}
	switch {
	case errors.As(err, &classified):
		return errs.In(op, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Class, e.Msg = errs.Exhausted, "the disk or quota of the store's folder is full; free some space"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		e.Class, e.Msg = errs.Exhausted, "too many open files; raise the limit (ulimit -n)"
	case errors.Is(err, syscall.EROFS):
		e.Class, e.Msg = errs.PermissionDenied, "the store's folder is on a read-only file system"
	case errors.As(err, &link) && link.Op == "link" && noHardLinks(err):
		e.Class, e.Msg = errs.Unsupported, "the store's file system has no hard links, which put-if-absent needs; use another folder"
	case errors.Is(err, fs.ErrPermission):
		e.Class, e.Msg = errs.PermissionDenied, "this user may not do that in the store's folder; check its owner and mode"
	case errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EISDIR), errors.Is(err, errNotFolder):
		e.Class = errs.Invalid
	case errors.Is(err, syscall.ENOTDIR) && !reads(op):
		e.Class, e.Msg = errs.Invalid, "a part of the key's path is an object"
	case isMissing(err):
		e.Class = errs.NotFound
	default:
		e.Class = errs.Unavailable
	}
	return e
}

func reads(op string) bool {
	return len(op) > 4 && (op[:4] == "read" || op[:4] == "head" || op[:4] == "list")
}

func noHardLinks(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EXDEV)
}
