package agent

import (
	"context"
	"io"
	"sort"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
)

// folder decides when tables are folded, compacted and expired, and does it with
// a bounded number of workers. Safety lies in the lake's commit rule, not here.
type folder struct {
	n    *incarnation
	kick chan struct{}

	entryBytes int // maxFoldEntryBytes, but for tests

	mu      sync.Mutex
	busy    map[uint64]bool
	watched map[uint64]*table // the only ones that may be due: a table at rest costs nothing
	// settling are tables at rest that owe a last maintenance: their newest snapshots
	// were too young to expire at the one before. They are looked at rarely.
	settling map[uint64]*table
	settled  time.Time // when they were looked at
	seq      uint64    // metadata sequence at which all tables were looked at
}

const (
	foldTick         = 250 * time.Millisecond // how often tables are looked at
	maintenanceEvery = 16                     // folds of a table between looks for files to join
	settleTick       = 10 * time.Second       // how often tables that settle are looked at
	settleAge        = 11 * time.Minute       // of the last fold, at the last maintenance: older than any snapshot that is kept for its age
	foldAttempts     = 5                      // conflicts before a fold gives the error back
	foldRounds       = 256                    // commits of one fold, each of as many segments as it may know at once
)

func newFolder(n *incarnation) *folder {
	return &folder{n: n, entryBytes: maxFoldEntryBytes, kick: make(chan struct{}, 1), busy: map[uint64]bool{}, watched: map[uint64]*table{}, settling: map[uint64]*table{}}
}

func (f *folder) wake() {
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

// run folds due tables until ctx ends.
func (f *folder) run(ctx context.Context) {
	tick := time.NewTicker(foldTick)
	defer tick.Stop()
	workers := make(chan struct{}, f.n.agent.cfg.FoldWorkers)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		urgent := false
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-f.kick:
			urgent = true
		}
		for _, due := range f.due(urgent) {
			select {
			case <-ctx.Done():
				return
			case workers <- struct{}{}:
			}
			wg.Add(1)
			go func() {
				defer func() { <-workers; f.done(due.ID); wg.Done() }()
				f.background(ctx, due)
			}()
		}
	}
}

// watch has the folder look at a table until it is at rest. Whoever makes a table
// leave its rest calls it afterwards.
func (f *folder) watch(t *table) {
	f.mu.Lock()
	f.watched[t.id] = t
	f.mu.Unlock()
}

// review looks at all tables once after a change of the metadata: one may have
// got a retention, which makes work without rows.
func (f *folder) review(seq uint64) {
	f.mu.Lock()
	known := f.seq == seq
	f.seq = seq
	f.mu.Unlock()
	if known {
		return
	}
	for _, t := range f.n.allTables() {
		f.watch(t)
	}
}

// due lists the tables to fold, the fullest first. Under pressure every table
// with live rows is due.
func (f *folder) due(urgent bool) []*metastore.Table {
	now := f.n.agent.clock()
	state := f.n.agent.meta.State()
	f.review(state.Seq)
	type candidate struct {
		def   *metastore.Table
		bytes int64
	}
	var list []candidate
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.watched {
		if f.busy[t.id] {
			continue
		}
		def, ok := state.Table(t.id)
		if !ok || t.atRest(def) {
			delete(f.watched, t.id)
			f.settling[t.id] = t
			continue
		}
		if !t.foldDue(def, now) && !t.maintenanceDue(def, now) && (!urgent || t.oldest.Load() == 0) {
			continue
		}
		f.busy[t.id] = true
		list = append(list, candidate{def, t.unfolded.Load()})
	}
	for _, def := range f.settle(state, now) {
		list = append(list, candidate{def, 0})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].bytes > list[j].bytes })
	out := make([]*metastore.Table, len(list))
	for i, c := range list {
		out[i] = c.def
	}
	return out
}

// settle lists the tables at rest that are due for their last maintenance. The
// caller holds mu.
func (f *folder) settle(state *metastore.State, now time.Time) (due []*metastore.Table) {
	if now.Sub(f.settled) < settleTick {
		return nil
	}
	f.settled = now
	for id, t := range f.settling {
		def, ok := state.Table(id)
		if !ok || t.settled() {
			delete(f.settling, id)
		} else if !f.busy[id] && t.settleDue(now) {
			f.busy[id] = true
			due = append(due, def)
		}
	}
	return due
}

func (f *folder) done(id uint64) {
	f.mu.Lock()
	delete(f.busy, id)
	f.mu.Unlock()
}

