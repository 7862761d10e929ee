package filter

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"vitess.io/vitess/go/vt/sqlparser"

	"github.com/firn-data/firn/internal/errs"
)

// invalidAt is the error for what stands at a byte of the text. It tells the
// place in characters from 1, and the token there.
func (t *tokens) invalidAt(pos int, format string, args ...any) error {
	at, token := utf8.RuneCountInString(t.in[:pos])+1, t.tokenAt(pos)
	where := fmt.Sprintf("at character %d", at)
	if token != "" {
		where += ": " + token
	}
	e := errs.New(errs.Invalid, "where: %s (%s)", fmt.Sprintf(format, args...), where)
	e.Details = []any{map[string]any{"position": at, "token": token}}
	return e
}

// tokenAt returns the token that starts at a byte of the text, cut when it is long.
func (t *tokens) tokenAt(pos int) string {
	const most = 40
	end := len(t.in)
	for _, m := range t.marks {
		if m.in > pos {
			end = m.in
			break
		}
	}
	token := strings.TrimSpace(t.in[pos:end])
	if r := []rune(token); len(r) > most {
		token = string(r[:most]) + "…"
	}
	return token
}

// faultError is what is wrong with a part of the predicate, before anybody said
// where the part stands.
type faultError string

// Error implements error.
func (f faultError) Error() string { return string(f) }

func fault(format string, args ...any) error { return faultError(fmt.Sprintf(format, args...)) }

// locate says where a part of the tree stands, in an error that does not yet:
// at its first name or literal.
func (p *parser) locate(part sqlparser.SQLNode, err error) error {
	var f faultError
	if !errors.As(err, &f) {
		return err
	}
	first := -1
	_ = sqlparser.Walk(func(n sqlparser.SQLNode) (bool, error) { // the visitor never fails
		if pos, ok := p.posOf(n); ok && (first < 0 || pos < first) {
			first = pos
		}
		return true, nil
	}, part)
	if first < 0 {
		return errs.New(errs.Invalid, "where: %s", f)
	}
	return p.invalidAt(first, "%s", f)
}

// posOf returns where a name or literal stood.
func (p *parser) posOf(n sqlparser.SQLNode) (int, bool) {
	switch n := n.(type) {
	case *sqlparser.ColName:
		for _, id := range []string{n.Qualifier.Qualifier.String(), n.Qualifier.Name.String(), n.Name.String()} {
			if i, err := strconv.Atoi(id); err == nil && i < len(p.names) {
				return p.names[i].pos, true
			}
		}
	case *sqlparser.Literal:
		if w, ok := p.written(n); ok {
			return w.pos, true
		}
	}
	return 0, false
}

// written returns the literal of the text that stands behind one of the tree.
func (p *parser) written(e *sqlparser.Literal) (written, bool) {
	n, err := strconv.Atoi(strings.TrimSuffix(e.Val, ";"))
	if err != nil || n < 0 || n >= len(p.literals) {
		return written{}, false
	}
	return p.literals[n], true
}
