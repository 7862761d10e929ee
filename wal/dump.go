package wal

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/wal/producers"
)

// Dumped is what Dump shows of an object, in the form of its JSON.
type Dumped struct {
	Kind        string           `json:"kind"` // data, fence, checkpoint
	Key         string           `json:"key"`
	Bytes       int64            `json:"bytes"`
	Codec       string           `json:"codec,omitempty"`
	Time        string           `json:"time,omitempty"`
	Nonce       string           `json:"nonce,omitempty"`
	FencedBy    string           `json:"fenced_by,omitempty"`
	FooterBytes int64            `json:"footer_bytes,omitempty"`
	Segments    []DumpedSegment  `json:"segments,omitempty"`
	Covers      uint64           `json:"covers,omitempty"`
	Buckets     []DumpedManifest `json:"buckets,omitempty"`
	Removed     []string         `json:"removed,omitempty"`
	Parts       []uint64         `json:"parts,omitempty"`
}

// DumpedSegment is one segment of a WAL object.
type DumpedSegment struct {
	Table      uint64           `json:"table"`
	Bucket     int32            `json:"bucket"`
	SchemaID   int32            `json:"schema_id"`
	BaseOffset int64            `json:"base_offset"`
	EndOffset  int64            `json:"end_offset"`
	Rows       int64            `json:"rows"`
	BodyOffset int64            `json:"body_offset"`
	BodyBytes  int64            `json:"body_bytes"`
	RawBytes   int64            `json:"raw_bytes"`
	Columns    []DumpedColumn   `json:"columns"`
	Producers  []DumpedProducer `json:"producers,omitempty"`
}

// DumpedColumn is one column of a segment. Bounds are hexadecimal Iceberg single
// values, with the text beside them when they look like text.
type DumpedColumn struct {
	FieldID int32  `json:"field_id"`
	Offset  int64  `json:"offset"`
	Bytes   int64  `json:"bytes"`
	CRC32C  string `json:"crc32c"`
	Nulls   *int64 `json:"nulls,omitempty"`
	Min     string `json:"min,omitempty"`
	Max     string `json:"max,omitempty"`
}

// DumpedProducer is one producer delta, or one producer's state.
type DumpedProducer struct {
	ID          string            `json:"id"`
	First       int64             `json:"first,omitempty"`
	Count       int64             `json:"count,omitempty"`
	AckedBelow  int64             `json:"acked_below"`
	Ranges      []producers.Range `json:"ranges,omitempty"`
	Idempotency bool              `json:"idempotency,omitempty"`
}

// DumpedManifest is one bucket of a checkpoint.
type DumpedManifest struct {
	Bucket     string           `json:"bucket"`
	Next       int64            `json:"next_offset"`
	Lake       int64            `json:"lake_offset"`
	Earliest   int64            `json:"earliest_offset"`
	Generation uint64           `json:"generation"`
	Segments   []SegmentRef     `json:"segments,omitempty"`
	Producers  []DumpedProducer `json:"producers,omitempty"`
}

// Describe reads any object of this package, a WAL object or a checkpoint, and
// checks all of its checksums. Errors: Corrupt.
func Describe(object []byte) (*Dumped, error) {
	if strings.HasPrefix(string(object[:min(len(object), 8)]), checkpointMagic) {
		return describeCheckpoint(object)
	}
	f, err := ParseObject(object)
	if err != nil {
		return nil, err
	}
	d := &Dumped{
		Kind: kindData.String(), Key: f.ID.Key(), Bytes: f.Size, Codec: f.Codec.String(), FencedBy: f.FencedBy,
		Time: micros(f.Timestamp), Nonce: hex.EncodeToString(f.nonce[:]), FooterBytes: f.footerLen,
	}
	if f.IsFence() {
		d.Kind, d.Codec = kindFence.String(), ""
	}
	for i := range f.Segments {
		d.Segments = append(d.Segments, describeSegment(&f.Segments[i]))
	}
	return d, nil
}

func describeSegment(s *Segment) DumpedSegment {
	d := DumpedSegment{
		Table: s.Bucket.Table, Bucket: s.Bucket.Bucket, SchemaID: s.SchemaID,
		BaseOffset: s.BaseOffset, EndOffset: s.EndOffset(), Rows: s.Rows,
		BodyOffset: s.BodyOff, BodyBytes: s.BodyLen, RawBytes: s.RawBytes,
		Columns: []DumpedColumn{},
	}
	for i := range s.Columns {
		c := &s.Columns[i]
		col := DumpedColumn{FieldID: c.FieldID, Offset: c.Off, Bytes: c.Len, CRC32C: fmt.Sprintf("%08x", c.CRC)}
		if c.Stats.Valid {
			col.Nulls, col.Min, col.Max = &c.Stats.Nulls, bound(c.Stats.Min), bound(c.Stats.Max)
		}
		d.Columns = append(d.Columns, col)
	}
	for _, p := range s.Producers {
		d.Producers = append(d.Producers, DumpedProducer{ID: p.ID, First: p.First, Count: p.Count, AckedBelow: p.AckedBelow, Idempotency: p.Idempotency})
	}
	return d
}

