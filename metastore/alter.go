package metastore

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// maxChanges bounds the changes of one step.
const maxChanges = 1000

// Change is one change of a table; exactly one field is set.
type Change struct {
	AddColumn       *AddColumn        `json:"add_column,omitempty"`
	RenameColumn    *RenameColumn     `json:"rename_column,omitempty"`
	DropColumn      *DropColumn       `json:"drop_column,omitempty"`
	WidenColumn     *WidenColumn      `json:"widen_column,omitempty"`
	MakeOptional    *MakeOptional     `json:"make_optional,omitempty"`
	MoveColumn      *MoveColumn       `json:"move_column,omitempty"`
	SetColumnDoc    *SetColumnDoc     `json:"set_column_doc,omitempty"`
	SetProperties   map[string]string `json:"set_properties,omitempty"`
	UnsetProperties []string          `json:"unset_properties,omitempty"`
	SetPartitionBy  *[]string         `json:"set_partition_by,omitempty"` // an empty list ends partitioning
	SetComment      *string           `json:"set_comment,omitempty"`
}

// AddColumn adds a column at the end, first, or after another one. Columns of
// structs are named by dotted path.
type AddColumn struct {
	ColumnSpec
	After string `json:"after,omitempty"`
	First bool   `json:"first,omitempty"`
}

// RenameColumn gives a column another name.
type RenameColumn struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// DropColumn removes a column.
type DropColumn struct {
	Name string `json:"name"`
}

// WidenColumn changes a column's type to a wider one.
type WidenColumn struct {
	Name string `json:"name"`
	Type string `json:"type"`
}

// MakeOptional lets a column hold NULL.
type MakeOptional struct {
	Name string `json:"name"`
}

// MoveColumn puts a column first or after another one.
type MoveColumn struct {
	Name  string `json:"name"`
	After string `json:"after,omitempty"`
	First bool   `json:"first,omitempty"`
}

// SetColumnDoc replaces a column's documentation.
type SetColumnDoc struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
}

// Alter returns the table after all the changes in order, with the next Version,
// or an error of class Invalid (Unsupported) and no table. The receiver stays as
// it is. When the changes change nothing, it returns the receiver.
func (t *Table) Alter(changes []Change) (*Table, error) {
	op := "alter table " + t.String()
	if len(changes) == 0 || len(changes) > maxChanges {
		return nil, errs.In(op, errs.New(errs.Invalid, "there are %d changes; a step has 1 to %d", len(changes), maxChanges))
	}
	a := alteration{t: t.clone(), schema: t.Current()}
	for i := range changes {
		if err := a.apply(&changes[i]); err != nil {
			return nil, errs.In(op, err)
		}
	}
	next := a.finish(t)
	if next == t {
		return t, nil
	}
	if err := checkDefinition(next); err != nil {
		return nil, errs.In(op, err)
	}
	if err := checkFixed(t, next); err != nil {
		return nil, errs.In(op, err)
	}
	return next, nil
}

// alteration is a table on its way through a list of changes. Its schema becomes
// a version of the table at the end only.
type alteration struct {
	t      *Table
	schema *segments.Schema
}

func (a *alteration) apply(c *Change) error {
	set := 0
	var err error
	try := func(present bool, fn func() error) {
		if present {
			if set++; set == 1 {
				err = fn()
			}
		}
	}
	try(c.AddColumn != nil, func() error { return a.add(c.AddColumn) })
	try(c.RenameColumn != nil, func() error { return a.rename(c.RenameColumn) })
	try(c.DropColumn != nil, func() error { return a.drop(c.DropColumn.Name) })
	try(c.WidenColumn != nil, func() error { return a.widen(c.WidenColumn) })
	try(c.MakeOptional != nil, func() error { return a.edit(segments.MakeOptional(a.schema, c.MakeOptional.Name)) })
	try(c.MoveColumn != nil, func() error { return a.move(c.MoveColumn) })
	try(c.SetColumnDoc != nil, func() error { return a.setDoc(c.SetColumnDoc) })
	try(len(c.SetProperties) > 0, func() error { return a.setProperties(c.SetProperties) })
	try(len(c.UnsetProperties) > 0, func() error { return a.unsetProperties(c.UnsetProperties) })
	try(c.SetPartitionBy != nil, func() error { return a.setPartitionBy(*c.SetPartitionBy) })
	try(c.SetComment != nil, func() error { return a.setComment(*c.SetComment) })
	if set != 1 {
		return errs.New(errs.Invalid, "a change says %d things; each change says exactly one", set)
	}
	return err
}

