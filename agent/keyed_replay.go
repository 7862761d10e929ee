package agent

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/merge"
)

// keySchema is what a replay reads of each change: the key columns and the type.
func keySchema(def *metastore.Table) *segments.Schema {
	current := def.Current()
	s := &segments.Schema{ID: current.ID}
	for _, id := range def.PrimaryKey {
		f, _ := current.FieldByID(id)
		s.Fields = append(s.Fields, f)
	}
	return merge.WithChangeType(s)
}

// applyLog applies changes as the log holds them to a state. schema is that of
// rec: the key columns, and the change type last.
func applyLog(ctx context.Context, state *index.State, lake *index.Index, hasher *index.Hasher, schema *segments.Schema, rec arrow.RecordBatch, base int64) error {
	if rec == nil || rec.NumRows() == 0 {
		return nil
	}
	keys, err := hasher.KeysOf(rec, schema)
	if err != nil {
		return err
	}
	types, ok := rec.Column(int(rec.NumCols()) - 1).(*array.Int32)
	if !ok {
		return errs.New(errs.Corrupt, "the log has no change type")
	}
	places, err := placesBelow(ctx, state, lake, keys)
	if err != nil {
		return err
	}
	changes := make([]index.Change, 0, len(keys))
	for i, k := range keys {
		if types.Value(i) == merge.UpdateBefore {
			continue
		}
		changes = append(changes, index.Change{Key: k, Offset: base + int64(i), Deleted: types.Value(i) == merge.Delete, Lake: places[k]})
	}
	return state.Apply(changes)
}

// placesBelow asks the runs where the keys lie that no live change is known of.
// Keys that are not in the result lie nowhere.
func placesBelow(ctx context.Context, state *index.State, lake *index.Index, keys []index.Key) (map[index.Key]index.Location, error) {
	places := make(map[index.Key]index.Location, len(keys))
	var ask []index.Key
	for _, k := range keys {
		if _, known := places[k]; known {
			continue
		}
		places[k] = index.Nowhere
		if state.Find(k).Below {
			ask = append(ask, k)
		}
	}
	if len(ask) == 0 {
		return places, nil
	}
	found, err := lake.Find(ctx, ask)
	if err != nil {
		return nil, err
	}
	for i, k := range ask {
		places[k] = found[i]
	}
	return places, nil
}
