package rows

import (
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// validity counts a column's values and marks the NULLs among them. The bitmap
// exists only once there is a NULL.
type validity struct {
	bits  []byte
	n     int
	nulls int
}

func (v *validity) len() int { return v.n }

func (v *validity) valid() {
	if v.nulls > 0 {
		v.grow()
		bitutil.SetBit(v.bits, v.n)
	}
	v.n++
}

func (v *validity) invalid() {
	if v.nulls == 0 {
		v.bits = v.bits[:0]
		for range v.n >> 3 {
			v.bits = append(v.bits, 0xff)
		}
		if rest := v.n & 7; rest > 0 {
			v.bits = append(v.bits, 1<<rest-1)
		}
	}
	v.grow()
	bitutil.ClearBit(v.bits, v.n)
	v.n++
	v.nulls++
}

func (v *validity) grow() {
	if v.n>>3 >= len(v.bits) {
		v.bits = append(v.bits, 0)
	}
}

func (v *validity) truncate(n int) {
	if v.nulls > 0 {
		for i := n; i < v.n; i++ {
			if !bitutil.BitIsSet(v.bits, i) {
				v.nulls--
			}
		}
		v.bits = v.bits[:(n+7)/8]
	}
	v.n = n
}

// take hands the bitmap over and starts anew.
func (v *validity) take() (bitmap *memory.Buffer, n, nulls int) {
	n, nulls = v.n, v.nulls
	if nulls > 0 {
		bitmap = memory.NewBufferBytes(v.bits)
		v.bits = nil
	}
	v.n, v.nulls = 0, 0
	return bitmap, n, nulls
}
