package segments

import (
	"strings"

	"github.com/firn-data/firn/internal/errs"
)

// The functions of this file return a changed copy of a schema with the next
// ID. They are pure. When several changes make one step, the caller chains
// them and gives the last result the ID that it wants. Errors are Invalid and
// name the column and the rule.
//
// Columns inside structs are named by dotted path ("address.zip"); inside a
// list "element" and inside a map "key" and "value" are path elements.

// AddColumn adds a column at the end, or after the named sibling. f.Name may
// be a dotted path whose parent is a struct. Fresh ids above lastFieldID are
// given to it and its children; the largest is returned. A required column
// needs a default, because rows without it exist.
func AddColumn(s *Schema, lastFieldID int32, f Field, after string) (*Schema, int32, error) {
	if f.Required && len(f.Default) == 0 {
		return nil, 0, errs.New(errs.Invalid, "column %q: a required column can be added only with a default, as rows exist that lack it", f.Name)
	}
	parent, name := splitPath(f.Name)
	full := f.Name
	f.Name = name
	fresh, last := assignIDs([]Field{f}, lastFieldID)
	out, err := s.edit(parent, func(fields []Field) ([]Field, error) {
		for _, g := range fields {
			if g.Name == name {
				return nil, errs.New(errs.Invalid, "column %q exists already", full)
			}
		}
		at := len(fields)
		if after != "" {
			i, err := indexOf(fields, lastElement(after), after)
			if err != nil {
				return nil, err
			}
			at = i + 1
		}
		return insertAt(fields, at, fresh[0]), nil
	})
	if err != nil {
		return nil, 0, err
	}
	return out, last, nil
}

// RenameColumn gives the column at path from the name to; its id stays.
func RenameColumn(s *Schema, from, to string) (*Schema, error) {
	parent, name := splitPath(from)
	return s.edit(parent, func(fields []Field) ([]Field, error) {
		i, err := indexOf(fields, name, from)
		if err != nil {
			return nil, err
		}
		fields[i].Name = to
		return fields, nil
	})
}

// DropColumn removes a column. Its id is never used again; the last column of
// a table or struct cannot be dropped.
func DropColumn(s *Schema, path string) (*Schema, error) {
	parent, name := splitPath(path)
	return s.edit(parent, func(fields []Field) ([]Field, error) {
		i, err := indexOf(fields, name, path)
		if err != nil {
			return nil, err
		}
		if len(fields) == 1 {
			return nil, errs.New(errs.Invalid, "column %q is the only one left and cannot be dropped", path)
		}
		return append(fields[:i:i], fields[i+1:]...), nil
	})
}

// WidenColumn changes a column's type to one that holds every value of the old
// one: int to long, float to double, decimal to a larger precision.
func WidenColumn(s *Schema, path string, to Type) (*Schema, error) {
	return s.change(path, func(f *Field) error {
		if err := CheckWiden(f.Type, to); err != nil {
			return errs.In("column "+path, err)
		}
		f.Type = to
		return nil
	})
}

// CheckWiden says why a column of type from cannot become one of type to; nil
// when it can.
func CheckWiden(from, to Type) error {
	switch {
	case from.Kind == Int && to.Kind == Long, from.Kind == Float && to.Kind == Double:
		return nil
	case from.Kind == Decimal && to.Kind == Decimal && to.Scale == from.Scale &&
		to.Precision > from.Precision && to.Precision <= MaxDecimalPrecision:
		return nil
	case from.Kind == Date && (to.Kind == Timestamp || to.Kind == TimestampTZ):
		return errs.New(errs.Invalid, "date becomes timestamp only in Iceberg format version 3, which is not offered")
	}
	return errs.New(errs.Invalid, "%s cannot become %s; types widen from int to long, from float to double, "+
		"and from decimal(P,S) to a larger P", from, to)
}

// MakeOptional lets a column hold NULL.
func MakeOptional(s *Schema, path string) (*Schema, error) {
	return s.change(path, func(f *Field) error {
		f.Required = false
		return nil
	})
}

