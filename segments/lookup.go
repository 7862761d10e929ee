package segments

import (
	"strings"

	"github.com/firn-data/firn/internal/errs"
)

// Index returns the position of the top-level column of that name, or -1.
func (s *Schema) Index(name string) int {
	for i := range s.Fields {
		if s.Fields[i].Name == name {
			return i
		}
	}
	return -1
}

// Field returns the top-level column of that name (case counts), or false.
func (s *Schema) Field(name string) (Field, bool) {
	if i := s.Index(name); i >= 0 {
		return s.Fields[i], true
	}
	return Field{}, false
}

// IndexOfID returns the position of the top-level column with that id, or -1.
func (s *Schema) IndexOfID(id int32) int {
	for i := range s.Fields {
		if s.Fields[i].ID == id {
			return i
		}
	}
	return -1
}

// FieldByID returns the field with that id at any depth, or false.
func (s *Schema) FieldByID(id int32) (Field, bool) { return findID(s.Fields, id) }

func findID(fields []Field, id int32) (Field, bool) {
	for i := range fields {
		if fields[i].ID == id {
			return fields[i], true
		}
		if f, ok := findID(fields[i].Type.Children, id); ok {
			return f, true
		}
	}
	return Field{}, false
}

// IDs returns the ids of the top-level columns in order.
func (s *Schema) IDs() []int32 {
	out := make([]int32, len(s.Fields))
	for i := range s.Fields {
		out[i] = s.Fields[i].ID
	}
	return out
}

// Names returns the names of the top-level columns in order.
func (s *Schema) Names() []string {
	out := make([]string, len(s.Fields))
	for i := range s.Fields {
		out[i] = s.Fields[i].Name
	}
	return out
}

// Select returns the named top-level columns in the order asked for, with their
// ids and the schema's id. Nil or no names select all. An unknown or repeated
// name is Invalid.
func (s *Schema) Select(names []string) (*Schema, error) {
	if len(names) == 0 {
		return s, nil
	}
	out := &Schema{ID: s.ID, Fields: make([]Field, 0, len(names))}
	for _, name := range names {
		f, ok := s.Field(name)
		if !ok {
			return nil, errs.New(errs.Invalid, "unknown column %q; the table has %s", name, strings.Join(s.Names(), ", "))
		}
		if out.Index(name) >= 0 {
			return nil, errs.New(errs.Invalid, "column %q is named twice", name)
		}
		out.Fields = append(out.Fields, f)
	}
	return out, nil
}

// SelectIDs is Select by top-level field ids. Nil selects all; an empty,
// non-nil list selects none.
func (s *Schema) SelectIDs(ids []int32) (*Schema, error) {
	if ids == nil {
		return s, nil
	}
	out := &Schema{ID: s.ID, Fields: make([]Field, 0, len(ids))}
	for _, id := range ids {
		i := s.IndexOfID(id)
		if i < 0 {
			return nil, errs.New(errs.Invalid, "schema %d has no column with field id %d", s.ID, id)
		}
		if out.IndexOfID(id) >= 0 {
			return nil, errs.New(errs.Invalid, "field id %d is named twice", id)
		}
		out.Fields = append(out.Fields, s.Fields[i])
	}
	return out, nil
}

// MaxFieldID returns the largest id at any depth, zero when there is none.
func (s *Schema) MaxFieldID() int32 { return maxID(s.Fields) }

func maxID(fields []Field) int32 {
	var m int32
	for i := range fields {
		m = max(m, fields[i].ID, maxID(fields[i].Type.Children))
	}
	return m
}

// AssignFieldIDs returns the schema of a new table: every field, at any depth,
// gets a fresh id above lastID, in Iceberg's order (a struct's fields first,
// then their children). It also returns the largest id given. Given ids are
// replaced.
func AssignFieldIDs(s *Schema, lastID int32) (*Schema, int32) {
	out := &Schema{ID: s.ID}
	out.Fields, lastID = assignIDs(s.Fields, lastID)
	return out, lastID
}

func assignIDs(fields []Field, last int32) ([]Field, int32) {
	if fields == nil {
		return nil, last
	}
	out := make([]Field, len(fields))
	copy(out, fields)
	for i := range out {
		last++
		out[i].ID = last
	}
	for i := range out {
		out[i].Type.Children, last = assignIDs(out[i].Type.Children, last)
	}
	return out, last
}
