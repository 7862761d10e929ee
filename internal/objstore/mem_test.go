package objstore_test

import (
	"testing"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/storetest"
)

func TestMemKeepsTheContract(t *testing.T) {
	storetest.Run(t, storetest.Options{}, func(*testing.T) objstore.Store { return objstore.NewMem() })
}

func TestWrappersKeepTheContract(t *testing.T) {
	storetest.Run(t, storetest.Options{RaceKeys: 3}, func(t *testing.T) objstore.Store {
		s, err := objstore.WithPrefix(objstore.NewLedger(objstore.NewMem(), nil), "some/where/")
		if err != nil {
			t.Fatal(err)
		}
		return s
	})
}

func TestSharedMemIsOneStoreByName(t *testing.T) {
	a, b, other := objstore.SharedMem("shared-a"), objstore.SharedMem("shared-a"), objstore.SharedMem("shared-b")
	if err := a.Put(t.Context(), "k", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.Get(t.Context(), "k"); err != nil {
		t.Errorf("second handle: %v", err)
	}
	if _, _, err := other.Get(t.Context(), "k"); err == nil {
		t.Error("another name sees the object")
	}
	if a.URL() != "mem://shared-a" {
		t.Error(a.URL())
	}
}
