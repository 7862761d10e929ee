package index

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"sort"
	"sync/atomic"

	"github.com/FastFilter/xorfilter"
	"google.golang.org/protobuf/proto"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
)

const suffixBytes = 64 << 10 // of the first read of a run

// Run is an open run: its block index, and what was read of its filters and
// blocks. It is safe for concurrent use.
type Run struct {
	store   objstore.Store
	cache   *Cache
	key     string
	entries int64
	parts   []runPart
	firsts  []Key // of all blocks
	blocks  []blockPlace
	loaded  []atomic.Pointer[cachedBlock]
}

// runPart is up to 2^20 entries that share a filter.
type runPart struct {
	blocks  [2]int // half-open, of the run's blocks
	meta    *pb.IndexFilter
	reading chan struct{} // holds a token; whoever has it reads the filter
	filter  atomic.Pointer[xorfilter.BinaryFuse8]
}

type blockPlace struct {
	offset int64
	length int32
	part   int32
}

// OpenRun reads the footer of a run: one GET, two if the footer is long. key is
// the object's, o the bucket that it must belong to. Errors are Corrupt, and those
// of the store.
func OpenRun(ctx context.Context, c *Cache, key string, o Owner) (*Run, error) {
	tail, info, err := c.store.GetRange(ctx, key, -1, suffixBytes)
	if err != nil {
		return nil, errs.In("open index run", err)
	}
	if n := len(tail); n > 0 && bytes.HasPrefix(tail[max(0, n-8):], []byte(runEndMagic)) && tail[n-1] != formatVersion {
		return nil, errs.New(errs.Unsupported, "index object %s: format version %d is not known; a newer firn wrote it", key, tail[n-1])
	}
	length, why := trailerLength(tail)
	if why == "" && int64(length)+trailerBytes > info.Size {
		why = "longer than the object"
	}
	if why != "" {
		return nil, corrupt(key, "footer", why)
	}
	if need := int64(length) + trailerBytes; need > int64(len(tail)) {
		if tail, _, err = c.store.GetRange(ctx, key, -1, need); err != nil {
			return nil, errs.In("open index run", err)
		}
	}
	message, why := messageOf(tail, length)
	if why != "" {
		return nil, corrupt(key, "footer", why)
	}
	footer := &pb.IndexRunFooter{}
	if err := proto.Unmarshal(message, footer); err != nil {
		return nil, corrupt(key, "footer", err.Error())
	}
	r := &Run{store: c.store, cache: c, key: key}
	if why := r.read(footer, o, info.Size-int64(length)-trailerBytes); why != "" {
		return nil, corrupt(key, "footer", why)
	}
	return r, nil
}

// trailerLength reads the length of the message before a trailer.
func trailerLength(tail []byte) (length int, why string) {
	if len(tail) < trailerBytes || string(tail[len(tail)-8:len(tail)-1]) != runEndMagic {
		return 0, "no trailer"
	}
	n := binary.LittleEndian.Uint32(tail[len(tail)-trailerBytes:])
	if n > maxFooterBytes {
		return 0, "too long"
	}
	return int(n), ""
}

func messageOf(tail []byte, length int) (message []byte, why string) {
	t := tail[len(tail)-trailerBytes:]
	if length > len(tail)-trailerBytes {
		return nil, "cut off"
	}
	message = tail[len(tail)-trailerBytes-length : len(tail)-trailerBytes]
	if crc32.Update(crc32.Checksum(message, castagnoli), castagnoli, t[:4]) != binary.LittleEndian.Uint32(t[4:]) {
		return nil, "checksum"
	}
	return message, ""
}

