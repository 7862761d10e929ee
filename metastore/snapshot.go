package metastore

import (
	"bytes"
	"cmp"
	"fmt"
	"hash/crc32"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/firn-data/firn/internal/errs"
)

// SnapshotFormat is the version of the snapshots that this code writes.
const SnapshotFormat = 1

const (
	snapshotMagic = "firn-metadata-snapshot"
	// maxSnapshotBytes bounds a decompressed snapshot: about 10 KiB for each of
	// the most tables.
	maxSnapshotBytes = 1 << 30
	// maxSnapshotHeader is more than the longest first line.
	maxSnapshotHeader = 256
)

func snapshotKey(seq uint64) string { return snapshotPrefix + seqText(seq) }

// record is one line of a snapshot; exactly one field is set.
type record struct {
	State    *stateRecord `json:"state,omitempty"`
	Database *Database    `json:"database,omitempty"`
	Table    *Table       `json:"table,omitempty"`
	Agent    *Agent       `json:"agent,omitempty"`
	Slot     *slotRecord  `json:"slot,omitempty"`
	Marks    []Mark       `json:"marks,omitempty"`
}

// stateRecord is the first record.
type stateRecord struct {
	Seq         uint64    `json:"seq"`
	Sum         string    `json:"sum"`
	ClusterID   string    `json:"cluster_id"`
	SlotCount   int       `json:"slot_count"`
	CreatedAt   time.Time `json:"created_at"`
	NextTableID uint64    `json:"next_table_id"`
}

type slotRecord struct {
	Index int `json:"index"`
	Slot
}

// writeRecords writes the state as lines of JSON in a fixed order.
func writeRecords(s *State) ([]byte, error) {
	var buf bytes.Buffer
	var err error
	put := func(r record) {
		if err == nil {
			var line []byte
			line, err = plainJSON(r)
			buf.Write(append(line, '\n'))
		}
	}
	put(record{State: &stateRecord{
		Seq: s.Seq, Sum: s.Sum, ClusterID: s.ClusterID, SlotCount: s.SlotCount,
		CreatedAt: s.CreatedAt, NextTableID: s.NextTableID,
	}})
	for _, d := range s.Databases() {
		put(record{Database: d})
	}
	for _, t := range slices.SortedFunc(s.tables.values, func(a, b *Table) int { return cmp.Compare(a.ID, b.ID) }) {
		put(record{Table: t})
	}
	for _, a := range s.Agents() {
		put(record{Agent: a})
	}
	for i, slot := range s.slots {
		if slot != (Slot{}) {
			put(record{Slot: &slotRecord{Index: i, Slot: slot}})
		}
	}
	put(record{Marks: s.recent})
	return buf.Bytes(), err
}

// EncodeSnapshot returns the bytes of a snapshot's object: a line of text, and
// the records compressed by ZSTD. Equal states give equal bytes in one version.
func EncodeSnapshot(s *State) ([]byte, error) {
	raw, err := writeRecords(s)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode metadata snapshot", err)
	}
	if len(raw) > maxSnapshotBytes {
		return nil, errs.New(errs.TooLarge, "metadata snapshot of %d bytes; the limit is %d", len(raw), maxSnapshotBytes)
	}
	return packSnapshot(raw, s.Seq)
}

// snapshotEncoder is shared: making one costs milliseconds, and EncodeAll may be
// called from many goroutines.
var snapshotEncoder = sync.OnceValues(func() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
})

func packSnapshot(raw []byte, seq uint64) ([]byte, error) {
	enc, err := snapshotEncoder()
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode metadata snapshot", err)
	}
	packed := enc.EncodeAll(raw, nil)
	head := fmt.Sprintf("%s %d seq=%d zstd bytes=%d crc32c=%08x\n",
		snapshotMagic, SnapshotFormat, seq, len(raw), crc32.Checksum(packed, castagnoli))
	return append([]byte(head), packed...), nil
}

// DecodeSnapshot reads a snapshot's object. Bytes that are none are Corrupt; a
// newer format is Unsupported. Memory is bounded by the size that the first line
// promises, which is bounded itself.
func DecodeSnapshot(body []byte) (*State, error) {
	raw, seq, err := inflateSnapshot(body)
	if err != nil {
		return nil, err
	}
	s := &State{}
	line := 0
	for len(raw) > 0 {
		end := bytes.IndexByte(raw, '\n')
		if end < 0 {
			return nil, errs.New(errs.Corrupt, "metadata snapshot: record %d has no end", line)
		}
		var r record
		if err := strictJSON(raw[:end], &r); err != nil {
			return nil, errs.New(errs.Corrupt, "metadata snapshot: record %d: %v", line, err)
		}
		if err := s.restore(line, &r); err != nil {
			return nil, errs.New(errs.Corrupt, "metadata snapshot: record %d: %v", line, err)
		}
		raw = raw[end+1:]
		line++
	}
	if s.ClusterID == "" || s.Seq != seq {
		return nil, errs.New(errs.Corrupt, "metadata snapshot: the first line says sequence %d, the state record %d", seq, s.Seq)
	}
	if err := s.checkReferences(); err != nil {
		return nil, err
	}
	return s, nil
}

