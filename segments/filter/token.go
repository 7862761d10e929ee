package filter

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/firn-data/firn/internal/errs"
)

// Bounds of a predicate.
const (
	maxText   = 64 << 10
	maxDepth  = 100
	maxValues = 10_000
)

const allowed = "a predicate is made of comparisons, IN, BETWEEN, LIKE, IS NULL, AND, OR and NOT over columns and literals"

// word is an identifier of the text, with its position.
type word struct {
	name string
	pos  int
}

// tokens is a predicate prepared for the grammar: names and literals are
// replaced by quoted numbers, which remember where they stood.
type tokens struct {
	in       string
	out      strings.Builder
	names    []word    // `0`, `1`, …
	literals []written // '0;', '1;', … (the semicolon makes a number of two such texts invalid)
	marks    []mark
	depth    int
}

// written is a literal of the text, with its position.
type written struct {
	form form
	text string // what a text holds, the number, or the bytes
	pos  int
}

// mark maps a position of the output to the text.
type mark struct{ out, in int }

// keywords of the grammar; other words are names.
var keywords = map[string]bool{
	"AND": true, "OR": true, "NOT": true, "IN": true, "IS": true, "NULL": true, "LIKE": true,
	"ESCAPE": true, "BETWEEN": true, "TRUE": true, "FALSE": true,
}

// typed are words that introduce a literal when a text follows.
var typed = map[string]bool{"DATE": true, "TIME": true, "TIMESTAMP": true}

func tokenize(text string) (*tokens, error) {
	if len(text) > maxText {
		return nil, errs.New(errs.Invalid, "where: the predicate has %d bytes, the limit is %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return nil, errs.New(errs.Invalid, "where: the predicate is not valid UTF-8")
	}
	t := &tokens{in: text}
	literals, after := 0, -1 // a literal ended the token before
	for i := 0; i < len(text); {
		c := text[i]
		if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
			t.out.WriteByte(' ')
			i++
			continue
		}
		t.marks = append(t.marks, mark{t.out.Len(), i})
		next, err := t.token(i, c)
		if err != nil {
			return nil, err
		}
		if len(t.literals) > literals {
			if after == len(t.marks)-1 {
				return nil, t.invalidAt(i, "two literals in a row are not supported; %s", allowed)
			}
			literals, after = len(t.literals), len(t.marks)
		}
		i = next
	}
	if len(t.marks) == 0 {
		return nil, errs.New(errs.Invalid, "where: the predicate is empty")
	}
	if t.depth > 0 {
		return nil, t.invalidAt(len(text), "a closing parenthesis is missing")
	}
	return t, nil
}

// token writes the token at i and returns the position after it.
func (t *tokens) token(i int, c byte) (int, error) {
	switch {
	case c == '\'':
		s, next, err := t.quoted(i, c)
		if err != nil {
			return 0, err
		}
		t.literal(formText, s, i)
		return next, nil
	case c == '"' || c == '`':
		s, next, err := t.quoted(i, c)
		if err != nil {
			return 0, err
		}
		t.name(s, i)
		return next, nil
	case (c == 'x' || c == 'X') && i+1 < len(t.in) && t.in[i+1] == '\'':
		return t.hex(i)
	case nameStart(c):
		return t.word(i)
	case digit(c), c == '.' && i+1 < len(t.in) && digit(t.in[i+1]):
		return t.number(i)
	}
	return t.operator(i, c)
}

func digit(c byte) bool { return c-'0' <= 9 }

func nameStart(c byte) bool {
	return c == '_' || c|0x20 >= 'a' && c|0x20 <= 'z' || c >= utf8.RuneSelf
}

func (t *tokens) literal(f form, s string, pos int) {
	fmt.Fprintf(&t.out, "'%d;'", len(t.literals))
	t.literals = append(t.literals, written{f, s, pos})
}

func (t *tokens) name(s string, pos int) {
	fmt.Fprintf(&t.out, "`%d`", len(t.names))
	t.names = append(t.names, word{s, pos})
}

// quoted reads what stands between quotes; a doubled quote is one.
func (t *tokens) quoted(i int, quote byte) (string, int, error) {
	var b strings.Builder
	for at := i + 1; at < len(t.in); at++ {
		if t.in[at] != quote {
			b.WriteByte(t.in[at])
			continue
		}
		if at+1 < len(t.in) && t.in[at+1] == quote {
			b.WriteByte(quote)
			at++
			continue
		}
		return b.String(), at + 1, nil
	}
	return "", 0, t.invalidAt(i, "a closing %c is missing", quote)
}

