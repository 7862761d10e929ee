package segments

import (
	"strings"

	"github.com/firn-data/firn/internal/errs"
)

// Limits of a schema.
const (
	// MaxNameBytes is the longest name of a database, table or column.
	MaxNameBytes = 128
	// MaxFields is the most fields of a schema, nested ones included.
	MaxFields = 4096
	// MaxFixedLength is the longest fixed(N).
	MaxFixedLength = 1 << 20
	// MaxDecimalPrecision is the most digits of a decimal.
	MaxDecimalPrecision = 38
)

// reservedColumns are the columns that a change stream and a changelog table add.
var reservedColumns = []string{"_bucket", "_offset", "_timestamp", "_change_type"}

// CheckName says whether name may name a thing of that sort ("database",
// "table", "column"): ASCII letters, digits, "_" and "-", at most MaxNameBytes,
// not starting with "__".
func CheckName(sort, name string) error {
	switch {
	case name == "":
		return errs.New(errs.Invalid, "the name of a %s is empty", sort)
	case len(name) > MaxNameBytes:
		return errs.New(errs.Invalid, "%s %q: a name has at most %d bytes", sort, name[:32]+"…", MaxNameBytes)
	case strings.HasPrefix(name, "__"):
		return errs.New(errs.Invalid, "%s %q: names that start with __ are reserved", sort, name)
	case strings.Contains(name, "$"):
		return errs.New(errs.Invalid, "%s %q: $ is reserved", sort, name)
	}
	for i := range len(name) {
		if !nameByte(name[i]) {
			return errs.New(errs.Invalid, "%s %q: a name has only letters, digits, _ and -", sort, name)
		}
	}
	return nil
}

// Validate says what makes the schema impossible: the first error found names
// the column (nested ones by dotted path) and the rule, with class Invalid.
// Ids may all be zero (not assigned yet); otherwise they are positive and
// distinct.
func (s *Schema) Validate() error {
	if len(s.Fields) == 0 {
		return errs.New(errs.Invalid, "a table needs at least one column")
	}
	v := validator{ids: map[int32]string{}}
	for _, f := range s.Fields {
		for _, r := range reservedColumns {
			if strings.EqualFold(f.Name, r) {
				return errs.New(errs.Invalid, "column %q: the name is reserved for change streams", f.Name)
			}
		}
		if f.AutoIncrement {
			if v.auto != "" {
				return errs.New(errs.Invalid, "column %q: column %q is auto_increment already, and a table has at most one", f.Name, v.auto)
			}
			v.auto = f.Name
		}
	}
	return v.fields(s.Fields, "", 0)
}

type validator struct {
	ids   map[int32]string
	count int
	auto  string
}

func (v *validator) fields(fields []Field, prefix string, depth int) error {
	if depth > maxTypeDepth {
		return errs.New(errs.Invalid, "column %q: types are nested more than %d deep", strings.TrimSuffix(prefix, "."), maxTypeDepth)
	}
	seen := make(map[string]string, len(fields))
	for _, f := range fields {
		path := prefix + f.Name
		if err := CheckName("column", f.Name); err != nil {
			return err
		}
		low := strings.ToLower(f.Name)
		if other, dup := seen[low]; dup {
			if other == f.Name {
				return errs.New(errs.Invalid, "column %q is defined twice", path)
			}
			return errs.New(errs.Invalid, "column %q: it differs from %q only by letter case, which other engines cannot tell apart", path, other)
		}
		seen[low] = f.Name
		if err := v.field(f, path, depth); err != nil {
			return err
		}
	}
	return nil
}

func (v *validator) field(f Field, path string, depth int) error {
	if v.count++; v.count > MaxFields {
		return errs.New(errs.Invalid, "column %q: a table has at most %d columns, nested fields included", path, MaxFields)
	}
	if other, dup := v.ids[f.ID]; dup && f.ID != 0 {
		return errs.New(errs.Invalid, "column %q has the field id %d of column %q", path, f.ID, other)
	}
	if f.ID < 0 {
		return errs.New(errs.Invalid, "column %q has the negative field id %d", path, f.ID)
	}
	v.ids[f.ID] = path
	if _, zero := v.ids[0]; zero && len(v.ids) > 1 {
		return errs.New(errs.Invalid, "column %q: some fields have an id and some have none", path)
	}
	if err := checkType(f.Type, path); err != nil {
		return err
	}
	if f.AutoIncrement && (depth > 0 || f.Type.Kind != Int && f.Type.Kind != Long) {
		return errs.New(errs.Invalid, "column %q: auto_increment needs a top-level int or long column, not %s", path, f.Type)
	}
	if err := checkDefault(f, path, depth); err != nil {
		return err
	}
	return v.fields(f.Type.Children, path+".", depth+1)
}

func checkType(t Type, path string) error {
	bad := func(format string, args ...any) error {
		return errs.New(errs.Invalid, "column %q: "+format, append([]any{path}, args...)...)
	}
	children := 0
	switch t.Kind {
	case Decimal:
		if t.Precision < 1 || t.Precision > MaxDecimalPrecision {
			return bad("a decimal's precision is 1 to %d, not %d", MaxDecimalPrecision, t.Precision)
		}
		if t.Scale < 0 || t.Scale > t.Precision {
			return bad("a decimal's scale is 0 to its precision %d, not %d", t.Precision, t.Scale)
		}
	case Fixed:
		if t.Length < 1 || t.Length > MaxFixedLength {
			return bad("the length of fixed is 1 to %d, not %d", MaxFixedLength, t.Length)
		}
	case List:
		children = 1
		if len(t.Children) == 1 && t.Children[0].Name != "element" {
			return bad("a list's child is named element")
		}
	case Map:
		children = 2
		if len(t.Children) == 2 {
			if t.Children[0].Name != "key" || t.Children[1].Name != "value" {
				return bad("a map's children are named key and value")
			}
			if !t.Children[0].Required {
				return bad("a map's key is required")
			}
			if t.Children[0].Type.Kind.Nested() {
				return bad("a map's key is a primitive type, as other engines take no other")
			}
		}
	case Struct:
		if children = len(t.Children); children == 0 {
			return bad("a struct needs at least one field")
		}
	default:
		if t.Kind < Boolean || t.Kind > Binary {
			return bad("it has no type")
		}
	}
	if len(t.Children) != children {
		return bad("%s has %d children, not %d", t.Kind, children, len(t.Children))
	}
	return nil
}
