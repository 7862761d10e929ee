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
	segments atomic.Int64 // live segments
	oldest   atomic.Int64 // µs timestamp of the oldest live segment; 0 = none
	folds    atomic.Int64 // folds since start, for the maintenance schedule

	foldsMaintained atomic.Int64 // folds at the last maintenance
	lastMaintained  atomic.Int64 // ns of it
	foldsSettled    atomic.Int64 // folds at the last maintenance that came settleAge after a fold
	synced          atomic.Bool  // the lake's offsets were taken over since this incarnation began
	lastFold        atomic.Int64 // ns of the last fold's end, for min_fold_interval

	keys requestKeys

	due     atomic.Pointer[schedule]
	snap    atomic.Pointer[cachedSnapshot]
	readers snapshotPins // of Iceberg snapshots
	keyed   *keyedTable  // nil for a log table

	watchMu sync.Mutex
	watch   chan struct{} // closed when a high watermark moved
}

func newTable(id uint64, n int32, keyed bool, slotOf func(bucket int32) int) *table {
	t := &table{id: id, watch: make(chan struct{})}
	if keyed {
		t.keyed = &keyedTable{}
	}
	for i := range n {
		b := newBucket(wal.BucketID{Table: id, Bucket: i}, slotOf(i))
		if keyed {
			b.keyed = &keyedBucket{lane: newLane()}
		}
		t.buckets = append(t.buckets, b)
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
	var bytes, count, oldest int64
	for _, b := range t.buckets {
		b.mu.Lock()
		bytes += b.bytes
		count += int64(len(b.live))
		if len(b.live) > 0 && (oldest == 0 || b.live[0].ref.Timestamp < oldest) {
			oldest = b.live[0].ref.Timestamp
		}
		b.mu.Unlock()
	}
	t.unfolded.Store(bytes)
	t.segments.Store(count)
	t.oldest.Store(oldest)
}

// maxLiveChunks bounds the columns over all live segments of a table: beyond it the
// table is folded whatever its properties say. What is known about each one fits
// the footer cache then, without which a fold reads footers over and over.
const maxLiveChunks = 128 << 10

// schedule is what a table's definition says about folds and maintenance. It is
// kept with the table: properties are text, and the folder looks often.
type schedule struct {
	def          *metastore.Table
	foldInterval time.Duration // 0 = by size or on demand only
	foldBytes    int64
	columns      int64
	retention    time.Duration // 0 = rows are kept
}

func (t *table) schedule(def *metastore.Table) *schedule {
	if s := t.due.Load(); s != nil && s.def == def {
		return s
	}
	s := &schedule{def, def.FoldInterval(), def.FoldBytes(), int64(len(def.Current().Fields)), def.Retention()}
	t.due.Store(s)
	return s
}

// foldDue says whether a table's live rows should be folded now.
func (t *table) foldDue(def *metastore.Table, now time.Time) bool {
	oldest := t.oldest.Load()
	if oldest == 0 {
		return false
	}
	s := t.schedule(def)
	return t.unfolded.Load() >= s.foldBytes || t.segments.Load()*s.columns >= maxLiveChunks || (s.foldInterval > 0 && now.Sub(time.UnixMicro(oldest)) >= s.foldInterval)
}

// maintenanceDue says whether it is time to look for files to join, snapshots to
// expire and rows to drop: after so many folds, whoever asked for them, and
// now and then where rows have a retention.
func (t *table) maintenanceDue(def *metastore.Table, now time.Time) bool {
	if t.foldsDue() {
		return true
	}
	r := t.schedule(def).retention
	return r > 0 && now.UnixNano()-t.lastMaintained.Load() >= int64(min(max(r/4, time.Second), time.Minute))
}

// foldsDue says that enough was folded for a look at the files: after the first fold
// of an incarnation too, or agents that never live long would leave small files for ever.
func (t *table) foldsDue() bool {
	n := t.folds.Load() - t.foldsMaintained.Load()
	return n >= maintenanceEvery || n > 0 && t.lastMaintained.Load() == 0
}

// atRest says that nothing but a row or a change of its definition can make a table due.
func (t *table) atRest(def *metastore.Table) bool {
	return t.oldest.Load() == 0 && !t.foldsDue() && t.schedule(def).retention == 0
}

// settled says that the newest maintenance met no snapshot that was kept for its
// youth alone.
func (t *table) settled() bool { return t.folds.Load() == t.foldsSettled.Load() }

// settleDue says that no fold came for so long that one maintenance is the last.
func (t *table) settleDue(now time.Time) bool {
	return !t.settled() && now.Sub(time.Unix(0, t.lastFold.Load())) >= settleAge
}

func (t *table) maintained(now time.Time) {
	if t.settleDue(now) {
		t.foldsSettled.Store(t.folds.Load())
	}
	t.foldsMaintained.Store(t.folds.Load())
	t.lastMaintained.Store(now.UnixNano())
}
