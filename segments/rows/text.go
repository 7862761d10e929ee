package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// block is a stretch of a text body that holds whole rows.
type block struct {
	data []byte
	// spans are the rows; nil when rows are the lines of data.
	spans []span
	// urgent asks to decode at once what was read: the sender is slow.
	urgent bool
}

type span struct{ start, end int }

// blockReader cuts a text body into blocks; after the last it returns io.EOF.
type blockReader interface {
	next() (block, error)
	// recycle takes back the memory of a block that was decoded.
	recycle(block)
	close()
}

// textSource decodes the blocks of a text body with several workers, in order.
type textSource struct {
	d      *decoder
	blocks blockReader
	free   []*worker
	queue  []job // in flight, at most one for each worker
	urgent bool
	err    error
}

// job is a block that a worker decodes.
type job struct {
	w    *worker
	blk  block
	done chan part // nil: decoded when it is asked for
}

func newText(d *decoder) (source, error) {
	t := &textSource{d: d}
	switch d.opts.Format {
	case NDJSON:
		t.blocks = newLineBlocks(d.body, d.opts)
	case JSON:
		t.blocks = newJSONBlocks(d.body, d.opts)
	default:
		t.blocks = newCSVBlocks(d.body, d.opts, d.schema)
	}
	w, err := t.newWorker()
	if err != nil {
		return nil, err
	}
	for i := range w.obj.fields {
		if err := checkDefault(&w.obj.fields[i]); err != nil {
			return nil, err
		}
	}
	t.free = append(t.free, w)
	return t, nil
}

// checkDefault refuses a default that is no value of its column, once instead of for each row.
func checkDefault(f *field) error {
	if f.def == nil {
		return nil
	}
	if err := jsonText(f.col, f.def); err != nil {
		return errs.New(errs.Internal, "default of column %q: %v", f.name, err)
	}
	f.col.truncate(0)
	return nil
}

func (t *textSource) next() (part, error) {
	for t.err == nil && len(t.queue) < t.d.opts.Workers && !(t.urgent && len(t.queue) > 0) {
		blk, err := t.blocks.next()
		if err != nil {
			t.err = err
			break
		}
		if err := t.start(blk); err != nil {
			t.err = err
			break
		}
	}
	if len(t.queue) == 0 {
		return part{}, t.err
	}
	j := t.queue[0]
	t.queue = t.queue[1:]
	var p part
	if j.done != nil {
		p = <-j.done
	} else {
		p = j.w.decode(j.blk)
	}
	t.free = append(t.free, j.w)
	t.blocks.recycle(j.blk)
	if p.err != nil {
		t.err = p.err
		return p, p.err
	}
	return p, nil
}

// inlineBytes is the size up to which handing a block to a goroutine costs
// more than it brings.
const inlineBytes = 32 << 10

func (t *textSource) start(blk block) error {
	t.urgent = blk.urgent
	j := job{blk: blk}
	if n := len(t.free); n > 0 {
		j.w, t.free = t.free[n-1], t.free[:n-1]
	} else {
		w, err := t.newWorker()
		if err != nil {
			return err
		}
		j.w = w
	}
	if blk.urgent || t.d.opts.Workers == 1 || len(blk.data) <= inlineBytes {
		t.queue = append(t.queue, j)
		return nil
	}
	j.done = make(chan part, 1)
	go func() { j.done <- j.w.decode(j.blk) }()
	t.queue = append(t.queue, j)
	return nil
}

func (t *textSource) close() {
	for _, j := range t.queue {
		if j.done != nil {
			<-j.done
		}
	}
	t.queue = nil
	t.blocks.close()
	for _, w := range t.free {
		w.rest()
	}
	t.free = nil
}

// idleWorkers are those of decoders that have ended, with columns about as large
// as the rows of a request were. NDJSON's have no state of their body's.
var idleWorkers sync.Pool

// purpose is what a worker can be used for again.
type purpose struct {
	selected, table *segments.Schema
	ignoreUnknown   bool
	passOthers      bool
}

