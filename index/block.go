package index

import (
	"encoding/binary"
	"hash/crc32"
	"sort"

	"github.com/firn-data/firn/internal/errs"
)

// A block is up to blockEntries entries of a run in the order of their keys. Its
// bytes are specified in docs/format/index.md; memory holds them as they are.
const (
	blockEntries     = 1024
	blockHeaderBytes = 8
	crcBytes         = 4
	maxBlockBytes    = blockHeaderBytes + keyBytes + blockEntries*(keyBytes+8) + crcBytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry is one key of a run. Nowhere means that the key was deleted.
type entry struct {
	key Key
	at  Location
}

// appendBlock appends the bytes of a block. entries are sorted, distinct, and at
// least one.
func appendBlock(dst []byte, entries []entry) []byte {
	start := len(dst)
	var first, last [keyBytes]byte
	entries[0].key.append(first[:0])
	entries[len(entries)-1].key.append(last[:0])
	shared := 0
	for shared < keyBytes-1 && first[shared] == last[shared] {
		shared++
	}
	var maxFile, maxRow uint64
	for _, e := range entries {
		file, row := fileWord(e.at)
		maxFile, maxRow = max(maxFile, file), max(maxRow, row)
	}
	fileWidth, rowWidth := widthOf(maxFile), widthOf(maxRow)
	dst = append(dst, byte(shared), byte(fileWidth), byte(rowWidth), 0) //nolint:gosec // below 16
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(entries)))   //nolint:gosec // at most blockEntries
	dst = append(dst, first[:shared]...)
	for _, e := range entries {
		var k [keyBytes]byte
		e.key.append(k[:0])
		dst = append(dst, k[shared:]...)
	}
	for _, e := range entries {
		file, _ := fileWord(e.at)
		dst = appendWord(dst, file, fileWidth)
	}
	for _, e := range entries {
		_, row := fileWord(e.at)
		dst = appendWord(dst, row, rowWidth)
	}
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

// fileWord returns what is stored of a location: its file plus one, so that zero
// is free for a deleted key, and its row.
func fileWord(l Location) (file, row uint64) {
	if l == Nowhere {
		return 0, 0
	}
	return uint64(l.File()) + 1, uint64(l.Row())
}

// widthOf returns how many bytes a number takes; 0 for 0.
func widthOf(n uint64) (width int) {
	for ; n > 0; n >>= 8 {
		width++
	}
	return width
}

func appendWord(dst []byte, n uint64, width int) []byte {
	for range width {
		dst = append(dst, byte(n))
		n >>= 8
	}
	return dst
}

// block is a checked block.
type block struct {
	prefix    []byte // of every key
	keys      []byte // suffixes
	files     []byte
	rows      []byte
	n         int
	suffix    int // bytes of a suffix
	fileWidth int
	rowWidth  int
}

// parseBlock checks a block's bytes, which the block keeps. why is "" if they are
// right.
func parseBlock(b []byte) (blk *block, why string) {
	if len(b) < blockHeaderBytes+crcBytes || len(b) > maxBlockBytes {
		return nil, "length"
	}
	body := b[:len(b)-crcBytes]
	if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(b[len(body):]) {
		return nil, "checksum"
	}
	shared := int(b[0])
	blk = &block{n: int(binary.LittleEndian.Uint32(b[4:])), suffix: keyBytes - shared, fileWidth: int(b[1]), rowWidth: int(b[2])}
	if shared >= keyBytes || blk.fileWidth > 5 || blk.rowWidth > 4 || blk.n < 1 || blk.n > blockEntries {
		return nil, "header"
	}
	rest := body[blockHeaderBytes:]
	if len(rest) != shared+blk.n*(blk.suffix+blk.fileWidth+blk.rowWidth) {
		return nil, "length"
	}
	cut := func(n int) (part []byte) { part, rest = rest[:n:n], rest[n:]; return part }
	blk.prefix, blk.keys = cut(shared), cut(blk.n*blk.suffix)
	blk.files, blk.rows = cut(blk.n*blk.fileWidth), cut(blk.n*blk.rowWidth)
	return blk, ""
}

func wordAt(b []byte, i, width int) (n uint64) {
	for at := width - 1; at >= 0; at-- {
		n = n<<8 | uint64(b[i*width+at])
	}
	return n
}

// location returns the location of entry i.
func (b *block) location(i int) Location {
	file := wordAt(b.files, i, b.fileWidth)
	if file == 0 {
		return Nowhere
	}
	return Location((file-1)<<32 | wordAt(b.rows, i, b.rowWidth))
}

// key returns the key of entry i.
func (b *block) key(i int) Key {
	var k [keyBytes]byte
	copy(k[:], b.prefix)
	copy(k[len(b.prefix):], b.keys[i*b.suffix:(i+1)*b.suffix])
	return keyFrom(k[:])
}

// search returns the first entry whose key is not below k.
func (b *block) search(k Key) int {
	return sort.Search(b.n, func(i int) bool { return b.key(i).Compare(k) >= 0 })
}

// find returns the location of a key.
func (b *block) find(k Key) (Location, bool) {
	i := b.search(k)
	if i == b.n || b.key(i) != k {
		return Nowhere, false
	}
	return b.location(i), true
}

// sorted reports whether the keys ascend.
func (b *block) sorted() bool {
	for i := 1; i < b.n; i++ {
		if b.key(i-1).Compare(b.key(i)) >= 0 {
			return false
		}
	}
	return true
}

// corrupt is the error for damaged bytes of an object.
func corrupt(object, what, why string) error {
	return errs.New(errs.Corrupt, "index object %s: %s: %s", object, what, why)
}
