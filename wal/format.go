package wal

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/firn-data/firn/internal/errs"
)

// The byte layout is specified in docs/format/wal.md; change both together, and
// only under a new version.
const (
	headMagic     = "FIRNWAL1"
	tailMagic     = "FIRNWEND"
	formatVersion = 1

	fixedHeaderBytes = 8 + 1 + 1 + 1 + 1 + 4 + 8 + nonceBytes // before the incarnation's bytes
	trailerBytes     = 4 + 4 + 8                              // footer length, CRC-32C, magic
	nonceBytes       = 16
	alignBytes       = 8 // headers and bodies start on multiples of this

	// suffixBytes is the first read of a footer. Footers of some hundred
	// segments fit; a longer one costs a second read.
	suffixBytes = 64 << 10
)

// Bounds on what a reader accepts and a writer makes.
const (
	// MaxFooterBytes bounds a footer. The writer cuts an object long before.
	MaxFooterBytes = 64 << 20
	// MaxSegments bounds the segments of one object.
	MaxSegments = 1 << 16
	// MaxColumnChunks bounds the column chunks of one object, over all segments.
	MaxColumnChunks = 1 << 19
	// maxCutColumns bounds the columns, nested ones counted, of an object that the
	// writer cuts. At some 200 bytes each a footer stays far below MaxFooterBytes.
	maxCutColumns = 1 << 16
	// maxDeltas bounds the producer deltas of one object, over all segments.
	maxDeltas = 1 << 19
)

// kind tells what an object is.
type kind uint8

const (
	kindData  kind = 1
	kindFence kind = 2
)

func (k kind) String() string {
	switch k {
	case kindData:
		return "data"
	case kindFence:
		return "fence"
	}
	return "unknown"
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func crc32c(b []byte) uint32 { return crc32.Checksum(b, castagnoli) }

// nonce tells one put from any other at the same name.
type nonce [nonceBytes]byte

// nonceOf returns the nonce in the header of an object of ours.
func nonceOf(object []byte) []byte { return object[fixedHeaderBytes-nonceBytes : fixedHeaderBytes] }

// header is the start of a WAL object.
type header struct {
	kind  kind
	codec uint8
	id    ObjectID
	nonce nonce
}

// size returns the header's length in the object.
func (h *header) size() int {
	n := fixedHeaderBytes + len(h.id.Incarnation) + 4
	return (n + alignBytes - 1) / alignBytes * alignBytes
}

// append writes the header: magic, version, kind, codec, incarnation length,
// header length, sequence, nonce, incarnation, padding, CRC-32C.
func (h *header) append(b []byte) []byte {
	begin, size := len(b), h.size()
	b = append(b, headMagic...)
	b = append(b, formatVersion, byte(h.kind), h.codec, byte(len(h.id.Incarnation)))
	b = binary.LittleEndian.AppendUint32(b, uint32(size))
	b = binary.LittleEndian.AppendUint64(b, h.id.Seq)
	b = append(b, h.nonce[:]...)
	b = append(b, h.id.Incarnation...)
	for len(b)-begin < size-4 {
		b = append(b, 0)
	}
	return binary.LittleEndian.AppendUint32(b, crc32c(b[begin:]))
}

// parseHeader reads the header at the start of an object; name is for messages.
func parseHeader(name string, b []byte) (header, int, error) {
	var h header
	if len(b) < fixedHeaderBytes || string(b[:8]) != headMagic {
		return h, 0, corrupt(name, 0, "no WAL magic")
	}
	if b[8] != formatVersion {
		return h, 0, corrupt(name, 8, "format version %d, this build reads %d", b[8], formatVersion)
	}
	size := int(binary.LittleEndian.Uint32(b[12:]))
	h.kind, h.codec = kind(b[9]), b[10]
	incLen := int(b[11])
	h.id.Seq = binary.LittleEndian.Uint64(b[16:])
	copy(h.nonce[:], b[24:])
	if len(b) < fixedHeaderBytes+incLen {
		return h, 0, corrupt(name, fixedHeaderBytes, "header is cut")
	}
	h.id.Incarnation = string(b[fixedHeaderBytes : fixedHeaderBytes+incLen])
	if size != h.size() || len(b) < size {
		return h, 0, corrupt(name, 12, "header length %d does not fit", size)
	}
	if want := binary.LittleEndian.Uint32(b[size-4:]); want != crc32c(b[:size-4]) {
		return h, 0, corrupt(name, int64(size-4), "header checksum differs")
	}
	if h.kind != kindData && h.kind != kindFence {
		return h, 0, corrupt(name, 9, "object kind %d", h.kind)
	}
	if err := CheckIncarnation(h.id.Incarnation); err != nil {
		return h, 0, corrupt(name, fixedHeaderBytes, "%v", err)
	}
	return h, size, nil
}

// Position is where in an object something is wrong; it stands in the details of
// Corrupt errors.
type Position struct {
	Object string `json:"object"`
	Byte   int64  `json:"byte"`
}

func corrupt(name string, at int64, format string, args ...any) error {
	e := errs.New(errs.Corrupt, format, args...)
	return &errs.Error{
		Class: errs.Corrupt, Op: "read " + name, Cause: e,
		Msg: "corrupt at byte " + itoa(at), Details: []any{Position{name, at}},
	}
}
