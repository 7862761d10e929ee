package merge

import "math/big"

// roundedQuotient divides n by 10^scale, rounding half away from zero.
func roundedQuotient(n *big.Int, scale int) *big.Int {
	if scale == 0 {
		return n
	}
	divisor := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)
	quotient, rest := new(big.Int).QuoRem(n, divisor, new(big.Int))
	if rest.Lsh(rest.Abs(rest), 1).Cmp(divisor) >= 0 {
		quotient.Add(quotient, big.NewInt(int64(n.Sign())))
	}
	return quotient
}

// digits returns the number of decimal digits of n.
func digits(n *big.Int) int { return len(new(big.Int).Abs(n).Text(10)) }
