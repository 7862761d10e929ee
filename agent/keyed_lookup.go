package agent

import (
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/index"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
)

// LookupRequest asks for rows by key. Keys has the columns of the primary key, or
// with Prefix those of the bucket key, under the table's field ids.
type LookupRequest struct {
	Table  *metastore.Table
	Keys   arrow.RecordBatch
	Schema *segments.Schema // of Keys
	Prefix bool
	Out    *segments.Schema // columns to return
}

// LookupResult is the rows of all keys, in the order of the keys: Counts of each,
// which is 0 or 1 without Prefix. A key that is asked for twice has its row twice.
type LookupResult struct {
	Rows   arrow.RecordBatch // nil if there are none
	Counts []int32
}

// lookup returns the newest acknowledged rows of keys. Errors: Invalid, NotFound
// (the table), Unavailable (retry).
func (n *incarnation) lookup(ctx context.Context, req LookupRequest) (LookupResult, error) {
	t, err := n.tableFor(req.Table)
	if err != nil {
		return LookupResult{}, err
	}
	if err := n.confirmLease(ctx); err != nil {
		return LookupResult{}, err
	}
	if err := n.openKeyed(ctx, t, req.Table); err != nil {
		return LookupResult{}, err
	}
	rules, err := t.keyed.rulesOf(req.Table)
	if err != nil {
		return LookupResult{}, err
	}
	if req.Prefix && !rules.hasher.HasPrefix() {
		return LookupResult{}, errs.New(errs.Invalid, "a prefix lookup needs a bucket_key that is a prefix of the primary key, and table %s has none", req.Table)
	}
	parts, err := segments.SplitByBucket(req.Keys, req.Table.BucketKey, req.Schema, int32(len(t.buckets))) //nolint:gosec // at most 4096
	if err != nil {
		return LookupResult{}, err
	}
	res := LookupResult{Counts: make([]int32, req.Keys.NumRows())}
	at := make([][]int32, req.Keys.NumRows()) // rows of the joined batches
	var batches []arrow.RecordBatch
	base := int32(0)
	for _, p := range parts {
		b := t.buckets[p.Bucket]
		if !n.owned[b.slot].Load() {
			return LookupResult{}, n.notOwner(req.Table, b)
		}
		rec, rows, err := n.lookupBucket(ctx, req, rules, b, p.Batch)
		if err != nil {
			return LookupResult{}, err
		}
		for i, of := range rows {
			key := i
			if p.Rows != nil {
				key = int(p.Rows[i])
			}
			for _, row := range of {
				at[key] = append(at[key], base+row)
			}
			res.Counts[key] = int32(len(of)) //nolint:gosec // bounded by the answer's size
		}
		if rec != nil {
			batches = append(batches, rec)
			base += int32(rec.NumRows()) //nolint:gosec // bounded by the answer's size
		}
	}
	if len(batches) == 0 {
		return res, nil
	}
	all, err := segments.Concat(batches)
	if err != nil {
		return LookupResult{}, err
	}
	res.Rows, err = segments.Take(all, slices.Concat(at...))
	return res, err
}

// lookupBucket looks the keys of one bucket up, and returns rows and, for each key,
// which of them are its.
func (n *incarnation) lookupBucket(ctx context.Context, req LookupRequest, rules *keyedRules, b *bucket, keys arrow.RecordBatch) (arrow.RecordBatch, [][]int32, error) {
	for range writeAttempts {
		want, l, err := n.wanted(ctx, req, rules, b, keys)
		if err != nil {
			return nil, nil, err
		}
		if rows := countPlaces(want); rows > maxLookupRows {
			e := errs.New(errs.TooLarge, "the keys have more than %d rows in bucket %d, which is the limit of a lookup; ask for fewer prefixes, or scan", maxLookupRows, b.id.Bucket)
			e.Details = []any{map[string]any{"limit": maxLookupRows}}
			return nil, nil, e
		}
		got, err := n.fetch(ctx, req.Table, b, l.lake, slices.Concat(want...), req.Out)
		if errs.Is(err, errs.Conflict) || errs.Is(err, errs.NotFound) && b.view().gen != l.gen {
			continue // folded, or compacted, while it was read
		}
		if err != nil {
			return nil, nil, err
		}
		rows := make([][]int32, len(want))
		for i, places := range want {
			for _, p := range places {
				if p.exists() {
					rows[i] = append(rows[i], got.row[p])
				}
			}
		}
		return got.rows, rows, nil
	}
	return nil, nil, errs.New(errs.Unavailable, "table %s is folded faster than it can be read; retry", req.Table)
}

// maxLookupRows bounds the rows of one bucket that a lookup reads: prefixes have
// any number.
const maxLookupRows = 100_000

func countPlaces(want [][]rowPlace) (n int) {
	for _, of := range want {
		n += len(of)
	}
	return n
}

// wanted returns the places of the rows of each key.
func (n *incarnation) wanted(ctx context.Context, req LookupRequest, rules *keyedRules, b *bucket, keys arrow.RecordBatch) ([][]rowPlace, *located, error) {
	if req.Prefix {
		return n.wantedPrefixes(ctx, req, rules, b, keys)
	}
	hashed, err := rules.hasher.KeysOf(keys, req.Schema)
	if err != nil {
		return nil, nil, err
	}
	l, err := b.locate(ctx, hashed, (*index.State).FindDurable)
	if err != nil {
		return nil, nil, err
	}
	out := make([][]rowPlace, len(hashed))
	for i, k := range hashed {
		out[i] = []rowPlace{l.places[k]}
	}
	return out, l, nil
}

// wantedPrefixes gathers the keys that share each prefix, live and in the lake, and
// looks them up. The order is that of the keys' hashes.
func (n *incarnation) wantedPrefixes(ctx context.Context, req LookupRequest, rules *keyedRules, b *bucket, prefixes arrow.RecordBatch) ([][]rowPlace, *located, error) {
	his, err := rules.hasher.PrefixesOf(prefixes, req.Schema)
	if err != nil {
		return nil, nil, err
	}
	b.mu.Lock()
	lake := b.keyed.lake
	live := b.keyed.state.WithPrefixes(his)
	b.mu.Unlock()
	members := map[uint64][]index.Key{}
	var all []index.Key
	for _, hi := range his {
		if _, done := members[hi]; done {
			continue
		}
		placed, err := lake.Prefix(ctx, hi)
		if err != nil {
			return nil, nil, err
		}
		of := live[hi]
		for _, p := range placed {
			of = append(of, p.Key)
		}
		slices.SortFunc(of, index.Key.Compare)
		members[hi] = slices.Compact(of)
		all = append(all, members[hi]...)
	}
	l, err := b.locate(ctx, all, (*index.State).FindDurable)
	if err != nil {
		return nil, nil, err
	}
	out := make([][]rowPlace, len(his))
	for i, hi := range his {
		for _, k := range members[hi] {
			if p := l.places[k]; p.exists() {
				out[i] = append(out[i], p)
			}
		}
	}
	return out, l, nil
}
