package lakehouse

import (
	"iter"
	"time"

	"github.com/apache/iceberg-go/table"
)

// inTime returns meta as a base to build on. iceberg-go stamps metadata that gets no
// snapshot by this machine's clock, and refuses to when the base is ahead of it by
// more than a minute: one agent whose clock ran ahead would keep all others from
// expiring, sweeping and altering until theirs caught up. So the times of the logs are
// brought back to the clock; a snapshot keeps its own time.
func inTime(meta table.Metadata) table.Metadata {
	now := time.Now().UnixMilli() // as iceberg-go does
	if meta.LastUpdatedMillis() <= now {
		return meta
	}
	return &broughtBack{meta, now}
}

type broughtBack struct {
	table.Metadata
	now int64
}

// LastUpdatedMillis implements table.Metadata.
func (b *broughtBack) LastUpdatedMillis() int64 { return min(b.Metadata.LastUpdatedMillis(), b.now) }

// SnapshotLogs implements table.Metadata.
func (b *broughtBack) SnapshotLogs() iter.Seq[table.SnapshotLogEntry] {
	return func(yield func(table.SnapshotLogEntry) bool) {
		for e := range b.Metadata.SnapshotLogs() {
			e.TimestampMs = min(e.TimestampMs, b.now)
			if !yield(e) {
				return
			}
		}
	}
}

// PreviousFiles implements table.Metadata.
func (b *broughtBack) PreviousFiles() iter.Seq[table.MetadataLogEntry] {
	return func(yield func(table.MetadataLogEntry) bool) {
		for e := range b.Metadata.PreviousFiles() {
			e.TimestampMs = min(e.TimestampMs, b.now)
			if !yield(e) {
				return
			}
		}
	}
}