// read takes the footer over; end is where the object's blocks and filters end.
func (r *Run) read(f *pb.IndexRunFooter, o Owner, end int64) (why string) {
	if f.GetTableId() != o.Table || f.GetBucket() != o.Bucket {
		return "of another bucket"
	}
	at := int64(runHeaderBytes)
	r.parts = make([]runPart, len(f.GetParts()))
	for i, p := range f.GetParts() {
		n := len(p.GetBlockLengths())
		if n == 0 || n != len(p.GetBlockFirstHi()) || n != len(p.GetBlockFirstLo()) || p.GetEntries() > partEntries ||
			uint64(n) != (p.GetEntries()+blockEntries-1)/blockEntries || p.GetOffset() != uint64(at) { //nolint:gosec // not negative
			return "blocks of a part"
		}
		r.parts[i].blocks = [2]int{len(r.blocks), len(r.blocks) + n}
		for j, length := range p.GetBlockLengths() {
			k := Key{p.GetBlockFirstHi()[j], p.GetBlockFirstLo()[j]}
			if length > maxBlockBytes || at+int64(length) > end || len(r.firsts) > 0 && r.firsts[len(r.firsts)-1].Compare(k) >= 0 {
				return "block out of place"
			}
			r.firsts = append(r.firsts, k)
			r.blocks = append(r.blocks, blockPlace{at, int32(length), int32(i)}) //nolint:gosec // bounded above
			at += int64(length)
		}
		if why := checkFilter(p.GetFilter(), at, end); why != "" {
			return why
		}
		r.parts[i].meta, r.parts[i].reading = p.GetFilter(), make(chan struct{}, 1)
		r.parts[i].reading <- struct{}{}
		at += int64(p.GetFilter().GetLength()) //nolint:gosec // checked
		r.entries += int64(p.GetEntries())     //nolint:gosec // bounded above
	}
	if at != end || uint64(r.entries) != f.GetEntries() || r.entries == 0 { //nolint:gosec // not negative
		return "counts"
	}
	r.loaded = make([]atomic.Pointer[cachedBlock], len(r.blocks))
	return ""
}

// checkFilter says what of a filter's parameters would lead beyond its bytes.
func checkFilter(f *pb.IndexFilter, at, end int64) string {
	segment := uint64(f.GetSegmentLength())
	switch {
	case f == nil || f.GetOffset() != uint64(at): //nolint:gosec // not negative
		return "filter out of place"
	case f.GetLength() > uint64(end-at): //nolint:gosec // not negative
		return "filter beyond the end"
	case segment == 0 || segment&(segment-1) != 0 ||
		uint64(f.GetSegmentCountLength()) != uint64(f.GetSegmentCount())*segment ||
		f.GetLength() != (uint64(f.GetSegmentCount())+2)*segment:
		return "filter parameters"
	}
	return ""
}

// Entries returns the number of keys, deleted ones included.
func (r *Run) Entries() int64 { return r.entries }

// blockOf returns the block that a key would be in; -1 if it lies before the first.
func (r *Run) blockOf(k Key) int {
	return sort.Search(len(r.firsts), func(i int) bool { return r.firsts[i].Compare(k) > 0 }) - 1
}

// mayHold asks the filter about a key in a block. The filter is read when it is
// first asked.
func (r *Run) mayHold(ctx context.Context, block int, k Key) (bool, error) {
	p := &r.parts[r.blocks[block].part]
	f := p.filter.Load()
	if f == nil {
		var err error
		if f, err = r.loadFilter(ctx, p); err != nil {
			return false, err
		}
	}
	return f.Contains(k.word()), nil
}

func (r *Run) loadFilter(ctx context.Context, p *runPart) (*xorfilter.BinaryFuse8, error) {
	select { // no lock: this is I/O, and a caller may give up
	case <-p.reading:
		defer func() { p.reading <- struct{}{} }()
	case <-ctx.Done():
		return nil, errs.Wrap(errs.Canceled, "read index filter", ctx.Err())
	}
	if f := p.filter.Load(); f != nil {
		return f, nil
	}
	m := p.meta
	b, _, err := r.store.GetRange(ctx, r.key, int64(m.GetOffset()), int64(m.GetLength())) //nolint:gosec // checked
	if err != nil {
		return nil, errs.In("read index filter", err)
	}
	if uint64(len(b)) != m.GetLength() || crc32.Checksum(b, castagnoli) != m.GetCrc32C() {
		return nil, corrupt(r.key, "filter", "checksum")
	}
	f := &xorfilter.BinaryFuse8{
		Seed: m.GetSeed(), SegmentLength: m.GetSegmentLength(), SegmentLengthMask: m.GetSegmentLength() - 1,
		SegmentCount: m.GetSegmentCount(), SegmentCountLength: m.GetSegmentCountLength(), Fingerprints: b,
	}
	p.filter.Store(f)
	return f, nil
}
