package segments

import (
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

// Concat joins batches of the same columns into one, in order. One batch is
// returned as it is. No batch at all, or differing columns, are Invalid; more
// than Arrow's 32-bit offsets can hold is TooLarge.
func Concat(recs []arrow.RecordBatch) (arrow.RecordBatch, error) {
	if len(recs) == 0 {
		return nil, errs.New(errs.Invalid, "concatenate rows: there is no batch")
	}
	first := recs[0]
	if len(recs) == 1 {
		first.Retain()
		return first, nil
	}
	var rows, size int64
	for _, r := range recs {
		if r.NumCols() != first.NumCols() {
			return nil, errs.New(errs.Invalid, "concatenate rows: batches of %d and %d columns", first.NumCols(), r.NumCols())
		}
		rows += r.NumRows()
		size += SizeOf(r)
	}
	if size > math.MaxInt32 || rows > math.MaxInt32 {
		return nil, errs.New(errs.TooLarge, "concatenate rows: %d bytes do not fit one batch", size)
	}
	cols := make([]arrow.Array, first.NumCols())
	parts := make([]arrow.Array, len(recs))
	for i := range cols {
		for j, r := range recs {
			parts[j] = r.Column(i)
			if !arrow.TypeEqual(parts[j].DataType(), parts[0].DataType()) || r.ColumnName(i) != first.ColumnName(i) {
				return nil, errs.New(errs.Invalid, "concatenate rows: column %s %s and column %s %s", first.ColumnName(i),
					parts[0].DataType(), r.ColumnName(i), parts[j].DataType())
			}
		}
		var err error
		if cols[i], err = array.Concatenate(parts, memory.DefaultAllocator); err != nil {
			return nil, errs.Wrap(errs.Invalid, "concatenate column "+first.ColumnName(i), err)
		}
	}
	return array.NewRecordBatch(first.Schema(), cols, rows), nil
}

// SizeOf returns the bytes that the rows of a batch, which may be a slice of
// a larger one, take in Arrow's layout. It is what limits on bytes count.
func SizeOf(rec arrow.RecordBatch) int64 {
	var n int64
	for _, c := range rec.Columns() {
		d := c.Data()
		n += sizeOf(d, d.Offset(), d.Len())
	}
	return n
}

// sizeOf measures rows [off, off+n) of d's buffers.
func sizeOf(d arrow.ArrayData, off, n int) int64 {
	if n == 0 {
		return 0
	}
	var size int64
	if len(buf(d.Buffers(), 0)) > 0 && d.NullN() != 0 {
		size = int64(bytesForBits(n))
	}
	switch dt := d.DataType().(type) {
	case *arrow.NullType:
		return 0
	case *arrow.StringType, *arrow.BinaryType:
		first, last := offsetRange[int32](d, off, n)
		return size + 4*int64(n+1) + last - first
	case *arrow.LargeStringType, *arrow.LargeBinaryType:
		first, last := offsetRange[int64](d, off, n)
		return size + 8*int64(n+1) + last - first
	case *arrow.ListType, *arrow.MapType:
		first, last := offsetRange[int32](d, off, n)
		child := d.Children()[0]
		return size + 4*int64(n+1) + sizeOf(child, child.Offset()+int(first), int(last-first))
	case *arrow.StructType:
		for _, c := range d.Children() {
			size += sizeOf(c, c.Offset()+off, n)
		}
		return size
	case arrow.FixedWidthDataType:
		return size + (int64(dt.BitWidth())*int64(n)+7)/8
	}
	// Types that no schema has: everything that the array holds on to.
	for _, b := range d.Buffers() {
		if b != nil {
			size += int64(b.Len())
		}
	}
	for _, c := range d.Children() {
		size += sizeOf(c, c.Offset(), c.Len())
	}
	return size
}

func offsetRange[T int32 | int64](d arrow.ArrayData, off, n int) (first, last int64) {
	o := view[T](buf(d.Buffers(), 1))
	if len(o) <= off+n {
		return 0, 0
	}
	return int64(o[off]), int64(o[off+n])
}

// Take returns the rows at the given positions, in that order; a position may
// come twice. Positions outside the batch are a caller's error and Invalid.
func Take(rec arrow.RecordBatch, rows []int32) (arrow.RecordBatch, error) {
	for _, r := range rows {
		if r < 0 || int64(r) >= rec.NumRows() {
			return nil, errs.New(errs.Invalid, "take rows: row %d of %d", r, rec.NumRows())
		}
	}
	cols := make([]arrow.Array, rec.NumCols())
	for i, c := range rec.Columns() {
		d, err := gather(c.Data(), c.Data().Offset(), rows)
		if err != nil {
			return nil, errs.In("take rows of column "+rec.ColumnName(i), err)
		}
		cols[i] = array.MakeFromData(d)
	}
	return array.NewRecordBatch(rec.Schema(), cols, int64(len(rows))), nil
}

// gather copies the values at base+rows[i] of d's buffers.
func gather(d arrow.ArrayData, base int, rows []int32) (arrow.ArrayData, error) {
	n := len(rows)
	validity, nulls := gatherValidity(buf(d.Buffers(), 0), d.NullN(), base, rows)
	bufs := []*memory.Buffer{validity}
	var children []arrow.ArrayData
	var err error
	values := buf(d.Buffers(), 1)
	switch dt := d.DataType().(type) {
	case *arrow.BooleanType:
		bufs = append(bufs, memory.NewBufferBytes(gatherBits(values, base, rows)))
	case *arrow.StringType, *arrow.BinaryType:
		var o, data *memory.Buffer
		o, data, err = gatherBytes(values, buf(d.Buffers(), 2), validity, base, rows)
		bufs = append(bufs, o, data)
	case *arrow.ListType, *arrow.MapType:
		o, items, ierr := gatherOffsets(values, validity, base, rows)
		if ierr != nil {
			return nil, ierr
		}
		bufs = append(bufs, o)
		child := d.Children()[0]
		var c arrow.ArrayData
		c, err = gather(child, child.Offset(), items)
		children = []arrow.ArrayData{c}
	case *arrow.StructType:
		for _, child := range d.Children() {
			c, cerr := gather(child, child.Offset()+base, rows)
			if cerr != nil {
				return nil, cerr
			}
			children = append(children, c)
		}
	case arrow.FixedWidthDataType:
		bufs = append(bufs, memory.NewBufferBytes(gatherFixed(values, dt.BitWidth()/8, base, rows)))
	default:
		err = errs.New(errs.Invalid, "Arrow type %s is not one of a table's", d.DataType())
	}
	if err != nil {
		return nil, err
	}
	return array.NewData(d.DataType(), n, bufs, children, nulls, 0), nil
}

func gatherValidity(bits []byte, nullN, base int, rows []int32) (*memory.Buffer, int) {
	if len(bits) == 0 || nullN == 0 {
		return nil, 0
	}
	out := gatherBits(bits, base, rows)
	nulls := len(rows) - bitutil.CountSetBits(out, 0, len(rows))
	if nulls == 0 {
		return nil, 0
	}
	return memory.NewBufferBytes(out), nulls
}

func gatherBits(bits []byte, base int, rows []int32) []byte {
	out := make([]byte, bytesForBits(len(rows)))
	for i, r := range rows {
		at := base + int(r)
		out[i>>3] |= (bits[at>>3] >> (at & 7) & 1) << (i & 7)
	}
	return out
}

func gatherFixed(values []byte, width, base int, rows []int32) []byte {
	switch width {
	case 4:
		return gatherWords[uint32](values, base, rows)
	case 8:
		return gatherWords[uint64](values, base, rows)
	case 16:
		return gatherWords[[2]uint64](values, base, rows)
	}
	out := make([]byte, 0, width*len(rows))
	for _, r := range rows {
		at := (base + int(r)) * width
		out = append(out, values[at:at+width]...)
	}
	return out
}

func gatherWords[T any](values []byte, base int, rows []int32) []byte {
	if len(rows) == 0 {
		return nil
	}
	in := view[T](values)[base:]
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = in[r]
	}
	return bytesOf(out)
}

