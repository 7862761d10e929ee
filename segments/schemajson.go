package segments

import (
	"bytes"
	"encoding/json"

	"github.com/firn-data/firn/internal/errs"
)

// fieldJSON is a field's JSON: the type as text, which a person can read, and
// for nested types the children in full, which carry what the text leaves out.
type fieldJSON struct {
	ID            int32           `json:"id"`
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	Required      bool            `json:"required,omitempty"`
	Doc           string          `json:"doc,omitempty"`
	Default       json.RawMessage `json:"default,omitempty"`
	Aggregate     string          `json:"aggregate,omitempty"`
	AutoIncrement bool            `json:"auto_increment,omitempty"`
	Children      []Field         `json:"children,omitempty"`
}

// MarshalJSON returns {"id":…,"name":…,"type":"list<long>",…}, with the
// children of a nested type in "children", in the order of the type's text.
func (f Field) MarshalJSON() ([]byte, error) {
	return json.Marshal(fieldJSON{
		ID: f.ID, Name: f.Name, Type: f.Type.String(), Required: f.Required, Doc: f.Doc,
		Default: f.Default, Aggregate: f.Aggregate, AutoIncrement: f.AutoIncrement, Children: f.Type.Children,
	})
}

// UnmarshalJSON reads what MarshalJSON wrote, and also the form without
// "children", whose nested fields get id zero.
func (f *Field) UnmarshalJSON(b []byte) error {
	var j fieldJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return errs.Wrap(errs.Invalid, "read column", err)
	}
	t, err := ParseType(j.Type)
	if err != nil {
		return errs.In("read column "+j.Name, err)
	}
	if j.Children != nil {
		whole := t
		whole.Children = j.Children
		if whole.String() != t.String() {
			return errs.New(errs.Invalid, "column %s: its children say %s and its type says %s", j.Name, whole, t)
		}
		t = whole
	}
	if bytes.Equal(j.Default, []byte("null")) {
		j.Default = nil
	}
	*f = Field{
		ID: j.ID, Name: j.Name, Type: t, Required: j.Required, Doc: j.Doc, Default: j.Default,
		Aggregate: j.Aggregate, AutoIncrement: j.AutoIncrement,
	}
	return nil
}

type schemaJSON struct {
	ID     int32   `json:"schema_id"`
	Fields []Field `json:"fields"`
}

// MarshalJSON returns {"schema_id":…,"fields":[…]}.
func (s Schema) MarshalJSON() ([]byte, error) { return json.Marshal(schemaJSON(s)) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (s *Schema) UnmarshalJSON(b []byte) error {
	var j schemaJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return errs.In("read schema", classify(err))
	}
	*s = Schema(j)
	return nil
}

// classify gives an unclassified parse error the class Invalid.
func classify(err error) error {
	if errs.Is(err, errs.Internal) {
		return errs.Wrap(errs.Invalid, "", err)
	}
	return err
}