func (t *tokens) hex(i int) (int, error) {
	s, next, err := t.quoted(i+1, '\'')
	if err != nil {
		return 0, err
	}
	b, err := hex.DecodeString(s)
	switch {
	case errors.Is(err, hex.ErrLength):
		return 0, t.invalidAt(i, "x'…' holds an odd number of digits")
	case err != nil:
		return 0, t.invalidAt(i, "x'…' holds hexadecimal digits only")
	}
	t.literal(formHex, string(b), i)
	return next, nil
}

// word reads a keyword or name. A dollar sign is part of it; a minus is not.
func (t *tokens) word(i int) (int, error) {
	end := i
	for end < len(t.in) && (nameStart(t.in[end]) || digit(t.in[end]) || t.in[end] == '$') {
		end++
	}
	s := t.in[i:end]
	upper := strings.ToUpper(s)
	follows := strings.TrimLeft(t.in[end:], " \t\r\n")
	afterDot := strings.HasSuffix(strings.TrimRight(t.out.String()[max(0, t.out.Len()-4):], " "), ".")
	switch {
	case (upper == "TRUE" || upper == "FALSE") && !afterDot && !t.afterIs():
		t.literal(formBool, upper, i)
	case keywords[upper] && !afterDot:
		t.out.WriteString(upper)
	case typed[upper] && strings.HasPrefix(follows, "'"):
		t.out.WriteString(upper)
	case strings.HasPrefix(follows, "("):
		return 0, t.invalidAt(i, "%s(…): functions are not supported; %s", s, allowed)
	default:
		t.name(s, i)
	}
	return end, nil
}

// afterIs reports whether the text so far ends in IS or IS NOT.
func (t *tokens) afterIs() bool {
	words := strings.Fields(t.out.String()[max(0, t.out.Len()-32):])
	if n := len(words); n > 0 && words[n-1] == "NOT" {
		words = words[:n-1]
	}
	return len(words) > 0 && words[len(words)-1] == "IS"
}

func (t *tokens) number(i int) (int, error) {
	end := i
	for end < len(t.in) && (digit(t.in[end]) || t.in[end] == '.') {
		end++
	}
	if end < len(t.in) && t.in[end]|0x20 == 'e' {
		k := end + 1
		if k < len(t.in) && (t.in[k] == '+' || t.in[k] == '-') {
			k++
		}
		if k < len(t.in) && digit(t.in[k]) {
			for end = k; end < len(t.in) && digit(t.in[end]); end++ {
			}
		}
	}
	s := t.in[i:end]
	if strings.Count(s, ".") > 1 || end < len(t.in) && nameStart(t.in[end]) {
		return 0, t.invalidAt(i, "a number is malformed; names that start with a digit need double quotes")
	}
	t.literal(formNumber, s, i)
	return end, nil
}

// operators, longest first.
var operators = []string{"<>", "!=", "<=", ">=", "=", "<", ">", ",", ".", "-", "+", "*", "/", "%"}

func (t *tokens) operator(i int, c byte) (int, error) {
	rest := t.in[i:]
	switch {
	case c == '(':
		if t.depth++; t.depth > maxDepth {
			return 0, t.invalidAt(i, "nested deeper than %d levels", maxDepth)
		}
		t.out.WriteByte(c)
		return i + 1, nil
	case c == ')':
		if t.depth--; t.depth < 0 {
			return 0, t.invalidAt(i, "a closing parenthesis without an opening one")
		}
		t.out.WriteByte(c)
		return i + 1, nil
	case strings.HasPrefix(rest, "--"), strings.HasPrefix(rest, "/*"), c == '#':
		return 0, t.invalidAt(i, "comments are not allowed")
	case strings.HasPrefix(rest, "<=>"):
		return 0, t.invalidAt(i, "<=> is not supported; %s", allowed)
	case strings.HasPrefix(rest, "=="):
		return 0, t.invalidAt(i, "equality is written =")
	}
	for _, op := range operators {
		if strings.HasPrefix(rest, op) {
			t.out.WriteString(op)
			return i + len(op), nil
		}
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return 0, t.invalidAt(i, "unexpected %q; %s", r, allowed)
}

// position maps a position of the output back to the text.
func (t *tokens) position(out int) int {
	pos := 0
	for _, m := range t.marks {
		if m.out > out {
			break
		}
		pos = m.in
	}
	return pos
}
