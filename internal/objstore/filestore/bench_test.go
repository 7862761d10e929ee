package filestore

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
)

func BenchmarkPutIfAbsent(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, err := Open(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			body := make([]byte, 16<<10)
			var n atomic.Int64
			b.SetParallelism(writers)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if outcome, err := s.PutIfAbsent(b.Context(), fmt.Sprintf("wal/x/%020d", n.Add(1)), body); outcome != objstore.Created {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkRawWrite is the ceiling: one file, one fsync of it.
func BenchmarkRawWrite(b *testing.B) {
	dir, body, n := b.TempDir(), make([]byte, 16<<10), 0
	for b.Loop() {
		n++
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(n)))
		if err != nil {
			b.Fatal(err)
		}
		if _, err := f.Write(body); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		if err := f.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