// rest makes a worker ready for another decoder.
func (w *worker) rest() {
	if w.opts.Format != NDJSON || w.faulty || w.events != nil {
		return
	}
	w.opts, w.out, w.ords, w.scan = nil, part{}, nil, scanner{scratch: w.scan.scratch[:0]}
	idleWorkers.Put(w)
}

// worker decodes blocks into columns of its own.
type worker struct {
	purpose
	faulty bool // its columns cannot be trusted
	opts   *DecodeOptions
	schema *arrow.Schema
	obj    *object
	scan   scanner
	csv    *csvRow
	events *events      // of change events
	header func() []int // CSV: the position of each field's column, known after the header

	out     part
	good    int     // rows in the columns
	first   int64   // number of the first of them
	ords    []int64 // numbers of all of them, once there was a gap
	deletes []bool  // of change events: which rows are deletes, once one is
	check   int     // rows until the columns' size is looked at
	refused bool    // a bad row ends the rows that are taken
}

func (t *textSource) newWorker() (*worker, error) {
	d := t.d
	use := purpose{selected: d.schema, table: d.opts.Schema, ignoreUnknown: d.opts.IgnoreUnknown, passOthers: d.opts.PassOthers}
	if d.opts.Format == NDJSON && !d.opts.Debezium {
		if w, _ := idleWorkers.Get().(*worker); w != nil && w.purpose == use {
			w.opts = &d.opts
			return w, nil
		}
	}
	obj, err := newObject(d.schema.Fields, d.opts.IgnoreUnknown)
	if err != nil {
		return nil, err
	}
	table := d.opts.Schema
	obj.hidden, obj.passHidden = func(name string) bool { return table.Index(name) >= 0 }, d.opts.PassOthers
	w := &worker{purpose: use, opts: &d.opts, schema: d.arrow, obj: obj}
	if d.opts.Debezium {
		w.events = newEvents(d.schema, d.opts.Key)
		obj.key = w.events.key
	}
	if c, ok := t.blocks.(*csvBlocks); ok {
		w.header = func() []int { return c.columns }
	}
	return w, nil
}

// decode decodes a block. It never panics: a fault becomes the part's error.
func (w *worker) decode(blk block) (out part) {
	w.out, w.good, w.ords, w.deletes, w.check, w.refused = part{}, 0, nil, nil, 1, false
	defer func() {
		if r := recover(); r != nil {
			w.faulty = true
			out = part{err: errs.New(errs.Internal, "decode %s rows: %v", w.opts.Format, r)}
		}
	}()
	parse := w.jsonRow
	switch {
	case w.events != nil:
		parse = w.eventRow
	case w.opts.Format == CSV:
		parse = w.csvRow
	}
	if blk.spans == nil && w.opts.Format == NDJSON {
		w.lines(blk.data, parse)
	}
	for _, sp := range blk.spans {
		if w.out.err != nil {
			break
		}
		w.row(blk.data[sp.start:sp.end], parse)
	}
	if !w.refused {
		w.cut()
	}
	w.obj.truncate(0)
	return w.out
}

func (w *worker) lines(data []byte, parse func([]byte) bool) {
	for len(data) > 0 && w.out.err == nil {
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		if len(line) == 0 || line[0] != '{' {
			if line = bytes.TrimSpace(line); len(line) == 0 {
				continue
			}
		}
		w.row(line, parse)
	}
}

// row takes one row: its values into the columns, or its fault into the report.
func (w *worker) row(row []byte, parse func([]byte) bool) {
	n := w.out.rows
	w.out.rows++
	if int64(len(row)) > w.opts.MaxRowBytes {
		w.out.err = rowTooLarge(w.opts.MaxRowBytes)
		return
	}
	if !parse(row) {
		w.reject(n)
		return
	}
	if w.events != nil && w.events.tombstone {
		return
	}
	if w.refused {
		w.obj.truncate(0)
		return
	}
	w.count(n)
	if w.check--; w.check <= 0 {
		w.measure()
	}
	if w.good >= w.opts.ChunkRows {
		w.cut()
	}
}

