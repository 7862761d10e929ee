package wal

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

func TestAnEntryOfSeveralBatchesIsOneRunOfOffsets(t *testing.T) {
	ctx := context.Background()
	store := objstore.NewMem()
	var committed Committed
	l := openLog(t, Options{Store: store, Codec: segments.CodecZSTD, FlushBytes: 1, OnCommit: func(c Committed) {
		if committed.ID.Incarnation == "" {
			committed = c
		}
	}})
	e := entry(bucketA, 10, 1, 2, 3)
	e.More = []arrow.RecordBatch{rowsOf(4), rowsOf(5, 6, 7)}
	require.NoError(t, l.Append(ctx, []Entry{e, entry(bucketA, 17, 8)}), "the next offset is behind all of them")
	require.NoError(t, l.Flush(ctx))
	require.True(t, errs.Is(l.Append(ctx, []Entry{entry(bucketA, 20, 1), entry(bucketA, 20, 1)}), errs.Internal))
	require.NoError(t, l.Close(ctx))

	footer, err := ReadFooter(ctx, store, committed.ID)
	require.NoError(t, err)
	require.Len(t, footer.Segments, 1, "one entry is never divided over objects")
	require.Equal(t, int64(10), footer.Segments[0].BaseOffset)
	require.Equal(t, int64(7), footer.Segments[0].Rows)
	rec, err := ReadSegment(ctx, store, committed.ID, &footer.Segments[0], testSchema(), nil)
	require.NoError(t, err)
	require.Equal(t, seqIDs(1, 7), idsOf(rec))
	require.Equal(t, seqIDs(1, 7), idsOf(committed.Rows[0]...))
}

func TestAnObjectIsAllocatedOnce(t *testing.T) {
	s := &segments.Schema{ID: 1}
	for i := range 200 { // their statistics are most of the footer
		s.Fields = append(s.Fields, segments.Field{ID: int32(i + 1), Name: "c" + itoa(int64(i)), Type: segments.Type{Kind: segments.Long}})
	}
	c := &cut{groups: []*group{{bucket: bucketA, schema: s, rows: 1, batches: []arrow.RecordBatch{longColumns(s, 1)}}}}
	require.NoError(t, c.groups[0].encode(segments.CodecNone))
	require.NoError(t, c.assemble(ObjectID{"inc-1", 1}, segments.CodecNone, zeroReader{}))
	require.Equal(t, len(c.object), cap(c.object))
}
