package agent

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// incarnation is one life of the agent as an owner: one WAL, the slots that it
// claimed, and everything known about their buckets. It ends when it is fenced
// or closed; its memory dies with it.
type incarnation struct {
	id     string
	agent  *Agent
	log    *wal.Log
	logger *slog.Logger

	pending  *semaphore.Weighted // bytes of rows taken in and not durable
	unfolded atomic.Int64        // weight of live segments

	// publishMu makes one WAL object visible at once: the commit callback holds
	// it whole, readers that need one moment of all buckets share it.
	publishMu sync.RWMutex
	published uint64 // first WAL position that is not published; guarded by publishMu

	claiming sync.Mutex    // one recovery at a time
	owned    []atomic.Bool // by slot: recovered, claimed and open

	tablesMu sync.RWMutex
	tables   map[uint64]*table

	refs        *objectRefs
	buffer      *rowBuffer
	checkpoints *checkpointer
	folder      *folder
	collector   *collector
	lease       *metastore.Heartbeat
	observer    *metastore.Observer

	ctx        context.Context // ends with the incarnation; handed to its goroutines at start
	cancel     context.CancelFunc
	wg         sync.WaitGroup
	stopOnce   sync.Once
	stopped    chan struct{} // closed when nothing is accepted any more
	streamsMu  sync.Once
	streamsEnd chan struct{} // closed when followers must end so that the server can stop
	failMu     sync.Mutex
	failCause  error
}

// failure is what callers get from an incarnation that ended.
func (n *incarnation) failure() error {
	n.failMu.Lock()
	defer n.failMu.Unlock()
	e := errs.New(errs.Unavailable, "this agent is changing over to a new incarnation; retry")
	e.Cause = n.failCause
	e.RetryAfter = 200 * time.Millisecond
	return e
}

// fail ends the incarnation: nothing is acknowledged or served by it from now on.
func (n *incarnation) fail(cause error) {
	n.stopOnce.Do(func() {
		n.failMu.Lock()
		n.failCause = cause
		n.failMu.Unlock()
		close(n.stopped)
		n.cancel()
		n.agent.incarnationEnded(n, cause)
	})
}

// tableFor returns the runtime state of a table, made at first use.
func (n *incarnation) tableFor(def *metastore.Table) (*table, error) {
	select {
	case <-n.stopped:
		return nil, n.failure()
	default:
	}
	n.tablesMu.RLock()
	t := n.tables[def.ID]
	n.tablesMu.RUnlock()
	if t != nil {
		return t, nil
	}
	n.tablesMu.Lock()
	defer n.tablesMu.Unlock()
	state := n.agent.meta.State() // under the lock: dropTable runs after the state shows the drop
	if _, ok := state.Table(def.ID); !ok {
		return nil, errs.New(errs.NotFound, "table %s.%s was dropped", def.Database, def.Name)
	}
	if t = n.tables[def.ID]; t == nil {
		t = newTable(def.ID, def.Buckets, def.Keyed(), func(b int32) int { return state.SlotOf(def.ID, b) })
		n.tables[def.ID] = t
		n.folder.watch(t)
	}
	return t, nil
}

// allTables returns the tables with runtime state.
func (n *incarnation) allTables() []*table {
	n.tablesMu.RLock()
	defer n.tablesMu.RUnlock()
	out := make([]*table, 0, len(n.tables))
	for _, t := range n.tables {
		out = append(out, t)
	}
	return out
}