func (a *alteration) edit(s *segments.Schema, err error) error {
	if err == nil {
		a.schema = s
	}
	return err
}

func (a *alteration) add(c *AddColumn) error {
	if c.First && c.After != "" {
		return errs.New(errs.Invalid, "column %q: it cannot be both first and after %q", c.Name, c.After)
	}
	spec := c.ColumnSpec
	spec.Name = lastElement(c.Name)
	f, err := spec.field()
	if err != nil {
		return err
	}
	f.Name = c.Name
	if f.Required && a.t.FormatVersion() < 3 {
		return errs.New(errs.Invalid, "column %q: a required column cannot be added to a table of Iceberg format version %d, "+
			"whose existing files have no value for it; leave out required", c.Name, a.t.FormatVersion())
	}
	s, last, err := segments.AddColumn(a.schema, a.t.LastFieldID, f, c.After)
	if err != nil {
		return err
	}
	a.t.LastFieldID = last
	if c.First {
		return a.edit(segments.MoveColumn(s, c.Name, ""))
	}
	return a.edit(s, nil)
}

func (a *alteration) rename(c *RenameColumn) error {
	if err := segments.CheckName("column", c.To); err != nil {
		return err
	}
	if err := a.edit(segments.RenameColumn(a.schema, c.From, c.To)); err != nil {
		return err
	}
	if a.t.Properties[PropVersionColumn] == c.From {
		a.t.Properties[PropVersionColumn] = c.To
	}
	return nil
}

// drop refuses columns that something else needs. A column that partitioned the
// table once stays too: other engines resolve every old partition spec when they
// load a table, and fail when a source is gone.
func (a *alteration) drop(path string) error {
	f, ok := a.find(path)
	if !ok {
		return unknownColumn(path, a.schema)
	}
	for _, id := range fieldIDs(f) {
		switch {
		case slices.Contains(a.t.PrimaryKey, id):
			return errs.New(errs.Invalid, "column %q is part of the primary key and cannot be dropped", path)
		case slices.Contains(a.t.BucketKey, id):
			return errs.New(errs.Invalid, "column %q is part of the bucket key and cannot be dropped", path)
		case slices.ContainsFunc(a.t.Partition, func(p segments.PartitionField) bool { return p.SourceID == id }):
			return errs.New(errs.Invalid, "column %q is used by partition_by and cannot be dropped", path)
		case slices.Contains(a.t.PartitionedBy, id):
			return errs.New(errs.Invalid, "column %q partitioned the table before, and old files are still described by it; it cannot be dropped", path)
		}
	}
	if a.t.Properties[PropVersionColumn] == path {
		return errs.New(errs.Invalid, "column %q is the version_column and cannot be dropped", path)
	}
	return a.edit(segments.DropColumn(a.schema, path))
}

func (a *alteration) widen(c *WidenColumn) error {
	to, err := segments.ParseType(c.Type)
	if err != nil {
		return errs.New(errs.Invalid, "column %q: %v", c.Name, err)
	}
	if f, ok := a.find(c.Name); ok && f.Type.Same(to) {
		return nil
	}
	return a.edit(segments.WidenColumn(a.schema, c.Name, to))
}

func (a *alteration) move(c *MoveColumn) error {
	if c.First == (c.After != "") {
		return errs.New(errs.Invalid, "column %q: say either first or after", c.Name)
	}
	return a.edit(segments.MoveColumn(a.schema, c.Name, c.After))
}

