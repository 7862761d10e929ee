package wal

import (
	"encoding/binary"
	"strconv"

	"google.golang.org/protobuf/proto"

	"github.com/firn-data/firn/internal/errs"
	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
	"github.com/firn-data/firn/segments"
)

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// Footer is what one suffix read of a WAL object tells.
type Footer struct {
	ID        ObjectID
	Size      int64 // bytes of the whole object
	Codec     segments.Codec
	Timestamp int64 // dispatch time in µs
	Segments  []Segment
	// FencedBy is who ended the log here; empty on a data object.
	FencedBy string

	nonce     nonce
	headerLen int64
	footerLen int64
}

// IsFence reports whether the object ends its incarnation's log.
func (f *Footer) IsFence() bool { return f.FencedBy != "" }

// appendFooter writes the footer message and the trailer.
func appendFooter(b []byte, h *header, f *Footer) ([]byte, error) {
	begin := len(b)
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, footerToProto(h, f))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode WAL footer", err)
	}
	length := len(b) - begin
	if length > MaxFooterBytes {
		return nil, errs.New(errs.TooLarge, "WAL footer of %d bytes exceeds %d", length, MaxFooterBytes)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(length))
	b = binary.LittleEndian.AppendUint32(b, crc32c(b[begin:]))
	return append(b, tailMagic...), nil
}

func footerToProto(h *header, f *Footer) *pb.WalFooter {
	m := &pb.WalFooter{
		Incarnation: h.id.Incarnation, Sequence: h.id.Seq, Nonce: h.nonce[:],
		HeaderLength: uint32(h.size()), Codec: uint32(h.codec), TimestampUs: f.Timestamp,
		Segments: make([]*pb.Segment, len(f.Segments)),
	}
	if f.FencedBy != "" {
		m.Fence = &pb.Fence{By: f.FencedBy}
	}
	for i := range f.Segments {
		m.Segments[i] = segmentToProto(&f.Segments[i])
	}
	return m
}

func segmentToProto(s *Segment) *pb.Segment {
	m := &pb.Segment{
		TableId: s.Bucket.Table, Bucket: s.Bucket.Bucket, SchemaId: s.SchemaID,
		BaseOffset: s.BaseOffset, Rows: s.Rows, TimestampUs: s.Timestamp,
		BodyOffset: s.BodyOff, BodyLength: s.BodyLen, RawBytes: s.RawBytes,
		Columns: make([]*pb.Column, len(s.Columns)),
	}
	for i := range s.Columns {
		m.Columns[i] = columnToProto(&s.Columns[i])
	}
	for _, d := range s.Producers {
		m.Producers = append(m.Producers, &pb.ProducerDelta{
			Id: d.ID, First: d.First, Count: d.Count, AckedBelow: d.AckedBelow, Idempotency: d.Idempotency,
		})
	}
	return m
}

func columnToProto(c *segments.ColumnChunk) *pb.Column {
	m := &pb.Column{FieldId: c.FieldID, Offset: c.Off, Length: c.Len, Crc32C: c.CRC, Buffers: c.Buffers}
	if len(c.Nodes) > 0 {
		m.Nodes = make([]int64, 0, 2*len(c.Nodes))
		for _, n := range c.Nodes {
			m.Nodes = append(m.Nodes, n.Length, n.NullCount)
		}
	}
	if c.Stats.Valid {
		m.Stats = &pb.ColumnStats{Nulls: c.Stats.Nulls, Nans: c.Stats.NaNs, Min: c.Stats.Min, Max: c.Stats.Max}
	}
	return m
}

func segmentFromProto(m *pb.Segment) Segment {
	s := Segment{
		Bucket:   BucketID{m.GetTableId(), m.GetBucket()},
		SchemaID: m.GetSchemaId(), BaseOffset: m.GetBaseOffset(), Rows: m.GetRows(),
		Timestamp: m.GetTimestampUs(), BodyOff: m.GetBodyOffset(), BodyLen: m.GetBodyLength(), RawBytes: m.GetRawBytes(),
		Columns: make([]segments.ColumnChunk, len(m.GetColumns())),
	}
	for i, c := range m.GetColumns() {
		s.Columns[i] = columnFromProto(c)
	}
	for _, d := range m.GetProducers() {
		s.Producers = append(s.Producers, ProducerDelta{
			ID: d.GetId(), First: d.GetFirst(), Count: d.GetCount(), AckedBelow: d.GetAckedBelow(), Idempotency: d.GetIdempotency(),
		})
	}
	return s
}

func columnFromProto(m *pb.Column) segments.ColumnChunk {
	c := segments.ColumnChunk{
		FieldID: m.GetFieldId(), Off: m.GetOffset(), Len: m.GetLength(), CRC: m.GetCrc32C(),
		Buffers: m.GetBuffers(), Nodes: make([]segments.Node, len(m.GetNodes())/2),
	}
	for i := range c.Nodes {
		c.Nodes[i] = segments.Node{Length: m.Nodes[2*i], NullCount: m.Nodes[2*i+1]}
	}
	if st := m.GetStats(); st != nil {
		c.Stats = segments.ColumnStats{Valid: true, Nulls: st.GetNulls(), NaNs: st.GetNans(), Min: st.Min, Max: st.Max}
	}
	return c
}
