package rows

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	flatbuffers "github.com/google/flatbuffers/go"

	"github.com/firn-data/firn/internal/errs"
)

// Bounds of an Arrow IPC stream beside those of the options.
const (
	maxMetadataBytes = 8 << 20 // of one message; its schema is in there
	maxSchemaDepth   = 64
	maxBatchRows     = 1 << 24
	maxDictBytes     = spoolBytes // of all dictionaries that a stream sends
)

var errMetadata = errors.New("the metadata of an Arrow message is malformed")

// messageReader reads the messages of a stream for the Arrow library. It
// checks what the library takes on trust: sizes before they are allocated, and
// that a schema is a tree no larger than its bytes (a flatbuffer can point at
// one table many times, and unfold to any size).
type messageReader struct {
	r       io.Reader
	alloc   *limitedAllocator
	maxBody int64
	msg     *ipc.Message
	dicts   int64 // bytes of dictionaries so far
	inDict  bool
	ended   bool // by an end-of-stream marker
}

func (m *messageReader) Retain()  {}
func (m *messageReader) Release() {}

// Message implements ipc.MessageReader.
func (m *messageReader) Message() (*ipc.Message, error) {
	if m.inDict {
		m.dicts += m.alloc.used
	}
	m.alloc.used = 0
	meta, err := m.metadata()
	if err != nil {
		return nil, err
	}
	kind, bodyLen, err := checkMessage(meta)
	if err != nil {
		return nil, err
	}
	if bodyLen > m.maxBody {
		return nil, tooLarge("Arrow", m.maxBody)
	}
	body, err := m.bytes(bodyLen)
	if err != nil {
		return nil, truncated("Arrow", err)
	}
	if m.inDict = kind == ipc.MessageDictionaryBatch; m.inDict {
		if m.dicts += bodyLen; m.dicts > maxDictBytes {
			return nil, limitError(maxDictBytes, "the dictionaries of the Arrow stream are larger than the limit of %d bytes", maxDictBytes)
		}
	}
	m.msg = ipc.NewMessage(memory.NewBufferBytes(meta), memory.NewBufferBytes(body))
	return m.msg, nil
}

// bytes returns the next n bytes: those of a body in memory as they are, when the
// numbers in them can be read in place.
func (m *messageReader) bytes(n int64) ([]byte, error) {
	if whole, ok := m.r.(*arrived); ok && whole.aligned() {
		return whole.next(n)
	}
	return readBounded(m.r, n)
}

// metadata reads a message's prefix and metadata; io.EOF ends the stream.
func (m *messageReader) metadata() ([]byte, error) {
	const continuation = 0xffffffff
	var word [4]byte
	if _, err := io.ReadFull(m.r, word[:]); err != nil {
		if err == io.EOF {
			return nil, io.EOF
		}
		return nil, truncated("Arrow", err)
	}
	n := binary.LittleEndian.Uint32(word[:])
	if n == continuation {
		if _, err := io.ReadFull(m.r, word[:]); err != nil {
			return nil, truncated("Arrow", err)
		}
		n = binary.LittleEndian.Uint32(word[:])
	}
	if n == 0 {
		m.ended = true
		return nil, io.EOF
	}
	if n > maxMetadataBytes {
		return nil, errs.New(errs.Invalid, "not an Arrow IPC stream: a message claims %d bytes of metadata, over the limit of %d", n, maxMetadataBytes)
	}
	meta, err := m.bytes(int64(n))
	if err != nil {
		return nil, truncated("Arrow", err)
	}
	return meta, nil
}

// Slots in the tables of Arrow's Message.fbs and Schema.fbs.
const (
	slotHeaderType = 6
	slotHeader     = 8
	slotBodyLength = 10

	slotSchemaFields   = 6
	slotSchemaMetadata = 8

	slotFieldName     = 4
	slotFieldTypeKind = 8
	slotFieldType     = 10
	slotFieldChildren = 14
	slotFieldMetadata = 16

	kindTimestamp, kindUnion = 10, 14 // the types with a string or vector of their own
	slotTypeVector           = 6

	slotKey   = 4
	slotValue = 6
)

