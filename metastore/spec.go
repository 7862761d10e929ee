package metastore

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// ColumnSpec is a column as a user writes it.
type ColumnSpec struct {
	Name          string          `json:"name"`
	Type          string          `json:"type"`
	Required      bool            `json:"required,omitempty"`
	Default       json.RawMessage `json:"default,omitempty"`
	Doc           string          `json:"doc,omitempty"`
	Aggregate     string          `json:"aggregate,omitempty"`
	AutoIncrement bool            `json:"auto_increment,omitempty"`
}

// TableSpec is a table's definition as a user writes it: the body of create-table.
type TableSpec struct {
	Name        string            `json:"name"`
	Comment     string            `json:"comment,omitempty"`
	Columns     []ColumnSpec      `json:"columns"`
	PrimaryKey  []string          `json:"primary_key,omitempty"`
	Buckets     int32             `json:"buckets,omitempty"`    // 0: DefaultBuckets
	BucketKey   []string          `json:"bucket_key,omitempty"` // empty: the primary key, or none
	PartitionBy []string          `json:"partition_by,omitempty"`
	Properties  map[string]string `json:"properties,omitempty"`
}

// TableIDs are the identities of a new table.
type TableIDs struct {
	ID   uint64 // State.NextTableID
	UUID string // fresh, canonical text
}

// maxCommentBytes bounds comments and column docs; they travel in every snapshot.
const maxCommentBytes = 4096

// NewTable builds a table of the database from its definition, with field ids
// assigned, or refuses what could not work later: an Invalid error that names
// column and rule, or Unsupported for what this version does not serve.
func NewTable(database string, spec *TableSpec, ids TableIDs, now time.Time) (*Table, error) {
	if err := segments.CheckName("database", database); err != nil {
		return nil, err
	}
	if err := segments.CheckName("table", spec.Name); err != nil {
		return nil, err
	}
	t := &Table{
		ID: ids.ID, UUID: ids.UUID, Database: database, Name: spec.Name, Version: 1, Comment: spec.Comment,
		Properties: maps.Clone(spec.Properties), CreatedAt: now, LastPartitionID: segments.FirstPartitionID - 1,
	}
	if err := t.build(spec); err != nil {
		return nil, errs.In("create table "+t.String(), err)
	}
	return t, nil
}

func (t *Table) build(spec *TableSpec) error {
	if len(t.Comment) > maxCommentBytes {
		return errs.New(errs.Invalid, "the comment is longer than %d bytes", maxCommentBytes)
	}
	schema, err := buildSchema(spec)
	if err != nil {
		return err
	}
	if err := schema.Validate(); err != nil {
		return err
	}
	schema, t.LastFieldID = segments.AssignFieldIDs(schema, 0)
	t.Schemas, t.CurrentSchema = []*segments.Schema{schema}, schema.ID
	if err := t.setKeys(spec); err != nil {
		return err
	}
	if err := t.setPartition(spec.PartitionBy); err != nil {
		return err
	}
	return checkDefinition(t)
}

func buildSchema(spec *TableSpec) (*segments.Schema, error) {
	keyed := map[string]bool{}
	for _, name := range spec.PrimaryKey {
		keyed[name] = true
	}
	s := &segments.Schema{Fields: make([]segments.Field, 0, len(spec.Columns))}
	for _, c := range spec.Columns {
		f, err := c.field()
		if err != nil {
			return nil, err
		}
		f.Required = f.Required || keyed[c.Name] // a key column holds no NULL
		s.Fields = append(s.Fields, f)
	}
	return s, nil
}

// field reads a column's definition; its ids are zero.
func (c *ColumnSpec) field() (segments.Field, error) {
	if err := segments.CheckName("column", c.Name); err != nil {
		return segments.Field{}, err
	}
	if len(c.Doc) > maxCommentBytes {
		return segments.Field{}, errs.New(errs.Invalid, "column %q: the doc is longer than %d bytes", c.Name, maxCommentBytes)
	}
	typ, err := segments.ParseType(c.Type)
	if err != nil {
		return segments.Field{}, errs.New(errs.Invalid, "column %q: %v", c.Name, err)
	}
	f := segments.Field{
		Name: c.Name, Type: typ, Required: c.Required, Doc: c.Doc, Default: c.Default,
		Aggregate: c.Aggregate, AutoIncrement: c.AutoIncrement,
	}
	if string(f.Default) == "null" {
		f.Default = nil
	}
	return f, nil
}

// setKeys resolves primary key, bucket key and the number of buckets.
func (t *Table) setKeys(spec *TableSpec) error {
	var err error
	if t.PrimaryKey, err = t.resolveKey("primary_key", spec.PrimaryKey); err != nil {
		return err
	}
	if t.BucketKey, err = t.resolveKey("bucket_key", spec.BucketKey); err != nil {
		return err
	}
	if len(t.BucketKey) == 0 {
		t.BucketKey = t.PrimaryKey
	}
	t.Buckets = spec.Buckets
	if t.Buckets == 0 {
		t.Buckets = DefaultBuckets
	}
	return nil
}

func (t *Table) resolveKey(what string, names []string) ([]int32, error) {
	var ids []int32
	for _, name := range names {
		f, ok := t.Current().Field(name)
		if !ok {
			return nil, errs.New(errs.Invalid, "%s: %v", what, unknownColumn(name, t.Current()))
		}
		for _, id := range ids {
			if id == f.ID {
				return nil, errs.New(errs.Invalid, "%s: column %q is named twice", what, name)
			}
		}
		ids = append(ids, f.ID)
	}
	return ids, nil
}
