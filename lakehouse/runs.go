package lakehouse

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/firn-data/firn/internal/errs"
)

// Run is a stretch of a data file's rows with consecutive offsets and one commit
// timestamp. Runs of a file are in row order, cover all of its rows, and their
// offsets ascend.
type Run struct {
	FirstRow    int64 // position in the file
	FirstOffset int64 // in the bucket's log
	Count       int64
	Timestamp   int64 // commit time, µs since the epoch
}

// RunsKey is the key of the runs in the Parquet footer's key-value metadata.
const RunsKey = "firn.rows"

// The encoding of runs; see docs/format/lake.md.
const (
	runsVersion    = 1
	runsPlain      = 0
	runsZstd       = 1
	runsCompressAt = 512 // bytes from which compression is tried
	runMinBytes    = 3   // of one run, uncompressed
	runMaxBytes    = 30
	// maxRunsBytes bounds what a decoder unpacks: 8 Mi runs at their largest.
	maxRunsBytes = 256 << 20
)

var runsCRC = crc32.MakeTable(crc32.Castagnoli)

var runsEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	if err != nil {
		panic("zstd options: " + err.Error())
	}
	return e
})

var runsDecoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxRunsBytes))
	if err != nil {
		panic("zstd options: " + err.Error())
	}
	return d
})

// AppendRun adds rows with consecutive offsets to the end of a file's runs,
// joining them with the last run when they continue it.
func AppendRun(runs []Run, firstOffset, count, timestamp int64) []Run {
	if count == 0 {
		return runs
	}
	var row int64
	if n := len(runs); n > 0 {
		last := &runs[n-1]
		if last.FirstOffset+last.Count == firstOffset && last.Timestamp == timestamp {
			last.Count += count
			return runs
		}
		row = last.FirstRow + last.Count
	}
	return append(runs, Run{FirstRow: row, FirstOffset: firstOffset, Count: count, Timestamp: timestamp})
}

// EncodeRuns returns the value of RunsKey: text, because Parquet metadata is.
func EncodeRuns(runs []Run) string {
	raw := make([]byte, 0, len(runs)*6)
	for _, r := range runs {
		raw = binary.AppendUvarint(raw, uint64(r.Count))
	}
	var end int64
	for _, r := range runs {
		raw = binary.AppendUvarint(raw, uint64(r.FirstOffset-end))
		end = r.FirstOffset + r.Count
	}
	var at int64
	for _, r := range runs {
		raw = binary.AppendVarint(raw, r.Timestamp-at)
		at = r.Timestamp
	}
	codec, body := byte(runsPlain), raw
	if len(raw) >= runsCompressAt {
		if packed := runsEncoder().EncodeAll(raw, nil); len(packed) < len(raw) {
			codec, body = runsZstd, packed
		}
	}
	out := []byte{runsVersion, codec}
	out = binary.AppendUvarint(out, uint64(len(runs)))
	out = binary.AppendUvarint(out, uint64(len(raw)))
	out = append(out, body...)
	out = binary.LittleEndian.AppendUint32(out, crc32.Checksum(out, runsCRC))
	return base64.RawStdEncoding.EncodeToString(out)
}

// ParseRuns reads the value of RunsKey of a file with that many rows. Anything
// that EncodeRuns could not have written is Corrupt.
func ParseRuns(text string, rows int64) ([]Run, error) {
	raw, n, err := openRuns(text, rows)
	if err != nil {
		return nil, err
	}
	runs := make([]Run, n)
	r := runsReader{raw: raw}
	var row int64
	for i := range runs {
		c := r.unsigned()
		if c <= 0 || c > rows-row {
			return nil, errs.New(errs.Corrupt, "runs: run %d has %d rows at row %d of %d", i, c, row, rows)
		}
		runs[i].FirstRow, runs[i].Count = row, c
		row += c
	}
	var end int64
	for i := range runs {
		gap := r.unsigned()
		if gap < 0 || gap > math.MaxInt64-end || runs[i].Count > math.MaxInt64-end-gap {
			return nil, errs.New(errs.Corrupt, "runs: run %d starts at an impossible offset", i)
		}
		runs[i].FirstOffset = end + gap
		end += gap + runs[i].Count
	}
	var at int64
	for i := range runs {
		at += r.signed()
		runs[i].Timestamp = at
	}
	if r.bad || len(r.raw) != 0 || row != rows {
		return nil, errs.New(errs.Corrupt, "runs: %d runs with %d of %d rows, %d bytes left", n, row, rows, len(r.raw))
	}
	return runs, nil
}

// openRuns checks the envelope and returns the uncompressed body and the number of runs.
func openRuns(text string, rows int64) ([]byte, int, error) {
	corrupt := func(what string) ([]byte, int, error) { return nil, 0, errs.New(errs.Corrupt, "runs: %s", what) }
	in, err := base64.RawStdEncoding.DecodeString(text)
	if err != nil || len(in) < 8 {
		return corrupt("not base64, or too short")
	}
	sum := binary.LittleEndian.Uint32(in[len(in)-4:])
	in = in[:len(in)-4]
	if crc32.Checksum(in, runsCRC) != sum {
		return corrupt("checksum mismatch")
	}
	if in[0] != runsVersion {
		return nil, 0, errs.New(errs.Unsupported, "runs: format version %d is newer than this program", in[0])
	}
	r := runsReader{raw: in[2:]}
	n, size := r.unsigned(), r.unsigned()
	if r.bad || n < 0 || n > rows || size < n*runMinBytes || size > n*runMaxBytes || size > maxRunsBytes {
		return corrupt("impossible counts")
	}
	body := r.raw
	switch in[1] {
	case runsPlain:
	case runsZstd:
		var h zstd.Header
		if err := h.Decode(body); err != nil || !h.HasFCS || h.FrameContentSize != uint64(size) {
			return corrupt("bad compressed frame")
		}
		if body, err = runsDecoder().DecodeAll(body, make([]byte, 0, size)); err != nil {
			return corrupt("bad compressed frame")
		}
	default:
		return corrupt("unknown codec")
	}
	if int64(len(body)) != size {
		return corrupt("wrong length")
	}
	return body, int(n), nil
}

type runsReader struct {
	raw []byte
	bad bool
}

func (r *runsReader) unsigned() int64 {
	v, n := binary.Uvarint(r.raw)
	if n <= 0 || v > math.MaxInt64 {
		r.bad, r.raw = true, nil
		return -1
	}
	r.raw = r.raw[n:]
	return int64(v)
}

func (r *runsReader) signed() int64 {
	v, n := binary.Varint(r.raw)
	if n <= 0 {
		r.bad, r.raw = true, nil
		return 0
	}
	r.raw = r.raw[n:]
	return v
}
