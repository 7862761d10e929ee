package segments

import (
	"bytes"
	"hash/crc32"
	"math"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoders are reused with their scratch space, and bodies once their owner has
// done with them; what grew past maxScratch is dropped instead.
var (
	encoders = sync.Pool{New: func() any { return new(encoder) }}
	bodies   = sync.Pool{New: func() any { return new([]byte) }}
)

const (
	maxScratch = 16 << 20
	// keepBody is the size from which a body is handed out as it is instead of
	// copied to a block of its own length.
	keepBody = 64 << 10
)

type encoder struct {
	codec Codec
	body  []byte
	raw   int64
	chunk ColumnChunk
	runs  []run

	// Where several runs are joined, by use: the statistics look at all of them.
	bitmap, flags, words, values []byte
}

// Encode writes rec, whose columns are those of s in order, as a segment's
// body. It keeps nothing of rec, which may be sliced. A batch that does not
// fit the schema is Invalid, one over MaxSegmentBytes TooLarge.
func Encode(rec arrow.RecordBatch, s *Schema, c Codec) (*Encoded, error) {
	return EncodeAll([]arrow.RecordBatch{rec}, s, c)
}

// EncodeAll is Encode of the rows of all batches, one after the other. The batches
// are not joined: only the buffer that is being compressed is, in memory that is
// used again.
func EncodeAll(recs []arrow.RecordBatch, s *Schema, c Codec) (*Encoded, error) {
	out := &Encoded{Columns: make([]ColumnChunk, 0, len(s.Fields))}
	for _, rec := range recs {
		if err := checkBatch(rec, s); err != nil {
			return nil, errs.In("encode segment", err)
		}
		out.Rows += rec.NumRows()
	}
	if out.Rows > math.MaxInt32 {
		return nil, errs.New(errs.TooLarge, "encode segment: %d rows are too many for one", out.Rows)
	}
	e := encoders.Get().(*encoder)
	defer e.put()
	e.codec = c
	if e.body == nil {
		e.body = *bodies.Get().(*[]byte)
	}
	for i, f := range s.Fields {
		e.runs = e.runs[:0]
		for _, rec := range recs {
			if d := rec.Column(i).Data(); d.Len() > 0 {
				e.runs = append(e.runs, run{d, d.Offset(), d.Len()})
			}
		}
		if err := e.column(f, int(out.Rows)); err != nil {
			return nil, errs.In("encode column "+f.Name, err)
		}
		out.Columns = append(out.Columns, e.chunk)
	}
	if len(e.body) < keepBody {
		out.Body = bytes.Clone(e.body)
	} else {
		out.Body, e.body = e.body, nil
	}
	return out, nil
}

// column appends a column of n rows to the body, and describes it in e.chunk.
func (e *encoder) column(f Field, n int) error {
	start := len(e.body)
	nodes, buffers := f.Type.layout()
	e.chunk = ColumnChunk{FieldID: f.ID, Off: int64(start), Nodes: make([]Node, 0, nodes), Buffers: make([]int64, 0, buffers)}
	col, err := e.array(f.Type, e.runs, n)
	if err != nil {
		return err
	}
	stored := e.body[start:]
	e.chunk.Len = int64(len(stored))
	e.chunk.CRC = crc32.Checksum(stored, castagnoli)
	e.chunk.Stats = computeStats(f.Type, col, e.chunk.Nodes[0].NullCount)
	return nil
}

// Recycle hands the body's memory to a later Encode. Nobody else may hold the body.
func (e *Encoded) Recycle() {
	if cap(e.Body) >= keepBody && cap(e.Body) <= maxScratch {
		b := e.Body[:0]
		bodies.Put(&b)
	}
	e.Body = nil
}

func (e *encoder) put() {
	e.raw, e.chunk = 0, ColumnChunk{}
	clear(e.runs[:cap(e.runs)])
	for _, b := range []*[]byte{&e.body, &e.bitmap, &e.flags, &e.words, &e.values} {
		if cap(*b) > maxScratch {
			*b = nil
		}
		*b = (*b)[:0]
	}
	encoders.Put(e)
}

// buffer stores one buffer and its padding.
// INVARIANT(seg-1): every buffer starts at a multiple of bufferAlign, and padding is zero.
func (e *encoder) buffer(raw []byte) error {
	if e.raw += int64(len(raw)); e.raw > MaxSegmentBytes {
		return errs.New(errs.TooLarge, "a segment holds at most %d bytes before compression", int64(MaxSegmentBytes))
	}
	start := len(e.body)
	e.body = appendBuffer(e.body, raw, e.codec)
	e.chunk.Buffers = append(e.chunk.Buffers, int64(len(e.body)-start))
	for len(e.body)%bufferAlign != 0 {
		e.body = append(e.body, 0)
	}
	return nil
}

func malformed(what string) error {
	return errs.New(errs.Invalid, "the Arrow batch is malformed: %s", what)
}

// buf returns a buffer's bytes, nil when it is missing.
func buf(bufs []*memory.Buffer, i int) []byte {
	if i >= len(bufs) || bufs[i] == nil {
		return nil
	}
	return bufs[i].Bytes()
}

func bytesForBits(n int) int { return (n + 7) / 8 }

// int32s views little-endian bytes as numbers; Go's targets with Arrow support are little-endian.
func int32s(b []byte) []int32 { return view[int32](b) }

func view[T any](b []byte) []T {
	var zero T
	if len(b) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}
