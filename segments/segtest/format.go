package segtest

import (
	"fmt"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Format writes a value so that two values are the same exactly when their
// texts are.
func Format(a arrow.Array, i int) string {
	if a.IsNull(i) {
		return "NULL"
	}
	switch a := a.(type) {
	case *array.Float32:
		return fmt.Sprintf("%v/%t", a.Value(i), math.Signbit(float64(a.Value(i))))
	case *array.Float64:
		return fmt.Sprintf("%v/%t", a.Value(i), math.Signbit(a.Value(i)))
	case *array.Date32:
		return fmt.Sprint(int32(a.Value(i)))
	case *array.Time64:
		return fmt.Sprint(int64(a.Value(i)))
	case *array.Timestamp:
		return fmt.Sprint(int64(a.Value(i)))
	case *array.String:
		return fmt.Sprintf("%q", a.Value(i))
	case *array.Binary:
		return fmt.Sprintf("%x", a.Value(i))
	case *array.FixedSizeBinary:
		return fmt.Sprintf("%x", a.Value(i))
	case *array.Decimal128:
		return a.Value(i).BigInt().String()
	case *array.Map:
		from, to := a.ValueOffsets(i)
		var b strings.Builder
		for j := from; j < to; j++ {
			b.WriteString(Format(a.Keys(), int(j)) + "=" + Format(a.Items(), int(j)) + ";")
		}
		return "{" + b.String() + "}"
	case *array.List:
		from, to := a.ValueOffsets(i)
		var b strings.Builder
		for j := from; j < to; j++ {
			b.WriteString(Format(a.ListValues(), int(j)) + ";")
		}
		return "[" + b.String() + "]"
	case *array.Struct:
		var b strings.Builder
		for f := range a.NumField() {
			b.WriteString(Format(a.Field(f), i) + ";")
		}
		return "(" + b.String() + ")"
	}
	return a.ValueStr(i)
}
