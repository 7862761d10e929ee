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
	a := newArena(f.Segments)
	for i := range f.Segments {
		m.Segments[i] = a.segment(&f.Segments[i])
	}
	return m
}

// arena holds the messages of one footer in a few allocations: an object may
// have thousands of segments, and their number must not show in its latency.
type arena struct {
	segments []pb.Segment
	columns  []pb.Column
	refs     []*pb.Column
	stats    []pb.ColumnStats
	nodes    []int64
}

func newArena(all []Segment) *arena {
	var columns, nodes int
	for i := range all {
		columns += len(all[i].Columns)
		for j := range all[i].Columns {
			nodes += 2 * len(all[i].Columns[j].Nodes)
		}
	}
	return &arena{
		segments: make([]pb.Segment, len(all)), columns: make([]pb.Column, columns), refs: make([]*pb.Column, columns),
		stats: make([]pb.ColumnStats, columns), nodes: make([]int64, 0, nodes),
	}
}

// take returns the first n of *pool and leaves the rest.
func take[T any](pool *[]T, n int) []T {
	got := (*pool)[:n:n]
	*pool = (*pool)[n:]
	return got
}

func (a *arena) segment(s *Segment) *pb.Segment {
	m := &take(&a.segments, 1)[0]
	m.TableId, m.Bucket, m.SchemaId = s.Bucket.Table, s.Bucket.Bucket, s.SchemaID
	m.BaseOffset, m.Rows, m.TimestampUs = s.BaseOffset, s.Rows, s.Timestamp
	m.BodyOffset, m.BodyLength, m.RawBytes = s.BodyOff, s.BodyLen, s.RawBytes
	m.Columns = take(&a.refs, len(s.Columns))
	for i := range s.Columns {
		m.Columns[i] = a.column(&s.Columns[i])
	}
	for _, d := range s.Producers {
		m.Producers = append(m.Producers, &pb.ProducerDelta{
			Id: d.ID, First: d.First, Count: d.Count, AckedBelow: d.AckedBelow, Idempotency: d.Idempotency,
		})
	}
	return m
}

func (a *arena) column(c *segments.ColumnChunk) *pb.Column {
	m := &take(&a.columns, 1)[0]
	m.FieldId, m.Offset, m.Length, m.Crc32C, m.Buffers = c.FieldID, c.Off, c.Len, c.CRC, c.Buffers
	at := len(a.nodes)
	for _, n := range c.Nodes {
		a.nodes = append(a.nodes, n.Length, n.NullCount)
	}
	m.Nodes = a.nodes[at:len(a.nodes):len(a.nodes)]
	if c.Stats.Valid {
		st := &take(&a.stats, 1)[0]
		st.Nulls, st.Nans, st.Min, st.Max = c.Stats.Nulls, c.Stats.NaNs, c.Stats.Min, c.Stats.Max
		m.Stats = st
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
