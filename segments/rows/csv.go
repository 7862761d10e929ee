package rows

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// csvBlocks cuts CSV (RFC 4180) after records; the first record is the header.
type csvBlocks struct {
	buffer
	schema  *segments.Schema // the selected columns
	table   *segments.Schema
	ignore  bool
	others  bool  // pass over the table's other columns
	columns []int // by field: the position of its column, -1 for an ignored one
	done    bool
}

func newCSVBlocks(r io.Reader, o DecodeOptions, selected *segments.Schema) *csvBlocks {
	return &csvBlocks{buffer: newBuffer(r, o), schema: selected, table: o.Schema, ignore: o.IgnoreUnknown, others: o.PassOthers}
}

func (c *csvBlocks) next() (block, error) {
	for {
		if c.done {
			return block{}, io.EOF
		}
		data, slow, err := c.read(c.carry)
		if err != nil {
			return block{}, err
		}
		spans, used, err := c.split(data)
		if err != nil {
			return block{}, err
		}
		c.done = c.eof
		if !c.eof {
			if used == 0 && int64(len(data)) > c.maxRow {
				return block{}, rowTooLarge(c.maxRow)
			}
			c.carry = append([]byte(nil), data[used:]...)
		}
		if len(spans) > 0 {
			return block{data: data, spans: spans, urgent: slow}, nil
		}
	}
}

// split finds the records that data holds whole, and takes the header.
func (c *csvBlocks) split(data []byte) (spans []span, used int, err error) {
	for used < len(data) {
		end, next := recordEnd(data, used)
		if next < 0 {
			if !c.eof {
				return spans, used, nil
			}
			if end < 0 {
				return nil, 0, errs.New(errs.Invalid, "the body ends inside a quoted CSV field: a closing quote is missing")
			}
			next = len(data)
		}
		sp := span{used, end}
		used = next
		switch {
		case c.columns == nil:
			if sp.start == sp.end {
				continue
			}
			if err := c.header(data[sp.start:sp.end]); err != nil {
				return nil, 0, err
			}
		case sp.start == sp.end && len(c.columns) != 1:
			// a blank line is no record, unless a record is one field
		default:
			spans = append(spans, sp)
		}
	}
	return spans, used, nil
}

// recordEnd returns the end of the record at b[i] without its line end, and
// where the next one starts. Without a line end, next is -1, and end is the end
// of b, or -1 when a quoted field is open.
func recordEnd(b []byte, i int) (end, next int) {
	for {
		// at the start of a field
		if i < len(b) && b[i] == '"' {
			i++
			for {
				q := bytes.IndexByte(b[i:], '"')
				if q < 0 {
					return -1, -1
				}
				i += q + 1
				if i == len(b) || b[i] != '"' {
					break
				}
				i++
			}
		}
		for i < len(b) && b[i] != ',' && b[i] != '\n' {
			i++
		}
		if i == len(b) {
			return trimCR(b, i), -1
		}
		if b[i] == '\n' {
			return trimCR(b, i), i + 1
		}
		i++
	}
}

// trimCR leaves out a carriage return before position end.
func trimCR(b []byte, end int) int {
	if end > 0 && b[end-1] == '\r' {
		return end - 1
	}
	return end
}

// header maps the fields of the header to columns.
func (c *csvBlocks) header(record []byte) error {
	var row csvRow
	if why := row.split(record); why != nil {
		return errs.New(errs.Invalid, "the CSV header is broken: %v", why)
	}
	columns := make([]int, len(row.fields))
	seen := map[string]bool{}
	for i, f := range row.fields {
		name := string(f.text)
		if !utf8.ValidString(name) {
			return errs.New(errs.Invalid, "the CSV header is not valid UTF-8")
		}
		if seen[name] {
			return errs.New(errs.Invalid, "the CSV header names column %q twice", name)
		}
		seen[name] = true
		columns[i] = c.schema.Index(name)
		if columns[i] < 0 && !c.ignore && !(c.others && c.table.Index(name) >= 0) {
			return c.unknown(name)
		}
	}
	for _, f := range c.schema.Fields {
		if f.Required && !seen[f.Name] && (len(f.Default) == 0 || string(f.Default) == "null") {
			return errs.New(errs.Invalid, "the CSV header lacks the required column %q", f.Name)
		}
	}
	c.columns = columns
	return nil
}

