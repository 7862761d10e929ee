package rows

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/firn-data/firn/segments/rows/literal"
)

// maxJSONDepth bounds the nesting of a row, known columns and skipped ones alike.
const maxJSONDepth = 128

// badSyntax is a reason why a text is no JSON; other reasons are about values.
type badSyntax string

func (b badSyntax) Error() string { return string(b) }

const (
	errEnd        = badSyntax("the JSON text ends early")
	errUTF8       = badSyntax("a string is not valid UTF-8")
	errControl    = badSyntax("a control character in a string must be escaped")
	errEscape     = badSyntax("a string holds an unknown escape")
	errSurrogate  = badSyntax("a string holds half of a surrogate pair, which is no character")
	errToken      = badSyntax("unexpected character where a JSON value should be")
	errLeadZero   = badSyntax("a JSON number has no leading zeros")
	errNumber     = badSyntax("a JSON number is malformed")
	errColon      = badSyntax("expected ':' after a field name")
	errComma      = badSyntax("expected ',' or the end of an object or array")
	errName       = badSyntax("expected a field name in double quotes")
	errDeep       = badSyntax("JSON nested deeper than 128 levels")
	errAfterValue = badSyntax("unexpected text after the row")
	errNotObject  = valueReason("a row must be a JSON object")
)

// valueReason is a constant reason about a well-formed value.
type valueReason string

func (v valueReason) Error() string { return string(v) }

// scanner reads JSON tokens from one row. After a method returned false, why
// says what was wrong and path where, inside the column.
type scanner struct {
	buf     []byte
	pos     int
	depth   int
	why     error
	path    string
	scratch []byte
}

func (s *scanner) reset(row []byte) {
	s.buf, s.pos, s.depth, s.why, s.path = row, 0, 0, nil, ""
}

func (s *scanner) fail(why error) bool {
	if s.pos >= len(s.buf) {
		if errors.As(why, new(badSyntax)) {
			why = errEnd
		}
	}
	s.why = why
	return false
}

// in prefixes the path of a failure.
func (s *scanner) in(name string) bool {
	if s.path != "" && s.path[0] != '[' {
		name += "."
	}
	s.path = name + s.path
	return false
}

// space skips white space and returns the byte after it, 0 at the end.
func (s *scanner) space() byte {
	for s.pos < len(s.buf) {
		c := s.buf[s.pos]
		if c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		s.pos++
	}
	return 0
}

// word consumes a literal name such as null.
func (s *scanner) word(w string) bool {
	if len(s.buf)-s.pos >= len(w) && string(s.buf[s.pos:s.pos+len(w)]) == w {
		s.pos += len(w)
		return true
	}
	return s.fail(errToken)
}

const (
	swarOnes  = 0x0101010101010101
	swarHighs = 0x8080808080808080
)

// special marks the bytes of w that end the fast run of a string: a quote, a
// backslash, a control character, or one of a multi-byte character.
func special(w uint64) uint64 {
	quote := w ^ (swarOnes * '"')
	slash := w ^ (swarOnes * '\\')
	return (w | (quote - swarOnes) | (slash - swarOnes) | (w - swarOnes*0x20)) & swarHighs
}

// str consumes a string, the quote first, and returns its content. The bytes
// are valid until the next call.
func (s *scanner) str() ([]byte, bool) {
	start := s.pos + 1
	i := start
	buf := s.buf
	for i+8 <= len(buf) {
		m := special(binary.LittleEndian.Uint64(buf[i:]))
		if m == 0 {
			i += 8
			continue
		}
		// A borrow can only mark bytes above a real hit: the first one counts.
		i += bits.TrailingZeros64(m) >> 3
		if buf[i] == '"' {
			s.pos = i + 1
			return buf[start:i], true
		}
		return s.strSlow(start, i)
	}
	return s.strSlow(start, i)
}

