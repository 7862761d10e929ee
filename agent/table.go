package agent

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// table is the owner's runtime state of one table: its buckets, what waits to
// be folded, and who follows it.
type table struct {
	id      uint64
	buckets []*bucket

	foldMu sync.Mutex // one fold, compaction or expiry of a table at a time

	unfolded atomic.Int64 // stored bytes that are live
	oldest   atomic.Int64 // µs timestamp of the oldest live segment; 0 = none
	folds    atomic.Int64 // folds since start, for the maintenance schedule

	foldsMaintained atomic.Int64 // folds at the last maintenance
	lastMaintained  atomic.Int64 // ns of it
	synced          atomic.Bool  // the lake's offsets were taken over since this incarnation began
	lastFold        atomic.Int64 // ns of the last fold's end, for min_fold_interval

	keys requestKeys

	snap    atomic.Pointer[cachedSnapshot]
	readers snapshotPins // of Iceberg snapshots

	watchMu sync.Mutex
	watch   chan struct{} // closed when a high watermark moved
}

func newTable(id uint64, n int32, slotOf func(bucket int32) int) *table {
	t := &table{id: id, watch: make(chan struct{})}
	for i := range n {
		t.buckets = append(t.buckets, newBucket(wal.BucketID{Table: id, Bucket: i}, slotOf(i)))
	}
	return t
}

// changed returns a channel that is closed at the next publication. Take it
// before looking at high watermarks, or a publication in between is missed.
func (t *table) changed() <-chan struct{} {
	t.watchMu.Lock()
	defer t.watchMu.Unlock()
	return t.watch
}

func (t *table) notify() {
	t.watchMu.Lock()
	defer t.watchMu.Unlock()
	close(t.watch)
	t.watch = make(chan struct{})
}

// noteLive recomputes what waits to be folded.
func (t *table) noteLive() {
	var bytes, oldest int64
	for _, b := range t.buckets {
		b.mu.Lock()
		bytes += b.bytes
		if len(b.live) > 0 && (oldest == 0 || b.live[0].ref.Timestamp < oldest) {
			oldest = b.live[0].ref.Timestamp
		}
		b.mu.Unlock()
	}
	t.unfolded.Store(bytes)
	t.oldest.Store(oldest)
}

// foldDue says whether a table's live rows should be folded now.
func (t *table) foldDue(def *metastore.Table, now time.Time) bool {
	oldest := t.oldest.Load()
	if oldest == 0 {
		return false
	}
	interval := def.FoldInterval() // 0 = by size or on demand only
	return t.unfolded.Load() >= def.FoldBytes() || (interval > 0 && now.Sub(time.UnixMicro(oldest)) >= interval)
}

// maintenanceDue says whether it is time to look for files to join, snapshots to
// expire and rows to drop: after so many folds, whoever asked for them, and
// now and then where rows have a retention.
func (t *table) maintenanceDue(def *metastore.Table, now time.Time) bool {
	if t.folds.Load()-t.foldsMaintained.Load() >= maintenanceEvery {
		return true
	}
	r := def.Retention()
	return r > 0 && now.UnixNano()-t.lastMaintained.Load() >= int64(min(max(r/4, time.Second), time.Minute))
}

func (t *table) maintained(now time.Time) {
	t.foldsMaintained.Store(t.folds.Load())
	t.lastMaintained.Store(now.UnixNano())
}
