package lakehouse

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/objstore"
)

const (
	// maxRangeGap is how many unwanted bytes between two column chunks are read
	// along to save a request: about what a store sends in one request's latency.
	maxRangeGap = 128 << 10
	// maxRangeBytes bounds one request; larger ranges are fetched in parallel pieces.
	maxRangeBytes = 8 << 20
	// rangeReads bounds the requests in flight for one row group.
	rangeReads = 4
	// minWindowBytes is the least that is read ahead of one column chunk when a
	// row group does not fit its budget.
	minWindowBytes = 64 << 10
)

// byteRange is [start, start+length) in a file.
type byteRange struct{ start, length int64 }

func (r byteRange) end() int64 { return r.start + r.length }

// coalesce merges ranges whose gaps are small. The result ascends and is disjoint.
func coalesce(ranges []byteRange, maxGap int64) []byteRange {
	ranges = slices.Clone(ranges)
	slices.SortFunc(ranges, func(a, b byteRange) int { return cmp.Compare(a.start, b.start) })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && r.start-out[n-1].end() <= maxGap {
			out[n-1].length = max(out[n-1].end(), r.end()) - out[n-1].start
			continue
		}
		out = append(out, r)
	}
	return out
}

// chunkSource is the io.ReaderAt under the Parquet decoder of one row group. It
// holds the wanted column chunks, or a window of each that moves forward when
// they are too large to be held. One goroutine uses it.
type chunkSource struct {
	key    string
	size   int64
	parts  []sourcePart // ascending, disjoint
	window int64        // bytes read ahead per part; zero when the parts are whole
	read   func(start, n int64) ([]byte, error)
	pos    int64
}

type sourcePart struct {
	byteRange
	have byteRange // what data holds
	data []byte
}

// newChunkSource makes a source for some column chunks of one file. When they
// take at most budget bytes, fetch reads them all at once; else they are read
// in windows that share the budget.
func newChunkSource(ctx context.Context, store objstore.Store, key string, size int64, chunks []byteRange, budget int64) *chunkSource {
	s := &chunkSource{key: key, size: size}
	// A Parquet decoder's io.ReaderAt has no context of its own: the source
	// lives as long as one row group is decoded, within ctx.
	s.read = func(start, n int64) ([]byte, error) {
		data, _, err := store.GetRange(ctx, key, start, n)
		if err != nil {
			return nil, missingFile(key, err)
		}
		if int64(len(data)) != n {
			return nil, corruptFile(key, fmt.Errorf("read %d of %d bytes at %d", len(data), n, start))
		}
		return data, nil
	}
	ranges := coalesce(chunks, maxRangeGap)
	var total int64
	for _, r := range ranges {
		total += r.length
	}
	if total > budget {
		ranges = coalesce(chunks, 0)
		s.window = max(budget/int64(2*len(ranges)), minWindowBytes)
	}
	for _, r := range ranges {
		s.parts = append(s.parts, sourcePart{byteRange: r})
	}
	return s
}

// bytes is what the source holds in memory at most.
func (s *chunkSource) bytes() int64 {
	var total int64
	for _, p := range s.parts {
		if s.window > 0 {
			total += min(p.length, s.window)
		} else {
			total += p.length
		}
	}
	return total
}

// fetch reads whole parts ahead, several requests at a time. With windows it
// does nothing: they are read when the decoder comes to them.
func (s *chunkSource) fetch(ctx context.Context) error {
	if s.window > 0 {
		return nil
	}
	g, _ := errgroup.WithContext(ctx)
	g.SetLimit(rangeReads)
	for i := range s.parts {
		part := &s.parts[i]
		if part.length <= maxRangeBytes {
			g.Go(func() (err error) {
				part.data, err = s.read(part.start, part.length)
				return err
			})
			continue
		}
		part.data = make([]byte, part.length)
		for start := part.start; start < part.end(); start += maxRangeBytes {
			g.Go(func() error {
				piece, err := s.read(start, min(maxRangeBytes, part.end()-start))
				copy(part.data[start-part.start:], piece)
				return err
			})
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range s.parts {
		s.parts[i].have = s.parts[i].byteRange
	}
	return nil
}

// ReadAt reads what the decoder asks for: bytes in memory, the next window of a
// part, or (page indexes, which scans do not use) straight from the store.
func (s *chunkSource) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		at := off + int64(done)
		if at < 0 || at >= s.size || s.read == nil {
			return done, io.EOF
		}
		part := s.partAt(at)
		if part == nil {
			data, err := s.read(at, min(int64(len(p)-done), s.size-at))
			if err != nil {
				return done, err
			}
			done += copy(p[done:], data)
			continue
		}
		if at < part.have.start || at >= part.have.end() {
			if err := s.advance(part, at, int64(len(p)-done)); err != nil {
				return done, err
			}
		}
		done += copy(p[done:], part.data[at-part.have.start:])
	}
	return done, nil
}

// advance moves a part's window to at, over at least want bytes.
func (s *chunkSource) advance(part *sourcePart, at, want int64) error {
	n := min(max(s.window, min(want, maxRangeBytes)), part.end()-at)
	data, err := s.read(at, n)
	if err != nil {
		return err
	}
	part.data, part.have = data, byteRange{start: at, length: n}
	return nil
}

func (s *chunkSource) partAt(at int64) *sourcePart {
	i, found := slices.BinarySearchFunc(s.parts, at, func(p sourcePart, at int64) int { return cmp.Compare(p.start, at) })
	if !found {
		i--
	}
	if i < 0 || at >= s.parts[i].end() {
		return nil
	}
	return &s.parts[i]
}

// Seek is part of what the Parquet library wants of a source; it asks for the size with it.
func (s *chunkSource) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += s.pos
	case io.SeekEnd:
		offset += s.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start")
	}
	s.pos = offset
	return offset, nil
}
