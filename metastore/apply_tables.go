package metastore

import (
	"maps"
	"slices"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

func (c *CreateDatabase) apply(s *State, e *Entry) error {
	if err := segments.CheckName("database", c.Database); err != nil {
		return err
	}
	if _, ok := s.databases.get(c.Database); ok {
		return errs.New(errs.Exists, "database %q exists", c.Database)
	}
	if s.databases.len() >= maxDatabases {
		return errs.New(errs.Invalid, "there are %d databases, and no more are allowed", maxDatabases)
	}
	s.databases = s.databases.with(c.Database, &Database{Name: c.Database, Comment: c.Comment, CreatedAt: e.Time})
	return nil
}

// Bounds of a cluster: every snapshot holds all of it.
const (
	maxDatabases = 10_000
	maxTables    = 100_000
)

func (c *DropDatabase) apply(s *State, _ *Entry) error {
	if _, err := s.Database(c.Database); err != nil {
		return err
	}
	if !slices.Equal(c.Tables, tableIDs(s, c.Database)) {
		return errs.New(errs.Conflict, "database %q does not hold exactly the tables to drop", c.Database)
	}
	for _, id := range c.Tables {
		t, _ := s.tables.get(id)
		s.removeTable(t)
	}
	s.databases = s.databases.without(c.Database)
	return nil
}

// tableIDs returns the ids of a database's tables, ascending.
func tableIDs(s *State, database string) []uint64 {
	var ids []uint64
	for t := range s.tables.values {
		if t.Database == database {
			ids = append(ids, t.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

func (s *State) putTable(t *Table) {
	s.tables = s.tables.with(t.ID, t)
	s.names = s.names.with(tableName{t.Database, t.Name}, t)
}

func (s *State) removeTable(t *Table) {
	s.tables = s.tables.without(t.ID)
	s.names = s.names.without(tableName{t.Database, t.Name})
}

// INVARIANT(meta-4): a table's id is the next one, which only grows.
func (c *CreateTable) apply(s *State, _ *Entry) error {
	t := c.Table
	if t == nil {
		return errs.New(errs.Invalid, "the table is missing")
	}
	if _, err := s.Database(t.Database); err != nil {
		return err
	}
	if _, ok := s.names.get(tableName{t.Database, t.Name}); ok {
		return errs.New(errs.Exists, "table %q exists in database %q", t.Name, t.Database)
	}
	if t.ID != s.NextTableID || t.Version != 1 || t.UUID == "" {
		return errs.New(errs.Conflict, "table %s has the id %d; the next id is %d", t, t.ID, s.NextTableID)
	}
	if s.tables.len() >= maxTables {
		return errs.New(errs.Invalid, "there are %d tables, and no more are allowed", maxTables)
	}
	if err := t.checkShape(); err != nil {
		return err
	}
	s.NextTableID++
	s.putTable(t)
	return nil
}

// INVARIANT(meta-4): field ids, schema ids and partition field ids only grow.
func (c *AlterTable) apply(s *State, _ *Entry) error {
	old, ok := s.tables.get(c.Table)
	if !ok {
		return errs.New(errs.NotFound, "table with id %d does not exist", c.Table)
	}
	if old.Version != c.Version {
		return errs.New(errs.Conflict, "table %s is at version %d, not %d", old, old.Version, c.Version)
	}
	if c.LastFieldID < old.LastFieldID || c.LastPartitionID < old.LastPartitionID {
		return errs.New(errs.Conflict, "table %s: ids would go back", old)
	}
	t := old.clone()
	t.Version++
	if c.Schema != nil {
		if c.Schema.ID <= old.Schemas[len(old.Schemas)-1].ID {
			return errs.New(errs.Conflict, "table %s: schema id %d is taken", old, c.Schema.ID)
		}
		t.Schemas = append(t.Schemas, c.Schema)
		t.CurrentSchema = c.Schema.ID
	}
	t.LastFieldID = c.LastFieldID
	t.Partition, t.LastPartitionID, t.PartitionedBy = slices.Clone(c.Partition), c.LastPartitionID, slices.Clone(c.PartitionedBy)
	t.Properties, t.Comment = maps.Clone(c.Properties), c.Comment
	if err := t.checkShape(); err != nil {
		return err
	}
	s.putTable(t)
	return nil
}

func (c *DropTable) apply(s *State, _ *Entry) error {
	t, ok := s.tables.get(c.Table)
	if !ok || t.Database != c.Database || t.Name != c.TableName {
		return errs.New(errs.NotFound, "table %s.%s with id %d does not exist", c.Database, c.TableName, c.Table)
	}
	s.removeTable(t)
	return nil
}
