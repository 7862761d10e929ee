package agent

import (
	"cmp"
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
)

// place says where the row of a key lies.
type rowPlace struct {
	live   bool
	offset int64          // of a live row
	lake   index.Location // else; Nowhere: there is no row
}

func (p rowPlace) exists() bool { return p.live || p.lake != index.Nowhere }

var noRow = rowPlace{lake: index.Nowhere}

// located is where some keys lie at one moment of a bucket.
type located struct {
	gen    uint64
	lake   *index.Index
	places map[index.Key]rowPlace
}

// locate finds keys by what find says of the live ones (State.Find or
// State.FindDurable), and asks the runs for the others. It starts over when a fold
// moved rows meanwhile.
func (b *bucket) locate(ctx context.Context, keys []index.Key, find func(*index.State, index.Key) index.Found) (*located, error) {
	for {
		l := &located{places: make(map[index.Key]rowPlace, len(keys))}
		var below []index.Key
		b.mu.Lock()
		l.gen, l.lake = b.gen, b.keyed.lake
		for _, k := range keys {
			if _, known := l.places[k]; known {
				continue
			}
			l.places[k] = noRow
			switch f := find(b.keyed.state, k); {
			case f.Below:
				below = append(below, k)
			case !f.Deleted:
				l.places[k] = rowPlace{live: true, offset: f.Offset, lake: index.Nowhere}
			}
		}
		b.mu.Unlock()
		if len(below) == 0 {
			return l, nil
		}
		found, err := l.lake.Find(ctx, below)
		if errs.Is(err, errs.NotFound) && b.view().gen != l.gen {
			continue // the run was merged away under our feet
		}
		if err != nil {
			return nil, err
		}
		for i, k := range below {
			l.places[k] = rowPlace{lake: found[i]}
		}
		return l, nil
	}
}

// fetched is rows that were asked for by place.
type fetched struct {
	rows arrow.RecordBatch // nil if there are none
	row  map[rowPlace]int32
}

// fetch reads the rows at some places, in the table's current schema: live ones
// from memory or their WAL objects, those of the lake by position.
func (n *incarnation) fetch(ctx context.Context, def *metastore.Table, b *bucket, lake *index.Index, places []rowPlace, read *segments.Schema) (*fetched, error) {
	out := &fetched{row: make(map[rowPlace]int32, len(places))}
	var live []int64
	var refs []lakehouse.RowRef
	var lakePlaces []rowPlace
	for _, p := range places {
		if _, known := out.row[p]; known || !p.exists() {
			continue
		}
		out.row[p] = -1
		if p.live {
			live = append(live, p.offset)
			continue
		}
		f, ok := lake.Manifest.File(p.lake.File())
		if !ok {
			return nil, errs.New(errs.Corrupt, "the key index of bucket %v points to data file %d, which it does not list", b.id, p.lake.File())
		}
		refs, lakePlaces = append(refs, lakehouse.RowRef{Key: f.Key, Row: p.lake.Row()}), append(lakePlaces, p)
	}
	slices.Sort(live)
	batches, err := n.liveRows(ctx, def, b, live, read)
	if err != nil {
		return nil, err
	}
	for i, o := range live {
		out.row[rowPlace{live: true, offset: o, lake: index.Nowhere}] = int32(i) //nolint:gosec // a request has far fewer rows
	}
	if len(refs) > 0 {
		rec, err := n.agent.lake.FetchRows(ctx, n.agent.lakeDef(def), read, refs, fieldIDs(read))
		if err != nil {
			return nil, err
		}
		batches = append(batches, rec)
		for i, p := range lakePlaces {
			out.row[p] = int32(len(live) + i) //nolint:gosec // a request has far fewer rows
		}
	}
	if len(batches) > 0 {
		out.rows, err = segments.Concat(batches)
	}
	return out, err
}

// liveRows returns the rows at ascending offsets, in batches of the read schema.
func (n *incarnation) liveRows(ctx context.Context, def *metastore.Table, b *bucket, offsets []int64, read *segments.Schema) ([]arrow.RecordBatch, error) {
	if len(offsets) == 0 {
		return nil, nil
	}
	b.mu.Lock()
	segs := b.live[:len(b.live):len(b.live)]
	flights := slices.Clone(b.keyed.flights)
	b.mu.Unlock()
	logSchema := logSchemaOf(def)
	var out []arrow.RecordBatch
	for len(offsets) > 0 {
		at := offsets[0]
		i, _ := slices.BinarySearchFunc(segs, at, func(s *liveSegment, at int64) int { return cmp.Compare(s.end()-1, at) })
		var rec arrow.RecordBatch
		var base, end int64
		var err error
		if i < len(segs) && segs[i].ref.BaseOffset <= at {
			base, end = segs[i].ref.BaseOffset, segs[i].end()
			rec, err = n.readLive(ctx, def, segs[i], projection{out: read, read: read}, base, end)
		} else {
			j := slices.IndexFunc(flights, func(f flight) bool { return f.base <= at && at < f.end })
			if j < 0 {
				return nil, errs.New(errs.Conflict, "bucket %v: offset %d is not live any more", b.id, at)
			}
			base, end = flights[j].base, flights[j].end
			rec, err = segments.Project(flights[j].changes, logSchema, read)
		}
		if err != nil {
			return nil, err
		}
		n := 0
		var rows []int32
		for n < len(offsets) && offsets[n] < end {
			rows = append(rows, int32(offsets[n]-base)) //nolint:gosec // a segment has far fewer rows
			n++
		}
		offsets = offsets[n:]
		if rec, err = segments.Take(rec, rows); err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
	return out, nil
}
