package rows

import (
	"fmt"
	"hash"
	"io"
	"runtime"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// Bounds of a decoder that its options leave at zero.
const (
	defaultChunkRows   = 64 << 10
	defaultChunkBytes  = 4 << 20
	defaultMaxRowBytes = 16 << 20
	// spoolBytes bounds formats and messages that must be held whole when the
	// body has no limit of its own: Parquet files and Arrow messages.
	spoolBytes = 64 << 20
	// decodedFactor is how much larger than MaxBytes the decoded rows may be:
	// a sparse JSON row grows when its absent columns become NULLs.
	decodedFactor = 8
	// maxWorkers bounds the parallel decoding of one body.
	maxWorkers = 4
	// maxDetails is how many bad rows an error or report lists.
	maxDetails = 100
)

// DecodeOptions says what a body holds and what it may cost.
type DecodeOptions struct {
	// Schema is the table's schema.
	Schema *segments.Schema
	Format Format
	// Compression is "", "identity", "gzip" or "zstd".
	Compression string
	// SkipBadRows leaves bad rows out instead of failing.
	SkipBadRows bool
	// IgnoreUnknown passes over fields that the table does not have.
	IgnoreUnknown bool
	// Columns are the columns to take, and their order in the result; empty is
	// all of the schema. Other columns of the table count as unknown.
	Columns []string
	// PassOthers passes over the columns of the table that Columns leaves out.
	PassOthers bool
	// Debezium says that the rows are change events (see [Chunk].Deletes): upserts
	// and deletes of the schema's rows by the columns Key. NDJSON and JSON only.
	Debezium bool
	Key      []string
	// MaxBytes bounds the body, decompressed; zero is no bound.
	MaxBytes int64
	// MaxDecodedBytes bounds the Arrow bytes of all chunks together; zero is
	// 8 × MaxBytes.
	MaxDecodedBytes int64
	// ChunkRows and ChunkBytes bound a chunk (a single larger row is a chunk).
	ChunkRows  int
	ChunkBytes int64
	// MaxRowBytes bounds one row of text; zero is 16 MiB.
	MaxRowBytes int64
	// MaxDelay is how long Next may hold back complete rows of a text format to
	// fill a chunk; zero is until the chunk is full or the body ends. It is
	// meant for endless bodies and costs a goroutine that reads ahead.
	MaxDelay time.Duration
	// Digest hears every byte of the body, decompressed, once Next has returned
	// io.EOF: also what follows the last row. Nil: nobody does.
	Digest hash.Hash
	// Workers bounds parallel decoding; zero is the number of CPUs, at most 4.
	Workers int
}

// RowError is a row that is not taken, and why.
type RowError struct {
	Row    int64  `json:"row"`              // from 0, in the order of the body
	Column string `json:"column,omitempty"` // with the path inside a nested column; empty when the row itself is broken
	Reason string `json:"reason"`
}

// String returns the error in one line.
func (e RowError) String() string {
	if e.Column == "" {
		return fmt.Sprintf("row %d: %s", e.Row, e.Reason)
	}
	return fmt.Sprintf("row %d, column %q: %s", e.Row, e.Column, e.Reason)
}

// Chunk is a run of good rows.
type Chunk struct {
	// Rows is owned by the caller. Its memory is garbage collected: Release is allowed and not needed.
	Rows arrow.RecordBatch
	// First is the number of the first row.
	First int64
	// Ordinals are the numbers of all rows, ascending; nil when they are contiguous.
	Ordinals []int64
	// Deletes marks the rows of change events that are deletes, which hold the key
	// columns, and in the others anything; nil when none is.
	Deletes []bool
}

// Ordinal returns the number of the chunk's row i.
func (c Chunk) Ordinal(i int) int64 {
	if c.Ordinals == nil {
		return c.First + int64(i)
	}
	return c.Ordinals[i]
}

// Decoder reads rows from a body.
type Decoder interface {
	// Next returns the next chunk, which has at least one row, or io.EOF. Its
	// errors are Invalid, TooLarge, or what the body's reader returned; after
	// one, Next returns the same again.
	Next() (Chunk, error)
	// Schema returns the Arrow schema of every chunk.
	Schema() *arrow.Schema
	// Rejected returns how many rows were bad so far, and the first 100.
	Rejected() (total int64, first []RowError)
	// Rows returns how many rows were read so far, good and bad.
	Rows() int64
	// Close frees what the decoder holds. It does not close the body.
	Close() error
}

// NewDecoder returns a decoder of the rows in r. A wrong configuration (unknown
// column, compression or format) is Invalid or Unsupported; the body is not read.
func NewDecoder(r io.Reader, o DecodeOptions) (Decoder, error) { return newDecoder(r, nil, o) }

// newDecoder takes an Arrow body from whole, when that is given.
func newDecoder(r io.Reader, whole *arrived, o DecodeOptions) (Decoder, error) {
	if o.Schema == nil {
		return nil, errs.New(errs.Internal, "decode rows: no schema")
	}
	selected, err := o.Schema.Select(o.Columns)
	if err != nil {
		return nil, err
	}
	if o.Debezium && o.Format != NDJSON && o.Format != JSON {
		return nil, errs.New(errs.Unsupported, "Debezium change events are taken as NDJSON or JSON, not as %s", o.Format)
	}
	o.fill()
	body, err := newBody(r, o)
	if err != nil {
		return nil, err
	}
	d := &decoder{opts: o, schema: selected, arrow: selected.Arrow(), body: body, whole: whole}
	switch o.Format {
	case NDJSON, JSON, CSV:
		d.source, err = newText(d)
	case ArrowStream:
		d.source, err = newArrowSource(d)
	case Parquet:
		d.source, err = newParquetSource(d)
	default:
		err = errs.New(errs.Unsupported, "unknown row format %d", o.Format)
	}
	if err != nil {
		body.close()
		return nil, err
	}
	return d, nil
}

func (o *DecodeOptions) fill() {
	if o.ChunkRows <= 0 {
		o.ChunkRows = defaultChunkRows
	}
	if o.ChunkBytes <= 0 {
		o.ChunkBytes = defaultChunkBytes
	}
	if o.MaxRowBytes <= 0 {
		o.MaxRowBytes = defaultMaxRowBytes
	}
	if o.MaxDecodedBytes <= 0 && o.MaxBytes > 0 {
		o.MaxDecodedBytes = decodedFactor * o.MaxBytes
	}
	if o.Workers <= 0 {
		o.Workers = min(runtime.GOMAXPROCS(0), maxWorkers)
	}
}

// source gives the good rows of a format, part by part.
type source interface {
	// next returns the next part of the body, or io.EOF.
	next() (part, error)
	close()
}

// part is a stretch of a body: its good rows and what was wrong with the others.
type part struct {
	chunks []Chunk // row numbers are relative to the part
	rows   int64   // good and bad
	bad    badRows
	// err ends the body after this part. With broken set, the body is no JSON
	// from that row on.
	err    error
	broken *RowError
}

// badRows counts bad rows and keeps the first ones.
type badRows struct {
	total int64
	first []RowError
	// firstRow is the number of the first bad row.
	firstRow int64
}

func (b *badRows) add(e RowError) {
	if b.total == 0 {
		b.firstRow = e.Row
	}
	b.total++
	if len(b.first) < maxDetails {
		b.first = append(b.first, e)
	}
}

// merge adds the bad rows of a later part that starts at row base.
func (b *badRows) merge(o badRows, base int64) {
	if o.total == 0 {
		return
	}
	if b.total == 0 {
		b.firstRow = base + o.firstRow
	}
	b.total += o.total
	for _, e := range o.first {
		if len(b.first) == maxDetails {
			return
		}
		e.Row += base
		b.first = append(b.first, e)
	}
}

// err returns the error of a body that is refused for its bad rows.
func (b *badRows) err() error {
	e := errs.New(errs.Invalid, "%d bad rows, the first is %s", b.total, b.first[0])
	if b.total == 1 {
		e.Msg = "bad row: " + b.first[0].String()
	}
	for _, row := range b.first {
		e.Details = append(e.Details, row)
	}
	return e
}

// decoder is the part that all formats share: row numbers, limits on what was
// decoded, and the two ways of treating bad rows.
type decoder struct {
	opts    DecodeOptions
	schema  *segments.Schema
	arrow   *arrow.Schema
	body    *body
	whole   *arrived // an Arrow body that has arrived
	source  source
	ready   []Chunk
	rows    int64
	decoded int64
	bad     badRows
	err     error
	closed  bool
}

func (d *decoder) Schema() *arrow.Schema { return d.arrow }

func (d *decoder) Rejected() (int64, []RowError) { return d.bad.total, d.bad.first }

func (d *decoder) Rows() int64 { return d.rows }

func (d *decoder) Close() error {
	if !d.closed {
		d.closed = true
		d.source.close()
		if d.opts.MaxDelay <= 0 { // else a goroutine may still read it
			d.body.close()
		}
		if d.err == nil {
			d.err = errs.New(errs.Closed, "the decoder is closed")
		}
	}
	return nil
}

func (d *decoder) Next() (Chunk, error) {
	for {
		if len(d.ready) > 0 {
			c := d.ready[0]
			d.ready = d.ready[1:]
			d.decoded += segments.SizeOf(c.Rows)
			if d.opts.MaxDecodedBytes > 0 && d.decoded > d.opts.MaxDecodedBytes {
				d.ready, d.err = nil, limitError(d.opts.MaxDecodedBytes,
					"the rows take more than the limit of %d bytes in memory; send less at once", d.opts.MaxDecodedBytes)
				return Chunk{}, d.err
			}
			return c, nil
		}
		if d.err != nil {
			return Chunk{}, d.err
		}
		d.fetch()
	}
}

// fetch takes the next part, or sets err.
func (d *decoder) fetch() {
	p, err := d.source.next()
	base := d.rows
	d.rows += p.rows
	refused := !d.opts.SkipBadRows && d.bad.total > 0
	d.bad.merge(p.bad, base)
	if !refused {
		for _, c := range p.chunks {
			c.shift(base)
			d.ready = append(d.ready, c)
		}
	}
	if p.broken != nil {
		p.broken.Row += base
		err = errs.New(errs.Invalid, "the body is not valid JSON: %s", p.broken)
	}
	if !d.opts.SkipBadRows && d.bad.total > 0 && (err == io.EOF || err == nil && d.opts.MaxBytes <= 0) {
		err = d.bad.err()
	}
	if err == io.EOF && d.opts.Digest != nil {
		if _, rest := io.Copy(io.Discard, d.body); rest != nil {
			err = rest
		}
	}
	d.err = err
}

// shift renumbers a chunk's rows for a part that starts at row base.
func (c *Chunk) shift(base int64) {
	c.First += base
	for i := range c.Ordinals {
		c.Ordinals[i] += base
	}
}
