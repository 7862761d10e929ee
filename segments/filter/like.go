package filter

import (
	"bytes"
	"unicode/utf8"

	"vitess.io/vitess/go/vt/sqlparser"

	"github.com/firn-data/firn/segments"
)

// element is a part of a pattern: text, or a wildcard.
type element struct {
	text []byte
	wild byte // '_', '%', or 0 for text
}

// Pattern is a compiled LIKE pattern.
type Pattern struct {
	source   string
	elements []element
}

// String returns the pattern as it was written.
func (p Pattern) String() string { return p.source }

// Prefix returns the text that every match starts with, and whether everything
// that starts so is a match.
func (p Pattern) Prefix() (prefix string, all bool) {
	rest := p.elements
	if len(rest) > 0 && rest[0].wild == 0 {
		prefix, rest = string(rest[0].text), rest[1:]
	}
	return prefix, len(rest) == 1 && rest[0].wild == '%'
}

// exact reports a pattern without wildcards.
func (p Pattern) exact() ([]byte, bool) {
	switch {
	case len(p.elements) == 0:
		return nil, true
	case len(p.elements) == 1 && p.elements[0].wild == 0:
		return p.elements[0].text, true
	}
	return nil, false
}

// compilePattern reads a pattern; escape 0 is none.
func compilePattern(source string, escape rune) (Pattern, bool) {
	p := Pattern{source: source}
	var text []byte
	flush := func() {
		if len(text) > 0 {
			p.elements = append(p.elements, element{text: text})
			text = nil
		}
	}
	escaped := false
	for _, r := range source {
		switch {
		case escaped:
			text, escaped = utf8.AppendRune(text, r), false
		case r == escape && escape != 0:
			escaped = true
		case r == '%':
			flush()
			if n := len(p.elements); n == 0 || p.elements[n-1].wild != '%' {
				p.elements = append(p.elements, element{wild: '%'})
			}
		case r == '_':
			flush()
			p.elements = append(p.elements, element{wild: '_'})
		default:
			text = utf8.AppendRune(text, r)
		}
	}
	flush()
	return p, !escaped
}

// matcher returns the fastest test for the pattern.
func (p Pattern) matcher() func(s []byte) bool {
	e := p.elements
	if text, ok := p.exact(); ok {
		return func(s []byte) bool { return bytes.Equal(s, text) }
	}
	shape := ""
	for _, el := range e {
		if el.wild == 0 {
			shape += "t"
		} else {
			shape += string(el.wild)
		}
	}
	switch shape {
	case "%":
		return func([]byte) bool { return true }
	case "t%":
		return func(s []byte) bool { return bytes.HasPrefix(s, e[0].text) }
	case "%t":
		return func(s []byte) bool { return bytes.HasSuffix(s, e[1].text) }
	case "%t%":
		return func(s []byte) bool { return bytes.Contains(s, e[1].text) }
	}
	return func(s []byte) bool { return matchElements(e, s) }
}

// matchElements matches with one point of return: the last % seen. Going back
// further is never needed, for that % can take whatever an earlier one would.
func matchElements(e []element, s []byte) bool {
	i, at := 0, 0
	backElement, backAt := -1, 0
	for {
		switch {
		case i == len(e):
			if at == len(s) {
				return true
			}
		case e[i].wild == '%':
			backElement, backAt = i, at
			i++
			continue
		case e[i].wild == '_':
			if at < len(s) {
				_, n := utf8.DecodeRune(s[at:])
				i, at = i+1, at+n
				continue
			}
		case bytes.HasPrefix(s[at:], e[i].text):
			at += len(e[i].text)
			i++
			continue
		}
		if backElement < 0 || backAt >= len(s) {
			return false
		}
		_, n := utf8.DecodeRune(s[backAt:])
		backAt += n
		i, at = backElement+1, backAt
	}
}

func (p *parser) like(e *sqlparser.ComparisonExpr) (Node, error) {
	name, ok := e.Left.(*sqlparser.ColName)
	if !ok {
		return nil, refuse("LIKE on anything but a column is")
	}
	col, err := p.scalar(name)
	if err != nil {
		return nil, err
	}
	if col.Type.Kind != segments.String {
		return nil, fault("column %q is %s: LIKE is for string columns", col.Name, col.Type)
	}
	pattern, err := p.literal(e.Right, col)
	if err != nil {
		return nil, p.locate(e.Right, err)
	}
	if pattern.form == formNull {
		return &Const{Unknown}, nil
	}
	escape := '\\'
	if e.Escape != nil {
		esc, err := p.literal(e.Escape, col)
		if err != nil {
			return nil, p.locate(e.Escape, err)
		}
		if esc.form != formText || utf8.RuneCountInString(esc.text) > 1 {
			return nil, p.locate(e.Escape, fault("ESCAPE takes one character, or '' for none"))
		}
		escape = 0
		for _, escape = range esc.text {
		}
	}
	if pattern.form != formText {
		return nil, p.locate(e.Right, fault("LIKE takes a pattern in single quotes"))
	}
	compiled, ok := compilePattern(pattern.text, escape)
	if !ok {
		return nil, p.locate(e.Right, fault("the LIKE pattern '%s' ends with its escape character", pattern.text))
	}
	if text, exact := compiled.exact(); exact {
		op := Eq
		if e.Operator == sqlparser.NotLikeOp {
			op = Ne
		}
		return &Compare{Op: op, Col: col, Value: Value{Kind: segments.String, Bytes: append([]byte{}, text...)}}, nil
	}
	return &Like{Col: col, Pattern: compiled, Not: e.Operator == sqlparser.NotLikeOp}, nil
}
