package rows

import (
	"bufio"
	"bytes"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/firn-data/firn/internal/errs"
)

// batchSource turns batches of Arrow or Parquet into parts of at most
// ChunkRows and about ChunkBytes.
type batchSource struct {
	d    *decoder
	what string // for errors
	conv *converter
	// open reads the schema; read the next batch, or io.EOF.
	open  func() (*arrow.Schema, error)
	read  func() (arrow.RecordBatch, error)
	rec   arrow.RecordBatch // being sliced
	at    int64             // its next row
	step  int64             // rows a slice
	ended error
}

func (b *batchSource) next() (part, error) {
	if b.ended != nil {
		return part{}, b.ended
	}
	var p part
	err := guarded(b.what, func() error {
		if b.conv == nil {
			schema, err := b.open()
			if err != nil {
				return err
			}
			if b.conv, err = newConverter(b.d, schema); err != nil {
				return err
			}
		}
		for b.rec == nil || b.at >= b.rec.NumRows() {
			if err := b.advance(); err != nil {
				return err
			}
		}
		end := min(b.at+b.step, b.rec.NumRows())
		var err error
		p, err = b.conv.part(b.rec, b.at, end)
		b.at = end
		return err
	})
	if err != nil {
		b.ended, b.rec = err, nil
	}
	return p, err
}

// advance takes the next batch and chooses how to slice it.
func (b *batchSource) advance() error {
	b.rec = nil
	rec, err := b.read()
	if err != nil {
		return err
	}
	if rec.NumRows() > maxBatchRows {
		return limitError(maxBatchRows, "a batch of the %s body has %d rows, the limit is %d", b.what, rec.NumRows(), maxBatchRows)
	}
	if rec.NumRows() == 0 {
		return nil
	}
	size, err := b.conv.check(rec)
	if err != nil {
		return err
	}
	b.rec, b.at = rec, 0
	perRow := size/rec.NumRows() + 1
	b.step = min(int64(b.d.opts.ChunkRows), max(1, b.d.opts.ChunkBytes/perRow))
	return nil
}

func (b *batchSource) close() { b.rec = nil }

// arrowMagic starts the IPC file format: padded to eight bytes, a stream follows, then a footer.
var arrowMagic = []byte("ARROW1")

// arrowInput is a body that Arrow is read from.
type arrowInput interface {
	io.Reader
	Peek(n int) ([]byte, error)
	Discard(n int) (int, error)
}

func newArrowSource(d *decoder) (source, error) {
	var in arrowInput
	if d.whole != nil {
		in = d.whole
	} else {
		in = bufio.NewReaderSize(d.body, 64<<10)
	}
	limit := int64(spoolBytes)
	if d.opts.MaxBytes > 0 {
		limit = d.opts.MaxBytes
	}
	alloc := &limitedAllocator{limit: 2 * limit}
	msgs := &messageReader{r: in, alloc: alloc, maxBody: limit}
	var reader *ipc.Reader
	isFile := false
	open := func() (*arrow.Schema, error) {
		head, err := in.Peek(8)
		if err != nil && err != io.EOF {
			return nil, err
		}
		if len(head) == 0 {
			return nil, errs.New(errs.Invalid, "the Arrow body is empty: a stream has at least a schema")
		}
		if isFile = bytes.HasPrefix(head, arrowMagic); isFile {
			if _, err := in.Discard(8); err != nil {
				return nil, err
			}
		}
		reader, err = ipc.NewReaderFromMessageReader(msgs, ipc.WithAllocator(alloc))
		if err != nil {
			return nil, err
		}
		return reader.Schema(), nil
	}
	read := func() (arrow.RecordBatch, error) {
		if reader.Next() {
			return reader.RecordBatch(), nil
		}
		if err := reader.Err(); err != nil {
			return nil, arrowError(err, alloc)
		}
		return nil, arrowEnd(in, isFile, msgs.ended)
	}
	return &batchSource{d: d, what: "Arrow", open: open, read: read}, nil
}

// arrowError tells a budget that ran out, which the library hands on as text,
// from a broken stream.
func arrowError(err error, alloc *limitedAllocator) error {
	if alloc.refused {
		return tooLarge("Arrow", alloc.limit)
	}
	return err
}

// arrowEnd checks what follows the last batch: nothing, or a file's footer. A
// stream may end without a marker.
func arrowEnd(in arrowInput, isFile, marked bool) error {
	if !isFile {
		if _, err := in.Peek(1); marked && err == nil {
			return errs.New(errs.Invalid, "the Arrow body goes on after the end of its stream")
		} else if err != nil && err != io.EOF {
			return err
		}
		return io.EOF
	}
	var last [6]byte
	buf := make([]byte, 32<<10)
	n := 0
	for {
		m, err := in.Read(buf)
		tail := append(append([]byte(nil), last[:min(n, len(last))]...), buf[:m]...)
		n = copy(last[:], tail[max(0, len(tail)-len(last)):])
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if n < len(last) || !bytes.Equal(last[:], arrowMagic) {
		return errs.New(errs.Invalid, "the Arrow file ends early: its footer is missing")
	}
	return io.EOF
}