// MoveColumn puts a column after its named sibling, or first when after is empty.
func MoveColumn(s *Schema, path, after string) (*Schema, error) {
	parent, name := splitPath(path)
	return s.edit(parent, func(fields []Field) ([]Field, error) {
		i, err := indexOf(fields, name, path)
		if err != nil {
			return nil, err
		}
		f := fields[i]
		rest := append(fields[:i:i], fields[i+1:]...)
		at := 0
		if after != "" {
			j, err := indexOf(rest, lastElement(after), after)
			if err != nil {
				return nil, err
			}
			at = j + 1
		}
		return insertAt(rest, at, f), nil
	})
}

// SetDefault replaces a column's default ("" or null removes it).
func SetDefault(s *Schema, path string, def []byte) (*Schema, error) {
	return s.change(path, func(f *Field) error {
		f.Default = append([]byte(nil), def...)
		return nil
	})
}

// SetDoc replaces a column's description.
func SetDoc(s *Schema, path, doc string) (*Schema, error) {
	return s.change(path, func(f *Field) error {
		f.Doc = doc
		return nil
	})
}

func splitPath(path string) (parent, name string) {
	if i := strings.LastIndexByte(path, '.'); i >= 0 {
		return path[:i], path[i+1:]
	}
	return "", path
}

func lastElement(path string) string {
	_, name := splitPath(path)
	return name
}

func indexOf(fields []Field, name, path string) (int, error) {
	for i := range fields {
		if fields[i].Name == name {
			return i, nil
		}
	}
	return 0, errs.New(errs.Invalid, "unknown column %q", path)
}

func insertAt(fields []Field, at int, f Field) []Field {
	out := make([]Field, 0, len(fields)+1)
	out = append(out, fields[:at]...)
	out = append(out, f)
	return append(out, fields[at:]...)
}

// find returns the field at a dotted path.
func (s *Schema) find(path string) (Field, error) {
	fields := s.Fields
	var f Field
	for name := range strings.SplitSeq(path, ".") {
		i, err := indexOf(fields, name, path)
		if err != nil {
			return Field{}, err
		}
		f = fields[i]
		fields = f.Type.Children
	}
	return f, nil
}

// change edits one field at a path; a map's key never changes.
func (s *Schema) change(path string, fn func(*Field) error) (*Schema, error) {
	parent, name := splitPath(path)
	if name == "key" && parent != "" {
		if f, err := s.find(parent); err == nil && f.Type.Kind == Map {
			return nil, errs.New(errs.Invalid, "column %q: a map's key cannot be changed", path)
		}
	}
	return s.editAny(parent, func(fields []Field) ([]Field, error) {
		i, err := indexOf(fields, name, path)
		if err != nil {
			return nil, err
		}
		return fields, fn(&fields[i])
	})
}

// edit changes the list of fields of the struct at parent ("" is the table).
func (s *Schema) edit(parent string, fn func([]Field) ([]Field, error)) (*Schema, error) {
	if parent != "" {
		f, err := s.find(parent)
		if err != nil {
			return nil, err
		}
		if t := f.Type; t.Kind != Struct {
			return nil, errs.New(errs.Invalid, "column %q is %s; only a struct's fields can be added, renamed, dropped or moved", parent, t)
		}
	}
	return s.editAny(parent, fn)
}

// editAny changes the list of children at parent in a deep enough copy, and
// checks the result.
func (s *Schema) editAny(parent string, fn func([]Field) ([]Field, error)) (*Schema, error) {
	fields, err := editFields(s.Fields, parent, parent, fn)
	if err != nil {
		return nil, err
	}
	out := &Schema{ID: s.ID + 1, Fields: fields}
	if err := out.Validate(); err != nil {
		return nil, err
	}
	return out, nil
}

func editFields(fields []Field, path, whole string, fn func([]Field) ([]Field, error)) ([]Field, error) {
	out := append([]Field(nil), fields...)
	if path == "" {
		return fn(out)
	}
	name, rest, _ := strings.Cut(path, ".")
	i, err := indexOf(out, name, whole)
	if err != nil {
		return nil, err
	}
	out[i].Type.Children, err = editFields(out[i].Type.Children, rest, whole, fn)
	return out, err
}
