package rows

import (
	"encoding/binary"
	"errors"

	"github.com/apache/arrow-go/v18/parquet/file"
)

// The Parquet library takes counts in a file's metadata on trust and allocates
// for them. What follows walks the metadata first, in Thrift's compact form,
// and refuses a count that is larger than the bytes that could hold it.

var errThrift = errors.New("the Parquet metadata is malformed")

// Types of Thrift's compact protocol.
const (
	thriftStop   = 0
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
	thriftUUID   = 13
)

// maxThriftDepth is far above what Parquet's structs nest.
const maxThriftDepth = 32

// thriftReader walks bytes and panics with errThrift when they are malformed.
type thriftReader struct {
	b []byte
	i int
}

func (t *thriftReader) take(n uint64) {
	if n > uint64(len(t.b)-t.i) {
		panic(errThrift)
	}
	t.i += int(n)
}

func (t *thriftReader) next() byte {
	t.take(1)
	return t.b[t.i-1]
}

func (t *thriftReader) varint() uint64 {
	v, n := binary.Uvarint(t.b[t.i:])
	if n <= 0 {
		panic(errThrift)
	}
	t.i += n
	return v
}

func (t *thriftReader) zigzag() int64 {
	v := t.varint()
	return int64(v>>1) ^ -int64(v&1)
}

// fields walks a struct; visit consumes the fields that it wants and returns
// whether it did.
func (t *thriftReader) fields(depth int, visit func(id int64, typ byte) bool) {
	if depth > maxThriftDepth {
		panic(errThrift)
	}
	id := int64(0)
	for {
		head := t.next()
		typ := head & 15
		if typ == thriftStop {
			return
		}
		if delta := head >> 4; delta != 0 {
			id += int64(delta)
		} else {
			id = t.zigzag()
		}
		if visit == nil || !visit(id, typ) {
			t.skip(typ, depth, true)
		}
	}
}

// skip walks a value. A boolean that is a field has its value in the field's head.
func (t *thriftReader) skip(typ byte, depth int, field bool) {
	switch typ {
	case thriftTrue, thriftFalse:
		if !field {
			t.take(1)
		}
	case thriftByte:
		t.take(1)
	case thriftI16, thriftI32, thriftI64:
		t.varint()
	case thriftDouble:
		t.take(8)
	case thriftUUID:
		t.take(16)
	case thriftBinary:
		t.take(t.varint())
	case thriftList, thriftSet:
		head := t.next()
		n := uint64(head >> 4)
		if n == 15 {
			n = t.varint()
		}
		t.items(n, depth, head&15)
	case thriftMap:
		if n := t.varint(); n > 0 {
			types := t.next()
			t.items(n, depth, types>>4, types&15)
		}
	case thriftStruct:
		t.fields(depth+1, nil)
	default:
		panic(errThrift)
	}
}

// items walks n tuples; each takes at least a byte.
func (t *thriftReader) items(n uint64, depth int, types ...byte) {
	if n > uint64(len(t.b)-t.i) || depth > maxThriftDepth {
		panic(errThrift)
	}
	for range n {
		for _, typ := range types {
			t.skip(typ, depth+1, false)
		}
	}
}

func thriftGuard(err *error) {
	if r := recover(); r != nil {
		*err = errThrift
	}
}

// checkFooter walks the file metadata at the end of a file that ends in PAR1.
func checkFooter(body []byte) (err error) {
	defer thriftGuard(&err)
	n := uint64(binary.LittleEndian.Uint32(body[len(body)-8:]))
	if n > uint64(len(body)-12) {
		return errThrift
	}
	t := thriftReader{b: body[len(body)-8-int(n) : len(body)-8]}
	t.fields(0, func(id int64, typ byte) bool {
		if id != 2 || typ != thriftList { // the schema
			return false
		}
		t.schema()
		return true
	})
	return nil
}

// schema walks the schema's elements, which are its tree depth first: the
// library follows it by recursion.
func (t *thriftReader) schema() {
	head := t.next()
	n := uint64(head >> 4)
	if n == 15 {
		n = t.varint()
	}
	if n > uint64(len(t.b)-t.i) || head&15 != thriftStruct {
		panic(errThrift)
	}
	var open []int64 // children to come, by level
	for range n {
		children := int64(0)
		t.fields(1, func(id int64, typ byte) bool {
			if id != 5 || typ != thriftI32 { // num_children
				return false
			}
			children = t.zigzag()
			return true
		})
		if len(open) > 0 {
			open[len(open)-1]--
		}
		if children > 0 {
			open = append(open, children)
		}
		for len(open) > 0 && open[len(open)-1] == 0 {
			open = open[:len(open)-1]
		}
		if len(open) > 2*maxSchemaDepth {
			panic(errThrift)
		}
	}
}

// checkPages walks the page headers of the columns that will be read.
func checkPages(body []byte, pf *file.Reader, leaves []int) error {
	meta := pf.MetaData()
	for g := range pf.NumRowGroups() {
		group := meta.RowGroup(g)
		for _, leaf := range leaves {
			chunk, err := group.ColumnChunk(leaf)
			if err != nil {
				return err
			}
			start := chunk.DataPageOffset()
			if chunk.HasDictionaryPage() && chunk.DictionaryPageOffset() > 0 && chunk.DictionaryPageOffset() < start {
				start = chunk.DictionaryPageOffset()
			}
			size := chunk.TotalCompressedSize()
			if start < 0 || size < 0 || start > int64(len(body)) || size > int64(len(body))-start {
				return errThrift
			}
			if err := checkChunk(body[start : start+size]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkChunk walks the pages of one column chunk.
func checkChunk(b []byte) (err error) {
	defer thriftGuard(&err)
	t := thriftReader{b: b}
	for t.i < len(b) {
		var stored, values int64
		t.fields(0, func(id int64, typ byte) bool {
			switch {
			case id == 3 && typ == thriftI32: // compressed_page_size
				stored = t.zigzag()
				return true
			case (id == 5 || id == 7 || id == 8) && typ == thriftStruct: // the header of the page's kind
				t.fields(1, func(id int64, typ byte) bool {
					if id == 1 && typ == thriftI32 { // num_values
						values = max(values, t.zigzag())
						return true
					}
					return false
				})
				return true
			}
			return false
		})
		if values > maxBatchRows {
			return limitError(maxBatchRows, "a page of the Parquet body has %d values, the limit is %d", values, maxBatchRows)
		}
		if stored < 0 {
			return errThrift
		}
		t.take(uint64(stored))
	}
	return nil
}