func (c *csvBlocks) unknown(name string) error {
	if c.table.Index(name) >= 0 {
		return errs.New(errs.Invalid, "the CSV header names column %q, which is not among the columns asked for", name)
	}
	return errs.New(errs.Invalid, "the CSV header names column %q, which the table does not have; its columns are %s",
		name, strings.Join(c.schema.Names(), ", "))
}

// csvRow splits one record into fields.
type csvRow struct {
	fields  []csvField
	scratch []byte
}

type csvField struct {
	text   []byte
	quoted bool
}

const (
	errCSVQuote = valueReason("a quote inside a CSV field that does not start with one")
	errCSVAfter = valueReason("text after the closing quote of a CSV field")
)

func (r *csvRow) split(record []byte) error {
	r.fields = r.fields[:0]
	r.scratch = r.scratch[:0]
	for i := 0; ; i++ {
		var f csvField
		var why error
		if i < len(record) && record[i] == '"' {
			f, i, why = r.quoted(record, i+1)
		} else {
			start := i
			for i < len(record) && record[i] != ',' {
				if record[i] == '"' {
					why = errCSVQuote
				}
				i++
			}
			f.text = record[start:i]
		}
		if why != nil {
			return why
		}
		r.fields = append(r.fields, f)
		if i >= len(record) {
			return nil
		}
	}
}

// quoted reads the quoted field whose content starts at i.
func (r *csvRow) quoted(record []byte, i int) (csvField, int, error) {
	start := i
	q := bytes.IndexByte(record[i:], '"')
	if q < 0 {
		return csvField{}, 0, errCSVAfter
	}
	i += q + 1
	text := record[start : i-1]
	if i < len(record) && record[i] == '"' { // doubled quotes: copy
		from := len(r.scratch)
		r.scratch = append(r.scratch, text...)
		for i < len(record) && record[i] == '"' {
			r.scratch = append(r.scratch, '"')
			i++
			if q = bytes.IndexByte(record[i:], '"'); q < 0 {
				return csvField{}, 0, errCSVAfter
			}
			r.scratch = append(r.scratch, record[i:i+q]...)
			i += q + 1
		}
		text = r.scratch[from:len(r.scratch):len(r.scratch)]
	}
	if i < len(record) && record[i] != ',' {
		return csvField{}, 0, errCSVAfter
	}
	return csvField{text: text, quoted: true}, i, nil
}

// csvRow decodes a record. An empty field is NULL, but a quoted empty one is
// the empty string of a string or binary column.
func (w *worker) csvRow(record []byte) bool {
	s := &w.scan
	s.reset(record)
	if w.csv == nil {
		w.csv = &csvRow{}
	}
	if why := w.csv.split(record); why != nil {
		return s.fail(why)
	}
	columns := w.header()
	if len(w.csv.fields) != len(columns) {
		return s.fail(valueReason(fmt.Sprintf("the record has %d fields, the header %d", len(w.csv.fields), len(columns))))
	}
	w.obj.begin()
	found := 0
	for i, f := range w.csv.fields {
		if columns[i] < 0 {
			continue
		}
		col := &w.obj.fields[columns[i]]
		col.seen = w.obj.gen
		found++
		if why := col.csv(f); why != nil {
			s.fail(why)
			return s.in(col.name)
		}
	}
	return found == len(w.obj.fields) || w.obj.fillMissing(s)
}

// csv appends the value of a CSV field.
func (f *field) csv(v csvField) error {
	if len(v.text) == 0 {
		empty := false
		if v.quoted {
			switch f.col.(type) {
			case *stringColumn, *binaryColumn:
				empty = true
			}
		}
		if !empty {
			if f.required {
				return errRequiredNull
			}
			f.col.null()
			return nil
		}
	}
	return f.col.text(v.text)
}
