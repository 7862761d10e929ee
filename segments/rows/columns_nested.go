package rows

import (
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
)

// listColumn holds lists; child holds the elements of all of them.
type listColumn struct {
	validity
	dt       arrow.DataType
	ends     []int32
	child    column
	required bool
}

func newListColumn(dt arrow.DataType, t segments.Type, ignoreUnknown bool) (column, error) {
	child, err := newColumn(t.Children[0].Type, ignoreUnknown)
	return &listColumn{dt: dt, child: child, required: t.Children[0].Required}, err
}

func (c *listColumn) null() {
	c.ends = append(c.ends, int32(c.child.len()))
	c.invalid()
}

func (c *listColumn) size() int { return 4*len(c.ends) + c.child.size() }

func (c *listColumn) truncate(n int) {
	c.ends = c.ends[:n]
	c.validity.truncate(n)
	end := 0
	if n > 0 {
		end = int(c.ends[n-1])
	}
	c.child.truncate(end)
}

func (c *listColumn) take() arrow.ArrayData {
	child, offsets := c.child.take(), takeOffsets(&c.ends)
	bitmap, n, nulls := c.validity.take()
	return newData(c.dt, n, nulls, []arrow.ArrayData{child}, bitmap, offsets)
}

func (c *listColumn) json(s *scanner) bool {
	if s.peek() != '[' {
		return s.mismatch("an array")
	}
	if !s.array(func() bool { return decodeValue(s, c.child, c.required) }) {
		return false
	}
	c.ends = append(c.ends, int32(c.child.len()))
	c.valid()
	return true
}

func (c *listColumn) text(b []byte) error { return jsonText(c, b) }

// array consumes an array, calling element at each of its values. A failure is
// placed at its index.
func (s *scanner) array(element func() bool) bool {
	if !s.push() {
		return false
	}
	s.pos++
	if s.space() == ']' {
		s.pos++
		s.depth--
		return true
	}
	for i := 0; ; i++ {
		s.space()
		if !element() {
			return s.in("[" + strconv.Itoa(i) + "]")
		}
		switch s.space() {
		case ',':
			s.pos++
		case ']':
			s.pos++
			s.depth--
			return true
		default:
			return s.fail(errComma)
		}
	}
}

// structColumn holds structs; the object holds its children.
type structColumn struct {
	validity
	dt  arrow.DataType
	obj *object
}

func newStructColumn(dt arrow.DataType, t segments.Type, ignoreUnknown bool) (column, error) {
	obj, err := newObject(t.Children, ignoreUnknown)
	return &structColumn{dt: dt, obj: obj}, err
}

func (c *structColumn) null() {
	for i := range c.obj.fields {
		c.obj.fields[i].col.null()
	}
	c.invalid()
}

func (c *structColumn) size() int { return len(c.bits) + c.obj.size() }

func (c *structColumn) truncate(n int) {
	c.validity.truncate(n)
	c.obj.truncate(n)
}

func (c *structColumn) take() arrow.ArrayData {
	children := c.obj.take()
	bitmap, n, nulls := c.validity.take()
	return newData(c.dt, n, nulls, children, bitmap)
}

func (c *structColumn) json(s *scanner) bool {
	if s.peek() != '{' {
		return s.mismatch("an object")
	}
	if !c.obj.json(s) {
		return false
	}
	c.valid()
	return true
}

func (c *structColumn) text(b []byte) error { return jsonText(c, b) }

// mapColumn holds maps. Their JSON is an object when keys are strings, or an
// array of {"key": …, "value": …} for keys of any type.
type mapColumn struct {
	validity
	dt       arrow.DataType
	entries  arrow.DataType
	ends     []int32
	key      column
	value    column
	required bool // of values
	pair     *object
	names    map[string]struct{} // keys of the map at hand, when they are strings
}

func newMapColumn(dt arrow.DataType, t segments.Type, ignoreUnknown bool) (column, error) {
	key := t.Children[0]
	key.Name, key.Required = "key", true
	value := t.Children[1]
	value.Name = "value"
	pair, err := newObject([]segments.Field{key, value}, ignoreUnknown)
	if err != nil {
		return nil, err
	}
	return &mapColumn{
		dt: dt, entries: dt.(*arrow.MapType).Elem(), pair: pair, names: map[string]struct{}{},
		key: pair.fields[0].col, value: pair.fields[1].col, required: value.Required,
	}, nil
}

func (c *mapColumn) null() {
	c.ends = append(c.ends, int32(c.key.len()))
	c.invalid()
}

func (c *mapColumn) size() int { return 4*len(c.ends) + c.pair.size() }

func (c *mapColumn) truncate(n int) {
	c.ends = c.ends[:n]
	c.validity.truncate(n)
	end := 0
	if n > 0 {
		end = int(c.ends[n-1])
	}
	c.pair.truncate(end)
}

func (c *mapColumn) take() arrow.ArrayData {
	entries := newData(c.entries, c.key.len(), 0, c.pair.take(), nil)
	offsets := takeOffsets(&c.ends)
	bitmap, n, nulls := c.validity.take()
	return newData(c.dt, n, nulls, []arrow.ArrayData{entries}, bitmap, offsets)
}

const errDuplicateKey = valueReason("a key occurs twice in the map")

func (c *mapColumn) json(s *scanner) bool {
	clear(c.names)
	keys, isString := c.key.(*stringColumn)
	switch s.peek() {
	case '{':
		if !isString {
			return s.mismatch(`an array of {"key": …, "value": …}`)
		}
		if !c.object(s, keys) {
			return false
		}
	case '[':
		pair := func() bool {
			if s.peek() != '{' {
				return s.mismatch(`an object {"key": …, "value": …}`)
			}
			return c.pair.json(s) && (!isString || c.unique(s, keys))
		}
		if !s.array(pair) {
			return false
		}
	default:
		return s.mismatch("an object or array")
	}
	c.ends = append(c.ends, int32(c.key.len()))
	c.valid()
	return true
}

// unique checks the key that was appended last.
func (c *mapColumn) unique(s *scanner, keys *stringColumn) bool {
	last := keys.value(keys.len() - 1)
	if _, dup := c.names[string(last)]; dup {
		return s.fail(errDuplicateKey)
	}
	c.names[string(last)] = struct{}{}
	return true
}

// object consumes the object form of a map with string keys.
func (c *mapColumn) object(s *scanner, keys *stringColumn) bool {
	if !s.push() {
		return false
	}
	s.pos++
	if s.space() == '}' {
		s.pos++
		s.depth--
		return true
	}
	for {
		if s.space() != '"' {
			return s.fail(errName)
		}
		name, ok := s.str()
		if !ok {
			return false
		}
		keys.append(name)
		if !c.unique(s, keys) || !s.colon() {
			return false
		}
		if !decodeValue(s, c.value, c.required) {
			return s.in(string(keys.value(keys.len() - 1)))
		}
		switch s.space() {
		case ',':
			s.pos++
		case '}':
			s.pos++
			s.depth--
			return true
		default:
			return s.fail(errComma)
		}
	}
}

func (c *mapColumn) text(b []byte) error { return jsonText(c, b) }
