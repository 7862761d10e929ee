package metastore

import (
	"encoding/json"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Command is what an entry does to the state. Commands carry results (ids,
// schemas, property sets), not requests, so that applying them never depends on
// the rules of a later version.
type Command interface {
	// Name is the command's key in the entry.
	Name() string
	// apply changes next, which nobody else has yet; e is the entry.
	apply(next *State, e *Entry) error
}

// Init is the first entry of every log.
type Init struct {
	ClusterID string `json:"cluster_id"`
	SlotCount int    `json:"slot_count"`
}

// CreateDatabase adds an empty database.
type CreateDatabase struct {
	Database string `json:"database"`
	Comment  string `json:"comment,omitempty"`
}

// DropDatabase removes a database and exactly these tables, which are all it has.
type DropDatabase struct {
	Database string   `json:"database"`
	Tables   []uint64 `json:"tables,omitempty"`
}

// CreateTable adds a table.
type CreateTable struct {
	Table *Table `json:"table"`
}

// AlterTable replaces what is set, in one step.
type AlterTable struct {
	Table           uint64                    `json:"table"`
	Version         uint64                    `json:"version"` // the table's before this change
	Changes         []Change                  `json:"changes"` // what was asked for, for people
	Schema          *segments.Schema          `json:"schema,omitempty"`
	LastFieldID     int32                     `json:"last_field_id"`
	Partition       []segments.PartitionField `json:"partition"` // the whole spec, also when unchanged
	LastPartitionID int32                     `json:"last_partition_id"`
	PartitionedBy   []int32                   `json:"partitioned_by,omitempty"`
	Properties      map[string]string         `json:"properties"` // all of them, also when unchanged
	Comment         string                    `json:"comment,omitempty"`
}

// DropTable removes a table.
type DropTable struct {
	Table     uint64 `json:"table"`
	Database  string `json:"database"`
	TableName string `json:"name"`
}

// Join makes an incarnation live.
type Join struct {
	Incarnation string `json:"incarnation"`
	AgentID     string `json:"agent_id"`
	Address     string `json:"address"`
	Zone        string `json:"zone,omitempty"`
	Version     string `json:"version,omitempty"`
}

// Leave ends a live incarnation that owns no slot.
type Leave struct {
	Incarnation string `json:"incarnation"`
}

// Fence ends a live incarnation against its will. Its WAL is fenced already:
// FenceAt is the position of the fence object.
type Fence struct {
	Incarnation string `json:"incarnation"`
	FenceAt     uint64 `json:"fence_at"`
	By          string `json:"by"`       // incarnation
	ByAgent     string `json:"by_agent"` // its agent id
}

// Release gives up slots by their owner; the checkpoint covers all of them.
type Release struct {
	Incarnation string        `json:"incarnation"`
	Slots       []int         `json:"slots"`
	Checkpoint  CheckpointRef `json:"checkpoint"`
}

// Claim takes slots that are free or whose owner is fenced.
type Claim struct {
	Incarnation string        `json:"incarnation"`
	Slots       []SlotRef     `json:"slots"`
	Checkpoint  CheckpointRef `json:"checkpoint"` // the claimer's own, which covers all of them
}

// SlotRef names a slot as somebody saw it.
type SlotRef struct {
	Slot  int    `json:"slot"`
	Epoch uint64 `json:"epoch"`
}

// Prune forgets dead incarnations.
type Prune struct {
	Incarnations []string `json:"incarnations"`
}

// DeadKept is how long the ids of dead incarnations are kept at least, by the
// clocks of the entries' writers. Fence objects go after their id.
const DeadKept = 7 * 24 * time.Hour

// Name returns "init".
func (*Init) Name() string { return "init" }

// Name returns "create_database".
func (*CreateDatabase) Name() string { return "create_database" }

// Name returns "drop_database".
func (*DropDatabase) Name() string { return "drop_database" }

// Name returns "create_table".
func (*CreateTable) Name() string { return "create_table" }

// Name returns "alter_table".
func (*AlterTable) Name() string { return "alter_table" }

// Name returns "drop_table".
func (*DropTable) Name() string { return "drop_table" }

// Name returns "join".
func (*Join) Name() string { return "join" }

// Name returns "leave".
func (*Leave) Name() string { return "leave" }

// Name returns "fence".
func (*Fence) Name() string { return "fence" }

// Name returns "release".
func (*Release) Name() string { return "release" }

// Name returns "claim".
func (*Claim) Name() string { return "claim" }

// Name returns "prune".
func (*Prune) Name() string { return "prune" }

// newCommand maps each name to an empty command.
var newCommand = map[string]func() Command{
	"init":            func() Command { return new(Init) },
	"create_database": func() Command { return new(CreateDatabase) },
	"drop_database":   func() Command { return new(DropDatabase) },
	"create_table":    func() Command { return new(CreateTable) },
	"alter_table":     func() Command { return new(AlterTable) },
	"drop_table":      func() Command { return new(DropTable) },
	"join":            func() Command { return new(Join) },
	"leave":           func() Command { return new(Leave) },
	"fence":           func() Command { return new(Fence) },
	"release":         func() Command { return new(Release) },
	"claim":           func() Command { return new(Claim) },
	"prune":           func() Command { return new(Prune) },
}

func decodeCommand(raw map[string]json.RawMessage) (Command, error) {
	if len(raw) != 1 {
		return nil, errs.New(errs.Corrupt, "it has %d commands, not one", len(raw))
	}
	for name, body := range raw {
		newOne, ok := newCommand[name]
		if !ok {
			return nil, errs.New(errs.Corrupt, "unknown command %q", name)
		}
		if string(body) == "null" {
			return nil, errs.New(errs.Corrupt, "command %q is null", name)
		}
		c := newOne()
		if err := strictJSON(body, c); err != nil {
			return nil, errs.New(errs.Corrupt, "command %q: %v", name, err)
		}
		return c, nil
	}
	return nil, nil
}
