package segments

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/internal/errs"
)

// AppendValue appends a value as FromIcebergValue returns it; nil is NULL. One that
// does not fit the builder is Invalid.
func AppendValue(b array.Builder, v any) error {
	ok := true
	switch v := v.(type) {
	case nil:
		b.AppendNull()
	case bool:
		ok = with(b, func(b *array.BooleanBuilder) { b.Append(v) })
	case int32:
		ok = with(b, func(b *array.Int32Builder) { b.Append(v) }) ||
			with(b, func(b *array.Date32Builder) { b.Append(arrow.Date32(v)) })
	case int64:
		ok = with(b, func(b *array.Int64Builder) { b.Append(v) }) ||
			with(b, func(b *array.Time64Builder) { b.Append(arrow.Time64(v)) }) ||
			with(b, func(b *array.TimestampBuilder) { b.Append(arrow.Timestamp(v)) })
	case float32:
		ok = with(b, func(b *array.Float32Builder) { b.Append(v) })
	case float64:
		ok = with(b, func(b *array.Float64Builder) { b.Append(v) })
	case decimal128.Num:
		ok = with(b, func(b *array.Decimal128Builder) { b.Append(v) })
	case string:
		ok = with(b, func(b *array.StringBuilder) { b.Append(v) })
	case []byte:
		ok = with(b, func(b *array.FixedSizeBinaryBuilder) { b.Append(v) }) ||
			with(b, func(b *array.BinaryBuilder) { b.Append(v) })
	default:
		ok = false
	}
	if !ok {
		return errs.New(errs.Invalid, "a Go value of type %T does not fit an Arrow %s", v, b.Type())
	}
	return nil
}

// with calls fn when b is a B.
func with[B array.Builder](b array.Builder, fn func(B)) bool {
	t, ok := b.(B)
	if ok {
		fn(t)
	}
	return ok
}

// bytesOf views numbers as bytes.
func bytesOf[T any](v []T) []byte {
	var zero T
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(zero)))
}
