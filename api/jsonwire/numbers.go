package jsonwire

import (
	"math/big"
	"strconv"
)

// exactDigits is how many decimal digits float64 always holds exactly, both
// ways; shorter literals need no closer look.
const exactDigits = 15

// quoteInexact returns data with every number literal in quotes that float64
// would round. protojson reads a quoted number into an integer or float field
// all the same; a google.protobuf.Value keeps it as a string. Data that is not
// JSON comes out in a form that is not JSON either.
func quoteInexact(data []byte) []byte {
	var out []byte // nil while nothing has changed
	copied := 0
	for i := 0; i < len(data); {
		switch c := data[i]; {
		case c == '"':
			i = stringEnd(data, i)
		case c == '-' || (c >= '0' && c <= '9'):
			end := numberEnd(data, i)
			if inexact(string(data[i:end])) {
				out = append(out, data[copied:i]...)
				out = append(out, '"')
				out = append(out, data[i:end]...)
				out = append(out, '"')
				copied = end
			}
			i = end
		default:
			i++
		}
	}
	if out == nil {
		return data
	}
	return append(out, data[copied:]...)
}

// stringEnd returns the position after the string that starts at i.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

func numberEnd(data []byte, i int) int {
	for ; i < len(data); i++ {
		switch c := data[i]; {
		case c >= '0' && c <= '9', c == '-', c == '+', c == '.', c == 'e', c == 'E':
		default:
			return i
		}
	}
	return i
}

// inexact reports whether a JSON number literal means another number than the
// decimal that its float64 prints as. A literal that is no number is left for
// the parser to refuse.
func inexact(lit string) bool {
	if len(lit) <= exactDigits {
		return false
	}
	const maxLiteral = 400 // big.Rat of a huge exponent would cost memory; float64 ends near 1e308
	if len(lit) > maxLiteral {
		return true
	}
	f, err := strconv.ParseFloat(lit, 64)
	if err != nil {
		return false
	}
	want, ok := ratOf(lit)
	if !ok {
		return false
	}
	got, ok := ratOf(strconv.FormatFloat(f, 'g', -1, 64))
	return ok && want.Cmp(got) != 0
}

// ratOf parses a decimal whose float64 is finite; an exponent that underflows to
// zero is refused before it could make a number of many digits.
func ratOf(lit string) (*big.Rat, bool) {
	for i := range len(lit) {
		if lit[i] == 'e' || lit[i] == 'E' {
			exp, err := strconv.Atoi(lit[i+1:])
			if err != nil || exp < -400 || exp > 400 {
				return nil, false
			}
		}
	}
	return new(big.Rat).SetString(lit)
}
