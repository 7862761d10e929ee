package segments

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/firn-data/firn/internal/errs"
)

// run is rows [off, off+n) of d's buffers, with n > 0. Several runs make an array.
type run struct {
	d      arrow.ArrayData
	off, n int
}

// column is the values of an array without children, in one piece.
type column struct {
	n       int
	valid   []byte // validity bits from validOff on; nil: nothing is NULL
	flags   []byte // of booleans, from flagsOff on
	values  []byte // of fixed width
	offsets []int32
	data    []byte // of strings and binaries

	validOff, flagsOff int
}

// minRoom is what scratch has at least: Go aligns smaller blocks to less than the
// numbers in them need.
const minRoom = 64

// room returns n bytes of a scratch buffer.
func room(scratch *[]byte, n int) []byte {
	if cap(*scratch) < n || cap(*scratch) == 0 {
		*scratch = make([]byte, max(n+n/4, minRoom))
	}
	*scratch = (*scratch)[:cap(*scratch)]
	return (*scratch)[:n]
}

// array stores the node and buffers of n rows that the runs hold, and of their
// children. The returned column is good until the next call.
func (e *encoder) array(t Type, runs []run, n int) (column, error) {
	col := column{n: n}
	nulls, err := e.validity(runs, n, &col)
	if err != nil {
		return col, err
	}
	e.chunk.Nodes = append(e.chunk.Nodes, Node{Length: int64(n), NullCount: int64(nulls)})
	switch t.Kind {
	case Boolean:
		if col.flags, err = joinBits(&e.flags, runs, 1, n); err == nil {
			err = e.buffer(col.flags)
		}
	case String, Binary:
		err = e.texts(runs, n, &col)
	case List, Map:
		err = e.lists(t.element(), runs, n)
	case Struct:
		err = e.fields(t.Children, runs, n)
	default:
		err = e.fixed(t.width(), runs, n, &col)
	}
	return col, err
}

// validity stores the validity bitmap.
// INVARIANT(seg-4): it is empty exactly when nothing is NULL, and its spare bits are zero.
func (e *encoder) validity(runs []run, n int, col *column) (nulls int, err error) {
	for _, r := range runs {
		if b := buf(r.d.Buffers(), 0); len(b) > 0 {
			if len(b) < bytesForBits(r.off+r.n) {
				return 0, malformed("a bitmap is short")
			}
			nulls += r.n - bitutil.CountSetBits(b, r.off, r.n)
		}
	}
	if nulls == 0 {
		return 0, e.buffer(nil)
	}
	if col.valid, err = joinBits(&e.bitmap, runs, 0, n); err != nil {
		return 0, err
	}
	return nulls, e.buffer(col.valid)
}

// joinBits joins the bits of one of the runs' buffers in scratch, the tail of the last
// byte zero. A validity bitmap that is missing is all ones.
func joinBits(scratch *[]byte, runs []run, buffer, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	out := room(scratch, bytesForBits(n))
	out[len(out)-1] = 0
	at := 0
	for _, r := range runs {
		b := buf(r.d.Buffers(), buffer)
		switch {
		case buffer == 0 && len(b) == 0:
			bitutil.SetBitsTo(out, int64(at), int64(r.n), true)
		case len(b) < bytesForBits(r.off+r.n):
			return nil, malformed("a bitmap is short")
		default:
			bitutil.CopyBitmap(b, r.off, r.n, out, at)
		}
		at += r.n
	}
	return out, nil
}

// fixed stores values of w bytes each.
func (e *encoder) fixed(w int, runs []run, n int, col *column) error {
	pieces := func(r run) ([]byte, error) {
		b := buf(r.d.Buffers(), 1)
		if len(b) < (r.off+r.n)*w {
			return nil, malformed("a buffer is short")
		}
		return b[r.off*w : (r.off+r.n)*w], nil
	}
	var err error
	if col.values, err = join(&e.values, runs, n*w, pieces); err != nil {
		return err
	}
	return e.buffer(col.values)
}

// join puts one piece of each run, total bytes in all, one after the other. The
// piece of a single run is not copied.
func join(scratch *[]byte, runs []run, total int, piece func(run) ([]byte, error)) ([]byte, error) {
	if len(runs) == 1 {
		return piece(runs[0])
	}
	if total > MaxSegmentBytes {
		return nil, errs.New(errs.TooLarge, "a segment holds at most %d bytes before compression", int64(MaxSegmentBytes))
	}
	out := room(scratch, total)
	at := 0
	for _, r := range runs {
		p, err := piece(r)
		if err != nil {
			return nil, err
		}
		at += copy(out[at:], p)
	}
	return out, nil
}