// publish is the WAL's commit callback: it runs in sequence order, before the
// waiters of the object are told.
func (n *incarnation) publish(c wal.Committed) {
	touched := map[*table]struct{}{}
	n.publishMu.Lock()
	for i := range c.Segments {
		seg := &c.Segments[i]
		t := n.lookupTable(seg.Bucket.Table)
		if t == nil {
			continue // dropped while in flight
		}
		b := t.buckets[seg.Bucket.Bucket]
		ls, err := b.publish(c.ID, i, seg)
		if err != nil {
			n.publishMu.Unlock()
			n.fail(err)
			return
		}
		if ls == nil { // dropped while in flight, or producers' news alone
			n.checkpoints.mark(b)
			continue
		}
		n.refs.add(c.ID, 1)
		n.unfolded.Add(weight(ls.ref.Bytes))
		t.unfolded.Add(ls.ref.Bytes)
		t.segments.Add(1)
		if t.oldest.CompareAndSwap(0, seg.Timestamp) {
			n.folder.watch(t)
		}
		if i < len(c.Rows) {
			n.buffer.put(segmentKey{c.ID, int32(i)}, c.Rows[i], seg.RawBytes) //nolint:gosec // few segments an object
		}
		n.checkpoints.mark(b)
		touched[t] = struct{}{}
	}
	n.agent.footers.put(c.ID, &wal.Footer{ID: c.ID, Size: c.Size, Segments: c.Segments})
	n.published = c.ID.Seq + 1
	n.publishMu.Unlock()
	n.agent.metrics.flushed(c)
	for t := range touched {
		t.notify()
	}
	n.checkpoints.objectWritten()
}

func (n *incarnation) lookupTable(id uint64) *table {
	n.tablesMu.RLock()
	defer n.tablesMu.RUnlock()
	return n.tables[id]
}

// endStreams tells followers to come back later.
func (n *incarnation) endStreams() { n.streamsMu.Do(func() { close(n.streamsEnd) }) }

// leaving reports whether streams are asked to end.
func (n *incarnation) leaving() bool {
	select {
	case <-n.streamsEnd:
		return true
	default:
		return false
	}
}

// interrupt stops a request's endless body when the agent leaves: its next read
// fails. The returned function ends the watch.
func (n *incarnation) interrupt(w http.ResponseWriter) (done func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-n.streamsEnd:
			_ = http.NewResponseController(w).SetReadDeadline(time.Now())
		case <-ended:
		}
	}()
	return sync.OnceFunc(func() { close(ended) })
}

// goroutine runs f under the incarnation's context and waits for it at close.
func (n *incarnation) goroutine(f func(ctx context.Context)) {
	n.wg.Add(1)
	go func() {
		defer n.wg.Done()
		f(n.ctx)
	}()
}

// dropTable forgets a dropped table: its live segments are garbage from now on.
func (n *incarnation) dropTable(id uint64) {
	n.publishMu.Lock()
	defer n.publishMu.Unlock()
	n.tablesMu.Lock()
	t := n.tables[id]
	delete(n.tables, id)
	n.tablesMu.Unlock()
	if t == nil {
		return
	}
	for _, b := range t.buckets {
		b.mu.Lock()
		b.closed = true
		live := b.live
		b.live, b.bytes = nil, 0
		b.mu.Unlock()
		n.checkpoints.remove(b.id) // before the segments go: see checkpointer.write
		n.forget(live)
	}
	t.notify()
}

// forget takes segments out of the accounts of what is live.
func (n *incarnation) forget(segs []*liveSegment) {
	for _, s := range segs {
		n.refs.add(s.ref.Object, -1)
		n.unfolded.Add(-weight(s.ref.Bytes))
	}
	n.buffer.drop(segs)
}

// close ends the incarnation in order. With release, the slots are given back
// so that the next owner need not wait.
func (n *incarnation) close(ctx context.Context, release bool) error {
	var first error
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	ended := false
	select {
	case <-n.stopped:
		ended = true
	default:
	}
	if !ended {
		keep(n.log.Flush(ctx))
	}
	n.stopOnce.Do(func() { close(n.stopped); n.cancel() })
	n.wg.Wait()
	keep(n.log.Close(ctx))
	if !ended && release && first == nil {
		keep(n.releaseSlots(ctx))
	}
	keep(n.endLease(ctx))
	return first
}

// endLease stops beating and watching.
func (n *incarnation) endLease(ctx context.Context) error {
	if n.observer != nil {
		if err := n.observer.Close(ctx); err != nil {
			return err
		}
	}
	if n.lease != nil {
		return n.lease.Close(ctx)
	}
	return nil
}
