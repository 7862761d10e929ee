package filestore

import (
	"testing"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/storetest"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFileStoreKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Options{}, func(t *testing.T) objstore.Store { return open(t, t.TempDir()) })
}
