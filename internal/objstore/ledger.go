package objstore

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// listPage is the page size that a store answers a listing in; the ledger
// counts a listing as one call a page.
const listPage = 1000

// Call is one finished store operation, as an Observer hears of it.
type Call struct {
	Op    Op
	Class string // KeyClass of the key or list prefix
	Bytes int64  // of the body, read or written
	Took  time.Duration
	Err   error
}

// Observer hears of every call. It must not block and must be safe for
// concurrent use.
type Observer func(Call)

// Ledger wraps a store and counts what is asked of it, by operation and key
// class. It is how tests assert request budgets and how metrics are fed.
type Ledger struct {
	inner    Store
	observer Observer

	mu   sync.Mutex
	rows map[ledgerKey]*LedgerRow
}

type ledgerKey struct {
	op    Op
	class string
}

// LedgerRow is the total of one operation on one key class. A listing counts
// one call for each 1,000 objects begun; an "exists" answer counts in Lost.
type LedgerRow struct {
	Op     Op
	Class  string
	Calls  int64
	Errors int64 // calls that returned an error other than NotFound
	Lost   int64 // conditional puts answered "exists"
	Bytes  int64
	Took   time.Duration
}

// NewLedger wraps inner. observer may be nil.
func NewLedger(inner Store, observer Observer) *Ledger {
	return &Ledger{inner: inner, observer: observer, rows: make(map[ledgerKey]*LedgerRow)}
}

// Unwrap returns the store below.
func (l *Ledger) Unwrap() Store { return l.inner }

func (l *Ledger) note(op Op, key string, calls, bytes int64, begun time.Time, lost bool, err error) {
	call := Call{Op: op, Class: KeyClass(key), Bytes: bytes, Took: time.Since(begun), Err: err}
	l.add(call, calls, lost)
	if l.observer != nil {
		l.observer(call)
	}
}

func (l *Ledger) add(call Call, calls int64, lost bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := ledgerKey{call.Op, call.Class}
	row := l.rows[k]
	if row == nil {
		row = &LedgerRow{Op: call.Op, Class: call.Class}
		l.rows[k] = row
	}
	row.Calls += calls
	row.Bytes += call.Bytes
	row.Took += call.Took
	if call.Err != nil && !errs.Is(call.Err, errs.NotFound) {
		row.Errors++
	}
	if lost {
		row.Lost++
	}
}

// Snapshot returns the totals so far, ordered by operation and class.
func (l *Ledger) Snapshot() LedgerSnapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	rows := make(LedgerSnapshot, 0, len(l.rows))
	for _, row := range l.rows {
		rows = append(rows, *row)
	}
	rows.sort()
	return rows
}

// LedgerSnapshot is a copy of a ledger's rows.
type LedgerSnapshot []LedgerRow

func (s LedgerSnapshot) sort() {
	slices.SortFunc(s, func(a, b LedgerRow) int {
		return cmp.Or(cmp.Compare(a.Op, b.Op), cmp.Compare(a.Class, b.Class))
	})
}

// Since returns what was added after an earlier snapshot; rows without a new
// call are left out.
func (s LedgerSnapshot) Since(earlier LedgerSnapshot) LedgerSnapshot {
	before := make(map[ledgerKey]LedgerRow, len(earlier))
	for _, row := range earlier {
		before[ledgerKey{row.Op, row.Class}] = row
	}
	var diff LedgerSnapshot
	for _, row := range s {
		b := before[ledgerKey{row.Op, row.Class}]
		row.Calls -= b.Calls
		row.Errors -= b.Errors
		row.Lost -= b.Lost
		row.Bytes -= b.Bytes
		row.Took -= b.Took
		if row.Calls != 0 {
			diff = append(diff, row)
		}
	}
	return diff
}

// Calls counts the calls of one operation on one class; an empty class means
// all of them.
func (s LedgerSnapshot) Calls(op Op, class string) int64 {
	return s.sum(op, class, func(r LedgerRow) int64 { return r.Calls })
}

// Bytes sums the bytes of one operation on one class; an empty class means all
// of them.
func (s LedgerSnapshot) Bytes(op Op, class string) int64 {
	return s.sum(op, class, func(r LedgerRow) int64 { return r.Bytes })
}

// Puts counts plain and conditional puts on a class; an empty class means all.
func (s LedgerSnapshot) Puts(class string) int64 {
	return s.Calls(OpPut, class) + s.Calls(OpPutIfAbsent, class)
}

// Gets counts reads (whole, ranged, head) on a class; an empty class means all.
func (s LedgerSnapshot) Gets(class string) int64 {
	return s.Calls(OpGet, class) + s.Calls(OpGetRange, class) + s.Calls(OpHead, class)
}

func (s LedgerSnapshot) sum(op Op, class string, f func(LedgerRow) int64) (total int64) {
	for _, row := range s {
		if row.Op == op && (class == "" || class == row.Class) {
			total += f(row)
		}
	}
	return total
}

// Get counts and passes on.
func (l *Ledger) Get(ctx context.Context, key string) ([]byte, Info, error) {
	begun := time.Now()
	body, info, err := l.inner.Get(ctx, key)
	l.note(OpGet, key, 1, int64(len(body)), begun, false, err)
	return body, info, err
}

// GetRange counts and passes on.
func (l *Ledger) GetRange(ctx context.Context, key string, start, n int64) ([]byte, Info, error) {
	begun := time.Now()
	body, info, err := l.inner.GetRange(ctx, key, start, n)
	l.note(OpGetRange, key, 1, int64(len(body)), begun, false, err)
	return body, info, err
}

// Head counts and passes on.
func (l *Ledger) Head(ctx context.Context, key string) (Info, error) {
	begun := time.Now()
	info, err := l.inner.Head(ctx, key)
	l.note(OpHead, key, 1, 0, begun, false, err)
	return info, err
}

// Put counts and passes on.
func (l *Ledger) Put(ctx context.Context, key string, body []byte) error {
	begun := time.Now()
	err := l.inner.Put(ctx, key, body)
	l.note(OpPut, key, 1, int64(len(body)), begun, false, err)
	return err
}

// PutIfAbsent counts and passes on.
func (l *Ledger) PutIfAbsent(ctx context.Context, key string, body []byte) (Outcome, error) {
	begun := time.Now()
	outcome, err := l.inner.PutIfAbsent(ctx, key, body)
	l.note(OpPutIfAbsent, key, 1, int64(len(body)), begun, outcome == Exists, err)
	return outcome, err
}

// List counts one call for each page begun and passes on.
func (l *Ledger) List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error] {
	return func(yield func(Info, error) bool) {
		begun, seen := time.Now(), int64(0)
		var failed error
		defer func() { l.note(OpList, prefix, 1+max(0, seen-1)/listPage, 0, begun, false, failed) }()
		for info, err := range l.inner.List(ctx, prefix, startAfter) {
			if err != nil {
				failed = err
			} else {
				seen++
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// Delete counts and passes on.
func (l *Ledger) Delete(ctx context.Context, key string) error {
	begun := time.Now()
	err := l.inner.Delete(ctx, key)
	l.note(OpDelete, key, 1, 0, begun, false, err)
	return err
}

// URL names the store below.
func (l *Ledger) URL() string { return l.inner.URL() }

// Close closes the store below.
func (l *Ledger) Close() error { return l.inner.Close() }