func (f *folder) background(ctx context.Context, def *metastore.Table) {
	res, err := f.n.fold(ctx, def)
	if err != nil {
		if ctx.Err() == nil {
			f.n.logger.Warn("fold failed; it is tried again", "table", def.Database+"."+def.Name, "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
		return
	}
	f.n.logger.Debug("folded", "table", def.Database+"."+def.Name, "rows", res.Rows, "files", res.Files)
	now := f.n.agent.clock()
	if t := f.n.lookupTable(def.ID); t != nil && (t.maintenanceDue(def, now) || t.settleDue(now)) {
		t.maintained(now)
		f.n.maintain(ctx, def)
	}
}

// fold moves a table's durable live rows into the lake and returns when the
// commit is known. Nothing to fold is no error.
func (n *incarnation) fold(ctx context.Context, def *metastore.Table) (lakehouse.FoldResult, error) {
	t, err := n.tableFor(def)
	if err != nil {
		return lakehouse.FoldResult{}, err
	}
	t.foldMu.Lock()
	defer t.foldMu.Unlock()
	var total lakehouse.FoldResult
	for attempt, round := 1, 1; ; attempt++ {
		res, more, err := n.foldOnce(ctx, t, def)
		if err == nil {
			res.Rows, res.Files, res.Bytes = res.Rows+total.Rows, res.Files+total.Files, res.Bytes+total.Bytes
			if !more || round == foldRounds {
				return res, nil
			}
			total, attempt = res, 0
			round++
			continue
		}
		if !errs.Is(err, errs.Conflict) || attempt == foldAttempts {
			return res, err
		}
		// The lake moved, or the table was altered: take over what it holds and fold
		// the rest under the newest definition.
		t.synced.Store(false)
		if newest, ok := n.agent.meta.State().Table(def.ID); ok {
			def = newest
		}
	}
}

// foldOnce makes one commit; more says that it left segments for another one.
func (n *incarnation) foldOnce(ctx context.Context, t *table, def *metastore.Table) (res lakehouse.FoldResult, more bool, err error) {
	if t.keyed != nil {
		res, err = n.foldKeyed(ctx, t, def)
		return res, false, err
	}
	start := n.agent.clock()
	lakeDef := n.agent.lakeDef(def)
	if err := n.syncLake(ctx, t, lakeDef); err != nil {
		return res, false, err
	}
	p := &readPlan{def: def, refs: n.refs}
	defer p.close()
	entries := &foldEntries{n: n}
	in, segs, more := n.foldInput(t, p, entries)
	if len(in.Buckets) == 0 {
		snap, err := n.agent.loadLake(ctx, lakeDef)
		if err != nil {
			return res, false, err
		}
		return lakehouse.FoldResult{SnapshotID: snap.ID}, false, nil
	}
	if err := entries.load(ctx, segs); err != nil {
		return res, false, err
	}
	res, err = n.agent.lake.Fold(ctx, lakeDef, in)
	if err != nil || t.folds.Load() == 0 { // an error here, or a crash of the owner before, may have left files
		n.collector.suspectOrphans(def.ID)
	}
	n.collector.folded(def.ID)
	if err != nil {
		return res, false, err
	}
	snap, err := n.agent.loadLake(ctx, lakeDef)
	if err != nil {
		return res, false, err
	}
	n.adopt(t, snap)
	t.folds.Add(1)
	n.folder.watch(t)
	t.lastFold.Store(n.agent.clock().UnixNano())
	n.agent.metrics.folded(res, n.agent.clock().Sub(start))
	n.checkpoints.soon()
	return res, more, nil
}

// foldInput freezes what is durable now: for each bucket the range from its
// lake offset to its high watermark, and the segments that hold it; not more of
// them than one fold may know the entries of, which leaves more for another.
func (n *incarnation) foldInput(t *table, p *readPlan, entries *foldEntries) (in lakehouse.FoldInput, segs []*liveSegment, more bool) {
	whole := projection{out: p.def.Current(), read: p.def.Current()}
	room := max(1, n.folder.entryBytes/(segmentMemory+chunkMemory*len(whole.out.Fields)))
	n.publishMu.RLock()
	defer n.publishMu.RUnlock()
	for i, b := range t.buckets {
		v := b.view()
		if v.hw == v.lake {
			continue
		}
		if len(v.live) > room {
			if more = true; room == 0 {
				break
			}
			v.live = v.live[:room]
			v.hw = v.live[room-1].end()
		}
		room -= len(v.live)
		for _, s := range v.live {
			n.refs.pin(s.ref.Object, 1)
			p.pinned = append(p.pinned, s.ref.Object)
		}
		segs = append(segs, v.live...)
		in.Buckets = append(in.Buckets, lakehouse.BucketFold{
			Bucket: int32(i), From: v.lake, To: v.hw, Generation: v.gen, //nolint:gosec // at most 4096 buckets
			Next: n.foldSource(p.def, whole, v, entries),
		})
	}
	return in, segs, more
}

// foldSource yields a bucket's live rows in offset order, then io.EOF. The fold
// releases what it gets, so shared batches are retained for it.
func (n *incarnation) foldSource(def *metastore.Table, whole projection, v view, entries *foldEntries) func(context.Context) (lakehouse.FoldBatch, error) {
	next, at := 0, v.lake
	return func(ctx context.Context) (lakehouse.FoldBatch, error) {
		for next < len(v.live) {
			s := v.live[next]
			next++
			if s.end() <= at {
				continue
			}
			rec, err := n.readEntry(ctx, def, s, whole, at, v.hw, entries.get)
			if err != nil {
				return lakehouse.FoldBatch{}, err
			}
			base := at
			at = s.end()
			rec.Retain()
			return lakehouse.FoldBatch{Rows: rec, BaseOffset: base, Timestamp: s.ref.Timestamp}, nil
		}
		return lakehouse.FoldBatch{}, io.EOF
	}
}

// maintain joins small files, expires snapshots and applies retention; each is
// its own commit, and a failure of one is only logged: the next round tries again.
func (n *incarnation) maintain(ctx context.Context, def *metastore.Table) {
	t, err := n.tableFor(def)
	if err != nil {
		return
	}
	steps := []struct {
		name string
		run  func() error
	}{
		{"compact", func() error { _, err := n.compact(ctx, def, false, 0); return err }},
		{"retention", func() error { return n.retain(ctx, t, def) }},
		{"expire", func() error { _, err := n.expire(ctx, def, 0, 0); return err }},
	}
	for _, s := range steps {
		if err := s.run(); err != nil && ctx.Err() == nil {
			n.logger.Warn("lake maintenance failed; it is tried again", "step", s.name, "table", def.Database+"."+def.Name, "error", err)
		}
	}
	n.collector.suspectOrphans(def.ID)
}
