package rows

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

// overLimit is what a limitedAllocator panics with; guarded turns it into an error.
type overLimit struct{ limit int64 }

// limitedAllocator refuses to hand out more than a budget between two resets,
// however much a hostile body says that it needs. Memory is garbage collected;
// nothing is credited for what is freed, but for a growing buffer's old part.
type limitedAllocator struct {
	memory.GoAllocator
	limit   int64
	used    int64
	refused bool // something was over the budget
}

func (a *limitedAllocator) take(n int64) {
	if n < 0 || n > a.limit-a.used {
		a.refused = true
		panic(overLimit{a.limit})
	}
	a.used += n
}

// Allocate implements memory.Allocator.
func (a *limitedAllocator) Allocate(size int) []byte {
	a.take(int64(size))
	return a.GoAllocator.Allocate(size)
}

// Reallocate implements memory.Allocator.
func (a *limitedAllocator) Reallocate(size int, b []byte) []byte {
	a.take(max(0, int64(size)-int64(len(b))))
	return a.GoAllocator.Reallocate(size, b)
}

// guarded runs a step of a library on input from outside: a panic is a broken
// body, and what is over the budget is too large.
func guarded(what string, step func() error) (err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case overLimit:
			err = tooLarge(what, r.limit)
		case error:
			err = errs.Wrap(errs.Invalid, "read "+what, r)
		default:
			err = errs.New(errs.Invalid, "read %s: %v", what, r)
		}
	}()
	err = step()
	if err != nil && err != io.EOF && errs.ClassOf(err) == errs.Internal {
		err = errs.Wrap(errs.Invalid, "read "+what, err)
	}
	return err
}

func tooLarge(what string, limit int64) error {
	return limitError(limit, "a batch of the %s body needs more memory than the limit of %d bytes; send smaller batches", what, limit)
}

// readBounded reads n bytes, growing the buffer only as they arrive: what a
// body claims costs nothing until it is sent.
func readBounded(r io.Reader, n int64) ([]byte, error) {
	const step = 1 << 20
	buf := make([]byte, min(n, step))
	got := 0
	for {
		m, err := io.ReadFull(r, buf[got:])
		got += m
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
		if int64(got) == n {
			return buf, nil
		}
		next := make([]byte, min(n, 2*int64(len(buf))))
		copy(next, buf)
		buf = next
	}
}

// truncated names the end of a body in the middle of something.
func truncated(what string, err error) error {
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		return errs.New(errs.Invalid, "the %s body ends early: it is truncated", what)
	}
	return fmt.Errorf("read %s body: %w", what, err)
}
