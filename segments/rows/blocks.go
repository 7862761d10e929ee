package rows

import (
	"bytes"
	"io"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// Sizes of the blocks that a text body is read in: the first is small, so that
// a short body costs little.
const (
	firstBlock = 64 << 10
	maxBlock   = 4 << 20
)

// buffer reads a body into blocks, carrying the beginning of a row over to the
// next one.
type buffer struct {
	r      reader
	size   int // of the next block
	most   int
	maxRow int64
	carry  []byte
	free   [][]byte // at most one for each worker
	eof    bool
	begun  bool
}

// reader reads into p until it is full, the body ends, or there is something
// and the sender is slow.
type reader interface {
	fill(p []byte) (n int, slow bool, err error)
	close()
}

func newBuffer(r io.Reader, o DecodeOptions) buffer {
	b := buffer{size: firstBlock, maxRow: o.MaxRowBytes, r: fullReader{r}}
	b.most = int(min(max(o.ChunkBytes, firstBlock), maxBlock))
	if o.MaxDelay > 0 {
		b.r = newDelayReader(r, o.MaxDelay)
	}
	return b
}

// fullReader waits for a full block.
type fullReader struct{ r io.Reader }

func (f fullReader) fill(p []byte) (int, bool, error) {
	n, err := io.ReadFull(f.r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, false, err
}

func (f fullReader) close() {}

// read returns the next stretch of the body, with what was carried over in
// front, or io.EOF when there is nothing more. atLeast says how much of it was
// seen before: it has grown beyond that, or the body has ended.
func (b *buffer) read(carry []byte) (data []byte, slow bool, err error) {
	if b.eof {
		return carry, false, nil
	}
	need := b.size
	for need < 2*len(carry) {
		need *= 2
	}
	buf := b.room(need)
	b.size = min(2*b.size, b.most)
	n := copy(buf, carry)
	m, slow, err := b.r.fill(buf[n:])
	data = buf[:n+m]
	if err == io.EOF {
		b.eof, err = true, nil
	}
	if !b.begun {
		b.begun = true
		data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	}
	return data, slow, err
}

// usedBlocks are blocks of decoders that have ended. Blocks of rows longer than
// the largest block are not kept.
var usedBlocks = sync.Pool{New: func() any { return new([]byte) }}

// room returns n bytes, with anything in them.
func (b *buffer) room(n int) []byte {
	if last := len(b.free) - 1; last >= 0 && cap(b.free[last]) >= n {
		block := b.free[last]
		b.free = b.free[:last]
		return block[:n]
	}
	if used := *usedBlocks.Get().(*[]byte); cap(used) >= n {
		return used[:n]
	}
	return make([]byte, n)
}

func (b *buffer) recycle(blk block) {
	if len(b.free) < maxWorkers {
		b.free = append(b.free, blk.data[:cap(blk.data)])
	}
}

func (b *buffer) close() {
	b.r.close()
	for _, block := range b.free {
		if cap(block) <= maxBlock {
			usedBlocks.Put(&block)
		}
	}
	b.free = nil
}

// lineBlocks cuts NDJSON after newlines.
type lineBlocks struct{ buffer }

func newLineBlocks(r io.Reader, o DecodeOptions) *lineBlocks { return &lineBlocks{newBuffer(r, o)} }

func (l *lineBlocks) next() (block, error) {
	for {
		data, slow, err := l.read(l.carry)
		if err != nil {
			return block{}, err
		}
		l.carry = nil
		if l.eof {
			if len(data) == 0 {
				return block{}, io.EOF
			}
			return block{data: data}, nil
		}
		if end := bytes.LastIndexByte(data, '\n') + 1; end > 0 {
			l.carry = append([]byte(nil), data[end:]...)
			return block{data: data[:end], urgent: slow}, nil
		}
		if int64(len(data)) > l.maxRow {
			return block{}, rowTooLarge(l.maxRow)
		}
		l.carry = data
	}
}

// delayReader reads ahead in a goroutine, so that fill can stop waiting.
type delayReader struct {
	delay  time.Duration
	pieces chan piece
	stop   chan struct{}
	rest   []byte
	err    error
}

type piece struct {
	data []byte
	err  error
}

// pieceBytes is what one read ahead asks for; the channel holds pieceCount of them.
const (
	pieceBytes = 64 << 10
	pieceCount = 8
)

func newDelayReader(r io.Reader, delay time.Duration) *delayReader {
	d := &delayReader{delay: delay, pieces: make(chan piece, pieceCount), stop: make(chan struct{})}
	go func() {
		for {
			buf := make([]byte, pieceBytes)
			n, err := r.Read(buf)
			select {
			case d.pieces <- piece{buf[:n], err}:
			case <-d.stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return d
}

func (d *delayReader) close() {
	select {
	case <-d.stop:
	default:
		close(d.stop)
	}
}

func (d *delayReader) fill(p []byte) (int, bool, error) {
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	var timeout <-chan time.Time // starts with the first byte that waits
	for n < len(p) {
		if d.err != nil {
			return n, false, d.err
		}
		if n > 0 && timeout == nil {
			timer := time.NewTimer(d.delay)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case next := <-d.pieces:
			m := copy(p[n:], next.data)
			d.rest, d.err = next.data[m:], next.err
			n += m
		case <-timeout:
			return n, true, nil
		case <-d.stop:
			return n, false, errs.New(errs.Closed, "the decoder is closed")
		}
	}
	return n, false, nil
}
