package wal

import (
	"bytes"
	"encoding/binary"
	"io"
	"slices"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/firn-data/firn/internal/errs"
	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
	"github.com/firn-data/firn/wal/producers"
)

// The byte layout is specified in docs/format/checkpoint.md; change both
// together, and only under a new version.
const (
	checkpointMagic       = "FIRNCKP1"
	checkpointVersion     = 1
	checkpointHeaderBytes = 8 + 1 + 1 + 2 + 4 // magic, version, compression, zero, message length
	compressionZSTD       = 1

	// MaxCheckpointBytes bounds the message of one object before compression, and
	// maxCheckpointEntries the buckets that it names.
	MaxCheckpointBytes   = 256 << 20
	maxCheckpointEntries = 1 << 21
	// maxManifestProducers bounds the producers in one manifest.
	maxManifestProducers = producers.MaxProducers + producers.MaxIdempotencyKeys
)

// checkpoint is one checkpoint object in memory.
type checkpoint struct {
	ref       CheckpointRef
	covers    uint64
	manifests map[BucketID]*BucketManifest
	removed   map[BucketID]struct{}
	parts     []checkpointPart // newest first
}

type checkpointPart struct{ seq, entries uint64 }

func newCheckpoint(ref CheckpointRef, covers uint64) *checkpoint {
	return &checkpoint{ref: ref, covers: covers,
		manifests: make(map[BucketID]*BucketManifest), removed: make(map[BucketID]struct{})}
}

func (c *checkpoint) entries() int { return len(c.manifests) + len(c.removed) }

func (c *checkpoint) names(id BucketID) bool {
	_, removed := c.removed[id]
	return removed || c.manifests[id] != nil
}

// add reports false, and changes nothing, when the bucket is named already.
func (c *checkpoint) add(m *BucketManifest) bool {
	if c.names(m.Bucket) {
		return false
	}
	c.manifests[m.Bucket] = m
	return true
}

func (c *checkpoint) remove(id BucketID) bool {
	if c.names(id) {
		return false
	}
	c.removed[id] = struct{}{}
	return true
}

// absorb takes what an older object says of buckets that c does not name.
func (c *checkpoint) absorb(older *checkpoint) {
	for _, m := range older.manifests {
		c.add(m)
	}
	for id := range older.removed {
		c.remove(id)
	}
}

func (c *checkpoint) sorted() []BucketManifest {
	all := make([]BucketManifest, 0, len(c.manifests))
	for _, m := range c.manifests {
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b BucketManifest) int { return a.Bucket.Compare(b.Bucket) })
	return all
}

// broken says what no manifest may be, or "".
func (m *BucketManifest) broken() string {
	switch {
	case m.Bucket.Bucket < 0:
		return "negative bucket"
	case m.NextOffset < 0 || m.LakeOffset < 0 || m.EarliestOffset < 0:
		return "negative offset"
	case m.LakeOffset > m.NextOffset || m.EarliestOffset > m.NextOffset:
		return "offsets beyond the next one"
	}
	at := int64(0)
	for i := range m.Segments {
		s := &m.Segments[i]
		if s.BaseOffset < at || s.Rows < 0 || s.EndOffset() < s.BaseOffset || s.EndOffset() > m.NextOffset {
			return "segments overlap or leave the log"
		}
		if s.Index < 0 || s.Bytes < 0 || CheckIncarnation(s.Object.Incarnation) != nil {
			return "segment reference is not valid"
		}
		at = s.EndOffset()
	}
	for i := range m.Producers {
		if !m.Producers[i].Valid() {
			return "state of producer " + m.Producers[i].ID + " is not valid"
		}
	}
	return ""
}

// encode returns the object's bytes.
func (c *checkpoint) encode(n nonce) ([]byte, error) {
	if c.entries() > maxCheckpointEntries {
		return nil, errs.New(errs.TooLarge, "checkpoint of %d buckets exceeds %d", c.entries(), maxCheckpointEntries)
	}
	m := &pb.Checkpoint{Incarnation: c.ref.Incarnation, Sequence: c.ref.Seq, Nonce: n[:], CoversSequence: c.covers}
	incarnations := make(map[string]uint32)
	for _, manifest := range c.sorted() {
		m.Buckets = append(m.Buckets, manifestToProto(&manifest, func(inc string) uint32 {
			i, ok := incarnations[inc]
			if !ok {
				i = uint32(len(m.Incarnations))
				incarnations[inc] = i
				m.Incarnations = append(m.Incarnations, inc)
			}
			return i
		}))
	}
	for id := range c.removed {
		m.Removed = append(m.Removed, &pb.BucketID{TableId: id.Table, Bucket: id.Bucket})
	}
	slices.SortFunc(m.Removed, func(a, b *pb.BucketID) int { return bucketFromProto(a).Compare(bucketFromProto(b)) })
	for _, p := range c.parts {
		m.Parts = append(m.Parts, &pb.CheckpointPart{Sequence: p.seq, Entries: p.entries})
	}
	message, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode checkpoint", err)
	}
	return frameCheckpoint(message)
}

