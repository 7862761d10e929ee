package client

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// bytesPerRow returns the mean size of a row in Arrow's layout, at least 1. A slice
// counts as its share of the buffers that it shows.
func bytesPerRow(rec arrow.RecordBatch) int64 {
	if rec.NumRows() == 0 {
		return 1
	}
	total := int64(0)
	for _, c := range rec.Columns() {
		total += sizeOf(c)
	}
	return max(1, total/rec.NumRows())
}

// sizeOf returns the bytes of the values that an array shows.
func sizeOf(a arrow.Array) int64 {
	n := int64(a.Len())
	if n == 0 {
		return 0
	}
	validity := n / 8
	switch x := a.(type) {
	case interface{ ValueBytes() []byte }: // strings and binaries
		return validity + 4*n + int64(len(x.ValueBytes()))
	case array.ListLike: // lists and maps
		start, _ := x.ValueOffsets(0)
		_, end := x.ValueOffsets(a.Len() - 1)
		values := array.NewSlice(x.ListValues(), start, end)
		defer values.Release()
		return validity + 4*n + sizeOf(values)
	case *array.Struct:
		total := validity
		for i := range x.NumField() {
			f := x.Field(i)
			total += sizeOf(f) * n / int64(max(f.Len(), 1))
		}
		return total
	case *array.Dictionary:
		return validity + sizeOf(x.Indices()) + sizeOf(x.Dictionary())
	}
	if f, ok := a.DataType().(arrow.FixedWidthDataType); ok {
		return validity + n*int64(f.BitWidth())/8
	}
	total := validity // a layout without a case: its buffers whole
	for _, b := range a.Data().Buffers() {
		if b != nil {
			total += int64(b.Len())
		}
	}
	return total
}