// isSet reads a validity bitmap; none means that all are valid.
func isSet(validity *memory.Buffer, i int) bool {
	return validity == nil || bitutil.BitIsSet(validity.Bytes(), i)
}

func gatherBytes(offsets, data []byte, validity *memory.Buffer, base int, rows []int32) (*memory.Buffer, *memory.Buffer, error) {
	out := make([]int32, len(rows)+1)
	var total int64
	o := int32s(offsets)
	for i, r := range rows {
		if isSet(validity, i) {
			total += int64(o[base+int(r)+1] - o[base+int(r)])
		}
		if total > math.MaxInt32 {
			return nil, nil, errs.New(errs.TooLarge, "the values do not fit one batch")
		}
		out[i+1] = int32(total)
	}
	values := make([]byte, 0, total)
	for i, r := range rows {
		if isSet(validity, i) {
			values = append(values, data[o[base+int(r)]:o[base+int(r)+1]]...)
		}
	}
	return memory.NewBufferBytes(bytesOf(out)), memory.NewBufferBytes(values), nil
}

// gatherOffsets returns the offsets of the chosen lists and the positions of their items.
func gatherOffsets(offsets []byte, validity *memory.Buffer, base int, rows []int32) (*memory.Buffer, []int32, error) {
	out := make([]int32, len(rows)+1)
	var items []int32
	o := int32s(offsets)
	for i, r := range rows {
		if isSet(validity, i) {
			for at := o[base+int(r)]; at < o[base+int(r)+1]; at++ {
				items = append(items, at)
			}
		}
		if len(items) > math.MaxInt32 {
			return nil, nil, errs.New(errs.TooLarge, "the lists do not fit one batch")
		}
		out[i+1] = int32(len(items))
	}
	return memory.NewBufferBytes(bytesOf(out)), items, nil
}
