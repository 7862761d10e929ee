package wal

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/firn-data/firn/internal/pb/firn/storage/v1"
	"github.com/firn-data/firn/segments"
)

// parseTrailer reads the last bytes of an object and returns the footer's length.
func parseTrailer(name string, tail []byte, size int64) (length int, crc uint32, err error) {
	at := size - trailerBytes
	if at < 0 || len(tail) < trailerBytes {
		return 0, 0, corrupt(name, size, "object of %d bytes is too short", size)
	}
	t := tail[len(tail)-trailerBytes:]
	if string(t[8:]) != tailMagic {
		return 0, 0, corrupt(name, at+8, "no closing WAL magic: the object is cut or is no WAL object")
	}
	n := binary.LittleEndian.Uint32(t)
	if n > MaxFooterBytes || int64(n) > at {
		return 0, 0, corrupt(name, at, "footer length %d does not fit", n)
	}
	return int(n), binary.LittleEndian.Uint32(t[4:]), nil
}

// parseFooter reads the footer from the end of an object; tail must reach back to
// the footer's first byte. A wanted id of "" accepts any.
func parseFooter(name string, want ObjectID, tail []byte, size int64) (*Footer, error) {
	length, crc, err := parseTrailer(name, tail, size)
	if err != nil {
		return nil, err
	}
	if len(tail) < length+trailerBytes {
		return nil, corrupt(name, size-int64(len(tail)), "footer of %d bytes is cut", length)
	}
	at := size - trailerBytes - int64(length)
	raw := tail[len(tail)-trailerBytes-length : len(tail)-trailerBytes+4]
	if crc32c(raw) != crc {
		return nil, corrupt(name, at, "footer checksum differs")
	}
	raw = raw[:length]
	if err := scanFooter(name, raw, at); err != nil {
		return nil, err
	}
	var m pb.WalFooter
	if err := (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(raw, &m); err != nil {
		return nil, corrupt(name, at, "footer is no message: %v", err)
	}
	return footerFromProto(name, want, &m, size, at)
}

// scanFooter counts the footer's messages before any of them is built, so that a
// hostile footer cannot make more memory than the bounds allow.
func scanFooter(name string, raw []byte, at int64) error {
	var nsegments, ncolumns, ndeltas int
	ok := eachField(raw, func(num protowire.Number, body []byte) bool {
		if num != 7 { // segments
			return true
		}
		nsegments++
		return eachField(body, func(num protowire.Number, _ []byte) bool {
			switch num {
			case 10:
				ncolumns++
			case 11:
				ndeltas++
			}
			return true
		})
	})
	switch {
	case !ok:
		return corrupt(name, at, "footer is no message")
	case nsegments > MaxSegments, ncolumns > MaxColumnChunks, ndeltas > maxDeltas:
		return corrupt(name, at, "footer of %d segments, %d column chunks, %d producer deltas exceeds the bounds", nsegments, ncolumns, ndeltas)
	}
	return nil
}

// eachField calls f with every length-delimited field of a message; it reports
// whether the message is well formed at this level and f never returned false.
func eachField(b []byte, f func(protowire.Number, []byte) bool) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return false
			}
			b = b[n:]
			continue
		}
		body, n := protowire.ConsumeBytes(b)
		if n < 0 || !f(num, body) {
			return false
		}
		b = b[n:]
	}
	return true
}

