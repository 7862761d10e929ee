package segments

import (
	"bytes"
	"hash/crc32"
	"sync"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// encoders are reused with their scratch space; one that grew past
// maxScratch is dropped instead.
var encoders = sync.Pool{New: func() any { return new(encoder) }}

const maxScratch = 16 << 20

type encoder struct {
	codec   Codec
	body    []byte
	scratch []byte
	raw     int64
	chunk   ColumnChunk
}

// Encode writes rec, whose columns are those of s in order, as a segment's
// body. It keeps nothing of rec, which may be sliced. A batch that does not
// fit the schema is Invalid, one over MaxSegmentBytes TooLarge.
func Encode(rec arrow.RecordBatch, s *Schema, c Codec) (*Encoded, error) {
	if err := checkBatch(rec, s); err != nil {
		return nil, errs.In("encode segment", err)
	}
	e := encoders.Get().(*encoder)
	defer e.put()
	e.codec = c
	out := &Encoded{Rows: rec.NumRows(), Columns: make([]ColumnChunk, 0, len(s.Fields))}
	for i, f := range s.Fields {
		d := rec.Column(i).Data()
		start := len(e.body)
		e.chunk = ColumnChunk{FieldID: f.ID, Off: int64(start)}
		if err := e.array(f.Type, d, d.Offset(), d.Len()); err != nil {
			return nil, errs.In("encode column "+f.Name, err)
		}
		column := e.body[start:]
		e.chunk.Len = int64(len(column))
		e.chunk.CRC = crc32.Checksum(column, castagnoli)
		e.chunk.Stats = computeStats(f.Type, d, e.chunk.Nodes[0].NullCount)
		out.Columns = append(out.Columns, e.chunk)
	}
	out.Body = bytes.Clone(e.body)
	return out, nil
}

func (e *encoder) put() {
	if cap(e.body) > maxScratch || cap(e.scratch) > maxScratch {
		return
	}
	*e = encoder{body: e.body[:0], scratch: e.scratch[:0]}
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

// array stores the node and buffers of rows [off, off+n) of d's buffers, and
// of its children.
func (e *encoder) array(t Type, d arrow.ArrayData, off, n int) error {
	bufs := d.Buffers()
	nulls, err := e.validity(buf(bufs, 0), off, n)
	if err != nil {
		return err
	}
	e.chunk.Nodes = append(e.chunk.Nodes, Node{Length: int64(n), NullCount: int64(nulls)})
	switch t.Kind {
	case Boolean:
		bits, err := e.bits(buf(bufs, 1), off, n)
		if err != nil {
			return err
		}
		return e.buffer(bits)
	case String, Binary:
		first, last, err := e.offsets(buf(bufs, 1), off, n, len(buf(bufs, 2)))
		if err != nil {
			return err
		}
		return e.buffer(buf(bufs, 2)[first:last])
	case List, Map:
		child := d.Children()[0]
		first, last, err := e.offsets(buf(bufs, 1), off, n, child.Len())
		if err != nil {
			return err
		}
		return e.array(t.element(), child, child.Offset()+first, last-first)
	case Struct:
		for i, c := range d.Children() {
			if c.Len() < off+n {
				return malformed("a struct's child is short")
			}
			if err := e.array(t.Children[i].Type, c, c.Offset()+off, n); err != nil {
				return err
			}
		}
		return nil
	}
	w := t.width()
	b := buf(bufs, 1)
	if len(b) < (off+n)*w {
		return malformed("a buffer is short")
	}
	return e.buffer(b[off*w : (off+n)*w])
}

// validity stores the validity bitmap.
// INVARIANT(seg-4): it is empty exactly when nothing is NULL, and its spare bits are zero.
func (e *encoder) validity(b []byte, off, n int) (nulls int, err error) {
	if len(b) == 0 || n == 0 {
		return 0, e.buffer(nil)
	}
	bits, err := e.bits(b, off, n)
	if err != nil {
		return 0, err
	}
	if nulls = n - bitutil.CountSetBits(bits, 0, n); nulls == 0 {
		return 0, e.buffer(nil)
	}
	return nulls, e.buffer(bits)
}

// bits copies n bits from position off to scratch, the tail of the last byte zero.
func (e *encoder) bits(b []byte, off, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if len(b) < bytesForBits(off+n) {
		return nil, malformed("a bitmap is short")
	}
	out := e.room(bytesForBits(n))
	clear(out)
	bitutil.CopyBitmap(b, off, n, out, 0)
	return out, nil
}

func (e *encoder) room(n int) []byte {
	if cap(e.scratch) < n {
		e.scratch = make([]byte, n+n/4)
	}
	e.scratch = e.scratch[:cap(e.scratch)]
	return e.scratch[:n]
}

// offsets stores n+1 offsets that start at zero, and returns the range of the
// values that they cover. It refuses offsets that Decode would refuse.
// INVARIANT(seg-2): offsets start at zero, never fall, and end at the values' end.
func (e *encoder) offsets(b []byte, off, n, values int) (first, last int, err error) {
	if n == 0 {
		return 0, 0, e.buffer(nil)
	}
	if len(b) < 4*(off+n+1) {
		return 0, 0, malformed("an offset buffer is short")
	}
	o := int32s(b)[off : off+n+1]
	base := o[0]
	out := b[4*off : 4*(off+n+1)]
	if base == 0 {
		if !ascending(o) {
			return 0, 0, malformed("offsets fall")
		}
	} else {
		out = e.room(4 * (n + 1))
		w := int32s(out)
		prev := base
		for i, v := range o {
			if v < prev {
				return 0, 0, malformed("offsets fall")
			}
			w[i], prev = v-base, v
		}
	}
	if base < 0 || int(o[n]) > values {
		return 0, 0, malformed("offsets leave their values")
	}
	return int(base), int(o[n]), e.buffer(out)
}

func ascending(o []int32) bool {
	prev := int32(0)
	for _, v := range o {
		if v < prev {
			return false
		}
		prev = v
	}
	return true
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
