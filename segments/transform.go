package segments

import (
	"math/big"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const (
	microsPerHour = 3_600_000_000
	microsPerDay  = 24 * microsPerHour
)

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// timeArray applies year, month, day or hour to dates or timestamps.
func timeArray(col arrow.Array, src Type, t transform) arrow.Array {
	d := col.Data()
	out := make([]int32, d.Len())
	days := func(i int) int64 { return int64(view[int32](buf(d.Buffers(), 1))[d.Offset()+i]) }
	if src.Kind != Date {
		micros := view[int64](buf(d.Buffers(), 1))[d.Offset():]
		if t.name == "hour" {
			for i := range out {
				out[i] = int32(floorDiv(micros[i], microsPerHour))
			}
			return int32Array(arrow.PrimitiveTypes.Int32, out, d)
		}
		days = func(i int) int64 { return floorDiv(micros[i], microsPerDay) }
	}
	var dt arrow.DataType = arrow.PrimitiveTypes.Int32
	switch t.name {
	case "day":
		dt = arrow.FixedWidthTypes.Date32
		for i := range out {
			out[i] = int32(days(i))
		}
	case "month":
		for i := range out {
			y, m := civil(days(i))
			out[i] = int32((y-1970)*12 + m - 1)
		}
	default:
		for i := range out {
			y, _ := civil(days(i))
			out[i] = int32(y - 1970)
		}
	}
	return int32Array(dt, out, d)
}

// civil returns the year and month (1 to 12) of a day counted from 1970-01-01
// in the proleptic Gregorian calendar, for any int32 day. It is Howard
// Hinnant's civil_from_days, which unlike package time has no range to leave.
func civil(days int64) (year, month int64) {
	z := days + 719468 // days since 0000-03-01
	era := floorDiv(z, 146097)
	doe := z - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	month = mp + 3
	year = yoe + era*400
	if month > 12 {
		month -= 12
		year++
	}
	return year, month
}

// truncateArray applies truncate[w]: numbers down to a multiple of w, strings
// to w code points, binaries to w bytes.
func truncateArray(col arrow.Array, t Type, w int) arrow.Array {
	d := col.Data()
	validity, nulls := copyValidity(d)
	off, n := d.Offset(), d.Len()
	values := buf(d.Buffers(), 1)
	bufs := []*memory.Buffer{validity}
	switch t.Kind {
	case Int:
		bufs = append(bufs, memory.NewBufferBytes(truncateInts(view[int32](values), off, n, int32(w))))
	case Long:
		bufs = append(bufs, memory.NewBufferBytes(truncateInts(view[int64](values), off, n, int64(w))))
	case Decimal:
		out := make([]decimal128.Num, n)
		for i := range out {
			if col.IsValid(i) {
				out[i] = truncateDecimal(decimalAt(values, off+i), int64(w))
			}
		}
		bufs = append(bufs, memory.NewBufferBytes(bytesOf(out)))
	default:
		o := int32s(values)
		data := buf(d.Buffers(), 2)
		ends := make([]int32, n+1)
		var out []byte
		for i := range n {
			if col.IsValid(i) {
				out = append(out, truncateBytes(data[o[off+i]:o[off+i+1]], t.Kind, w)...)
			}
			ends[i+1] = int32(len(out))
		}
		bufs = append(bufs, memory.NewBufferBytes(bytesOf(ends)), memory.NewBufferBytes(out))
	}
	return array.MakeFromData(array.NewData(d.DataType(), n, bufs, nil, nulls, 0))
}

// truncateInts wraps below the type's smallest value, as other engines do.
func truncateInts[T int32 | int64](v []T, off, n int, w T) []byte {
	out := make([]T, n)
	for i := range out {
		x := v[off+i]
		out[i] = x - (x%w+w)%w
	}
	return bytesOf(out)
}

func truncateDecimal(v decimal128.Num, w int64) decimal128.Num {
	x, bw := v.BigInt(), big.NewInt(w)
	rem := new(big.Int).Mod(x, bw) // Euclidean: never negative
	if x.Sub(x, rem); x.BitLen() > 127 {
		return v // over 38 digits: no decimal that a column holds
	}
	return decimal128.FromBigInt(x)
}

func truncateBytes(v []byte, k Kind, w int) []byte {
	if len(v) <= w {
		return v
	}
	if k == Binary {
		return v[:w]
	}
	end := 0
	for range w {
		if end == len(v) {
			break
		}
		_, size := utf8.DecodeRune(v[end:])
		end += size
	}
	return v[:end]
}
