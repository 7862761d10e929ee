package rows

import (
	"bytes"
	"encoding/json"

	"github.com/firn-data/firn/segments"
)

// events decodes Debezium change events, one worker's.
type events struct {
	schema *segments.Schema
	key    []bool // by column

	// What the event at hand is.
	deletes   bool
	tombstone bool // nothing: the row is passed over

	described []byte // the schema that encodings was read from
	encodings map[string]encoding
	row       []byte // the event's row in our value forms
}

func newEvents(schema *segments.Schema, key []string) *events {
	e := &events{schema: schema, key: make([]bool, len(schema.Fields))}
	for _, name := range key {
		if i := schema.Index(name); i >= 0 {
			e.key[i] = true
		}
	}
	return e
}

const (
	errNotEvent = valueReason(`not a change event: it has no "op"`)
	errOp       = valueReason(`"op" must be "c", "r", "u" or "d": other events change no single row`)
	errTruncate = valueReason(`the event truncates its table: that is no change of a row`)
	errNoAfter  = valueReason(`the event has no "after"`)
	errNoBefore = valueReason(`a delete needs "before" with the key columns (REPLICA IDENTITY)`)
	errSchema   = valueReason(`the event's "schema" is not one of Kafka Connect`)
	errNotSent  = valueReason("the source did not send the unchanged value (__debezium_unavailable_value): use REPLICA IDENTITY FULL")
	errTwice    = valueReason("the field occurs twice in one event")
)

// event is the parts of a change event, as texts; nil: absent.
type event struct{ schema, payload, op, before, after []byte }

// eventRow decodes a row that is a change event.
func (w *worker) eventRow(row []byte) bool {
	s, e := &w.scan, w.events
	e.deletes, e.tombstone, w.obj.lenient = false, false, false
	s.reset(row)
	ev, ok := e.open(s)
	if !ok || e.tombstone {
		return ok
	}
	image, why := ev.after, errNoAfter
	switch string(ev.op) {
	case `"c"`, `"r"`, `"u"`:
	case `"d"`:
		e.deletes, image, why = true, ev.before, errNoBefore
	case `"t"`:
		return s.fail(errTruncate)
	default:
		return s.fail(errOp)
	}
	if image == nil || string(image) == "null" {
		return s.fail(why)
	}
	if !e.describe(s, ev.schema) {
		return false
	}
	s.reset(image)
	if !e.rewrite(s) {
		return false
	}
	s.reset(e.row)
	w.obj.lenient = e.deletes
	return w.obj.json(s)
}

// open finds the parts of an event, in or without the wrapper {schema, payload}.
func (e *events) open(s *scanner) (ev event, ok bool) {
	if s.space() == 'n' {
		e.tombstone = s.word("null")
		return ev, e.tombstone && s.atEnd()
	}
	if !ev.read(s) || !s.atEnd() {
		return ev, false
	}
	switch {
	case ev.op != nil:
		return ev, true
	case ev.payload == nil:
		return ev, s.fail(errNotEvent)
	case string(ev.payload) == "null":
		e.tombstone = true
		return ev, true
	}
	var inner event
	s.reset(ev.payload)
	if !inner.read(s) {
		return ev, false
	}
	if inner.op == nil {
		return ev, s.fail(errNotEvent)
	}
	inner.schema = ev.schema
	return inner, true
}

// read takes the parts of one object.
func (ev *event) read(s *scanner) bool {
	return s.each(func(name, value []byte) bool {
		var part *[]byte
		switch string(name) {
		case "schema":
			part = &ev.schema
		case "payload":
			part = &ev.payload
		case "op":
			part = &ev.op
		case "before":
			part = &ev.before
		case "after":
			part = &ev.after
		default:
			return true
		}
		if *part != nil {
			return s.fail(errTwice)
		}
		*part = value
		return true
	})
}

// atEnd consumes white space that ends the text.
func (s *scanner) atEnd() bool {
	if s.space(); s.pos < len(s.buf) {
		return s.fail(errAfterValue)
	}
	return true
}

// each consumes an object and hands over its fields as texts. A name is valid
// until visit returns.
func (s *scanner) each(visit func(name, value []byte) bool) bool {
	if s.space() != '{' {
		if !s.skip() {
			return false
		}
		return s.fail(errNotObject)
	}
	s.pos++
	if s.space() == '}' {
		s.pos++
		return true
	}
	var name []byte
	for {
		if s.space() != '"' {
			return s.fail(errName)
		}
		text, ok := s.str()
		if !ok {
			return false
		}
		name = append(name[:0], text...)
		if !s.colon() {
			return false
		}
		s.space()
		start := s.pos
		if !s.skip() || !visit(name, s.buf[start:s.pos]) {
			return false
		}
		switch s.space() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			return true
		default:
			return s.fail(errComma)
		}
	}
}

// rewrite makes the row of an image: of a delete only its key columns.
func (e *events) rewrite(s *scanner) bool {
	e.row = append(e.row[:0], '{')
	ok := s.each(func(name, value []byte) bool {
		at := e.schema.Index(string(name))
		if e.deletes && (at < 0 || !e.key[at]) {
			return true
		}
		if len(e.row) > 1 {
			e.row = append(e.row, ',')
		}
		quoted, err := json.Marshal(string(name))
		if err != nil {
			return s.fail(err)
		}
		e.row = append(append(e.row, quoted...), ':')
		if at < 0 || string(value) == "null" {
			e.row = append(e.row, value...)
			return true
		}
		if e.row, err = appendConverted(e.row, value, e.schema.Fields[at].Type, e.encodings[string(name)]); err != nil {
			s.fail(err)
			return s.in(string(name))
		}
		return true
	})
	e.row = append(e.row, '}')
	return ok
}

// encoding is what an event's schema says of a field: the name of its type.
type encoding struct {
	name  string
	scale int // of a decimal
}

// connectField is a part of a Kafka Connect schema in JSON.
type connectField struct {
	Field      string         `json:"field"`
	Name       string         `json:"name"`
	Parameters map[string]any `json:"parameters"`
	Fields     []connectField `json:"fields"`
}

// describe reads the schema of an event, once while it stays the same.
func (e *events) describe(s *scanner, schema []byte) bool {
	if schema == nil || string(schema) == "null" {
		e.described, e.encodings = e.described[:0], nil
		return true
	}
	if bytes.Equal(schema, e.described) {
		return true
	}
	var root connectField
	if json.Unmarshal(schema, &root) != nil {
		s.fail(errSchema)
		return s.in("schema")
	}
	e.encodings = map[string]encoding{}
	for _, image := range root.Fields {
		if image.Field != "after" && image.Field != "before" {
			continue
		}
		for _, f := range image.Fields {
			enc := encoding{name: f.Name}
			if f.Name == connectDecimal {
				var ok bool
				if enc.scale, ok = scaleOf(f.Parameters["scale"]); !ok {
					s.fail(errSchema)
					return s.in("schema." + f.Field)
				}
			}
			e.encodings[f.Field] = enc
		}
	}
	e.described = append(e.described[:0], schema...)
	return true
}
