package wal

import (
	"context"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// encodeAhead is how many cuts may be encoded, or wait encoded, before a position
// is free for them: enough to keep the puts busy, few enough to bound memory.
const encodeAhead = 2

// entryOverhead is what an entry costs in memory beside its rows, charged against
// MaxPendingBytes so that many tiny entries are bounded too.
const entryOverhead = 256

// Log is the write-ahead log of one incarnation: it turns entries into WAL
// objects and says when they are durable.
//
// One goroutine (run) owns every decision; encoders, puts and the completer only
// report to it. mu guards the fields in the struct it heads and is never held
// over I/O, encoding or a callback.
type Log struct {
	opts Options
	room room

	wake     chan struct{} // run looks at mu.events
	complete chan struct{} // the completer looks at mu.completions
	encoders chan struct{} // one token for each goroutine that encodes

	lifetime context.Context // of puts
	cancel   context.CancelFunc
	work     sync.WaitGroup // encoders and puts
	loops    sync.WaitGroup // run and the completer

	mu struct {
		sync.Mutex
		opened  bool
		closing bool  // no more intake
		done    bool  // nobody waits for anything any more
		sealed  bool  // run is over: no more completions come
		fatal   error // why the log stopped for good

		batch     batcher
		seq       sequencer
		queue     []*cut // cut, not dispatched, in order; at most encodeAhead
		flights   map[uint64]*cut
		events    []event
		timestamp int64 // of the newest dispatched object, µs

		completions []completion // at most MaxInFlight+1 objects, plus the last one of a failed log

		appended  uint64 // entries accepted
		durable   uint64 // entries whose Done returned, with success
		flushUpTo uint64 // cut without waiting until this many entries are cut
		cutUpTo   uint64 // entries cut
		flushers  []flusher

		stats Stats
	}
}

// event is news for run.
type event struct {
	kind eventKind
	cut  *cut
	err  error
}

type eventKind uint8

const (
	evEncoded eventKind = iota
	evCreated
	evUnknown // an attempt ended without an outcome
	evFailed  // the put ended for good without our object standing there
)

type flusher struct {
	upTo uint64
	done chan error // gets one value
}

// completion is one batch of callbacks.
type completion struct {
	commit  *Committed // of a durable object
	fatal   error      // of the log's end: OnFatal is called first
	entries []Entry
	results func(i int) Result
}

// New checks the options. Errors: Invalid.
func New(o Options) (*Log, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Log{
		opts:     o,
		wake:     make(chan struct{}, 1),
		complete: make(chan struct{}, 1),
		encoders: make(chan struct{}, o.EncodeWorkers),
	}
	l.room.limit = o.MaxPendingBytes
	l.mu.batch = batcher{flushBytes: o.FlushBytes, flushAge: o.FlushAge, floor: o.FlushFloor}
	l.mu.seq = newSequencer(o.NextSeq, o.InFlight)
	l.mu.flights = make(map[uint64]*cut)
	return l, nil
}

// Open starts the log's goroutines. It touches no store: the first put does. The
// context bounds Open alone.
func (l *Log) Open(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.opened {
		return errs.New(errs.Internal, "wal: opened twice")
	}
	l.mu.opened = true
	l.lifetime, l.cancel = context.WithCancel(context.Background())
	l.loops.Go(l.run)
	l.loops.Go(l.completer)
	return nil
}

// Append hands entries over, all or none. It blocks until there is room for
// their bytes or ctx ends; after it returned nil, each entry's Done will be
// called once. Consecutive calls for one bucket must come in offset order.
//
// Errors, each meaning that nothing was taken: Exhausted (no room in time; with
// RetryAfter), TooLarge, Canceled, Closed, Unavailable (the log stopped for good),
// Internal (offsets not dense), Invalid.
func (l *Log) Append(ctx context.Context, entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	var bytes int64
	for i := range entries {
		if err := checkEntry(&entries[i]); err != nil {
			return err
		}
		bytes += entries[i].Bytes + entryOverhead
	}
	if err := l.room.take(ctx, bytes); err != nil {
		return err
	}
	if err := l.accept(entries); err != nil {
		l.room.give(bytes)
		return err
	}
	notify(l.wake)
	return nil
}

func (l *Log) accept(entries []Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.fatal != nil:
		return l.stoppedError()
	case l.mu.closing || !l.mu.opened:
		return errs.New(errs.Closed, "the log is closed")
	}
	if err := l.mu.batch.check(entries); err != nil {
		return err
	}
	l.mu.batch.add(entries, time.Now())
	l.mu.appended += uint64(len(entries))
	return nil
}

// stoppedError is what callers get after the log stopped for good. They retry,
// and reach the next owner.
func (l *Log) stoppedError() error {
	return &errs.Error{Class: errs.Unavailable, Op: "append rows", RetryAfter: roomRetryAfter,
		Msg: "the write-ahead log of " + l.opts.Incarnation + " stopped; retry", Cause: l.mu.fatal}
}

// Flush writes what was handed over before it at once, and returns when it is
// durable and answered. Errors: Canceled when ctx ended first, Unavailable when
// the log stopped.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	if l.mu.fatal != nil {
		defer l.mu.Unlock()
		return l.stoppedError()
	}
	upTo := l.mu.appended
	if l.mu.durable >= upTo {
		l.mu.Unlock()
		return nil
	}
	f := flusher{upTo, make(chan error, 1)}
	l.mu.flushers = append(l.mu.flushers, f)
	l.mu.flushUpTo = max(l.mu.flushUpTo, upTo)
	l.mu.Unlock()
	notify(l.wake)

	select {
	case err := <-f.done:
		return err
	case <-ctx.Done():
		return errs.Wrap(errs.Canceled, "flush log", ctx.Err())
	}
}

// Close stops intake, writes what was handed over, and waits for it until ctx
// ends; then it gives up what is still open (those entries get a result of class
// Unavailable or Unknown). It returns after every callback has returned. Errors:
// Canceled when something was given up, or what stopped the log before.
func (l *Log) Close(ctx context.Context) error {
	l.mu.Lock()
	if !l.mu.opened {
		l.mu.Unlock()
		return nil
	}
	l.mu.closing = true
	l.mu.Unlock()
	l.room.close(errs.New(errs.Closed, "the log is closed"))

	err := l.Flush(ctx)
	l.mu.Lock()
	l.mu.done = true
	l.mu.Unlock()
	notify(l.wake)
	l.loops.Wait()
	l.work.Wait()
	return err
}

// Stats is what a log is doing and has done.
type Stats struct {
	NextSeq      uint64 // next position to write
	AckedSeq     uint64 // every position below it is durable and acknowledged
	InFlight     int    // puts under way
	Uncertain    int    // of them with an unknown outcome
	Queued       int    // cuts encoding or waiting for a position
	PendingBytes int64  // handed over and not answered
	Objects      int64  // written
	Bytes        int64  // of those objects
	Rows         int64  // in them
	Segments     int64
	Retries      int64 // attempts that ended without an outcome
	Stopped      error // why the log stopped for good
}

// Stats returns a snapshot for metrics.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	s := l.mu.stats
	s.NextSeq, s.AckedSeq = l.mu.seq.next, l.mu.seq.acked
	s.InFlight, s.Uncertain = len(l.mu.flights), l.mu.seq.uncertain
	s.Queued = len(l.mu.queue)
	s.Stopped = l.mu.fatal
	l.mu.Unlock()
	s.PendingBytes = l.room.inUse()
	return s
}

// notify wakes the one goroutine that reads c; a wake-up that is already waiting
// is enough.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