// footerFromProto checks what the message says against the object's size and name.
func footerFromProto(name string, want ObjectID, m *pb.WalFooter, size, footerAt int64) (*Footer, error) {
	f := &Footer{
		ID: ObjectID{m.GetIncarnation(), m.GetSequence()}, Size: size,
		Codec: segments.Codec(m.GetCodec()), Timestamp: m.GetTimestampUs(),
		headerLen: int64(m.GetHeaderLength()), footerLen: size - footerAt,
	}
	if want.Incarnation != "" && f.ID != want {
		return nil, corrupt(name, footerAt, "object says that it is %s", f.ID)
	}
	if copy(f.nonce[:], m.GetNonce()) != nonceBytes || len(m.GetNonce()) != nonceBytes {
		return nil, corrupt(name, footerAt, "nonce of %d bytes", len(m.GetNonce()))
	}
	h := header{id: f.ID}
	if f.headerLen != int64(h.size()) || f.headerLen > footerAt {
		return nil, corrupt(name, footerAt, "header length %d does not fit", f.headerLen)
	}
	if fence := m.GetFence(); fence != nil {
		if fence.GetBy() == "" || len(m.GetSegments()) > 0 {
			return nil, corrupt(name, footerAt, "fence with %d segments, put by %q", len(m.GetSegments()), fence.GetBy())
		}
		f.FencedBy = fence.GetBy()
		return f, nil
	}
	f.Segments = make([]Segment, len(m.GetSegments()))
	at := f.headerLen
	for i, s := range m.GetSegments() {
		f.Segments[i] = segmentFromProto(s)
		if err := checkSegment(name, i, &f.Segments[i], len(s.GetColumns()), at, footerAt); err != nil {
			return nil, err
		}
		at = f.Segments[i].BodyOff + f.Segments[i].BodyLen
	}
	return f, nil
}

// checkSegment checks the numbers of one segment whose body may begin at from and
// must end at the footer's position or before.
func checkSegment(name string, i int, s *Segment, columns int, from, footerAt int64) error {
	switch {
	case s.BodyOff < from || s.BodyLen < 0 || s.BodyLen > footerAt-s.BodyOff:
		return corrupt(name, footerAt, "segment %d: body [%d, +%d) overlaps or leaves the object", i, s.BodyOff, s.BodyLen)
	case s.Rows < 0 || s.BaseOffset < 0 || s.BaseOffset+s.Rows < 0, s.Rows == 0 && len(s.Producers) == 0:
		return corrupt(name, footerAt, "segment %d: %d rows from offset %d", i, s.Rows, s.BaseOffset)
	case s.Bucket.Bucket < 0 || s.RawBytes < 0:
		return corrupt(name, footerAt, "segment %d: bucket %d, %d raw bytes", i, s.Bucket.Bucket, s.RawBytes)
	}
	at := int64(0)
	for j := range columns {
		c := &s.Columns[j]
		if c.Off < at || c.Len < 0 || c.Len > s.BodyLen-c.Off {
			return corrupt(name, footerAt, "segment %d: column %d [%d, +%d) overlaps or leaves the body", i, c.FieldID, c.Off, c.Len)
		}
		at = c.Off + c.Len
	}
	return nil
}

// parseObject reads a whole object: header and footer, which must agree.
func parseObject(name string, want ObjectID, object []byte) (*Footer, error) {
	h, headerLen, err := parseHeader(name, object)
	if err != nil {
		return nil, err
	}
	f, err := parseFooter(name, want, object, int64(len(object)))
	if err != nil {
		return nil, err
	}
	if f.ID != h.id || f.nonce != h.nonce || f.headerLen != int64(headerLen) ||
		uint8(f.Codec) != h.codec || f.IsFence() != (h.kind == kindFence) {
		return nil, corrupt(name, 0, "header and footer disagree")
	}
	return f, nil
}

// ParseObject reads a whole WAL object, whatever its name, and checks header,
// footer and every column's checksum. Errors: Corrupt.
func ParseObject(object []byte) (*Footer, error) {
	const name = "WAL object"
	f, err := parseObject(name, ObjectID{}, object)
	if err != nil {
		return nil, err
	}
	for i := range f.Segments {
		s := &f.Segments[i]
		body := object[s.BodyOff : s.BodyOff+s.BodyLen]
		for _, c := range s.Columns {
			if crc32c(body[c.Off:c.Off+c.Len]) != c.CRC {
				return nil, corrupt(name, s.BodyOff+c.Off, "segment %d, field %d: checksum differs", i, c.FieldID)
			}
		}
	}
	return f, nil
}