// checkMessage returns a message's kind and the length of its body.
func checkMessage(meta []byte) (kind ipc.MessageType, bodyLen int64, err error) {
	defer func() {
		if recover() != nil {
			err = errMetadata
		}
	}()
	var t flatbuffers.Table
	t.Bytes, t.Pos = meta, flatbuffers.GetUOffsetT(meta)
	kind = ipc.MessageType(t.GetByteSlot(slotHeaderType, 0))
	bodyLen = t.GetInt64Slot(slotBodyLength, 0)
	if bodyLen < 0 {
		return 0, 0, errMetadata
	}
	o := t.Offset(slotHeader)
	if o == 0 {
		return 0, 0, errMetadata
	}
	switch kind {
	case ipc.MessageSchema:
		var header flatbuffers.Table
		t.Union(&header, flatbuffers.UOffsetT(o))
		c := treeCheck{budget: sharedFactor*len(meta) + 4096}
		c.metadata(header, slotSchemaMetadata)
		c.fields(header, slotSchemaFields, 0)
	case ipc.MessageRecordBatch, ipc.MessageDictionaryBatch:
	default:
		return 0, 0, errors.New("an Arrow message is neither schema nor batch")
	}
	return kind, bodyLen, nil
}

// sharedFactor leaves room for writers that store equal strings once.
const sharedFactor = 4

// treeCheck walks a schema and panics when it is larger than its bytes: each
// visit is paid from the budget.
type treeCheck struct{ budget int }

func (c *treeCheck) pay(n int) {
	if c.budget -= n; c.budget < 0 {
		panic(errMetadata)
	}
}

// each calls visit for every table of the vector in a slot.
func (c *treeCheck) each(t flatbuffers.Table, slot flatbuffers.VOffsetT, visit func(flatbuffers.Table)) {
	o := flatbuffers.UOffsetT(t.Offset(slot))
	if o == 0 {
		return
	}
	n, start := t.VectorLen(o), t.Vector(o)
	c.pay(4 * n)
	for i := range n {
		var child flatbuffers.Table
		child.Bytes = t.Bytes
		child.Pos = t.Indirect(start + flatbuffers.UOffsetT(i)*4)
		visit(child)
	}
}

func (c *treeCheck) text(t flatbuffers.Table, slot flatbuffers.VOffsetT) {
	if o := flatbuffers.UOffsetT(t.Offset(slot)); o != 0 {
		c.pay(len(t.ByteVector(o + t.Pos)))
	}
}

func (c *treeCheck) metadata(t flatbuffers.Table, slot flatbuffers.VOffsetT) {
	c.each(t, slot, func(kv flatbuffers.Table) {
		c.text(kv, slotKey)
		c.text(kv, slotValue)
	})
}

// typeOf pays for what a type refers to.
func (c *treeCheck) typeOf(f flatbuffers.Table) {
	kind := f.GetByteSlot(slotFieldTypeKind, 0)
	o := flatbuffers.UOffsetT(f.Offset(slotFieldType))
	if o == 0 || kind != kindTimestamp && kind != kindUnion {
		return
	}
	var t flatbuffers.Table
	f.Union(&t, o)
	if v := flatbuffers.UOffsetT(t.Offset(slotTypeVector)); v != 0 {
		c.pay(t.VectorLen(v))
	}
}

func (c *treeCheck) fields(t flatbuffers.Table, slot flatbuffers.VOffsetT, depth int) {
	if depth > maxSchemaDepth {
		panic(errMetadata)
	}
	c.each(t, slot, func(f flatbuffers.Table) {
		c.text(f, slotFieldName)
		c.metadata(f, slotFieldMetadata)
		c.typeOf(f)
		c.fields(f, slotFieldChildren, depth+1)
	})
}