// texts stores the offsets and bytes of strings or binaries.
func (e *encoder) texts(runs []run, n int, col *column) error {
	total, err := e.offsets(runs, n, col, func(r run) int { return len(buf(r.d.Buffers(), 2)) })
	if err != nil {
		return err
	}
	col.data, err = join(&e.values, runs, total, func(r run) ([]byte, error) {
		first, last := r.covered()
		return buf(r.d.Buffers(), 2)[first:last], nil
	})
	if err != nil {
		return err
	}
	return e.buffer(col.data)
}

// lists stores the offsets of lists or maps, and their items.
func (e *encoder) lists(item Type, runs []run, n int) error {
	var col column
	total, err := e.offsets(runs, n, &col, func(r run) int { return r.d.Children()[0].Len() })
	if err != nil {
		return err
	}
	items := make([]run, 0, len(runs))
	for _, r := range runs {
		child := r.d.Children()[0]
		if first, last := r.covered(); last > first {
			items = append(items, run{child, child.Offset() + first, last - first})
		}
	}
	_, err = e.array(item, items, total)
	return err
}

// fields stores the columns of structs.
func (e *encoder) fields(children []Field, runs []run, n int) error {
	inner := make([]run, len(runs))
	for i := range children {
		for j, r := range runs {
			c := r.d.Children()[i]
			if c.Len() < r.off+r.n {
				return malformed("a struct's child is short")
			}
			inner[j] = run{c, c.Offset() + r.off, r.n}
		}
		if _, err := e.array(children[i].Type, inner, n); err != nil {
			return err
		}
	}
	return nil
}

// covered returns the range of the values that a run's offsets, which were
// checked, cover.
func (r run) covered() (first, last int) {
	o := int32s(buf(r.d.Buffers(), 1))
	return int(o[r.off]), int(o[r.off+r.n])
}

// offsets stores n+1 offsets that start at zero, and returns where they end. It
// refuses offsets that Decode would refuse; values tells how many a run has.
// INVARIANT(seg-2): offsets start at zero, never fall, and end at the values' end.
func (e *encoder) offsets(runs []run, n int, col *column, values func(run) int) (total int, err error) {
	if n == 0 {
		return 0, e.buffer(nil)
	}
	if len(runs) == 1 {
		if b := buf(runs[0].d.Buffers(), 1); len(b) >= 4*(runs[0].off+n+1) && int32s(b)[runs[0].off] == 0 {
			return e.offsetsAsTheyAre(b[4*runs[0].off:4*(runs[0].off+n+1)], col, values(runs[0]))
		}
	}
	out := room(&e.words, 4*(n+1))
	col.offsets = int32s(out)
	at := 0
	for _, r := range runs {
		b := buf(r.d.Buffers(), 1)
		if len(b) < 4*(r.off+r.n+1) {
			return 0, malformed("an offset buffer is short")
		}
		o := int32s(b)[r.off : r.off+r.n+1]
		if !ascending(o) {
			return 0, malformed("offsets fall")
		}
		if int(o[r.n]) > values(r) {
			return 0, malformed("offsets leave their values")
		}
		if total+int(o[r.n]-o[0]) > MaxSegmentBytes {
			return 0, errs.New(errs.TooLarge, "a segment holds at most %d bytes before compression", int64(MaxSegmentBytes))
		}
		shift := int32(total) - o[0]
		into := col.offsets[at : at+len(o)]
		for i, v := range o {
			into[i] = v + shift
		}
		at += r.n
		total = int(col.offsets[at])
	}
	return total, e.buffer(out)
}

// offsetsAsTheyAre stores offsets that start at zero already.
func (e *encoder) offsetsAsTheyAre(b []byte, col *column, values int) (total int, err error) {
	col.offsets = int32s(b)
	if !ascending(col.offsets) {
		return 0, malformed("offsets fall")
	}
	if total = int(col.offsets[len(col.offsets)-1]); total > values {
		return 0, malformed("offsets leave their values")
	}
	return total, e.buffer(b)
}

// ascending reports whether offsets begin at zero or above and never fall.
func ascending(o []int32) bool {
	prev := int32(0)
	for _, v := range o {
		if v < prev {
			return false
		}
		prev = v
	}
	return true
}
