package segments

import (
	"encoding/binary"
	"runtime"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/firn-data/firn/internal/errs"
)

// Codec says how the buffers of a segment are compressed. A body is
// self-describing, so decoding does not need it.
type Codec uint8

// The codecs.
const (
	CodecNone Codec = iota
	CodecLZ4        // LZ4 frames of independent blocks
	CodecZSTD       // Zstandard frames at the fastest level
)

// String returns the codec's name as configuration writes it.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecLZ4:
		return "lz4"
	case CodecZSTD:
		return "zstd"
	}
	return "unknown"
}

// ParseCodec reads a codec's name.
func ParseCodec(s string) (Codec, error) {
	for c := CodecNone; c <= CodecZSTD; c++ {
		if c.String() == s {
			return c, nil
		}
	}
	return 0, errs.New(errs.Invalid, "unknown codec %q; the codecs are none, lz4 and zstd", s)
}

const (
	// minCompress is the smallest buffer worth compressing: below it a frame's
	// own header eats the gain.
	minCompress = 64
	// prefixBytes is the length of a stored buffer's prefix: its uncompressed
	// length, or rawPrefix.
	prefixBytes = 8
	rawPrefix   = -1
	// maxRatio is above what either codec can reach (a Zstandard block makes at
	// most 128 KiB out of 4 bytes), so a larger claim is a lie.
	maxRatio = 1 << 15
)

// zstdEncoder has as many encoders as there are processors; EncodeAll calls
// past that wait for one. Checksums are ours (CRC-32C by column).
var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false),
		zstd.WithEncoderConcurrency(runtime.GOMAXPROCS(0)))
	if err != nil {
		panic("segments: options of the zstd encoder: " + err.Error())
	}
	return e
})

// zstdDecoder writes into the room that the caller gives and no further.
var zstdDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(runtime.GOMAXPROCS(0)), zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderMaxMemory(MaxSegmentBytes), zstd.IgnoreChecksum(true))
	if err != nil {
		panic("segments: options of the zstd decoder: " + err.Error())
	}
	return d
})

const (
	zstdMagic = 0xFD2FB528
	lz4Magic  = 0x184D2204
	// lz4BlockBytes is the block size that lz4Header declares.
	lz4BlockBytes = 4 << 20
	lz4RawBlock   = 1 << 31
)

// lz4Header starts every LZ4 frame that Firn writes and the only one it reads:
// independent blocks of at most 4 MiB, no checksums, no content size.
var lz4Header = [7]byte{0x04, 0x22, 0x4D, 0x18, 0x60, 0x70, 0x73}

// appendBuffer appends a stored buffer, prefix first, to dst. An empty buffer
// is stored as nothing.
func appendBuffer(dst, raw []byte, c Codec) []byte {
	if len(raw) == 0 {
		return dst
	}
	start := len(dst)
	if c != CodecNone && len(raw) >= minCompress {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(len(raw)))
		if c == CodecZSTD {
			dst = zstdEncoder().EncodeAll(raw, dst)
		} else {
			dst = appendLZ4(dst, raw)
		}
		if len(dst)-start-prefixBytes < len(raw) {
			return dst
		}
		dst = dst[:start]
	}
	dst = append(dst, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	return append(dst, raw...)
}

func appendLZ4(dst, raw []byte) []byte {
	dst = append(dst, lz4Header[:]...)
	for len(raw) > 0 {
		block := raw[:min(len(raw), lz4BlockBytes)]
		raw = raw[len(block):]
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		dst = append(dst, block...) // room of the block's own length, and its bytes if it does not shrink
		n, err := lz4.CompressBlock(block, dst[at+4:], nil)
		if err != nil || n <= 0 || n >= len(block) {
			copy(dst[at+4:], block)
			binary.LittleEndian.PutUint32(dst[at:], uint32(len(block))|lz4RawBlock)
			continue
		}
		binary.LittleEndian.PutUint32(dst[at:], uint32(n))
		dst = dst[:at+4+n]
	}
	return append(dst, 0, 0, 0, 0)
}

// storedLength returns how many bytes a stored buffer holds when decompressed.
func storedLength(stored []byte) (int64, error) {
	if len(stored) == 0 {
		return 0, nil
	}
	if len(stored) <= prefixBytes {
		return 0, errs.New(errs.Corrupt, "a stored buffer has %d bytes", len(stored))
	}
	n := int64(binary.LittleEndian.Uint64(stored))
	payload := int64(len(stored) - prefixBytes)
	if n == rawPrefix {
		return payload, nil
	}
	if n <= 0 || n > MaxSegmentBytes || n > payload*maxRatio {
		return 0, errs.New(errs.Corrupt, "a stored buffer of %d bytes claims %d", len(stored), n)
	}
	return n, nil
}

// readBuffer decompresses a stored buffer into dst, which has exactly the
// length that storedLength told.
func readBuffer(dst, stored []byte) error {
	if len(stored) == 0 {
		return nil
	}
	payload := stored[prefixBytes:]
	if int64(binary.LittleEndian.Uint64(stored)) == rawPrefix {
		copy(dst, payload)
		return nil
	}
	if len(payload) < 4 {
		return errs.New(errs.Corrupt, "a compressed buffer has %d bytes", len(payload))
	}
	switch binary.LittleEndian.Uint32(payload) {
	case zstdMagic:
		out, err := zstdDecoder().DecodeAll(payload, dst[:0:len(dst)])
		if err != nil || len(out) != len(dst) {
			return errs.New(errs.Corrupt, "zstd gave %d bytes of %d: %v", len(out), len(dst), err)
		}
		return nil
	case lz4Magic:
		return readLZ4(dst, payload)
	}
	return errs.New(errs.Corrupt, "a compressed buffer starts with neither codec's magic number")
}

func readLZ4(dst, frame []byte) error {
	if len(frame) < len(lz4Header) || [len(lz4Header)]byte(frame) != lz4Header {
		return errs.New(errs.Corrupt, "an LZ4 frame has a foreign header")
	}
	frame = frame[len(lz4Header):]
	for {
		if len(frame) < 4 {
			return errs.New(errs.Corrupt, "an LZ4 frame is cut short")
		}
		size := binary.LittleEndian.Uint32(frame)
		frame = frame[4:]
		if size == 0 {
			break
		}
		raw := size&lz4RawBlock != 0
		if size &^= lz4RawBlock; uint64(size) > uint64(len(frame)) {
			return errs.New(errs.Corrupt, "an LZ4 block is cut short")
		}
		block := frame[:size]
		frame = frame[size:]
		if raw {
			if len(block) > len(dst) {
				return errs.New(errs.Corrupt, "an LZ4 frame holds too much")
			}
			dst = dst[copy(dst, block):]
			continue
		}
		room := dst[:min(len(dst), lz4BlockBytes)]
		n, err := lz4.UncompressBlock(block, room)
		if err != nil {
			return errs.New(errs.Corrupt, "an LZ4 block is damaged: %v", err)
		}
		dst = dst[n:]
	}
	if len(dst) != 0 || len(frame) != 0 {
		return errs.New(errs.Corrupt, "an LZ4 frame holds %d bytes too few, %d stand after it", len(dst), len(frame))
	}
	return nil
}