func (a *alteration) setDoc(c *SetColumnDoc) error {
	if len(c.Doc) > maxCommentBytes {
		return errs.New(errs.Invalid, "column %q: the doc is longer than %d bytes", c.Name, maxCommentBytes)
	}
	return a.edit(segments.SetDoc(a.schema, c.Name, c.Doc))
}

func (a *alteration) setProperties(set map[string]string) error {
	if a.t.Properties == nil {
		a.t.Properties = map[string]string{}
	}
	maps.Copy(a.t.Properties, set)
	return nil
}

func (a *alteration) unsetProperties(names []string) error {
	for _, name := range names {
		if _, ok := propertyByName(name); !ok {
			return unknownProperty(name, a.t.Keyed())
		}
		delete(a.t.Properties, name)
	}
	return nil
}

func (a *alteration) setPartitionBy(by []string) error {
	// The fields are resolved against the columns as the changes so far left them.
	scratch := a.t.clone()
	scratch.Schemas, scratch.CurrentSchema = []*segments.Schema{a.schema}, a.schema.ID
	if err := scratch.setPartition(by); err != nil {
		return err
	}
	a.t.Partition, a.t.LastPartitionID, a.t.PartitionedBy = scratch.Partition, scratch.LastPartitionID, scratch.PartitionedBy
	return nil
}

func (a *alteration) setComment(text string) error {
	if len(text) > maxCommentBytes {
		return errs.New(errs.Invalid, "the comment is longer than %d bytes", maxCommentBytes)
	}
	a.t.Comment = text
	return nil
}

// find returns the field at a dotted path.
func (a *alteration) find(path string) (segments.Field, bool) {
	fields := a.schema.Fields
	var f segments.Field
	for _, name := range splitPath(path) {
		i := slices.IndexFunc(fields, func(f segments.Field) bool { return f.Name == name })
		if i < 0 {
			return segments.Field{}, false
		}
		f = fields[i]
		fields = f.Type.Children
	}
	return f, true
}

// finish makes the changed schema the table's next version. It returns old when
// nothing changed.
func (a *alteration) finish(old *Table) *Table {
	t := a.t
	if !sameFields(a.schema, old.Current()) {
		s := &segments.Schema{ID: old.Schemas[len(old.Schemas)-1].ID + 1, Fields: a.schema.Fields}
		t.Schemas = append(t.Schemas, s)
		t.CurrentSchema = s.ID
	} else if samePartition(t.Partition, old.Partition) && maps.Equal(t.Properties, old.Properties) && t.Comment == old.Comment {
		return old
	}
	t.Version++
	return t
}

func sameFields(a, b *segments.Schema) bool {
	x, errX := json.Marshal(a.Fields)
	y, errY := json.Marshal(b.Fields)
	return errX == nil && errY == nil && string(x) == string(y)
}

func samePartition(a, b []segments.PartitionField) bool {
	return slices.EqualFunc(a, b, func(x, y segments.PartitionField) bool { return samePlace(x, y) && x.FieldID == y.FieldID })
}

// checkFixed refuses changes of properties that are fixed for a table's life.
func checkFixed(old, next *Table) error {
	for _, p := range Properties {
		if p.Fixed && old.fixedValue(&p) != next.fixedValue(&p) {
			return errs.New(errs.Invalid, "property %q cannot change once the table exists", p.Name)
		}
	}
	if next.FormatVersion() < old.FormatVersion() {
		return errs.New(errs.Invalid, "property %q cannot go down from %d to %d", PropFormatVersion, old.FormatVersion(), next.FormatVersion())
	}
	return nil
}

// fixedValue is a property's value as far as it must not change: of a column,
// its id, because its name may.
func (t *Table) fixedValue(p *Property) string {
	text := t.property(p.Name)
	if p.Kind != ColumnName {
		return text
	}
	f, _ := t.Current().Field(text)
	return strconv.Itoa(int(f.ID))
}