// inflateSnapshot checks the first line and returns the records and the sequence.
func inflateSnapshot(body []byte) (raw []byte, seq uint64, err error) {
	end := bytes.IndexByte(body[:min(len(body), maxSnapshotHeader)], '\n')
	if end < 0 {
		return nil, 0, errs.New(errs.Corrupt, "metadata snapshot: the first line has no end")
	}
	head := string(body[:end])
	var version int
	if n, _ := fmt.Sscanf(head, snapshotMagic+" %d", &version); n != 1 {
		return nil, 0, errs.New(errs.Corrupt, "metadata snapshot: the first line is %q", head)
	}
	if version != SnapshotFormat {
		return nil, 0, errs.New(errs.Unsupported, "metadata snapshot of format %d; this version reads format %d: upgrade Firn", version, SnapshotFormat)
	}
	var size uint64
	var crc uint32
	if n, err := fmt.Sscanf(head, snapshotMagic+" 1 seq=%d zstd bytes=%d crc32c=%08x", &seq, &size, &crc); n != 3 || size > maxSnapshotBytes {
		return nil, 0, errs.New(errs.Corrupt, "metadata snapshot: the first line is %q (%v)", head, err)
	}
	if got := crc32.Checksum(body[end+1:], castagnoli); got != crc {
		return nil, 0, errs.New(errs.Corrupt, "metadata snapshot: the checksum of the %d bytes at %d is %08x, not %08x", len(body)-end-1, end+1, got, crc)
	}
	// The decoder allocates what the frame asks for up to its limit, which has a
	// floor of its own.
	dec, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(max(size, 1<<10)))
	if err != nil {
		return nil, 0, errs.Wrap(errs.Internal, "decode metadata snapshot", err)
	}
	defer dec.Close()
	raw, err = dec.DecodeAll(body[end+1:], nil)
	if err != nil {
		return nil, 0, errs.New(errs.Corrupt, "metadata snapshot: %v", err)
	}
	if uint64(len(raw)) != size {
		return nil, 0, errs.New(errs.Corrupt, "metadata snapshot: %d bytes of records, and the first line says %d", len(raw), size)
	}
	return raw, seq, nil
}

// restore adds one record to a state under construction.
func (s *State) restore(line int, r *record) error {
	if (r.State != nil) != (line == 0) {
		return errs.New(errs.Corrupt, "the state record is the first and no other")
	}
	switch {
	case r.State != nil:
		h := r.State
		if h.SlotCount < 1 || h.SlotCount > MaxSlots || h.Seq == 0 || h.ClusterID == "" {
			return errs.New(errs.Corrupt, "the state record is incomplete")
		}
		s.Seq, s.Sum, s.ClusterID, s.SlotCount = h.Seq, h.Sum, h.ClusterID, h.SlotCount
		s.CreatedAt, s.NextTableID = h.CreatedAt, h.NextTableID
		s.slots = make([]Slot, h.SlotCount)
	case r.Database != nil:
		s.databases.insert(r.Database.Name, r.Database)
	case r.Table != nil:
		s.tables.insert(r.Table.ID, r.Table)
		s.names.insert(tableName{r.Table.Database, r.Table.Name}, r.Table)
	case r.Agent != nil:
		s.agents.insert(r.Agent.Incarnation, r.Agent)
	case r.Slot != nil:
		if r.Slot.Index < 0 || r.Slot.Index >= len(s.slots) {
			return errs.New(errs.Corrupt, "slot %d of %d", r.Slot.Index, len(s.slots))
		}
		s.slots[r.Slot.Index] = r.Slot.Slot
	case r.Marks != nil:
		s.recent = r.Marks
	default:
		return errs.New(errs.Corrupt, "it is empty")
	}
	return nil
}

// checkReferences refuses a decoded state whose parts do not fit together.
func (s *State) checkReferences() error {
	for t := range s.tables.values {
		if _, ok := s.databases.get(t.Database); !ok || t.ID >= s.NextTableID {
			return errs.New(errs.Corrupt, "metadata snapshot: table %s (id %d) has no database or a future id", t, t.ID)
		}
	}
	if s.names.len() != s.tables.len() {
		return errs.New(errs.Corrupt, "metadata snapshot: two tables have one name")
	}
	for i, slot := range s.slots {
		if _, ok := s.agents.get(slot.Owner); slot.Owner != "" && !ok {
			return errs.New(errs.Corrupt, "metadata snapshot: slot %d has the unknown owner %s", i, slot.Owner)
		}
	}
	if len(s.recent) > recentMarks {
		return errs.New(errs.Corrupt, "metadata snapshot: %d marks; the limit is %d", len(s.recent), recentMarks)
	}
	return nil
}
