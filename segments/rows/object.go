package rows

import (
	"encoding/json"
	"math"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
)

// field is a column with what a row may leave out.
type field struct {
	name     string
	token    []byte // the name as writers without escapes spell it, with quotes and colon
	col      column
	required bool
	def      []byte // JSON of the default; nil is none
	seen     uint32 // generation of the object that had it last
}

// object decodes JSON objects into columns: rows, and structs inside of them.
// Writers mostly repeat the order of names, so the name that followed last time
// is compared first, and only another one is looked up.
type object struct {
	fields        []field
	index         map[string]int
	next          []int // by position + 1: the field that followed it last
	gen           uint32
	ignoreUnknown bool
	// hidden are columns that exist but are not asked for.
	hidden     func(name string) bool
	passHidden bool // they are passed over
	// lenient objects may lack every column but the key's.
	lenient bool
	key     []bool
}

func newObject(fields []segments.Field, ignoreUnknown bool) (*object, error) {
	o := &object{
		fields: make([]field, len(fields)), index: make(map[string]int, len(fields)),
		next: make([]int, len(fields)+1), ignoreUnknown: ignoreUnknown,
	}
	for i, f := range fields {
		col, err := newColumn(f.Type, ignoreUnknown)
		if err != nil {
			return nil, err
		}
		name, err := json.Marshal(f.Name)
		if err != nil {
			return nil, err
		}
		o.fields[i] = field{name: f.Name, token: append(name, ':'), col: col, required: f.Required}
		if len(f.Default) > 0 && string(f.Default) != "null" {
			o.fields[i].def = f.Default
		}
		o.index[f.Name] = i
		o.next[i] = i
	}
	if len(fields) > 0 {
		o.next[len(fields)] = len(fields) - 1
	}
	return o, nil
}

func (o *object) size() int {
	n := 0
	for i := range o.fields {
		n += o.fields[i].col.size()
	}
	return n
}

// truncate keeps the first n values of every column; columns that a failed row
// did not reach have no more.
func (o *object) truncate(n int) {
	for i := range o.fields {
		if c := o.fields[i].col; c.len() >= n {
			c.truncate(n)
		}
	}
}

func (o *object) take() []arrow.ArrayData {
	out := make([]arrow.ArrayData, len(o.fields))
	for i := range o.fields {
		out[i] = o.fields[i].col.take()
	}
	return out
}

// begin starts a new object for the duplicate check.
func (o *object) begin() {
	if o.gen == math.MaxUint32 {
		o.gen = 0
		for i := range o.fields {
			o.fields[i].seen = 0
		}
	}
	o.gen++
}

// json consumes an object, the brace first, and appends one value to every column.
func (o *object) json(s *scanner) bool {
	if !s.push() {
		return false
	}
	s.pos++
	o.begin()
	found, prev := 0, 0
	if s.space() != '}' {
		for {
			i, ok := o.name(s, prev)
			if !ok {
				return false
			}
			if i >= 0 {
				f := &o.fields[i]
				if f.seen == o.gen {
					s.fail(errDuplicate)
					return s.in(f.name)
				}
				f.seen = o.gen
				if !decodeValue(s, f.col, f.required) {
					return s.in(f.name)
				}
				found++
				prev = i + 1
			}
			c := s.peek()
			if c != ',' && c != '}' {
				c = s.space()
			}
			if c == '}' {
				break
			}
			if c != ',' {
				return s.fail(errComma)
			}
			s.pos++
		}
	}
	s.pos++
	s.depth--
	return found == len(o.fields) || o.fillMissing(s)
}

const (
	errDuplicate = valueReason("the field occurs twice in one object")
	errUnknown   = valueReason("the table has no such column")
	errHidden    = valueReason("the column is not among the columns asked for")
)

// name consumes a field's name and colon and returns its position, or -1 when
// it is unknown and its value was skipped.
func (o *object) name(s *scanner, prev int) (int, bool) {
	if s.peek() != '"' && s.space() != '"' {
		return 0, s.fail(errName)
	}
	if len(o.fields) > 0 {
		guess := o.next[prev]
		token := o.fields[guess].token
		if rest := s.buf[s.pos:]; len(rest) >= len(token) && string(rest[:len(token)]) == string(token) {
			s.pos += len(token)
			return guess, true
		}
	}
	name, ok := s.str()
	if !ok {
		return 0, false
	}
	i, known := o.index[string(name)]
	if known {
		o.next[prev] = i
		return i, s.colon()
	}
	hidden := o.hidden != nil && (!o.ignoreUnknown || o.passHidden) && o.hidden(string(name))
	if !o.ignoreUnknown && !(hidden && o.passHidden) {
		shown, why := string(name), errUnknown
		if hidden {
			why = errHidden
		}
		s.fail(why)
		return 0, s.in(shown)
	}
	return -1, s.colon() && s.skip()
}

// fillMissing appends what stands in for fields that the object left out.
func (o *object) fillMissing(s *scanner) bool {
	for i := range o.fields {
		f := &o.fields[i]
		if f.seen == o.gen {
			continue
		}
		if o.lenient && !o.key[i] {
			f.col.null()
			continue
		}
		if err := f.missing(); err != nil {
			s.fail(err)
			return s.in(f.name)
		}
	}
	return true
}

// missing appends the value of a row that leaves the column out: its default,
// else NULL.
func (f *field) missing() error {
	switch {
	case f.def != nil:
		return jsonText(f.col, f.def)
	case f.required:
		return errRequiredMissing
	}
	f.col.null()
	return nil
}
