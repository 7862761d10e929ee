package literal

import (
	"math"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// Number is an exact decimal: Coef × 10^-Scale, negated when Neg is set. Its
// digits are the significant ones, without leading or trailing zeros.
type Number struct {
	Neg   bool
	Lead  []byte // significant digits before the point of the text, if any
	Trail []byte // significant digits after it
	Scale int    // power of ten below the last digit; negative when zeros follow
}

// maxExponent bounds the exponents that are looked at: no column type reaches it.
const maxExponent = 10_000

// ParseNumber splits a number into its exact parts. The digits alias b.
func ParseNumber(b []byte) (Number, error) {
	var n Number
	i := 0
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		n.Neg = b[i] == '-'
		i++
	}
	start := i
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	n.Lead = b[start:i]
	if i < len(b) && b[i] == '.' {
		start = i + 1
		for i++; i < len(b) && b[i]-'0' <= 9; i++ {
		}
		n.Trail = b[start:i]
	}
	if len(n.Lead)+len(n.Trail) == 0 {
		return n, ErrNumber
	}
	exp, err := exponent(b[i:])
	if err != nil {
		return n, err
	}
	n.normalise()
	if n.Zero() {
		n.Scale = 0
		return n, nil
	}
	n.Scale -= exp
	if n.Scale > maxExponent || n.Scale < -maxExponent {
		return n, ErrExponentRange
	}
	return n, nil
}

// exponent parses an optional exponent that must take the whole of b. Values
// over a bound are cut to it: they are refused by what uses them.
func exponent(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	if b[0] != 'e' && b[0] != 'E' {
		return 0, ErrNumber
	}
	i, neg := 1, false
	if i < len(b) && (b[i] == '-' || b[i] == '+') {
		neg = b[i] == '-'
		i++
	}
	if i == len(b) {
		return 0, ErrNumber
	}
	exp := 0
	for ; i < len(b); i++ {
		if b[i]-'0' > 9 {
			return 0, ErrNumber
		}
		if exp < 1<<30 {
			exp = exp*10 + int(b[i]-'0')
		}
	}
	if neg {
		exp = -exp
	}
	return exp, nil
}

// normalise drops zeros that carry no value and sets Scale to what is left of the fraction.
func (n *Number) normalise() {
	for len(n.Lead) > 0 && n.Lead[0] == '0' {
		n.Lead = n.Lead[1:]
	}
	for len(n.Trail) > 0 && n.Trail[len(n.Trail)-1] == '0' {
		n.Trail = n.Trail[:len(n.Trail)-1]
	}
	n.Scale = len(n.Trail)
	if n.Scale == 0 {
		for len(n.Lead) > 0 && n.Lead[len(n.Lead)-1] == '0' {
			n.Lead = n.Lead[:len(n.Lead)-1]
			n.Scale--
		}
		return
	}
	if len(n.Lead) == 0 {
		for len(n.Trail) > 0 && n.Trail[0] == '0' {
			n.Trail = n.Trail[1:]
		}
	}
}

// Zero reports whether the number is zero.
func (n *Number) Zero() bool { return len(n.Lead)+len(n.Trail) == 0 }

// Digits returns the number of significant digits.
func (n *Number) Digits() int { return len(n.Lead) + len(n.Trail) }

// Unscaled returns the number × 10^scale when that is an integer of at most
// precision digits. A fraction that scale cannot hold is ErrFraction, too many
// digits are ErrPrecision. precision is at most 38.
func (n *Number) Unscaled(precision, scale int) (decimal128.Num, error) {
	if n.Zero() {
		return decimal128.Num{}, nil
	}
	pad := scale - n.Scale
	if pad < 0 {
		return decimal128.Num{}, ErrFraction
	}
	if n.Digits()+pad > precision {
		return decimal128.Num{}, ErrPrecision
	}
	// 38 digits are below 2^127: neither step can overflow.
	var hi, lo uint64
	step := func(d uint64) {
		h, l := bits.Mul64(lo, 10)
		var carry uint64
		lo, carry = bits.Add64(l, d, 0)
		hi = hi*10 + h + carry
	}
	for _, c := range n.Lead {
		step(uint64(c - '0'))
	}
	for _, c := range n.Trail {
		step(uint64(c - '0'))
	}
	for range pad {
		step(0)
	}
	out := decimal128.New(int64(hi), lo)
	if n.Neg {
		out = out.Negate()
	}
	return out, nil
}

// Decimal parses a decimal of the given precision and scale into its unscaled value.
func Decimal(b []byte, precision, scale int) (decimal128.Num, error) {
	n, err := ParseNumber(b)
	if err != nil {
		return decimal128.Num{}, err
	}
	return n.Unscaled(precision, scale)
}

// Int64 returns the number when it is an integer of 64 bits: ErrFraction or
// ErrPrecision otherwise.
func (n *Number) Int64() (int64, error) {
	v, err := n.Unscaled(38, 0)
	if err != nil {
		return 0, err
	}
	if v.HighBits() == 0 && v.LowBits() <= math.MaxInt64 || v.HighBits() == -1 && v.LowBits() > math.MaxInt64 {
		return int64(v.LowBits()), nil
	}
	return 0, ErrPrecision
}

// AppendDecimal appends v × 10^-scale with exactly scale fraction digits.
func AppendDecimal(dst []byte, v decimal128.Num, scale int) []byte {
	neg := v.Sign() < 0
	hi, lo := uint64(v.HighBits()), v.LowBits()
	if neg {
		var borrow uint64
		lo, borrow = bits.Sub64(0, lo, 0)
		hi, _ = bits.Sub64(0, hi, borrow)
	}
	var tmp [48]byte
	i := len(tmp)
	for n := 0; hi != 0 || lo != 0 || n <= scale; n++ {
		if n == scale && scale > 0 {
			i--
			tmp[i] = '.'
		}
		qhi, r := hi/10, hi%10
		qlo, digit := bits.Div64(r, lo, 10)
		hi, lo = qhi, qlo
		i--
		tmp[i] = byte('0' + digit)
	}
	if neg {
		dst = append(dst, '-')
	}
	return append(dst, tmp[i:]...)
}
