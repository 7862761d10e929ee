package metastore

import (
	"cmp"
	"slices"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Limits of a state.
const (
	// DefaultSlots is the number of slots of a new cluster.
	DefaultSlots = 256
	// MaxSlots bounds what a new cluster may ask for.
	MaxSlots = 1 << 14
	// recentMarks is how many of the newest entries a state remembers by nonce,
	// for appenders that are no agents of the state (an agent's own last entry
	// is remembered with the agent).
	recentMarks = 128
)

// State is the cluster's metadata after the entry Seq. It is immutable: every
// goroutine may read it and nobody may change what it reaches.
type State struct {
	Seq         uint64    // the last entry applied; zero before the first
	Sum         string    // checksum of that entry; the next one names it
	ClusterID   string    // random, minted by the first entry
	SlotCount   int       // fixed for the life of the cluster
	CreatedAt   time.Time // of the cluster
	NextTableID uint64    // never goes back

	databases pmap[string, *Database]
	tables    pmap[uint64, *Table]
	names     pmap[tableName, *Table]
	agents    pmap[string, *Agent]
	slots     []Slot // len SlotCount
	recent    []Mark // ascending by Seq, at most recentMarks
}

type tableName struct{ database, table string }

// Database is a namespace of tables.
type Database struct {
	Name      string    `json:"name"`
	Comment   string    `json:"comment,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// AgentState says where an incarnation is in its life.
type AgentState string

// The states of an incarnation. Only a live one owns or claims slots; the
// other two are final.
const (
	Live   AgentState = "live"
	Fenced AgentState = "fenced"
	Left   AgentState = "left"
)

// Agent is one incarnation of an agent, alive or dead.
type Agent struct {
	Incarnation string     `json:"incarnation"`
	AgentID     string     `json:"agent_id"`
	Address     string     `json:"address"`
	Zone        string     `json:"zone,omitempty"`
	Version     string     `json:"version,omitempty"` // of the binary
	State       AgentState `json:"state"`
	JoinedAt    time.Time  `json:"joined_at"`
	JoinedSeq   uint64     `json:"joined_seq"` // entry of its Join
	EndedAt     time.Time  `json:"ended_at,omitzero"`
	EndedSeq    uint64     `json:"ended_seq,omitempty"` // entry of its Fence or Leave

	// Of a fenced incarnation: the WAL position its fence stands at (nothing at
	// or past it was ever acknowledged), and who fenced it.
	FenceAt       uint64 `json:"fence_at,omitempty"`
	FencedBy      string `json:"fenced_by,omitempty"`
	FencedByAgent string `json:"fenced_by_agent,omitempty"`

	// Last is the newest entry that this incarnation wrote since it joined.
	Last Mark `json:"last,omitzero"`
}

// Mark names one entry by its position and nonce.
type Mark struct {
	Seq    uint64 `json:"seq"`
	Writer string `json:"writer,omitempty"`
	Nonce  string `json:"nonce"`
}

// CheckpointRef names a checkpoint object: checkpoint/<incarnation>/<seq>. The
// zero value is "none": there is nothing to recover.
type CheckpointRef struct {
	Incarnation string `json:"incarnation"`
	Seq         uint64 `json:"seq"`
}

// IsZero reports whether there is no checkpoint.
func (r CheckpointRef) IsZero() bool { return r == CheckpointRef{} }

// Slot is one unit of ownership.
type Slot struct {
	// Owner is the incarnation that claimed it last and did not release it; it
	// may be fenced by now. Empty: free.
	Owner string `json:"owner,omitempty"`
	// Epoch counts the claims and releases of the slot. A claim names the epoch
	// it recovered from, so that a recovery overtaken by another is refused.
	Epoch uint64 `json:"epoch"`
	// Checkpoint is where the last claim or release left the slot's buckets. The
	// owner's newer checkpoints are found in the store.
	Checkpoint CheckpointRef `json:"checkpoint,omitzero"`
}

// Slot returns slot i, which must be in [0, SlotCount).
func (s *State) Slot(i int) Slot { return s.slots[i] }

// Slots returns all slots in order; the caller must not change them.
func (s *State) Slots() []Slot { return s.slots }

// SlotsOf returns the slots whose owner is the incarnation, ascending.
func (s *State) SlotsOf(incarnation string) []int {
	var out []int
	for i := range s.slots {
		if s.slots[i].Owner == incarnation {
			out = append(out, i)
		}
	}
	return out
}

// Owner returns the agent that owns the bucket's slot, when it is live.
func (s *State) Owner(table uint64, bucket int32) (*Agent, bool) {
	a, ok := s.agents.get(s.slots[s.SlotOf(table, bucket)].Owner)
	if !ok || a.State != Live {
		return nil, false
	}
	return a, true
}

// Database returns the database of that name, or NotFound.
func (s *State) Database(name string) (*Database, error) {
	d, ok := s.databases.get(name)
	if !ok {
		return nil, errs.New(errs.NotFound, "database %q does not exist", name)
	}
	return d, nil
}

// Databases returns all databases by name.
func (s *State) Databases() []*Database {
	return slices.SortedFunc(s.databases.values, func(a, b *Database) int { return cmp.Compare(a.Name, b.Name) })
}

// Table returns the table with that id, or false.
func (s *State) Table(id uint64) (*Table, bool) { return s.tables.get(id) }

// TableByName returns a table, or NotFound saying whether the database or the
// table is missing.
func (s *State) TableByName(database, name string) (*Table, error) {
	if t, ok := s.names.get(tableName{database, name}); ok {
		return t, nil
	}
	if _, err := s.Database(database); err != nil {
		return nil, err
	}
	return nil, errs.New(errs.NotFound, "table %q does not exist in database %q", name, database)
}

// Tables returns the tables of a database by name; with an empty name, of all
// databases by database and name.
func (s *State) Tables(database string) []*Table {
	var out []*Table
	for t := range s.tables.values {
		if database == "" || t.Database == database {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b *Table) int {
		return cmp.Or(cmp.Compare(a.Database, b.Database), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// TableCount returns the number of tables.
func (s *State) TableCount() int { return s.tables.len() }

// Schema returns a version of a table's schema, or NotFound.
func (s *State) Schema(table uint64, id int32) (*segments.Schema, error) {
	t, ok := s.tables.get(table)
	if !ok {
		return nil, errs.New(errs.NotFound, "table with id %d does not exist", table)
	}
	return t.Schema(id)
}

// Agent returns an incarnation, alive or dead, or false.
func (s *State) Agent(incarnation string) (*Agent, bool) { return s.agents.get(incarnation) }

// Agents returns all incarnations in the order of their ids, which is the order
// of their starts.
func (s *State) Agents() []*Agent {
	return slices.SortedFunc(s.agents.values, func(a, b *Agent) int { return cmp.Compare(a.Incarnation, b.Incarnation) })
}

// LiveAgents returns the live incarnations in the order of their ids.
func (s *State) LiveAgents() []*Agent {
	return slices.DeleteFunc(s.Agents(), func(a *Agent) bool { return a.State != Live })
}

// IsLive reports whether the incarnation joined and is neither fenced nor gone.
func (s *State) IsLive(incarnation string) bool {
	a, ok := s.agents.get(incarnation)
	return ok && a.State == Live
}

// applied says whether the entry that writer put at seq, with that nonce, is part
// of this state, which must have passed seq. known is false when the state no
// longer tells.
//
// An agent writes one entry at a time, so its newest mark is exact: either it is
// the entry in question, or that entry never was.
func (s *State) applied(writer, nonce string, seq uint64) (yes, known bool) {
	if a, ok := s.agents.get(writer); ok && a.JoinedSeq <= seq {
		return a.Last.Nonce == nonce, true
	}
	for _, m := range s.recent {
		if m.Nonce == nonce && m.Writer == writer {
			return true, true
		}
	}
	return false, len(s.recent) > 0 && s.recent[0].Seq <= seq
}
