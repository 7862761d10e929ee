package filter

import (
	"cmp"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// wide is a 256-bit integer as sign and magnitude: a decimal of 38 digits
// brought to a scale of up to 38 more.
type wide struct {
	neg bool
	mag [4]uint64 // least significant first
}

func widen(v decimal128.Num) wide {
	w := wide{neg: v.Sign() < 0}
	if w.neg {
		v = v.Negate() // the smallest value negates to itself, which as unsigned is its magnitude
	}
	w.mag[0], w.mag[1] = v.LowBits(), uint64(v.HighBits())
	return w
}

// scaled returns w × 10^n; n is at most 38.
func (w wide) scaled(n int) wide {
	for range n {
		var carry uint64
		for i, m := range w.mag {
			hi, lo := bits.Mul64(m, 10)
			var c uint64
			lo, c = bits.Add64(lo, carry, 0)
			w.mag[i], carry = lo, hi+c
		}
	}
	return w
}

func (w wide) zero() bool { return w.mag == [4]uint64{} }

func (w wide) cmp(o wide) int {
	if w.neg != o.neg && !(w.zero() && o.zero()) {
		if w.neg {
			return -1
		}
		return 1
	}
	for i := len(w.mag) - 1; i >= 0; i-- {
		if c := cmp.Compare(w.mag[i], o.mag[i]); c != 0 {
			if w.neg {
				return -c
			}
			return c
		}
	}
	return 0
}

// decimals returns the values of an integer or decimal vector at a scale.
func (v *vector) decimals(scale int) func(int) wide {
	if v.dec != nil {
		return func(i int) wide { return widen(v.dec[i]).scaled(scale - v.scale) }
	}
	ints := v.ints()
	return func(i int) wide { return widen(decimal128.FromI64(ints(i))).scaled(scale) }
}