func rowTooLarge(limit int64) error {
	return limitError(limit, "a row is larger than the limit of %d bytes", limit)
}

// jsonRow decodes a row that is a JSON text.
func (w *worker) jsonRow(row []byte) bool {
	s := &w.scan
	s.reset(row)
	if s.space() != '{' {
		if !s.skip() {
			return false
		}
		return s.fail(errNotObject)
	}
	if !w.obj.json(s) {
		return false
	}
	if s.pos < len(s.buf) {
		if s.space(); s.pos < len(s.buf) {
			return s.fail(errAfterValue)
		}
	}
	return true
}

// reject reports row n, whose fault the scanner holds.
func (w *worker) reject(n int64) {
	e := RowError{Row: n, Column: w.scan.path, Reason: w.scan.why.Error()}
	w.obj.truncate(w.good)
	syntax := w.brokenJSON()
	if syntax != nil && w.opts.Format != CSV {
		e.Reason = fmt.Sprintf("%s (byte %d of the row)", syntax, w.scan.pos)
		if w.opts.Format == JSON {
			w.out.broken = &e
			w.out.err = io.ErrUnexpectedEOF // replaced by the decoder, which knows the row's number
			return
		}
	}
	w.out.bad.add(e)
	if !w.opts.SkipBadRows && !w.refused {
		w.cut()
		w.refused = true
	}
}

// brokenJSON returns what makes the row at hand no JSON, if anything does. The
// rest of a row of a JSON body is looked at too: it tells whether the body is sound.
func (w *worker) brokenJSON() error {
	s := &w.scan
	var why badSyntax
	if errors.As(s.why, &why) {
		return why
	}
	if w.opts.Format == JSON {
		if s.reset(s.buf); !s.skip() {
			return s.why
		}
	}
	return nil
}

// count notes the number of a good row.
func (w *worker) count(n int64) {
	if w.good == 0 {
		w.first = n
	} else if w.ords == nil && n != w.first+int64(w.good) {
		w.ords = make([]int64, w.good, w.good+256)
		for i := range w.ords {
			w.ords[i] = w.first + int64(i)
		}
	}
	if w.ords != nil {
		w.ords = append(w.ords, n)
	}
	if w.events != nil && (w.events.deletes || w.deletes != nil) {
		if w.deletes == nil {
			w.deletes = make([]bool, w.good, w.good+256)
		}
		w.deletes = append(w.deletes, w.events.deletes)
	}
	w.good++
}

// measure cuts the chunk when it has reached its bytes, and says when to look
// again: before a sixteenth more is likely.
func (w *worker) measure() {
	size := int64(w.obj.size())
	if size >= w.opts.ChunkBytes {
		w.cut()
		w.check = 1
		return
	}
	perRow := size/int64(w.good) + 1
	w.check = int(min(max(w.opts.ChunkBytes/16/perRow, 1), 256))
}

// cut makes a chunk of the rows in the columns.
func (w *worker) cut() {
	if w.good == 0 {
		return
	}
	c := Chunk{First: w.first, Ordinals: w.ords, Deletes: w.deletes, Rows: makeBatch(w.schema, w.obj.take(), w.good)}
	w.out.chunks = append(w.out.chunks, c)
	w.good, w.ords, w.deletes = 0, nil, nil
}

// makeBatch makes a batch of columns' data.
func makeBatch(schema *arrow.Schema, data []arrow.ArrayData, n int) arrow.RecordBatch {
	cols := make([]arrow.Array, len(data))
	for i, d := range data {
		if d.Len() != n { // a longer column would pass here and break whoever reads it
			panic(fmt.Sprintf("column %q has %d values of %d rows", schema.Field(i).Name, d.Len(), n))
		}
		cols[i] = array.MakeFromData(d)
	}
	return array.NewRecordBatch(schema, cols, int64(n))
}
