package filestore

import (
	"syscall"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

func TestFullAndReadOnlyDisksAreToldApart(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Skipf("mounting a small file system needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := open(t, dir)
	if err := s.Put(t.Context(), "fits", make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	outcome, err := s.PutIfAbsent(t.Context(), "does/not", make([]byte, 1<<20))
	if outcome != objstore.Unknown || !errs.Is(err, errs.Exhausted) {
		t.Errorf("full: outcome %d, %v", outcome, err)
	}
	if _, err := s.Head(t.Context(), "does/not"); !errs.Is(err, errs.NotFound) {
		t.Errorf("half an object is visible: %v", err)
	}
	if err := s.Put(t.Context(), "still/fits", make([]byte, 10_000)); err != nil {
		t.Errorf("a full disk's refusal left its bytes behind: %v", err)
	}
	if err := syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Skipf("remount read-only: %v", err)
	}
	if err := s.Put(t.Context(), "fits", nil); !errs.Is(err, errs.PermissionDenied) {
		t.Errorf("read-only: %v", err)
	}
	if _, _, err := s.Get(t.Context(), "fits"); err != nil {
		t.Errorf("read on a read-only disk: %v", err)
	}
}
