package filter

import (
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/segments"
)

// Node is a part of a predicate: one of the types below.
type Node interface{ node() }

// And is true when all arguments are; it has at least two.
type And struct{ Args []Node }

// Or is true when any argument is; it has at least two.
type Or struct{ Args []Node }

// Not is true when its argument is false. Trees of an Expr hold none: Parse
// pushes NOT down into the leaves.
type Not struct{ Arg Node }

// Compare compares a column with a value of its type, which is never NaN.
type Compare struct {
	Op    Op
	Col   *Column
	Value Value
}

// CompareColumns compares two columns. With Not set it is true when the
// comparison is false, which for NaN is not the same as the opposite Op.
type CompareColumns struct {
	Op          Op
	Left, Right *Column
	Not         bool
}

// In is true when the column equals one of the values, or with Not when it
// equals none. Null says that the list holds NULL besides: then what is not
// found is unknown.
type In struct {
	Col    *Column
	Values []Value
	Null   bool
	Not    bool
}

// Like matches a string column with a pattern.
type Like struct {
	Col     *Column
	Pattern Pattern
	Not     bool
}

// IsNull is true when the column is NULL (or, with Not, when it is not).
type IsNull struct {
	Col *Column
	Not bool
}

// IsNaN is true when the column is NaN (or, with Not, any other number); NULL is unknown.
type IsNaN struct {
	Col *Column
	Not bool
}

// Known is Value for every value of the column and unknown for NULL: a
// comparison whose literal lies outside the column's type.
type Known struct {
	Col   *Column
	Value bool
}

// Const is the same for every row.
type Const struct{ Truth Truth }

func (*And) node()            {}
func (*Or) node()             {}
func (*Not) node()            {}
func (*Compare) node()        {}
func (*CompareColumns) node() {}
func (*In) node()             {}
func (*Like) node()           {}
func (*IsNull) node()         {}
func (*IsNaN) node()          {}
func (*Known) node()          {}
func (*Const) node()          {}

// Truth is a value of SQL's logic.
type Truth uint8

// The truth values.
const (
	Unknown Truth = iota
	False
	True
)

// Op is a comparison.
type Op uint8

// The comparisons.
const (
	Eq Op = iota
	Ne
	Lt
	Le
	Gt
	Ge
)

var opNames = [...]string{"=", "<>", "<", "<=", ">", ">="}

// String returns the operator in SQL.
func (o Op) String() string { return opNames[o] }

// flip returns the operator for exchanged sides.
func (o Op) flip() Op { return [...]Op{Eq, Ne, Gt, Ge, Lt, Le}[o] }

// opposite returns the operator that is true when o is false, but for NaN.
func (o Op) opposite() Op { return [...]Op{Ne, Eq, Ge, Gt, Le, Lt}[o] }

// holds says whether the operator is true of two values that compare as c.
func (o Op) holds(c int) bool {
	switch o {
	case Eq:
		return c == 0
	case Ne:
		return c != 0
	case Lt:
		return c < 0
	case Le:
		return c <= 0
	case Gt:
		return c > 0
	}
	return c >= 0
}

// Column is a column, or a field inside a struct column.
type Column struct {
	ID   int32  // of the field
	Root int32  // of the top-level column that holds it; ID when it is one
	Name string // as in the text, with dots
	Type segments.Type
	path []string // names below the root
}

func (c *Column) float() bool {
	return c.Type.Kind == segments.Float || c.Type.Kind == segments.Double
}

// Value is a literal in the type of its column. Which field counts follows
// from Kind.
type Value struct {
	Kind  segments.Kind
	Int   int64          // int, long, date (days), time, timestamp, timestamptz (microseconds); boolean as 0, 1
	Float float64        // float (a float32), double
	Dec   decimal128.Num // decimal, unscaled
	Bytes []byte         // string, uuid, fixed, binary
}

// Any returns the value in the Go type that segments.FromIcebergValue has for
// its kind.
func (v Value) Any() any {
	switch v.Kind {
	case segments.Boolean:
		return v.Int != 0
	case segments.Int, segments.Date:
		return int32(v.Int)
	case segments.Float:
		return float32(v.Float)
	case segments.Double:
		return v.Float
	case segments.Decimal:
		return v.Dec
	case segments.String:
		return string(v.Bytes)
	case segments.UUID, segments.Fixed, segments.Binary:
		return v.Bytes
	}
	return v.Int
}

// Expr is a parsed predicate.
type Expr struct {
	text    string
	root    Node
	columns []int32
}

// Root returns the tree, without Not nodes. It must not be changed.
func (e *Expr) Root() Node { return e.root }

// String returns the text that was parsed.
func (e *Expr) String() string { return e.text }

// Columns returns the field ids of the top-level columns that the predicate
// looks at, each once, in order of appearance.
func (e *Expr) Columns() []int32 { return append([]int32(nil), e.columns...) }