func describeCheckpoint(object []byte) (*Dumped, error) {
	c, err := decodeCheckpoint("checkpoint", CheckpointRef{}, object)
	if err != nil {
		return nil, err
	}
	d := &Dumped{Kind: "checkpoint", Key: c.ref.Key(), Bytes: int64(len(object)), Covers: c.covers}
	for _, m := range c.sorted() {
		b := DumpedManifest{Bucket: m.Bucket.String(), Next: m.NextOffset, Lake: m.LakeOffset,
			Earliest: m.EarliestOffset, Generation: m.Generation, Segments: m.Segments}
		for _, p := range m.Producers {
			b.Producers = append(b.Producers, DumpedProducer{ID: p.ID, AckedBelow: p.Watermark, Ranges: p.Ranges, Idempotency: p.Idempotency})
		}
		d.Buckets = append(d.Buckets, b)
	}
	for id := range c.removed {
		d.Removed = append(d.Removed, id.String())
	}
	for _, p := range c.parts {
		d.Parts = append(d.Parts, p.seq)
	}
	return d, nil
}

func micros(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z") }

func bound(b []byte) string {
	if b == nil {
		return ""
	}
	s := hex.EncodeToString(b)
	if utf8.Valid(b) && len(b) > 0 && !strings.ContainsFunc(string(b), func(r rune) bool { return !unicode.IsPrint(r) }) {
		s += fmt.Sprintf(" %q", b)
	}
	return s
}

// DumpJSON writes a description of an object as JSON. Errors: Corrupt, w's.
func DumpJSON(w io.Writer, object []byte) error {
	d, err := Describe(object)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return errs.In("write dump", enc.Encode(d))
}

// Dump writes a description of an object for a person. Errors: Corrupt, w's.
func Dump(w io.Writer, object []byte) error {
	d, err := Describe(object)
	if err != nil {
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintf(t, "%s\t%s\n", d.Kind, d.Key)
	fmt.Fprintf(t, "bytes\t%d\n", d.Bytes)
	switch d.Kind {
	case "checkpoint":
		d.printCheckpoint(t)
	case kindFence.String():
		fmt.Fprintf(t, "fenced by\t%s\nat\t%s\n", d.FencedBy, d.Time)
	default:
		fmt.Fprintf(t, "codec\t%s\nat\t%s\nfooter\t%d bytes\nsegments\t%d\n", d.Codec, d.Time, d.FooterBytes, len(d.Segments))
		for i := range d.Segments {
			d.Segments[i].print(t, i)
		}
	}
	return errs.In("write dump", t.Flush())
}

func (d *Dumped) printCheckpoint(w io.Writer) {
	fmt.Fprintf(w, "covers\tpositions below %d\nparts\t%v\nbuckets\t%d\nremoved\t%d\n", d.Covers, d.Parts, len(d.Buckets), len(d.Removed))
	for _, b := range d.Buckets {
		fmt.Fprintf(w, "\nbucket %s\toffsets [%d, %d)\tlake %d\tgeneration %d\n", b.Bucket, b.Earliest, b.Next, b.Lake, b.Generation)
		for _, s := range b.Segments {
			fmt.Fprintf(w, "  [%d, %d)\t%s #%d\t%d bytes\n", s.BaseOffset, s.EndOffset(), s.Object.Key(), s.Index, s.Bytes)
		}
		for _, p := range b.Producers {
			fmt.Fprintf(w, "  producer %q\tdone below %d\tranges %v\n", p.ID, p.AckedBelow, p.Ranges)
		}
	}
}

func (s *DumpedSegment) print(w io.Writer, i int) {
	fmt.Fprintf(w, "\nsegment %d\ttable %d bucket %d\tschema %d\toffsets [%d, %d)\t%d bytes at %d\t%d raw\n",
		i, s.Table, s.Bucket, s.SchemaID, s.BaseOffset, s.EndOffset, s.BodyBytes, s.BodyOffset, s.RawBytes)
	for _, c := range s.Columns {
		nulls := "?"
		if c.Nulls != nil {
			nulls = fmt.Sprint(*c.Nulls)
		}
		fmt.Fprintf(w, "  field %d\t%d bytes at %d\tcrc %s\tnulls %s\tmin %s\tmax %s\n", c.FieldID, c.Bytes, c.Offset, c.CRC32C, nulls, c.Min, c.Max)
	}
	for _, p := range s.Producers {
		fmt.Fprintf(w, "  producer %q\trows [%d, %d)\tacked below %d\n", p.ID, p.First, p.First+p.Count, p.AckedBelow)
	}
}
