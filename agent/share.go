package agent

import (
	"hash/fnv"
	"math/rand/v2"
	"sort"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/wal"
	"github.com/firn-data/firn/wal/producers"
)

// share is the part of a request that goes to one bucket.
type share struct {
	bucket   *bucket
	parts    []sharePart
	entry    wal.Entry
	ticket   *ticket // the entry's, or the bucket's tail where every row was skipped
	base     int64
	applied  int64
	logged   int64 // rows in the log: applied ones, or the changes that they make
	skipped  int64
	recalled int64 // rows at base that an earlier request with the same key wrote
}

// sharePart is rows of one chunk of the body.
type sharePart struct {
	rows  arrow.RecordBatch
	chunk rows.Chunk // where their positions in the body stand
	at    []int32    // their rows in the chunk; nil = all of it
}

// ordinal returns the position of a part's row i in the body.
func (p *sharePart) ordinal(i int) int64 {
	if p.at != nil {
		i = int(p.at[i])
	}
	return p.chunk.Ordinal(i)
}

func (s *share) rows() (n int64) {
	for _, p := range s.parts {
		n += p.rows.NumRows()
	}
	return n
}

func (s *share) bytes() (n int64) {
	for _, p := range s.parts {
		n += segments.SizeOf(p.rows)
	}
	return n
}

// smallPart is the mean size below which a share's parts are joined: what a batch
// costs beside its rows is not counted anywhere.
const smallPart = 16 << 10

// join makes one part of many small ones.
func (s *share) join() error {
	if len(s.parts) < 2 || s.bytes()/int64(len(s.parts)) >= smallPart {
		return nil
	}
	batches := make([]arrow.RecordBatch, len(s.parts))
	var ordinals []int64
	for i, p := range s.parts {
		batches[i] = p.rows
		for row := range int(p.rows.NumRows()) {
			ordinals = append(ordinals, p.ordinal(row))
		}
	}
	all, err := segments.Concat(batches)
	s.parts = []sharePart{{rows: all, chunk: rows.Chunk{Ordinals: ordinals}}}
	return err
}

// keep leaves the rows whose sequence lies in one of the ranges.
func (s *share) keep(first int64, fresh []producers.Range) error {
	var parts []sharePart
	for _, p := range s.parts {
		var kept []int32
		for row := range int(p.rows.NumRows()) {
			seq := first + p.ordinal(row)
			i := sort.Search(len(fresh), func(i int) bool { return fresh[i].End > seq })
			if i < len(fresh) && fresh[i].First <= seq {
				kept = append(kept, int32(row)) //nolint:gosec // a request holds far fewer rows
			}
		}
		switch {
		case len(kept) == 0:
			continue
		case int64(len(kept)) < p.rows.NumRows():
			left, err := segments.Take(p.rows, kept)
			if err != nil {
				return err
			}
			p.rows = left // its positions are not asked for again
		}
		parts = append(parts, p)
	}
	s.parts = parts
	return nil
}

// splitRequest divides a request's rows by bucket, in bucket order.
func splitRequest(t *table, req AppendRequest) ([]*share, error) {
	if len(req.Table.BucketKey) == 0 || len(t.buckets) == 1 {
		return splitKeyless(t, req)
	}
	byBucket := map[int32]*share{}
	var shares []*share
	for _, c := range req.Chunks {
		parts, err := segments.SplitByBucket(c.Rows, req.Table.BucketKey, req.Schema, int32(len(t.buckets))) //nolint:gosec // at most 4096 buckets
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			s := byBucket[p.Bucket]
			if s == nil {
				s = &share{bucket: t.buckets[p.Bucket]}
				byBucket[p.Bucket] = s
				shares = append(shares, s)
			}
			s.parts = append(s.parts, sharePart{p.Batch, c, p.Rows})
		}
	}
	for _, s := range shares {
		if err := s.join(); err != nil {
			return nil, err
		}
	}
	sort.Slice(shares, func(i, j int) bool { return shares[i].bucket.id.Bucket < shares[j].bucket.id.Bucket })
	return shares, nil
}

// splitKeyless sends all rows of a request to one bucket: the producer's, or any.
func splitKeyless(t *table, req AppendRequest) ([]*share, error) {
	s := &share{}
	for _, c := range req.Chunks {
		if c.Rows.NumRows() > 0 {
			s.parts = append(s.parts, sharePart{rows: c.Rows, chunk: c})
		}
	}
	if len(s.parts) == 0 {
		return nil, nil
	}
	b := 0
	if len(t.buckets) > 1 {
		b = rand.IntN(len(t.buckets)) //nolint:gosec // spreads load, guards nothing
		if req.Producer != nil {
			b = int(producerBucket(req.Producer.ID, len(t.buckets))) //nolint:gosec // below the number of buckets
		} else if req.Sticky != nil {
			b = int(*req.Sticky) % len(t.buckets)
		}
	}
	s.bucket = t.buckets[b]
	return []*share{s}, s.join()
}

// producerBucket is a function of the producer alone, so that a replayed row
// meets the bucket that knows it. FNV-1a is stable for ever.
func producerBucket(id string, buckets int) uint64 {
	h := fnv.New64a()
	h.Write([]byte(id))
	return h.Sum64() % uint64(buckets) //nolint:gosec // positive
}
