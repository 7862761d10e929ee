package agent

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
)

// lakeGarbage is what the collector knows about garbage below lake/: directories
// of dropped tables, and tables whose directory may hold orphans.
type lakeGarbage struct {
	scanned bool                 // lake/ was searched for tables dropped before this incarnation
	seq     uint64               // metadata sequence that tables was taken at
	tables  map[uint64]string    // lake directories of the tables then
	dropped map[string]time.Time // directories of dropped tables: when to remove them
	ended   map[string]bool      // incarnations that the state knew to be dead then

	mu      sync.Mutex
	suspect map[uint64]time.Time // tables to sweep for orphans, and when
	resting map[uint64]time.Time // tables that were folded: when they count as at rest
}

func newLakeGarbage() lakeGarbage {
	return lakeGarbage{dropped: map[string]time.Time{}, suspect: map[uint64]time.Time{}, resting: map[uint64]time.Time{}}
}

// folded notes a commit to a table. Once there was none for a while its directory
// is swept once: a commit may have left a file that it could not delete.
func (c *collector) folded(table uint64) {
	cfg := &c.n.agent.cfg
	at := c.n.agent.clock().Add(max(cfg.SafeAge, restIntervals*cfg.CollectInterval))
	c.lake.mu.Lock()
	c.lake.resting[table] = at
	c.lake.mu.Unlock()
}

// restIntervals is how many collect intervals without a commit make a table rest.
const restIntervals = 10

// suspectOrphans asks for a sweep of a table's lake directory: a fold that a
// crash or an error cut short may have left files there.
func (c *collector) suspectOrphans(table uint64) {
	c.lake.mu.Lock()
	if _, ok := c.lake.suspect[table]; !ok {
		c.lake.suspect[table] = c.n.agent.clock()
	}
	c.lake.mu.Unlock()
}

// lakeDue reports whether something below lake/ can be looked at now.
func (c *collector) lakeDue() bool {
	c.sweeping.Lock()
	defer c.sweeping.Unlock()
	if c.lake.seq != c.n.agent.meta.State().Seq {
		return true // what it brought is found without a request
	}
	now := c.n.agent.clock()
	for _, due := range c.lake.dropped {
		if !now.Before(due) {
			return true
		}
	}
	return len(c.dueSuspects()) > 0
}

// sweepLake deletes what is due below lake/.
func (c *collector) sweepLake(ctx context.Context) (deleted int, err error) {
	if err := c.findDropped(ctx); err != nil {
		return 0, err
	}
	deleted, err = c.removeDropped(ctx)
	if err != nil {
		return deleted, err
	}
	n, err := c.sweepSuspects(ctx)
	return deleted + n, err
}

// findDropped notices tables that were dropped since the last sweep by comparing
// states, and before this incarnation began by searching lake/ once, and once more
// when a former incarnation is forgotten.
func (c *collector) findDropped(ctx context.Context) error {
	g, state := &c.lake, c.n.agent.meta.State()
	due := c.n.agent.clock().Add(c.n.agent.cfg.SafeAge)
	drop := func(dir string) {
		if _, ok := g.dropped[dir]; !ok {
			g.dropped[dir] = due
		}
	}
	if g.seq != state.Seq {
		tables := make(map[uint64]string, state.TableCount())
		for _, t := range state.Tables("") {
			tables[t.ID] = t.LakePrefix()
		}
		for id, dir := range g.tables {
			if _, ok := tables[id]; !ok {
				drop(dir)
			}
		}
		c.findForgotten(state)
		g.tables, g.seq = tables, state.Seq
	}
	if g.scanned {
		return nil
	}
	err := lakeDirs(ctx, c.n.agent, func(dir string) {
		if id, ok := tableOfDir(dir); ok && id < state.NextTableID && g.tables[id] != lakehouse.TablePrefix(dir) {
			drop(dir)
		}
	})
	g.scanned = err == nil
	return err
}

