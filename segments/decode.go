package segments

import (
	"cmp"
	"hash/crc32"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

// Decode reads columns out of a segment's body. s is the schema that the
// segment was written with, columns and rows come from the WAL's footer,
// wanted are top-level field ids in the order of the result (nil: all of s);
// the result's schema is that of s.SelectIDs(wanted). read returns exactly n
// bytes of the body from off; each wanted column's range is read once, and
// ranges that touch are read together. Its bytes are not kept.
//
// Nothing in columns, rows or the bytes is trusted: what does not hold is
// Corrupt, memory stays bounded by MaxSegmentBytes and by what the bytes can
// decompress to, and an array that is returned is safe to use. An error of
// read is returned as it is.
func Decode(s *Schema, columns []ColumnChunk, rows int64, wanted []int32,
	read func(off, n int64) ([]byte, error)) (arrow.RecordBatch, error) {
	sel, err := s.SelectIDs(wanted)
	if err != nil {
		return nil, errs.In("decode segment", err)
	}
	if rows < 0 || rows > MaxSegmentBytes {
		return nil, errs.New(errs.Corrupt, "decode segment: it claims %d rows", rows)
	}
	chunks := make([]*ColumnChunk, len(sel.Fields))
	for i, f := range sel.Fields {
		at := slices.IndexFunc(columns, func(c ColumnChunk) bool { return c.FieldID == f.ID })
		if at < 0 {
			return nil, errs.New(errs.Corrupt, "decode segment: column %s (field id %d) is missing", f.Name, f.ID)
		}
		chunks[i] = &columns[at]
	}
	bodies, err := readChunks(chunks, read)
	if err != nil {
		return nil, err
	}
	d, err := newDecoder(chunks, bodies)
	if err != nil {
		return nil, errs.In("decode segment", err)
	}
	schema := sel.Arrow()
	cols := make([]arrow.Array, len(chunks))
	for i, f := range sel.Fields {
		cols[i], err = d.column(f.Type, schema.Field(i).Type, chunks[i], rows)
		if err != nil {
			return nil, errs.In("decode column "+f.Name, err)
		}
	}
	return array.NewRecordBatch(schema, cols, rows), nil
}

// readChunks returns the bytes of each chunk, checksums verified, with one
// read for each run of ranges that touch.
func readChunks(chunks []*ColumnChunk, read func(off, n int64) ([]byte, error)) ([][]byte, error) {
	order := make([]int, len(chunks))
	for i, c := range chunks {
		order[i] = i
		if err := c.check(); err != nil {
			return nil, errs.In("decode segment", err)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(chunks[a].Off, chunks[b].Off) })
	bodies := make([][]byte, len(chunks))
	for i := 0; i < len(order); {
		start := chunks[order[i]].Off
		end := start
		j := i
		for j < len(order) && chunks[order[j]].Off == end {
			end += chunks[order[j]].Len
			j++
		}
		if end == start { // columns of an empty segment
			i = j
			continue
		}
		if end-start > 2*MaxSegmentBytes {
			return nil, errs.New(errs.Corrupt, "decode segment: its columns claim %d bytes", end-start)
		}
		b, err := read(start, end-start)
		if err != nil {
			return nil, err
		}
		if int64(len(b)) != end-start {
			return nil, errs.New(errs.Corrupt, "decode segment: %d bytes at position %d of its body, not %d", len(b), start, end-start)
		}
		for ; i < j; i++ {
			c := chunks[order[i]]
			body := b[c.Off-start:][:c.Len]
			if sum := crc32.Checksum(body, castagnoli); sum != c.CRC {
				return nil, errs.New(errs.Corrupt, "decode segment: field id %d at position %d of the body: CRC-32C is %08x, not %08x",
					c.FieldID, c.Off, sum, c.CRC)
			}
			bodies[order[i]] = body
		}
	}
	return bodies, nil
}

// check verifies that the stored buffers fill the chunk's range exactly.
// INVARIANT(seg-3): a column's range is its buffers, each padded to bufferAlign, and nothing else.
func (c *ColumnChunk) check() error {
	if c.Off < 0 || c.Len < 0 || c.Off%bufferAlign != 0 || c.Off > 1<<62 || c.Len > 2*MaxSegmentBytes {
		return errs.New(errs.Corrupt, "field id %d claims the range %d+%d", c.FieldID, c.Off, c.Len)
	}
	var sum int64
	for _, n := range c.Buffers {
		if n < 0 || n > c.Len {
			return errs.New(errs.Corrupt, "field id %d has a buffer of %d bytes in a range of %d", c.FieldID, n, c.Len)
		}
		if sum += align(n); sum > c.Len {
			break
		}
	}
	if sum != c.Len {
		return errs.New(errs.Corrupt, "field id %d: its buffers do not fill its range of %d bytes", c.FieldID, c.Len)
	}
	return nil
}

// decoder walks the decompressed buffers of a segment. They share one
// allocation, which lives as long as any array of the batch.
type decoder struct {
	buffers [][]byte // of all columns, in order
	nodes   []Node   // of the current column
	left    int      // buffers of the current column not taken yet
}

func newDecoder(chunks []*ColumnChunk, bodies [][]byte) (*decoder, error) {
	var stored [][]byte
	var sizes []int64
	var total, room int64
	for i, c := range chunks {
		body := bodies[i]
		for _, n := range c.Buffers {
			b := body[:n]
			body = body[align(n):]
			raw, err := storedLength(b)
			if err != nil {
				return nil, err
			}
			if total += raw; total > MaxSegmentBytes {
				return nil, errs.New(errs.Corrupt, "the buffers claim more than %d bytes", int64(MaxSegmentBytes))
			}
			room += align(raw)
			stored = append(stored, b)
			sizes = append(sizes, raw)
		}
	}
	arena := make([]byte, room)
	d := &decoder{buffers: make([][]byte, len(stored))}
	for i, b := range stored {
		n := sizes[i]
		d.buffers[i] = arena[:n:n]
		arena = arena[align(n):]
		if err := readBuffer(d.buffers[i], b); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// column builds one column's array out of its chunk's nodes and buffers, which
// must be used up.
func (d *decoder) column(t Type, dt arrow.DataType, c *ColumnChunk, rows int64) (arrow.Array, error) {
	d.nodes, d.left = c.Nodes, len(c.Buffers)
	data, err := d.array(t, dt, rows, false)
	if err != nil {
		return nil, err
	}
	if len(d.nodes) != 0 || d.left != 0 {
		return nil, errs.New(errs.Corrupt, "%d nodes and %d buffers are left over", len(d.nodes), d.left)
	}
	return array.MakeFromData(data), nil
}

func (d *decoder) next() ([]byte, error) {
	if d.left == 0 {
		return nil, errs.New(errs.Corrupt, "a buffer is missing")
	}
	b := d.buffers[0]
	d.buffers = d.buffers[1:]
	d.left--
	return b, nil
}

// sized takes a buffer that must have n bytes.
func (d *decoder) sized(n int64) (*memory.Buffer, error) {
	b, err := d.next()
	if err != nil {
		return nil, err
	}
	if int64(len(b)) != n {
		return nil, errs.New(errs.Corrupt, "a buffer has %d bytes, not %d", len(b), n)
	}
	return memory.NewBufferBytes(b), nil
}

// array builds the data of one array of n values. noNulls is asked of a map's
// entries and keys, where Arrow panics on NULL.
func (d *decoder) array(t Type, dt arrow.DataType, n int64, noNulls bool) (arrow.ArrayData, error) {
	if len(d.nodes) == 0 {
		return nil, errs.New(errs.Corrupt, "a node is missing")
	}
	node := d.nodes[0]
	d.nodes = d.nodes[1:]
	if node.Length != n || node.NullCount < 0 || node.NullCount > n || noNulls && node.NullCount != 0 {
		return nil, errs.New(errs.Corrupt, "a node of %d values claims %d, with %d nulls", n, node.Length, node.NullCount)
	}
	validity, err := d.validity(node)
	if err != nil {
		return nil, err
	}
	bufs := []*memory.Buffer{validity}
	var children []arrow.ArrayData
	switch t.Kind {
	case String, Binary:
		bufs, err = d.binary(bufs, n)
	case List, Map:
		bufs, children, err = d.list(t, dt, bufs, n)
	case Struct:
		children, err = d.fields(t, dt.(*arrow.StructType), n, false)
	case Boolean:
		bufs, err = d.append(bufs, (n+7)/8)
	default:
		bufs, err = d.append(bufs, n*int64(t.width()))
	}
	if err != nil {
		return nil, err
	}
	return array.NewData(dt, int(n), bufs, children, int(node.NullCount), 0), nil
}

func (d *decoder) append(bufs []*memory.Buffer, size int64) ([]*memory.Buffer, error) {
	b, err := d.sized(size)
	return append(bufs, b), err
}

func (d *decoder) validity(node Node) (*memory.Buffer, error) {
	if node.NullCount == 0 {
		_, err := d.sized(0)
		return nil, err
	}
	b, err := d.sized((node.Length + 7) / 8)
	if err != nil {
		return nil, err
	}
	if valid := bitutil.CountSetBits(b.Bytes(), 0, int(node.Length)); int64(valid) != node.Length-node.NullCount {
		return nil, errs.New(errs.Corrupt, "a bitmap has %d nulls, not %d", node.Length-int64(valid), node.NullCount)
	}
	return b, nil
}

// offsets takes an offset buffer and returns where its values end.
func (d *decoder) offsets(n int64) (*memory.Buffer, int64, error) {
	if n == 0 {
		_, err := d.sized(0)
		return memory.NewBufferBytes(make([]byte, 4)), 0, err
	}
	b, err := d.sized(4 * (n + 1))
	if err != nil {
		return nil, 0, err
	}
	o := int32s(b.Bytes())
	if o[0] != 0 || !ascending(o) {
		return nil, 0, errs.New(errs.Corrupt, "offsets do not ascend from zero")
	}
	return b, int64(o[n]), nil
}

func (d *decoder) binary(bufs []*memory.Buffer, n int64) ([]*memory.Buffer, error) {
	o, end, err := d.offsets(n)
	if err != nil {
		return nil, err
	}
	return d.append(append(bufs, o), end)
}

func (d *decoder) list(t Type, dt arrow.DataType, bufs []*memory.Buffer, n int64) ([]*memory.Buffer, []arrow.ArrayData, error) {
	o, end, err := d.offsets(n)
	if err != nil {
		return nil, nil, err
	}
	bufs = append(bufs, o)
	elem := dt.(arrow.ListLikeType).Elem()
	if t.Kind == List {
		child, err := d.array(t.Children[0].Type, elem, end, false)
		return bufs, []arrow.ArrayData{child}, err
	}
	entries, err := d.entries(t, elem.(*arrow.StructType), end)
	return bufs, []arrow.ArrayData{entries}, err
}

// entries builds a map's struct of keys and values.
func (d *decoder) entries(t Type, dt *arrow.StructType, n int64) (arrow.ArrayData, error) {
	if len(d.nodes) == 0 || d.nodes[0] != (Node{Length: n}) {
		return nil, errs.New(errs.Corrupt, "a map's entries have a wrong node")
	}
	d.nodes = d.nodes[1:]
	if _, err := d.sized(0); err != nil {
		return nil, err
	}
	children, err := d.fields(t, dt, n, true)
	if err != nil {
		return nil, err
	}
	return array.NewData(dt, int(n), []*memory.Buffer{nil}, children, 0, 0), nil
}

// fields builds a struct's children; firstWhole asks for no NULL in the first.
func (d *decoder) fields(t Type, dt *arrow.StructType, n int64, firstWhole bool) ([]arrow.ArrayData, error) {
	children := make([]arrow.ArrayData, len(t.Children))
	for i, c := range t.Children {
		var err error
		children[i], err = d.array(c.Type, dt.Field(i).Type, n, firstWhole && i == 0)
		if err != nil {
			return nil, err
		}
	}
	return children, nil
}
