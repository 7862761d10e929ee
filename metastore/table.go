package metastore

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Limits of a table.
const (
	// DefaultBuckets keeps one total order over the table and the fewest files;
	// a table that outgrows one owner says so when it is created.
	DefaultBuckets = 1
	// MaxBuckets bounds what a table may be split into.
	MaxBuckets = 4096
	// maxPartitionFields bounds a partition spec.
	maxPartitionFields = 32
)

// Table is a table's definition. It is immutable: a change makes a new one with
// the next Version. Key and partition columns are field ids.
type Table struct {
	ID       uint64 // never reused, also not by a table of the same name
	UUID     string // canonical text; the Iceberg table's uuid
	Database string
	Name     string
	Version  uint64 // counts the changes, from 1
	Comment  string

	Schemas       []*segments.Schema // every version, ascending by ID
	CurrentSchema int32
	LastFieldID   int32 // the largest field id ever given, at any depth

	Buckets    int32
	BucketKey  []int32 // top-level field ids; empty on keyless log tables
	PrimaryKey []int32 // top-level field ids; empty on log tables

	// Partition is the whole Iceberg partition spec: the fields of partition_by,
	// then, for a bucket key of one column, bucket[N](column).
	Partition       []segments.PartitionField
	LastPartitionID int32   // the largest partition field id ever given
	PartitionedBy   []int32 // every field id that was ever a partition source, ascending

	Properties map[string]string
	CreatedAt  time.Time
}

// Keyed reports whether the table has a primary key.
func (t *Table) Keyed() bool { return len(t.PrimaryKey) > 0 }

// Schema returns a version of the schema, or NotFound.
func (t *Table) Schema(id int32) (*segments.Schema, error) {
	if s := t.schema(id); s != nil {
		return s, nil
	}
	return nil, errs.New(errs.NotFound, "table %s has no schema %d", t, id)
}

func (t *Table) schema(id int32) *segments.Schema {
	i, ok := slices.BinarySearchFunc(t.Schemas, id, func(s *segments.Schema, id int32) int { return int(s.ID) - int(id) })
	if !ok {
		return nil
	}
	return t.Schemas[i]
}

// Current returns the current schema.
func (t *Table) Current() *segments.Schema { return t.schema(t.CurrentSchema) }

// LakePrefix is the table's directory in the store, without a slash at its end.
func (t *Table) LakePrefix() string {
	return "lake/" + t.Database + "/" + t.Name + "-" + strconv.FormatUint(t.ID, 10)
}

// String is "database.table", for messages.
func (t *Table) String() string { return t.Database + "." + t.Name }

// ColumnNames returns the current names of top-level fields.
func (t *Table) ColumnNames(ids []int32) []string {
	names := make([]string, 0, len(ids))
	for _, id := range ids {
		if f, ok := t.Current().FieldByID(id); ok {
			names = append(names, f.Name)
		}
	}
	return names
}

// PartitionBy returns the partition fields as a user writes them, without the
// one that stands for the buckets.
func (t *Table) PartitionBy() []string {
	out := []string{}
	for _, p := range t.Partition {
		f, ok := t.Current().FieldByID(p.SourceID)
		if !ok || t.isBucketField(p) {
			continue
		}
		out = append(out, partitionText(p.Transform, f.Name))
	}
	return out
}

// partitionText is "day(ts)" or "bucket(16,id)".
func partitionText(transform, column string) string {
	name, rest, ok := strings.Cut(transform, "[")
	if !ok {
		return transform + "(" + column + ")"
	}
	return name + "(" + strings.TrimSuffix(rest, "]") + "," + column + ")"
}

// clone returns a copy whose top level may be changed.
func (t *Table) clone() *Table {
	c := *t
	c.Schemas = slices.Clone(t.Schemas)
	c.Partition = slices.Clone(t.Partition)
	c.PartitionedBy = slices.Clone(t.PartitionedBy)
	c.Properties = maps.Clone(t.Properties)
	return &c
}

// tableJSON is a table in log entries and snapshots.
type tableJSON struct {
	ID              uint64                    `json:"id"`
	UUID            string                    `json:"uuid"`
	Database        string                    `json:"database"`
	Name            string                    `json:"name"`
	Version         uint64                    `json:"version"`
	Comment         string                    `json:"comment,omitempty"`
	Schemas         []*segments.Schema        `json:"schemas"`
	CurrentSchema   int32                     `json:"current_schema"`
	LastFieldID     int32                     `json:"last_field_id"`
	Buckets         int32                     `json:"buckets"`
	BucketKey       []int32                   `json:"bucket_key,omitempty"`
	PrimaryKey      []int32                   `json:"primary_key,omitempty"`
	Partition       []segments.PartitionField `json:"partition,omitempty"`
	LastPartitionID int32                     `json:"last_partition_id"`
	PartitionedBy   []int32                   `json:"partitioned_by,omitempty"`
	Properties      map[string]string         `json:"properties,omitempty"`
	CreatedAt       time.Time                 `json:"created_at"`
}

// MarshalJSON returns the persisted form (docs/format/metadata.md).
func (t *Table) MarshalJSON() ([]byte, error) { return json.Marshal(tableJSON(*t)) }

// UnmarshalJSON reads the persisted form.
func (t *Table) UnmarshalJSON(b []byte) error {
	var j tableJSON
	if err := strictJSON(b, &j); err != nil {
		return err
	}
	*t = Table(j)
	return t.checkShape()
}

// checkShape refuses a decoded table that would make code fail later: it checks
// references, not the rules of a definition.
func (t *Table) checkShape() error {
	bad := func(format string, args ...any) error {
		return errs.New(errs.Corrupt, "table %s (id %d): "+format, append([]any{t, t.ID}, args...)...)
	}
	if t.ID == 0 || t.Name == "" || t.Database == "" {
		return bad("its id or name is missing")
	}
	if t.Buckets < 1 || t.Buckets > MaxBuckets {
		return bad("it has %d buckets", t.Buckets)
	}
	last := int32(-1)
	for _, s := range t.Schemas {
		if s == nil || s.ID <= last {
			return bad("its schemas are not in order")
		}
		if err := s.Validate(); err != nil {
			return bad("schema %d: %v", s.ID, err)
		}
		if m := s.MaxFieldID(); m > t.LastFieldID || m < 1 {
			return bad("schema %d has field ids up to %d, and the last one given is %d", s.ID, m, t.LastFieldID)
		}
		last = s.ID
	}
	current := t.Current()
	if current == nil {
		return bad("schema %d is missing", t.CurrentSchema)
	}
	for _, id := range slices.Concat(t.PrimaryKey, t.BucketKey) {
		if current.IndexOfID(id) < 0 {
			return bad("key column with field id %d is missing", id)
		}
	}
	for _, p := range t.Partition {
		if _, ok := current.FieldByID(p.SourceID); !ok || p.FieldID > t.LastPartitionID {
			return bad("partition field %q is broken", p.Name)
		}
	}
	return nil
}
