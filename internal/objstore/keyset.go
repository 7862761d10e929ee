package objstore

import (
	"slices"
	"sort"
)

// keySet is a sorted set of keys as a list of sorted chunks: inserts and
// removals move at most one chunk, and iteration resumes after any key.
type keySet struct {
	chunks [][]string // no chunk is empty
}

// maxChunk keys make a chunk split in two.
const maxChunk = 512

// chunkFor returns the index of the last chunk that starts at or before key (or
// the first chunk).
func (s *keySet) chunkFor(key string) int {
	i := sort.Search(len(s.chunks), func(i int) bool { return s.chunks[i][0] > key })
	return max(0, i-1)
}

func (s *keySet) add(key string) {
	if len(s.chunks) == 0 {
		s.chunks = [][]string{{key}}
		return
	}
	i := s.chunkFor(key)
	at, found := slices.BinarySearch(s.chunks[i], key)
	if found {
		return
	}
	c := slices.Insert(s.chunks[i], at, key)
	s.chunks[i] = c
	if len(c) > maxChunk {
		half := len(c) / 2
		s.chunks[i] = slices.Clone(c[:half])
		s.chunks = slices.Insert(s.chunks, i+1, slices.Clone(c[half:]))
	}
}

func (s *keySet) remove(key string) {
	if len(s.chunks) == 0 {
		return
	}
	i := s.chunkFor(key)
	at, found := slices.BinarySearch(s.chunks[i], key)
	if !found {
		return
	}
	s.chunks[i] = slices.Delete(s.chunks[i], at, at+1)
	if len(s.chunks[i]) == 0 {
		s.chunks = slices.Delete(s.chunks, i, i+1)
	}
}

// after calls f with the keys at or after from, in order, until f returns false.
func (s *keySet) after(from string, f func(key string) bool) {
	if len(s.chunks) == 0 {
		return
	}
	i := s.chunkFor(from)
	at, _ := slices.BinarySearch(s.chunks[i], from)
	for ; i < len(s.chunks); i, at = i+1, 0 {
		for _, key := range s.chunks[i][at:] {
			if !f(key) {
				return
			}
		}
	}
}