// strSlow goes on byte by byte from i, for strings at the end of the row, with
// characters of several bytes, or with escapes.
func (s *scanner) strSlow(start, i int) ([]byte, bool) {
	high := false
	for i < len(s.buf) {
		c := s.buf[i]
		switch {
		case c == '"':
			out := s.buf[start:i]
			s.pos = i + 1
			if high && !utf8.Valid(out) {
				return nil, s.fail(errUTF8)
			}
			return out, true
		case c == '\\':
			return s.strEscaped(start, i)
		case c < 0x20:
			s.pos = i
			return nil, s.fail(errControl)
		case c >= utf8.RuneSelf:
			high = true
		}
		i++
	}
	s.pos = len(s.buf)
	return nil, s.fail(errEnd)
}

// strEscaped copies the string to scratch; the first backslash is at i.
func (s *scanner) strEscaped(start, i int) ([]byte, bool) {
	out := append(s.scratch[:0], s.buf[start:i]...)
	for i < len(s.buf) {
		c := s.buf[i]
		switch {
		case c == '"':
			s.pos, s.scratch = i+1, out
			if !utf8.Valid(out) {
				return nil, s.fail(errUTF8)
			}
			return out, true
		case c < 0x20:
			s.pos = i
			return nil, s.fail(errControl)
		case c != '\\':
			out = append(out, c)
			i++
		default:
			s.pos = i
			var ok bool
			if out, i, ok = s.escape(out, i+1); !ok {
				return nil, false
			}
		}
	}
	s.pos = len(s.buf)
	return nil, s.fail(errEnd)
}

