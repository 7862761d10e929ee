package segments

import "encoding/json"

// Kind is a type's constructor, one of Iceberg's.
type Kind uint8

// The kinds. Their numbers are not persisted; types are persisted as text.
const (
	Boolean Kind = iota + 1
	Int
	Long
	Float
	Double
	Decimal
	Date
	Time
	Timestamp
	TimestampTZ
	String
	UUID
	Fixed
	Binary
	List
	Map
	Struct
)

// Type is a column type. Nested types hold their children as fields with ids
// of their own: List has one child ("element"), Map two ("key", "value"),
// Struct any number.
type Type struct {
	Kind      Kind
	Precision int // Decimal: 1 to 38
	Scale     int // Decimal: 0 to Precision
	Length    int // Fixed: bytes
	Children  []Field
}

// Field is a column, or a child of a nested column. ID is never reused within
// a table. Default is the value, as JSON in the form of the rows API, of rows
// written before the column was added and of rows that leave it out.
type Field struct {
	ID            int32
	Name          string
	Type          Type
	Required      bool
	Doc           string
	Default       json.RawMessage
	Aggregate     string
	AutoIncrement bool
}

// Schema is one version of a table's columns. Schemas are immutable once a
// table has them: a change makes a new one with the next ID.
type Schema struct {
	ID     int32
	Fields []Field
}
