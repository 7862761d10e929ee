package wal

import (
	"cmp"
	"context"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

// RangeReader is the part of a store that reads need, so that a cache can stand
// in for it. Objects never change, so any range may be cached for good. The
// bytes that it returns are not changed.
type RangeReader interface {
	GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error)
}

const (
	// coalesceGap is how many unwanted bytes are read to save a request: about
	// what a store sends in the time of one round trip's tenth.
	coalesceGap = 128 << 10
	// maxParallelRanges bounds the ranges of one segment that are read at a time.
	maxParallelRanges = 4
)

// ReadFooter reads what stands at a position with one suffix read, and a second
// one when the footer is longer than 64 KiB. It retries passing faults.
// Errors: NotFound, Corrupt, Unavailable.
func ReadFooter(ctx context.Context, r RangeReader, id ObjectID) (*Footer, error) {
	return retryRead(ctx, id.Key(), func(ctx context.Context) (*Footer, error) { return readFooter(ctx, r, id) })
}

func readFooter(ctx context.Context, r RangeReader, id ObjectID) (*Footer, error) {
	name := id.Key()
	tail, info, err := r.GetRange(ctx, name, -1, suffixBytes)
	if err != nil {
		return nil, errs.In("read footer of "+name, err)
	}
	if int64(len(tail)) != min(info.Size, suffixBytes) {
		return nil, short(name, len(tail), min(info.Size, suffixBytes))
	}
	length, _, err := parseTrailer(name, tail, info.Size)
	if err != nil {
		return nil, err
	}
	if missing := int64(length+trailerBytes) - int64(len(tail)); missing > 0 {
		start := info.Size - int64(len(tail)) - missing
		head, _, err := r.GetRange(ctx, name, start, missing)
		if err != nil {
			return nil, errs.In("read footer of "+name, err)
		}
		if int64(len(head)) != missing {
			return nil, short(name, len(head), missing)
		}
		tail = slices.Concat(head, tail)
	}
	return parseFooter(name, id, tail, info.Size)
}

// short is an answer with fewer bytes than the object has: the answer was cut.
func short(name string, got int, want int64) error {
	return errs.New(errs.Unavailable, "read %s: %d bytes of %d came", name, got, want)
}

// ReadSegment reads a segment's rows: the wanted top-level columns by field id
// (nil: all), in that order. s is the schema that the segment was written with.
// Ranges that lie close together are read as one. Every range is checked against
// its checksum. Errors: NotFound, Corrupt (with object and position), Unavailable.
func ReadSegment(ctx context.Context, r RangeReader, id ObjectID, seg *Segment, s *segments.Schema, wanted []int32) (arrow.RecordBatch, error) {
	if seg.Rows == 0 {
		return emptyBatch(s, wanted)
	}
	return retryRead(ctx, id.Key(), func(ctx context.Context) (arrow.RecordBatch, error) {
		blocks, err := fetch(ctx, r, id, seg, coalesce(seg.Columns, wanted))
		if err != nil {
			return nil, err
		}
		return decodeSegment(id.Key(), seg, s, wanted, blocks.read)
	})
}

// DecodeSegment is ReadSegment from the whole object in memory.
func DecodeSegment(id ObjectID, object []byte, seg *Segment, s *segments.Schema, wanted []int32) (arrow.RecordBatch, error) {
	if seg.Rows == 0 {
		return emptyBatch(s, wanted)
	}
	if seg.BodyOff < 0 || seg.BodyLen < 0 || seg.BodyLen > int64(len(object))-seg.BodyOff {
		return nil, corrupt(id.Key(), seg.BodyOff, "body leaves the object")
	}
	whole := blocks{{0, object[seg.BodyOff : seg.BodyOff+seg.BodyLen]}}
	return decodeSegment(id.Key(), seg, s, wanted, whole.read)
}

func decodeSegment(name string, seg *Segment, s *segments.Schema, wanted []int32, read func(off, n int64) ([]byte, error)) (arrow.RecordBatch, error) {
	rec, err := segments.Decode(s, seg.Columns, seg.Rows, wanted, read)
	if errs.Is(err, errs.Corrupt) {
		return nil, &errs.Error{Class: errs.Corrupt, Op: "read " + name, Cause: err,
			Msg:     "corrupt segment of bucket " + seg.Bucket.String() + " at byte " + itoa(seg.BodyOff),
			Details: []any{Position{name, seg.BodyOff}}}
	}
	return rec, errs.In("read "+name, err)
}

func emptyBatch(s *segments.Schema, wanted []int32) (arrow.RecordBatch, error) {
	sel, err := s.SelectIDs(wanted)
	if err != nil {
		return nil, err
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, sel.Arrow())
	defer b.Release()
	return b.NewRecordBatch(), nil
}

// extent is a half-open byte range of a body.
type extent struct{ from, to int64 }

// coalesce returns the ranges to read for the wanted columns, ascending.
func coalesce(columns []segments.ColumnChunk, wanted []int32) []extent {
	var out []extent
	for i := range columns {
		c := &columns[i]
		if c.Len == 0 || (wanted != nil && !slices.Contains(wanted, c.FieldID)) {
			continue
		}
		if n := len(out); n > 0 && c.Off-out[n-1].to <= coalesceGap {
			out[n-1].to = c.Off + c.Len
			continue
		}
		out = append(out, extent{c.Off, c.Off + c.Len})
	}
	return out
}

// blocks are parts of a body in memory, ascending.
type blocks []block

type block struct {
	off   int64
	bytes []byte
}

// read serves segments.Decode.
func (b blocks) read(off, n int64) ([]byte, error) {
	i, exact := slices.BinarySearchFunc(b, off, func(x block, off int64) int { return cmp.Compare(x.off, off) })
	if !exact {
		i--
	}
	if i < 0 || n < 0 || off < 0 || n > int64(len(b[i].bytes))-(off-b[i].off) {
		return nil, errs.New(errs.Corrupt, "bytes [%d, +%d) lie outside the columns", off, n)
	}
	return b[i].bytes[off-b[i].off:][:n:n], nil
}

// fetch reads the extents of a body, a few at a time.
func fetch(ctx context.Context, r RangeReader, id ObjectID, seg *Segment, want []extent) (blocks, error) {
	got := make(blocks, len(want))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallelRanges)
	for i, x := range want {
		g.Go(func() error {
			n := x.to - x.from
			body, _, err := r.GetRange(ctx, id.Key(), seg.BodyOff+x.from, n)
			if err != nil {
				return errs.In("read "+id.Key(), err)
			}
			if int64(len(body)) != n {
				return short(id.Key(), len(body), n)
			}
			got[i] = block{x.from, body}
			return nil
		})
	}
	return got, g.Wait()
}
