package index

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"

	"github.com/FastFilter/xorfilter"
	"google.golang.org/protobuf/proto"

	"github.com/firn-data/firn/internal/errs"
	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
)

// The bytes of a run are specified in docs/format/index.md; change both together,
// and only under a new version.
const (
	runMagic       = "FIRNRUN1"
	runEndMagic    = "FIRNRND" // and the version
	formatVersion  = 1
	runHeaderBytes = 16
	trailerBytes   = 4 + 4 + 8
	partEntries    = 1 << 20 // entries that share a filter: what building one may hold in memory
	nonceBytes     = 16

	// maxFooterBytes bounds the footer of a run.
	maxFooterBytes = 64 << 20
)

// Owner is the bucket that an index object belongs to.
type Owner struct {
	Table  uint64
	Bucket int32
}

// RunWriter encodes a run. Add its entries in the order of their keys, then
// Finish. It holds the run's bytes, and up to 2^20 words for a filter.
type RunWriter struct {
	footer  *pb.IndexRunFooter
	body    bytes.Buffer
	part    *pb.IndexPart
	block   []entry
	words   []uint64
	filters xorfilter.BinaryFuseBuilder
	last    Key
}

// NewRunWriter begins a run with a fresh nonce of 16 bytes.
func NewRunWriter(o Owner, nonce [nonceBytes]byte) *RunWriter {
	w := &RunWriter{footer: &pb.IndexRunFooter{TableId: o.Table, Bucket: o.Bucket, Nonce: nonce[:]}}
	var header [runHeaderBytes]byte
	copy(header[:], runMagic)
	header[len(runMagic)] = formatVersion
	w.body.Write(header[:])
	return w
}

// Add appends a key; Nowhere marks it deleted.
func (w *RunWriter) Add(k Key, at Location) error {
	if w.footer.Entries > 0 && w.last.Compare(k) >= 0 {
		return errs.New(errs.Internal, "index run: key %x follows %x", k, w.last)
	}
	w.last = k
	w.footer.Entries++
	if at == Nowhere {
		w.footer.Deletions++
	}
	w.block = append(w.block, entry{k, at})
	w.words = append(w.words, k.word())
	if len(w.block) == blockEntries {
		w.endBlock()
	}
	if len(w.words) == partEntries {
		return w.endPart()
	}
	return nil
}

// Len returns the number of entries so far.
func (w *RunWriter) Len() uint64 { return w.footer.Entries }

func (w *RunWriter) endBlock() {
	if len(w.block) == 0 {
		return
	}
	if w.part == nil {
		w.part = &pb.IndexPart{Offset: uint64(w.body.Len())} //nolint:gosec // not negative
	}
	first := w.block[0].key
	b := appendBlock(w.body.AvailableBuffer(), w.block)
	w.part.Entries += uint64(len(w.block))
	w.part.BlockLengths = append(w.part.BlockLengths, uint32(len(b))) //nolint:gosec // below maxBlockBytes
	w.part.BlockFirstHi = append(w.part.BlockFirstHi, first.Hi)
	w.part.BlockFirstLo = append(w.part.BlockFirstLo, first.Lo)
	w.body.Write(b)
	w.block = w.block[:0]
}

// endPart closes the part with its filter.
func (w *RunWriter) endPart() error {
	w.endBlock()
	if w.part == nil {
		return nil
	}
	f, err := xorfilter.BuildBinaryFuse[uint8](&w.filters, w.words)
	if err != nil {
		return errs.Wrap(errs.Internal, "build index filter", err)
	}
	w.part.Filter = &pb.IndexFilter{
		Offset: uint64(w.body.Len()), Length: uint64(len(f.Fingerprints)), Crc32C: crc32.Checksum(f.Fingerprints, castagnoli), //nolint:gosec // not negative
		Seed: f.Seed, SegmentLength: f.SegmentLength, SegmentCountLength: f.SegmentCountLength, SegmentCount: f.SegmentCount,
	}
	w.body.Write(f.Fingerprints)
	w.footer.Parts = append(w.footer.Parts, w.part)
	w.part, w.words = nil, w.words[:0]
	return nil
}

// Finish returns the run's bytes. A run without entries is none: nil.
func (w *RunWriter) Finish() ([]byte, error) {
	if w.footer.Entries == 0 {
		return nil, nil
	}
	if err := w.endPart(); err != nil {
		return nil, err
	}
	footer, err := proto.Marshal(w.footer)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode index run", err)
	}
	if len(footer) > maxFooterBytes {
		return nil, errs.New(errs.TooLarge, "index run: its footer of %d bytes is over %d", len(footer), maxFooterBytes)
	}
	w.body.Write(footer)
	w.body.Write(trailer(footer))
	return w.body.Bytes(), nil
}

// trailer follows a run's footer: its length, its checksum and that of the length,
// a magic, the version.
func trailer(message []byte) []byte {
	t := binary.LittleEndian.AppendUint32(make([]byte, 0, trailerBytes), uint32(len(message))) //nolint:gosec // bounded by the caller
	sum := crc32.Update(crc32.Checksum(message, castagnoli), castagnoli, t)
	t = binary.LittleEndian.AppendUint32(t, sum)
	return append(append(t, runEndMagic...), formatVersion)
}