// escape appends what the escape after a backslash stands for; i is after it.
func (s *scanner) escape(out []byte, i int) ([]byte, int, bool) {
	if i >= len(s.buf) {
		s.pos = len(s.buf)
		return nil, 0, s.fail(errEnd)
	}
	switch c := s.buf[i]; c {
	case '"', '\\', '/':
		return append(out, c), i + 1, true
	case 'b':
		return append(out, '\b'), i + 1, true
	case 'f':
		return append(out, '\f'), i + 1, true
	case 'n':
		return append(out, '\n'), i + 1, true
	case 'r':
		return append(out, '\r'), i + 1, true
	case 't':
		return append(out, '\t'), i + 1, true
	case 'u':
	default:
		return nil, 0, s.fail(errEscape)
	}
	r, ok := hex4(s.buf, i+1)
	if !ok {
		return nil, 0, s.fail(errEscape)
	}
	i += 5
	if utf16.IsSurrogate(r) {
		if i+1 >= len(s.buf) || s.buf[i] != '\\' || s.buf[i+1] != 'u' {
			return nil, 0, s.fail(errSurrogate)
		}
		low, ok := hex4(s.buf, i+2)
		if r = utf16.DecodeRune(r, low); !ok || r == utf8.RuneError {
			return nil, 0, s.fail(errSurrogate)
		}
		i += 6
	}
	return utf8.AppendRune(out, r), i, true
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	r := rune(0)
	for _, c := range b[i : i+4] {
		switch {
		case c-'0' <= 9:
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// digits returns the position after the run of digits at i.
func digits(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// number consumes a number in JSON's grammar and returns its text.
func (s *scanner) number() ([]byte, bool) {
	b, i := s.buf, s.pos
	if i < len(b) && b[i] == '-' {
		i++
	}
	end := digits(b, i)
	if end == i {
		s.pos = end
		return nil, s.fail(errToken)
	}
	if b[i] == '0' && end > i+1 {
		return nil, s.fail(errLeadZero)
	}
	i = end
	if i < len(b) && b[i] == '.' {
		end = digits(b, i+1)
		if end == i+1 {
			s.pos = end
			return nil, s.fail(errNumber)
		}
		i = end
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end = digits(b, i)
		if end == i {
			s.pos = end
			return nil, s.fail(errNumber)
		}
		i = end
	}
	out := b[s.pos:i]
	s.pos = i
	return out, true
}

// integer consumes a 64-bit integer; a number that is one in another notation
// (1.0, 1e3) is taken too.
func (s *scanner) integer() (int64, bool) {
	b, i := s.buf, s.pos
	neg := i < len(b) && b[i] == '-'
	if neg {
		i++
	}
	start := i
	v := int64(0)
	for i < len(b) && b[i]-'0' <= 9 {
		v = v*10 + int64(b[i]-'0')
		i++
	}
	n := i - start
	if n == 0 || n > 18 || n > 1 && b[start] == '0' || i < len(b) && (b[i] == '.' || b[i]|0x20 == 'e') {
		return s.integerSlow()
	}
	s.pos = i
	if neg {
		v = -v
	}
	return v, true
}

func (s *scanner) integerSlow() (int64, bool) {
	if c := s.peek(); c != '-' && c-'0' > 9 {
		return 0, s.mismatch("an integer")
	}
	text, ok := s.number()
	if !ok {
		return 0, false
	}
	v, err := integerText(text)
	if err != nil {
		return 0, s.fail(err)
	}
	return v, true
}

// integerText parses the text of a 64-bit integer.
func integerText(text []byte) (int64, error) {
	n, err := literal.ParseNumber(text)
	if err == nil {
		var v int64
		if v, err = n.Int64(); err == nil {
			return v, nil
		}
	}
	switch err {
	case literal.ErrNumber:
		return 0, errNotInteger
	case literal.ErrFraction:
		return 0, errFractional
	}
	return 0, errLongRange
}

const (
	errNotInteger = valueReason("not an integer")
	errFractional = valueReason("not an integer: the fraction would be lost")
	errLongRange  = valueReason("outside the range of a 64-bit integer")
	errIntRange   = valueReason("outside the range of a 32-bit integer")
)

func (s *scanner) peek() byte {
	if s.pos < len(s.buf) {
		return s.buf[s.pos]
	}
	return 0
}

// mismatch fails with what was expected and what kind of value is there; text
// that starts no value is a syntax error.
func (s *scanner) mismatch(want string) bool {
	got := ""
	switch c := s.peek(); {
	case c == '"':
		got = "a string"
	case c == '{':
		got = "an object"
	case c == '[':
		got = "an array"
	case c == 't' || c == 'f':
		got = "a boolean"
	case c == '-' || c-'0' <= 9:
		got = "a number"
	case c == 'n':
		got = "null"
	default:
		return s.fail(errToken)
	}
	return s.fail(valueReason("expected " + want + ", got " + got))
}

// skip consumes any value, checking its syntax.
func (s *scanner) skip() bool {
	switch c := s.space(); {
	case c == '"':
		_, ok := s.str()
		return ok
	case c == '{':
		return s.skipNested('}', true)
	case c == '[':
		return s.skipNested(']', false)
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	}
	_, ok := s.number()
	return ok
}

func (s *scanner) skipNested(end byte, named bool) bool {
	if !s.push() {
		return false
	}
	s.pos++
	if s.space() == end {
		s.pos++
		s.depth--
		return true
	}
	for {
		if named {
			if s.space() != '"' {
				return s.fail(errName)
			}
			if _, ok := s.str(); !ok {
				return false
			}
			if !s.colon() {
				return false
			}
		}
		if !s.skip() {
			return false
		}
		switch s.space() {
		case ',':
			s.pos++
		case end:
			s.pos++
			s.depth--
			return true
		default:
			return s.fail(errComma)
		}
	}
}

// push enters a nested value. Leaving it is the caller's (depth--).
func (s *scanner) push() bool {
	if s.depth++; s.depth > maxJSONDepth {
		return s.fail(errDeep)
	}
	return true
}

// colon consumes the colon after a name, and white space before it.
func (s *scanner) colon() bool {
	if s.space() != ':' {
		return s.fail(errColon)
	}
	s.pos++
	return true
}