// frameCheckpoint puts header and checksum around a message.
func frameCheckpoint(message []byte) ([]byte, error) {
	if len(message) > MaxCheckpointBytes {
		return nil, errs.New(errs.TooLarge, "checkpoint of %d bytes exceeds %d", len(message), MaxCheckpointBytes)
	}
	b := append(make([]byte, 0, checkpointHeaderBytes+len(message)/2+64), checkpointMagic...)
	b = append(b, checkpointVersion, compressionZSTD, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(message)))
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "compress checkpoint", err)
	}
	b = enc.EncodeAll(message, b)
	return binary.LittleEndian.AppendUint32(b, crc32c(b)), nil
}

// unframeCheckpoint checks header and checksum and returns the message.
func unframeCheckpoint(name string, object []byte) ([]byte, error) {
	if len(object) < checkpointHeaderBytes+4 || string(object[:8]) != checkpointMagic {
		return nil, corrupt(name, 0, "no checkpoint magic")
	}
	if object[8] != checkpointVersion {
		return nil, corrupt(name, 8, "format version %d, this build reads %d", object[8], checkpointVersion)
	}
	end := len(object) - 4
	if crc32c(object[:end]) != binary.LittleEndian.Uint32(object[end:]) {
		return nil, corrupt(name, int64(end), "checksum differs")
	}
	length := binary.LittleEndian.Uint32(object[12:])
	if object[9] != compressionZSTD || length > MaxCheckpointBytes {
		return nil, corrupt(name, 9, "compression %d of %d bytes", object[9], length)
	}
	dec, err := zstd.NewReader(bytes.NewReader(object[checkpointHeaderBytes:end]),
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(MaxCheckpointBytes), zstd.WithDecoderMaxWindow(64<<20))
	if err != nil {
		return nil, corrupt(name, checkpointHeaderBytes, "%v", err)
	}
	defer dec.Close()
	// Read, not decoded into a buffer of the promised length: memory follows what
	// really comes.
	message, err := io.ReadAll(io.LimitReader(dec, int64(length)+1))
	if err != nil || uint32(len(message)) != length {
		return nil, corrupt(name, checkpointHeaderBytes, "%d bytes of %d after decompression: %v", len(message), length, err)
	}
	return message, nil
}

// decodeCheckpoint reads an object that should be ref (zero: any).
func decodeCheckpoint(name string, ref CheckpointRef, object []byte) (*checkpoint, error) {
	message, err := unframeCheckpoint(name, object)
	if err != nil {
		return nil, err
	}
	head, manifests, err := splitCheckpoint(name, message)
	if err != nil {
		return nil, err
	}
	c := newCheckpoint(CheckpointRef{head.GetIncarnation(), head.GetSequence()}, head.GetCoversSequence())
	if (!ref.IsZero() && c.ref != ref) || CheckIncarnation(c.ref.Incarnation) != nil || len(head.GetNonce()) != nonceBytes {
		return nil, corrupt(name, checkpointHeaderBytes, "object says that it is %s", c.ref.Key())
	}
	for _, raw := range manifests {
		m, why := decodeManifest(raw, head.GetIncarnations())
		if why == "" && !c.add(m) {
			why = "named twice"
		}
		if why != "" {
			return nil, corrupt(name, checkpointHeaderBytes, "manifest: %s", why)
		}
	}
	for _, id := range head.GetRemoved() {
		if !c.remove(bucketFromProto(id)) {
			return nil, corrupt(name, checkpointHeaderBytes, "bucket %s is named twice", bucketFromProto(id))
		}
	}
	below := c.ref.Seq
	for _, p := range head.GetParts() {
		if p.GetSequence() >= below {
			return nil, corrupt(name, checkpointHeaderBytes, "part %d does not come before %d", p.GetSequence(), below)
		}
		below = p.GetSequence()
		c.parts = append(c.parts, checkpointPart{p.GetSequence(), p.GetEntries()})
	}
	return c, nil
}

// splitCheckpoint parses everything but the manifests, whose bytes it returns: they
// are built one by one, so that memory follows what is valid.
func splitCheckpoint(name string, message []byte) (*pb.Checkpoint, [][]byte, error) {
	var manifests [][]byte
	var rest []byte
	entries := 0
	for b := message; len(b) > 0; {
		num, typ, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return nil, nil, corrupt(name, checkpointHeaderBytes, "no message")
		}
		n := protowire.ConsumeFieldValue(num, typ, b[tag:])
		if n < 0 {
			return nil, nil, corrupt(name, checkpointHeaderBytes, "no message")
		}
		if num >= 5 {
			entries++
		}
		if num == 5 && typ == protowire.BytesType { // buckets
			body, _ := protowire.ConsumeBytes(b[tag:])
			manifests = append(manifests, body)
		} else {
			rest = append(rest, b[:tag+n]...)
		}
		b = b[tag+n:]
		if entries > maxCheckpointEntries+maxParts {
			return nil, nil, corrupt(name, checkpointHeaderBytes, "more than %d entries", maxCheckpointEntries)
		}
	}
	head := new(pb.Checkpoint)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(rest, head); err != nil {
		return nil, nil, corrupt(name, checkpointHeaderBytes, "no message: %v", err)
	}
	if len(head.GetParts()) > maxParts {
		return nil, nil, corrupt(name, checkpointHeaderBytes, "%d parts", len(head.GetParts()))
	}
	return head, manifests, nil
}
