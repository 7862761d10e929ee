package segments

// MaxSegmentBytes is the most bytes that the buffers of one segment hold
// before compression (INVARIANT(seg-5)). Encode refuses more and Decode believes no more, so what
// was encoded can be decoded and a hostile segment cannot exhaust memory. It
// also keeps Arrow's 32-bit offsets from overflowing.
const MaxSegmentBytes = 1 << 30

// bufferAlign is the alignment of every buffer in a body, as in Arrow IPC.
const bufferAlign = 8

func align(n int64) int64 { return (n + bufferAlign - 1) &^ (bufferAlign - 1) }

// Encoded is the body of a segment and what a reader needs to decode it, which
// the WAL keeps in its footer. Body has the layout of a compressed Arrow IPC
// record batch's body; docs/format/segment.md has the bytes.
type Encoded struct {
	Body    []byte
	Rows    int64
	Columns []ColumnChunk // in schema order
}

// ColumnChunk locates and describes one top-level column in a body.
type ColumnChunk struct {
	FieldID  int32
	Off, Len int64   // the column's byte range in Body: its buffers and their padding
	CRC      uint32  // CRC-32C of that range
	Nodes    []Node  // the column and its descendants, depth first
	Buffers  []int64 // stored length of each buffer without padding, in the order of the nodes
	Stats    ColumnStats
}

// Node is Arrow IPC's field node: the length and null count of one array.
type Node struct {
	Length, NullCount int64
}

// ColumnStats lets a reader skip a segment. Min and Max are single-value
// binaries of the column's type when the segment was written; nil means
// unknown, or that there is no value. NaN is no bound: it is counted in NaNs,
// which is part of the non-null rows. Strings and binaries are cut to
// statsBytes bytes, Max rounded up, so they bound the values without being
// among them. Nested columns have Nulls only.
type ColumnStats struct {
	Valid    bool // false: nothing is known, not even Nulls
	Nulls    int64
	NaNs     int64
	Min, Max []byte
}
