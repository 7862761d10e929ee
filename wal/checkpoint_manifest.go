package wal

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
	"github.com/firn-data/firn/wal/producers"
)

func bucketFromProto(m *pb.BucketID) BucketID { return BucketID{m.GetTableId(), m.GetBucket()} }

// manifestToProto converts a manifest; intern numbers incarnations.
func manifestToProto(b *BucketManifest, intern func(string) uint32) *pb.BucketManifest {
	m := &pb.BucketManifest{
		Bucket:     &pb.BucketID{TableId: b.Bucket.Table, Bucket: b.Bucket.Bucket},
		NextOffset: b.NextOffset, LakeOffset: b.LakeOffset, Generation: b.Generation, EarliestOffset: b.EarliestOffset,
	}
	var offset, timestamp int64
	for i := range b.Segments {
		s := &b.Segments[i]
		m.SegmentIncarnations = append(m.SegmentIncarnations, intern(s.Object.Incarnation))
		m.SegmentSequences = append(m.SegmentSequences, s.Object.Seq)
		m.SegmentIndexes = append(m.SegmentIndexes, s.Index)
		m.SegmentBaseOffsets = append(m.SegmentBaseOffsets, s.BaseOffset-offset)
		m.SegmentRows = append(m.SegmentRows, s.Rows)
		m.SegmentBytes = append(m.SegmentBytes, s.Bytes)
		m.SegmentTimestampsUs = append(m.SegmentTimestampsUs, s.Timestamp-timestamp)
		m.SegmentSchemaIds = append(m.SegmentSchemaIds, s.SchemaID)
		offset, timestamp = s.BaseOffset, s.Timestamp
	}
	for i := range b.Producers {
		p := &b.Producers[i]
		state := &pb.ProducerState{Id: p.ID, Watermark: p.Watermark, LastSeenUs: p.LastSeen, Idempotency: p.Idempotency}
		for _, r := range p.Ranges {
			state.Ranges = append(state.Ranges, r.First, r.End)
		}
		m.Producers = append(m.Producers, state)
	}
	return m
}

// decodeManifest parses one manifest and checks it; why is "" when it is valid.
func decodeManifest(raw []byte, incarnations []string) (b *BucketManifest, why string) {
	count := 0
	if !eachField(raw, func(num protowire.Number, _ []byte) bool {
		if num == 14 { // producers
			count++
		}
		return count <= maxManifestProducers
	}) {
		return nil, "no message, or too many producers"
	}
	m := new(pb.BucketManifest)
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, m); err != nil {
		return nil, err.Error()
	}
	b = &BucketManifest{
		Bucket:     bucketFromProto(m.GetBucket()),
		NextOffset: m.GetNextOffset(), LakeOffset: m.GetLakeOffset(), Generation: m.GetGeneration(), EarliestOffset: m.GetEarliestOffset(),
	}
	if why := b.segmentsFromProto(m, incarnations); why != "" {
		return nil, why
	}
	for _, p := range m.GetProducers() {
		if len(p.GetRanges())%2 != 0 {
			return nil, "odd producer ranges"
		}
		state := producers.State{Watermark: p.GetWatermark(), LastSeen: p.GetLastSeenUs(), Idempotency: p.GetIdempotency()}
		for i := 0; i < len(p.GetRanges()); i += 2 {
			state.Ranges = append(state.Ranges, producers.Range{First: p.Ranges[i], End: p.Ranges[i+1]})
		}
		b.Producers = append(b.Producers, ProducerState{ID: p.GetId(), State: state})
	}
	return b, b.broken()
}

func (b *BucketManifest) segmentsFromProto(m *pb.BucketManifest, incarnations []string) (why string) {
	n := len(m.GetSegmentSequences())
	for _, l := range []int{
		len(m.GetSegmentIncarnations()), len(m.GetSegmentIndexes()), len(m.GetSegmentBaseOffsets()), len(m.GetSegmentRows()),
		len(m.GetSegmentBytes()), len(m.GetSegmentTimestampsUs()), len(m.GetSegmentSchemaIds()),
	} {
		if l != n {
			return "segment lists of different lengths"
		}
	}
	if n > 0 {
		b.Segments = make([]SegmentRef, n)
	}
	var offset, timestamp int64
	for i := range n {
		inc := m.SegmentIncarnations[i]
		if int64(inc) >= int64(len(incarnations)) {
			return "segment of an unknown incarnation"
		}
		offset += m.SegmentBaseOffsets[i]
		timestamp += m.SegmentTimestampsUs[i]
		b.Segments[i] = SegmentRef{
			Object: ObjectID{incarnations[inc], m.SegmentSequences[i]}, Index: m.SegmentIndexes[i],
			BaseOffset: offset, Rows: m.SegmentRows[i], Bytes: m.SegmentBytes[i],
			Timestamp: timestamp, SchemaID: m.SegmentSchemaIds[i],
		}
	}
	return ""
}
