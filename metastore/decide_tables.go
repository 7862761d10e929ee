package metastore

import (
	"io"

	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Decision is what Append calls: it looks at a state and says what to write. It
// is pure and may be called several times.
type Decision = func(*State) (Command, error)

// DecideCreateDatabase makes an empty database. With ifNotExists, one that exists
// is no error, and nothing is written.
func DecideCreateDatabase(name, comment string, ifNotExists bool) Decision {
	return func(s *State) (Command, error) {
		if _, ok := s.databases.get(name); ok && ifNotExists {
			return nil, nil
		}
		if len(comment) > maxCommentBytes {
			return nil, errs.New(errs.Invalid, "the comment is longer than %d bytes", maxCommentBytes)
		}
		return &CreateDatabase{Database: name, Comment: comment}, nil
	}
}

// DecideDropDatabase removes a database; one that holds tables only with cascade.
func DecideDropDatabase(name string, cascade bool) Decision {
	return func(s *State) (Command, error) {
		if _, err := s.Database(name); err != nil {
			return nil, err
		}
		ids := tableIDs(s, name)
		if len(ids) > 0 && !cascade {
			return nil, errs.New(errs.Conflict, "database %q holds %d tables; drop them first, or drop the database with cascade", name, len(ids))
		}
		return &DropDatabase{Database: name, Tables: ids}, nil
	}
}

// DecideCreateTable makes a table of the database. With ifNotExists, a table of
// that name is no error, and nothing is written.
func (l *Log) DecideCreateTable(database string, spec *TableSpec, ifNotExists bool) Decision {
	return func(s *State) (Command, error) {
		if _, err := s.Database(database); err != nil {
			return nil, err
		}
		if _, ok := s.names.get(tableName{database, spec.Name}); ok {
			if ifNotExists {
				return nil, nil
			}
			return nil, errs.New(errs.Exists, "table %q exists in database %q", spec.Name, database)
		}
		id, err := newUUID(l.o.Rand)
		if err != nil {
			return nil, err
		}
		t, err := NewTable(database, spec, TableIDs{ID: s.NextTableID, UUID: id}, entryTime(l.o.Now()))
		if err != nil {
			return nil, err
		}
		return &CreateTable{Table: t}, nil
	}
}

func newUUID(random io.Reader) (string, error) {
	id, err := uuid.NewRandomFromReader(random)
	if err != nil {
		return "", errs.Wrap(errs.Internal, "read random bytes", err)
	}
	return id.String(), nil
}

// DecideAlterTable applies the changes in one step or none. When they change
// nothing, nothing is written.
func DecideAlterTable(database, name string, changes []Change) Decision {
	return func(s *State) (Command, error) {
		old, err := s.TableByName(database, name)
		if err != nil {
			return nil, err
		}
		t, err := old.Alter(changes)
		if err != nil || t == old {
			return nil, err
		}
		var schema *segments.Schema
		if t.CurrentSchema != old.CurrentSchema {
			schema = t.Current()
		}
		return &AlterTable{
			Table: t.ID, Version: old.Version, Changes: changes, Schema: schema, LastFieldID: t.LastFieldID,
			Partition: t.Partition, LastPartitionID: t.LastPartitionID, PartitionedBy: t.PartitionedBy,
			Properties: t.Properties, Comment: t.Comment,
		}, nil
	}
}

// DecideDropTable removes a table. With ifExists, a missing one is no error.
func DecideDropTable(database, name string, ifExists bool) Decision {
	return func(s *State) (Command, error) {
		t, err := s.TableByName(database, name)
		if err != nil {
			if ifExists && errs.Is(err, errs.NotFound) {
				return nil, nil
			}
			return nil, err
		}
		return &DropTable{Table: t.ID, Database: database, TableName: name}, nil
	}
}
