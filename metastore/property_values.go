package metastore

import (
	"strconv"
	"time"
)

// The accessors return what a table set, or the default. A table's properties
// were checked when they were set, so none of them fails.

// property returns the text of a property, set or default.
func (t *Table) property(name string) string {
	if v, ok := t.Properties[name]; ok {
		return v
	}
	p, _ := propertyByName(name)
	return p.Default
}

func (t *Table) duration(name string) time.Duration {
	d, _ := ParseDuration(t.property(name)) // unset without a default: zero
	return d
}

func (t *Table) size(name string) int64 {
	n, _ := ParseSize(t.property(name))
	return n
}

func (t *Table) count(name string) int {
	n, _ := strconv.Atoi(t.property(name))
	return n
}

// FoldInterval is how long durable rows may wait for a fold; zero: no limit.
func (t *Table) FoldInterval() time.Duration { return t.duration(PropFoldInterval) }

// FoldBytes is how many unfolded bytes a bucket may hold before it is folded at once.
func (t *Table) FoldBytes() int64 { return t.size(PropFoldBytes) }

// MinFoldInterval is the shortest time between two folds caused by catalog loads.
func (t *Table) MinFoldInterval() time.Duration { return t.duration(PropMinFoldInterval) }

// Retention is how long rows are kept; zero: for ever.
func (t *Table) Retention() time.Duration { return t.duration(PropRetention) }

// ProducerExpiry is how long a silent producer is remembered; zero: for ever.
func (t *Table) ProducerExpiry() time.Duration { return t.duration(PropProducerExpiry) }

// TargetFileBytes is the size that folds and compaction aim at.
func (t *Table) TargetFileBytes() int64 { return t.size(PropTargetFileBytes) }

// Compression is the Parquet compression: zstd, snappy, gzip or none.
func (t *Table) Compression() string { return t.property(PropCompression) }

// Encoding is the Parquet encoding of integers and times: plain or delta.
func (t *Table) Encoding() string { return t.property(PropEncoding) }

// FormatVersion is the Iceberg format version: 2 or 3.
func (t *Table) FormatVersion() int { return t.count(PropFormatVersion) }

// SnapshotsKept is how many Iceberg snapshots expiry leaves.
func (t *Table) SnapshotsKept() int { return t.count(PropSnapshotsKept) }

// MergeEngine is last_row, first_row, versioned or aggregation; of keyed tables only.
func (t *Table) MergeEngine() string { return t.property(PropMergeEngine) }

// VersionColumn is the column the versioned merge engine compares, or "".
func (t *Table) VersionColumn() string { return t.property(PropVersionColumn) }

// DeleteBehavior is allow, ignore or reject; its default follows the merge engine.
func (t *Table) DeleteBehavior() string {
	if v := t.property(PropDeleteBehavior); v != "" {
		return v
	}
	if t.MergeEngine() == "last_row" {
		return "allow"
	}
	return "ignore"
}

// ChangelogImage is full or after.
func (t *Table) ChangelogImage() string { return t.property(PropChangelogImage) }

// NoopUpdates is drop or keep.
func (t *Table) NoopUpdates() string { return t.property(PropNoopUpdates) }

// ChangelogRetention is how long folded changes are kept; zero: only while live.
func (t *Table) ChangelogRetention() time.Duration { return t.duration(PropChangelogRetention) }
