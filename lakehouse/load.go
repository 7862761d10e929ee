package lakehouse

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// Keys that Firn writes into an Iceberg snapshot's summary.
const (
	sumOffsets     = "firn.offsets"     // JSON: bucket → lake offset, all buckets
	sumGenerations = "firn.generations" // JSON: bucket → generation, all buckets
	sumIndexes     = "firn.indexes"     // JSON: bucket → index manifest, of keyed tables
	sumCommit      = "firn.commit-id"
)

// Snapshot is one Iceberg snapshot of a table, and the metadata version that it
// was read from. It is immutable and stays readable until it is expired.
type Snapshot struct {
	Table TableDef
	// ID is the Iceberg snapshot id; 0 when nothing was committed yet.
	ID              int64
	MetadataVersion int64
	MetadataKey     string // of vN.metadata.json in the store
	Metadata        table.Metadata
	// Offsets maps each bucket to its lake offset: every offset below it is in
	// the lake (or was dropped by retention). A bucket that is missing is at 0.
	Offsets map[int32]int64
	// Generations maps each bucket to the number of commits that touched it.
	Generations map[int32]uint64
	// Indexes names the index manifest of each bucket of a keyed table.
	Indexes     map[int32]string
	Rows        int64 // without the deleted ones
	FileCount   int64
	Bytes       int64
	CommittedAt time.Time // zero when nothing was committed yet

	lake *Lake
}

// Offset returns the bucket's lake offset.
func (s *Snapshot) Offset(bucket int32) int64 { return s.Offsets[bucket] }

// Generation returns the bucket's generation.
func (s *Snapshot) Generation(bucket int32) uint64 { return s.Generations[bucket] }

// IndexName returns the name of the bucket's index manifest; "" is none.
func (s *Snapshot) IndexName(bucket int32) string { return s.Indexes[bucket] }

// Location returns the URI of the metadata file.
func (s *Snapshot) Location() string { return s.lake.uri(s.MetadataKey) }

// Load returns the table's newest snapshot. It costs one GET that finds nothing
// when the cached version is still the newest; see load_version.go.
func (l *Lake) Load(ctx context.Context, def TableDef) (*Snapshot, error) {
	v, err := l.newest(ctx, def, verifyAged)
	if err != nil {
		return nil, errs.In("load lake table "+def.String(), err)
	}
	return l.snapshotOf(def, v, v.meta.CurrentSnapshot())
}

// At returns another snapshot of the same metadata version; NotFound when it
// never was, or was expired.
func (s *Snapshot) At(id int64) (*Snapshot, error) {
	snap := s.Metadata.SnapshotByID(id)
	if snap == nil {
		return nil, errs.New(errs.NotFound, "table %s has no snapshot %d (expired, or never committed)", s.Table.String(), id)
	}
	return s.lake.snapshotOf(s.Table, &version{number: s.MetadataVersion, key: s.MetadataKey, meta: s.Metadata}, snap)
}

// AsOf returns the snapshot that was current at t; NotFound when none was, or it was expired.
func (s *Snapshot) AsOf(t time.Time) (*Snapshot, error) {
	var found int64
	ms := t.UnixMilli()
	for entry := range s.Metadata.SnapshotLogs() {
		if entry.TimestampMs <= ms {
			found = entry.SnapshotID
		}
	}
	if found == 0 {
		return nil, errs.New(errs.NotFound, "table %s has no snapshot as old as %s", s.Table.String(), t.UTC().Format(time.RFC3339))
	}
	return s.At(found)
}

// History returns every snapshot of the same metadata version, oldest first.
func (s *Snapshot) History() ([]*Snapshot, error) {
	var out []*Snapshot
	for _, snap := range s.Metadata.Snapshots() {
		one, err := s.At(snap.SnapshotID)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	return out, nil
}

// MetadataJSON returns the bytes of the metadata file, as other engines read them.
func (s *Snapshot) MetadataJSON(ctx context.Context) ([]byte, error) {
	body, _, err := s.lake.store.Get(ctx, s.MetadataKey)
	return body, errs.In("read table metadata", err)
}

func (l *Lake) snapshotOf(def TableDef, v *version, snap *table.Snapshot) (*Snapshot, error) {
	s := &Snapshot{
		Table: def, MetadataVersion: v.number, MetadataKey: v.key, Metadata: v.meta, lake: l,
		Offsets: map[int32]int64{}, Generations: map[int32]uint64{},
	}
	if snap == nil {
		return s, nil
	}
	s.ID = snap.SnapshotID
	s.CommittedAt = time.UnixMilli(snap.TimestampMs).UTC()
	if snap.Summary != nil {
		s.Rows = summaryInt(snap, "total-records") - summaryInt(snap, "total-position-deletes")
		s.FileCount = summaryInt(snap, "total-data-files")
		s.Bytes = summaryInt(snap, "total-files-size")
	}
	state, err := lakeStateOf(v.meta, snap)
	if err != nil {
		return nil, err
	}
	s.Offsets, s.Generations, s.Indexes = state.offsets, state.generations, state.indexes
	return s, nil
}

func summaryInt(snap *table.Snapshot, key string) int64 {
	v, _ := strconv.ParseInt(snap.Summary.Properties[key], 10, 64)
	return v
}

// lakeState is what a commit is decided on: it stands in the summary of each
// snapshot that Firn writes, always for all buckets.
type lakeState struct {
	offsets     map[int32]int64
	generations map[int32]uint64
	indexes     map[int32]string
}

// withIndexes returns the index names of a commit's parent with those that it changes.
func withIndexes(parent, changed map[int32]string) map[int32]string {
	if len(changed) == 0 {
		return parent
	}
	next := maps.Clone(parent)
	if next == nil {
		next = map[int32]string{}
	}
	maps.Copy(next, changed)
	return next
}

// indexNames returns the index manifests that a snapshot's own summary names.
func indexNames(snap *table.Snapshot) (names map[int32]string, err error) {
	if text := snap.Summary.Properties[sumIndexes]; text != "" {
		if err := json.Unmarshal([]byte(text), &names); err != nil {
			return nil, errs.New(errs.Corrupt, "snapshot %d: %s: %v", snap.SnapshotID, sumIndexes, err)
		}
	}
	return names, nil
}

// lakeStateOf returns the state at snap: its own, or that of its nearest
// ancestor that Firn wrote, because other writers drop summary keys.
func lakeStateOf(meta table.Metadata, snap *table.Snapshot) (lakeState, error) {
	state := lakeState{offsets: map[int32]int64{}, generations: map[int32]uint64{}}
	for snap != nil {
		if snap.Summary != nil && snap.Summary.Properties[sumOffsets] != "" {
			props := snap.Summary.Properties
			if err := json.Unmarshal([]byte(props[sumOffsets]), &state.offsets); err != nil {
				return state, errs.New(errs.Corrupt, "snapshot %d: %s: %v", snap.SnapshotID, sumOffsets, err)
			}
			if err := json.Unmarshal([]byte(props[sumGenerations]), &state.generations); err != nil {
				return state, errs.New(errs.Corrupt, "snapshot %d: %s: %v", snap.SnapshotID, sumGenerations, err)
			}
			var err error
			state.indexes, err = indexNames(snap)
			return state, err
		}
		if snap.ParentSnapshotID == nil {
			return state, nil
		}
		id := snap.SnapshotID
		if snap = meta.SnapshotByID(*snap.ParentSnapshotID); snap == nil {
			return state, errs.New(errs.Corrupt, "snapshot %d was written by another program and its ancestors are expired: "+
				"the lake offsets are lost", id)
		}
	}
	return state, nil
}