// findForgotten notices that the metadata forgot an incarnation that had ended. It
// may have put files after its slots were swept, and into directories that were
// removed: a commit that a leave cut short, an upload of a process that was paused.
// Its time is over now, so one more look at each table finds them all.
func (c *collector) findForgotten(state *metastore.State) {
	ended := map[string]bool{}
	for _, g := range state.Agents() {
		if g.State != metastore.Live {
			ended[g.Incarnation] = true
		}
	}
	former := c.lake.ended
	c.lake.ended = ended
	for id := range former {
		if ended[id] {
			continue
		}
		c.lake.scanned = false
		for _, t := range state.Tables("") {
			if c.n.owned[state.HomeSlot(t.ID)].Load() {
				c.suspectOrphans(t.ID)
			}
		}
		return
	}
}

// hopAfter is how many objects of one directory are listed before the search
// asks for the next directory: about a page.
const hopAfter = 1000

// lakeDirs calls f with each table directory below lake/.
func lakeDirs(ctx context.Context, a *Agent, f func(dir string)) error {
	after, last := "", ""
	for more := true; more; {
		more = false
		seen := 0
		for info, err := range a.store.List(ctx, "lake/", after) {
			if err != nil {
				return err
			}
			parts := strings.SplitN(info.Key, "/", 4)
			if len(parts) < 4 {
				continue
			}
			dir := strings.Join(parts[:3], "/")
			if dir != last {
				last, seen = dir, 0
				f(dir)
			}
			if seen++; seen == hopAfter {
				after, more = dir+"0", true // '0' follows '/'
				break
			}
		}
	}
	return nil
}

// tableOfDir returns the id in "lake/<database>/<table>-<id>".
func tableOfDir(dir string) (uint64, bool) {
	i := strings.LastIndexByte(dir, '-')
	if i < 0 || strings.Count(dir, "/") != 2 {
		return 0, false
	}
	id, err := strconv.ParseUint(dir[i+1:], 10, 64)
	return id, err == nil
}

// removeDropped deletes directories whose time has come, and looks again one
// safe age later: a stalled fold may have put a last file meanwhile.
func (c *collector) removeDropped(ctx context.Context) (deleted int, err error) {
	a := c.n.agent
	for dir, due := range c.lake.dropped {
		now := a.clock()
		if now.Before(due) {
			continue
		}
		n, err := a.lake.RemoveTable(ctx, dir)
		deleted += n
		if err != nil {
			return deleted, err
		}
		if n == 0 {
			delete(c.lake.dropped, dir)
			continue
		}
		c.n.logger.Info("removed the lake directory of a dropped table", "directory", dir, "objects", n)
		c.lake.dropped[dir] = now.Add(a.cfg.SafeAge)
	}
	return deleted, nil
}

// sweepSuspects sweeps the tables that may hold orphans; one whose orphans are
// too young is swept again when they are old enough.
func (c *collector) sweepSuspects(ctx context.Context) (deleted int, err error) {
	a := c.n.agent
	for _, id := range c.dueSuspects() {
		def, ok := a.meta.State().Table(id)
		if !ok {
			c.cleared(id, false)
			continue
		}
		res, err := c.sweepTable(ctx, def)
		deleted += res.Deleted
		if err != nil {
			return deleted, err
		}
		c.cleared(id, res.Waiting+res.Left > 0)
	}
	return deleted, nil
}

func (c *collector) sweepTable(ctx context.Context, def *metastore.Table) (lakehouse.SweepResult, error) {
	t, err := c.n.tableFor(def)
	if err != nil {
		return lakehouse.SweepResult{}, err
	}
	return c.n.sweepLake(ctx, t, def)
}

// maxSuspects bounds the tables swept in one round: each costs a listing, and
// after a crash every table of the dead owner is suspect.
const maxSuspects = 32

func (c *collector) dueSuspects() []uint64 {
	now := c.n.agent.clock()
	c.lake.mu.Lock()
	defer c.lake.mu.Unlock()
	for id, at := range c.lake.resting {
		if !now.Before(at) {
			delete(c.lake.resting, id)
			if _, ok := c.lake.suspect[id]; !ok {
				c.lake.suspect[id] = at
			}
		}
	}
	var due []uint64
	for id, at := range c.lake.suspect {
		if !now.Before(at) && len(due) < maxSuspects {
			due = append(due, id)
		}
	}
	return due
}

func (c *collector) cleared(id uint64, again bool) {
	c.lake.mu.Lock()
	defer c.lake.mu.Unlock()
	if again {
		c.lake.suspect[id] = c.n.agent.clock().Add(c.n.agent.cfg.SafeAge)
		return
	}
	delete(c.lake.suspect, id)
}
