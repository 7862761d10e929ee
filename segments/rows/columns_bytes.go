package rows

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/segments/rows/literal"
)

// varColumn is a column of values of any length. Chunks are far below 2 GiB,
// so that 32-bit offsets hold.
type varColumn struct {
	validity
	offsets []int32 // the end of each value
	data    []byte
}

func (c *varColumn) close() {
	c.offsets = append(c.offsets, int32(len(c.data)))
	c.valid()
}

func (c *varColumn) append(b []byte) {
	c.data = append(c.data, b...)
	c.close()
}

func (c *varColumn) null() {
	c.offsets = append(c.offsets, int32(len(c.data)))
	c.invalid()
}

func (c *varColumn) size() int { return len(c.data) + 4*len(c.offsets) }

func (c *varColumn) truncate(n int) {
	c.offsets = c.offsets[:n]
	c.validity.truncate(n)
	end := int32(0)
	if n > 0 {
		end = c.offsets[n-1]
	}
	c.data = c.data[:end]
}

// value returns value i.
func (c *varColumn) value(i int) []byte {
	start := int32(0)
	if i > 0 {
		start = c.offsets[i-1]
	}
	return c.data[start:c.offsets[i]]
}

func (c *varColumn) takeAs(dt arrow.DataType) arrow.ArrayData {
	data, offsets := c.data, takeOffsets(&c.offsets)
	c.data = make([]byte, 0, len(data)+len(data)/8)
	bitmap, n, nulls := c.take()
	return newData(dt, n, nulls, nil, bitmap, offsets, memory.NewBufferBytes(data))
}

// takeOffsets hands ends over as Arrow offsets, which start with a zero.
func takeOffsets(ends *[]int32) *memory.Buffer {
	offsets := make([]int32, len(*ends)+1)
	copy(offsets[1:], *ends)
	*ends = (*ends)[:0]
	return memory.NewBufferBytes(arrow.GetBytes(offsets))
}

type stringColumn struct{ varColumn }

func (c *stringColumn) take() arrow.ArrayData { return c.takeAs(arrow.BinaryTypes.String) }

func (c *stringColumn) json(s *scanner) bool {
	if s.peek() != '"' {
		return s.mismatch("a string")
	}
	b, ok := s.str()
	if ok {
		c.append(b)
	}
	return ok
}

const errTextUTF8 = valueReason("not valid UTF-8")

func (c *stringColumn) text(b []byte) error {
	if !utf8.Valid(b) {
		return errTextUTF8
	}
	c.append(b)
	return nil
}

const errBase64 = valueReason("not base64")

// appendBase64 appends what standard base64 (padded or not) stands for.
func appendBase64(dst, b []byte) ([]byte, error) {
	if len(b)%4 == 0 {
		for i := 0; i < 2 && len(b) > 0 && b[len(b)-1] == '='; i++ {
			b = b[:len(b)-1]
		}
	}
	for _, c := range b {
		if c == '\n' || c == '\r' { // the decoder would pass over them
			return dst, errBase64
		}
	}
	out, err := base64.RawStdEncoding.Strict().AppendDecode(dst, b)
	if err != nil {
		return dst, errBase64
	}
	return out, nil
}

type binaryColumn struct{ varColumn }

func (c *binaryColumn) take() arrow.ArrayData { return c.takeAs(arrow.BinaryTypes.Binary) }

func (c *binaryColumn) json(s *scanner) bool {
	b, ok := s.quoted("base64 as a string")
	if !ok {
		return false
	}
	if err := c.text(b); err != nil {
		return s.fail(err)
	}
	return true
}

func (c *binaryColumn) text(b []byte) error {
	data, err := appendBase64(c.data, b)
	if err != nil {
		return err
	}
	c.data = data
	c.close()
	return nil
}

// fixedColumn holds values of one length, uuids among them.
type fixedColumn struct {
	validity
	dt    arrow.DataType
	width int
	uuid  bool
	data  []byte
}

func (c *fixedColumn) append(b []byte) {
	c.data = append(c.data, b...)
	c.valid()
}

func (c *fixedColumn) null() {
	for range c.width {
		c.data = append(c.data, 0)
	}
	c.invalid()
}

func (c *fixedColumn) size() int { return len(c.data) }

func (c *fixedColumn) truncate(n int) {
	c.data = c.data[:n*c.width]
	c.validity.truncate(n)
}

func (c *fixedColumn) take() arrow.ArrayData {
	data := c.data
	c.data = make([]byte, 0, len(data))
	bitmap, n, nulls := c.validity.take()
	return newData(c.dt, n, nulls, nil, bitmap, memory.NewBufferBytes(data))
}

func (c *fixedColumn) json(s *scanner) bool {
	want := "base64 as a string"
	if c.uuid {
		want = "a uuid as a string"
	}
	b, ok := s.quoted(want)
	if !ok {
		return false
	}
	if err := c.text(b); err != nil {
		return s.fail(err)
	}
	return true
}

const errFixedLength = valueReason("the value has another length than the column's type")

func (c *fixedColumn) text(b []byte) error {
	if c.uuid {
		u, err := literal.UUID(b)
		if err == nil {
			c.append(u[:])
		}
		return err
	}
	start := len(c.data)
	data, err := appendBase64(c.data, b)
	if err != nil {
		return err
	}
	if len(data)-start != c.width {
		return errFixedLength
	}
	c.data = data
	c.valid()
	return nil
}
