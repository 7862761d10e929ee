package lakehouse

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/zeebo/xxh3"

	"github.com/firn-data/firn/segments"
)

const (
	// parquetZstdLevel is klauspost's fastest: on flights it takes two thirds of
	// the time of the default level, for files that are a few per cent larger.
	parquetZstdLevel = 1
	// dictionarySample is how many rows are looked at to decide on a dictionary,
	// and dictionaryShare the share of distinct values above which a dictionary
	// is not tried.
	dictionarySample = 2048
	dictionaryShare  = 0.4
)

// useDictionary decides on dictionary encoding from the first batch. A wrong
// "yes" costs time until Parquet's own fallback; a wrong "no" costs space.
func useDictionary(a arrow.Array, l leaf) bool {
	if l.typ.Kind == segments.Boolean {
		return false
	}
	if a.DataType().ID() == arrow.EXTENSION {
		a = a.(array.ExtensionArray).Storage()
	}
	value := valueBytes(a)
	n := min(a.Len(), dictionarySample)
	if value == nil || n < 64 { // nested, or too few to tell
		return true
	}
	seen := make(map[uint64]struct{}, n)
	valid := 0
	for i := range n {
		if a.IsValid(i) {
			valid++
			seen[xxh3.Hash(value(i))] = struct{}{}
		}
	}
	return valid == 0 || float64(len(seen)) <= dictionaryShare*float64(valid)
}

// valueBytes returns a function that gives the bytes of a primitive value, valid
// until the next call; nil for nested and boolean arrays.
func valueBytes(a arrow.Array) func(int) []byte {
	switch a := a.(type) {
	case *array.String:
		return func(i int) []byte { return []byte(a.Value(i)) }
	case *array.Binary:
		return a.Value
	}
	fixed, ok := a.DataType().(arrow.FixedWidthDataType)
	if !ok || fixed.BitWidth()%8 != 0 || a.DataType().ID() == arrow.BOOL {
		return nil
	}
	if _, nested := a.DataType().(arrow.NestedType); nested || len(a.Data().Buffers()) < 2 || a.Data().Buffers()[1] == nil {
		return nil
	}
	width, buf, off := fixed.BitWidth()/8, a.Data().Buffers()[1].Bytes(), a.Data().Offset()
	return func(i int) []byte { return buf[(off+i)*width : (off+i+1)*width] }
}

// integerEncoded reports whether Parquet stores a type as int32 or int64.
func integerEncoded(t segments.Type) bool {
	switch t.Kind {
	case segments.Int, segments.Long, segments.Date, segments.Time, segments.Timestamp, segments.TimestampTZ:
		return true
	case segments.Decimal:
		return t.Precision <= 18
	}
	return false
}
