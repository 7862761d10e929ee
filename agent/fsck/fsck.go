package fsck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal"
)

// DefaultSafeAge is the age from which garbage counts as old.
const DefaultSafeAge = 10 * time.Minute

// Options say how deep a check goes. The zero value is ready to use.
type Options struct {
	// Deep also decodes every row of every table's current snapshot.
	Deep bool
	// SafeAge is the collector's: garbage that is younger may be an upload in
	// progress. Zero means DefaultSafeAge.
	SafeAge time.Duration
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
}

type checker struct {
	store objstore.Store
	meta  *metastore.Log
	lake  *lakehouse.Lake
	o     Options
}

// Check walks the store. It fails when the store cannot be read, or holds no
// Firn; damage is no failure of the check but its result.
func Check(ctx context.Context, store objstore.Store, o Options) (*Report, error) {
	if o.SafeAge == 0 {
		o.SafeAge = DefaultSafeAge
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	begun := o.Now()
	meta, err := metastore.Open(ctx, store, metastore.Options{Manual: true})
	if err != nil {
		return nil, errs.In("check store", err)
	}
	defer func() { _ = meta.Close(ctx) }() // it only reads
	if meta.State().Seq == 0 {
		return nil, errs.New(errs.NotFound, "check store: %s holds no Firn store", store.URL())
	}
	c := &checker{store: store, meta: meta, lake: lakehouse.Open(store, lakehouse.Options{}), o: o}
	r := &Report{Store: store.URL(), Findings: []Finding{}, Classes: []Class{}}
	if err := c.run(ctx, r); err != nil {
		return nil, errs.In("check store", err)
	}
	r.sort()
	r.Took = o.Now().Sub(begun).Seconds()
	return r, nil
}

func (c *checker) run(ctx context.Context, r *Report) error {
	n, there, err := c.look(ctx)
	if err != nil {
		return err
	}
	r.ClusterID, r.MetadataSeq, r.Tables, r.Rows = n.state.ClusterID, n.state.Seq, n.state.TableCount(), n.lakeRows
	for _, f := range n.damage {
		r.damage(f.Level, f.Key, f.Reason)
	}
	metadataHole(n.state.Seq, there, r)
	if err := c.tails(ctx, n, there, r); err != nil {
		return err
	}
	c.presence(n, there, r)
	if err := c.objects(ctx, n, there, r); err != nil {
		return err
	}
	n.logs(r)
	if c.o.Deep {
		return c.deep(ctx, n, r)
	}
	return nil
}

// metadataHole finds a metadata entry that is lost while later ones stand: readers
// take the log to end before it, and an agent would write another one there.
func metadataHole(seq uint64, there map[string]objstore.Info, r *Report) {
	next := fmt.Sprintf("meta/log/%020d", seq+1)
	if _, ok := there[next]; ok {
		return // the log has grown since it was read
	}
	for key := range there {
		if strings.HasPrefix(key, "meta/log/") && key > next {
			r.damage(Missing, next, "the metadata log ends before this entry, and later ones exist")
			return
		}
	}
}

// maxLooks bounds how often a moving store is looked at.
const maxLooks = 5

// look gathers what is needed and lists what is there. What seems to be missing
// must be missing twice: agents collect and fold meanwhile.
func (c *checker) look(ctx context.Context) (*needs, map[string]objstore.Info, error) {
	var before []string
	for i := 0; ; i++ {
		n, err := c.gather(ctx)
		if err != nil {
			return nil, nil, err
		}
		there, err := c.list(ctx)
		if err != nil {
			return nil, nil, err
		}
		now := n.suspects(there)
		if len(now) == 0 || (i > 0 && slices.Equal(now, before)) || i == maxLooks {
			return n, there, nil
		}
		before = now
	}
}

// list reads the names of everything in the store.
func (c *checker) list(ctx context.Context) (map[string]objstore.Info, error) {
	out := map[string]objstore.Info{}
	for info, err := range c.store.List(ctx, "", "") {
		if err != nil {
			return nil, err
		}
		out[info.Key] = info
	}
	return out, nil
}

// suspects returns the keys of what is damaged or missing by a first look.
func (n *needs) suspects(there map[string]objstore.Info) []string {
	var out []string
	for _, f := range n.damage {
		out = append(out, f.Key)
	}
	for key := range n.keys {
		if _, ok := there[key]; !ok {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// presence compares the needed with what is there.
func (c *checker) presence(n *needs, there map[string]objstore.Info, r *Report) {
	for key, who := range n.keys {
		if _, ok := there[key]; !ok {
			r.damage(Missing, key, "needed by "+who)
		}
	}
	now := c.o.Now()
	for _, info := range there { // the store's newest object may be ahead of our clock
		if info.ModTime.After(now) {
			now = info.ModTime
		}
	}
	for _, info := range there {
		r.add(info, n.wanted(info.Key), now.Sub(info.ModTime), c.o.SafeAge)
	}
	for key, size := range n.lakeSizes {
		if info, ok := there[key]; ok && info.Size != size {
			r.damage(Corrupt, key, "its size differs from the one that Iceberg's manifest states")
		}
	}
}

// wanted reports whether an object is no garbage.
func (n *needs) wanted(key string) bool {
	if _, ok := n.keys[key]; ok {
		return true
	}
	if _, ok := n.kept[key]; ok {
		return true
	}
	root, rest, _ := strings.Cut(key, "/")
	switch root {
	case "meta": // trimmed by its own rule, behind two snapshots
		return true
	case "agents":
		_, ok := n.state.Agent(rest)
		return ok
	case "wal":
		id, ok := wal.ParseObjectKey(key)
		if !ok {
			return false
		}
		from, own := n.keptFrom[id.Incarnation]
		return (own && id.Seq >= from && id.Seq < n.endOf(id.Incarnation)) || n.joining(id.Incarnation)
	case "checkpoint":
		incarnation, _, _ := strings.Cut(rest, "/")
		return n.joining(incarnation)
	case "lake":
		lakes := strings.HasSuffix(key, ".metadata.json") || strings.HasSuffix(key, "/metadata/version-hint.text")
		return lakes && n.tablePrefix(key)
	}
	return false
}

// joining reports whether a live incarnation owns nothing yet: it may be about to
// claim slots from a checkpoint that it has just written.
func (n *needs) joining(incarnation string) bool {
	return n.state.IsLive(incarnation) && len(n.state.SlotsOf(incarnation)) == 0
}

// tablePrefix reports whether a key belongs to a table that exists. Earlier
// metadata versions of one are bounded by the lake itself.
func (n *needs) tablePrefix(key string) bool {
	return slices.ContainsFunc(n.state.Databases(), func(db *metastore.Database) bool {
		return slices.ContainsFunc(n.state.Tables(db.Name), func(t *metastore.Table) bool {
			return strings.HasPrefix(key, t.LakePrefix()+"/")
		})
	})
}
