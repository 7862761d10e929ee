package rows

import (
	"bytes"
	"io"

	"github.com/firn-data/firn/internal/errs"
)

// jsonBlocks cuts a JSON body (an array of rows, or one row) between its rows.
// It checks brackets and commas; the rows' insides are the workers' matter.
type jsonBlocks struct {
	buffer
	state jsonState
	done  int64 // bytes of the body before the block at hand
}

// jsonState is what may come next on the top level.
type jsonState uint8

const (
	atStart     jsonState = iota // the array, or the one row
	atFirst                      // a row or ]
	atRow                        // a row
	atComma                      // , or ]
	atEnd                        // nothing
	atSingleRow                  // the one row of a body that is no array
)

func newJSONBlocks(r io.Reader, o DecodeOptions) *jsonBlocks {
	return &jsonBlocks{buffer: newBuffer(r, o)}
}

func (j *jsonBlocks) broken(at int, why string) error {
	return errs.New(errs.Invalid, "the body is not valid JSON: %s at byte %d", why, j.done+int64(at))
}

func (j *jsonBlocks) next() (block, error) {
	for {
		data, slow, err := j.read(j.carry)
		if err != nil {
			return block{}, err
		}
		spans, used, err := j.split(data)
		if err != nil {
			return block{}, err
		}
		if j.eof && len(spans) == 0 {
			if used < len(data) || j.state != atEnd {
				return block{}, j.broken(len(data), "it ends early")
			}
			return block{}, io.EOF
		}
		if len(spans) == 0 && used == 0 && int64(len(data)) > j.maxRow {
			return block{}, rowTooLarge(j.maxRow)
		}
		j.carry = append([]byte(nil), data[used:]...)
		j.done += int64(used)
		if len(spans) > 0 {
			return block{data: data, spans: spans, urgent: slow}, nil
		}
	}
}

// split finds the rows that data holds whole, and how much of it is done with.
func (j *jsonBlocks) split(data []byte) (spans []span, used int, err error) {
	i := 0
	for {
		for i < len(data) && (data[i] == ' ' || data[i] == '\n' || data[i] == '\t' || data[i] == '\r') {
			i++
		}
		if i == len(data) {
			return spans, i, nil
		}
		c := data[i]
		switch j.state {
		case atStart:
			switch c {
			case '[':
				j.state = atFirst
				i++
			case '{':
				j.state = atSingleRow
			default:
				return nil, 0, j.broken(i, "expected an array of objects or one object")
			}
			continue
		case atComma:
			switch c {
			case ',':
				j.state = atRow
			case ']':
				j.state = atEnd
			default:
				return nil, 0, j.broken(i, "expected ',' or ']' after a row")
			}
			i++
			continue
		case atEnd:
			return nil, 0, j.broken(i, "text after the end (one JSON value a line is application/x-ndjson)")
		case atFirst:
			if c == ']' {
				j.state = atEnd
				i++
				continue
			}
		}
		end, why := jsonEnd(data, i, j.eof)
		if why != "" {
			return nil, 0, j.broken(end, why)
		}
		if end < 0 {
			return spans, i, nil
		}
		spans = append(spans, span{i, end})
		i = end
		if j.state == atSingleRow {
			j.state = atEnd
		} else {
			j.state = atComma
		}
	}
}

// structural marks the bytes that nesting is told by.
var structural = func() (t [256]bool) {
	for _, c := range `"{}[]` {
		t[c] = true
	}
	return t
}()

// jsonEnd returns the end of the value at b[i], -1 when b ends before it, or
// why there is no such value (and where). atEOF says that b is all there is.
func jsonEnd(b []byte, i int, atEOF bool) (end int, why string) {
	if b[i] != '{' && b[i] != '[' && b[i] != '"' {
		start := i
		for i < len(b) && !bytes.ContainsRune([]byte(",]}[{\" \n\t\r"), rune(b[i])) {
			i++
		}
		switch {
		case i == start:
			return i, "expected a row"
		case i == len(b) && !atEOF:
			return -1, ""
		}
		return i, ""
	}
	var closers [maxJSONDepth]byte
	depth := 0
	for i < len(b) {
		c := b[i]
		if !structural[c] {
			i++
			continue
		}
		switch c {
		case '"':
			if i = stringEnd(b, i); i < 0 {
				return -1, ""
			}
			if depth == 0 {
				return i, ""
			}
			continue
		case '{', '[':
			if depth == maxJSONDepth {
				return i, "nested deeper than 128 levels"
			}
			closers[depth] = c + 2 // the closing bracket in ASCII
			depth++
		default:
			if closers[depth-1] != c {
				return i, "brackets do not match"
			}
			if depth--; depth == 0 {
				return i + 1, ""
			}
		}
		i++
	}
	return -1, ""
}

// stringEnd returns the position after the string at b[i], or -1.
func stringEnd(b []byte, i int) int {
	start := i + 1
	at := start
	for {
		q := bytes.IndexByte(b[at:], '"')
		if q < 0 {
			return -1
		}
		at += q
		slashes := 0
		for k := at - 1; k >= start && b[k] == '\\'; k-- {
			slashes++
		}
		at++
		if slashes%2 == 0 {
			return at
		}
	}
}
