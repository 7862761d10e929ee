package wal

import (
	"slices"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// run is the sequencing goroutine: it alone cuts, mints positions, and decides
// what is acknowledged. Without work it waits on a channel and on no timer
// (INVARIANT(wal-10)).
func (l *Log) run() {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	defer timer.Stop()
	for {
		next, end := l.step(time.Now())
		if end {
			break
		}
		var due <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			due = timer.C
		}
		select {
		case <-l.wake:
		case <-due:
		}
		timer.Stop()
	}
	l.cancel()
	notify(l.complete)
}

// step applies the news, then does everything that is possible now. It returns
// when to be called again without news (zero: never), and whether the log is over.
func (l *Log) step(now time.Time) (next time.Time, end bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.mu.events
	l.mu.events = nil
	for _, e := range events {
		l.apply(e)
	}
	l.acknowledge()
	if l.mu.done && l.mu.fatal == nil && l.undecided() {
		l.fail(errs.New(errs.Closed, "the log was closed before everything was durable"), nil)
	}
	if l.mu.fatal != nil || l.mu.done {
		l.mu.sealed = l.mu.done
		return time.Time{}, l.mu.done
	}
	for {
		l.dispatch()
		cutNow, at := l.due(now)
		if !cutNow {
			return at, false
		}
		c := l.mu.batch.cut()
		l.mu.cutUpTo += uint64(len(c.entries))
		l.mu.queue = append(l.mu.queue, c)
		l.startEncode(c)
	}
}

// undecided reports whether some entries are neither durable nor failed.
func (l *Log) undecided() bool {
	return len(l.mu.batch.entries) > 0 || len(l.mu.queue) > 0 || l.mu.seq.outstanding() > 0
}

func (l *Log) due(now time.Time) (bool, time.Time) {
	idle := len(l.mu.queue) == 0 && l.mu.seq.outstanding() == 0
	room := len(l.mu.queue) == 0 && l.mu.seq.ready()
	ahead := len(l.mu.queue) < encodeAhead
	return l.mu.batch.due(now, idle, room, ahead, l.mu.cutUpTo < l.mu.flushUpTo)
}

func (l *Log) apply(e event) {
	if l.mu.fatal != nil {
		return // answered already
	}
	switch e.kind {
	case evEncoded:
		e.cut.encoding = false
		if e.err != nil {
			l.fail(e.err, nil)
		}
	case evUnknown:
		l.mu.seq.unknown(e.cut.seq)
		l.mu.stats.Retries++
	case evCreated:
		l.mu.seq.created(e.cut.seq)
	case evFailed:
		l.fail(e.err, e.cut)
	}
}

func (c *cut) id(l *Log) ObjectID { return ObjectID{l.opts.Incarnation, c.seq} }

// dispatch puts encoded cuts at the next positions, in order.
func (l *Log) dispatch() {
	for len(l.mu.queue) > 0 && !l.mu.queue[0].encoding {
		seq, ok := l.mu.seq.dispatch()
		if !ok {
			return
		}
		c := l.mu.queue[0]
		l.mu.queue = l.mu.queue[1:]
		l.mu.timestamp = max(l.mu.timestamp, l.opts.Now().UnixMicro())
		c.seq = seq
		c.footer.Timestamp = l.mu.timestamp
		l.mu.flights[seq] = c
		l.work.Go(func() { l.put(c) })
	}
}

// acknowledge completes every object that is next in order.
func (l *Log) acknowledge() {
	for {
		seq, ok := l.mu.seq.ack()
		if !ok {
			return
		}
		c := l.mu.flights[seq]
		delete(l.mu.flights, seq)
		l.mu.stats.Objects++
		l.mu.stats.Bytes += int64(len(c.object))
		l.mu.stats.Segments += int64(len(c.groups))
		commit := &Committed{ID: c.id(l), Size: int64(len(c.object)), Segments: c.footer.Segments, Object: c.object}
		for _, g := range c.groups {
			commit.Rows = append(commit.Rows, g.batches)
			l.mu.stats.Rows += g.rows
		}
		result := Result{Object: commit.ID, Timestamp: c.footer.Timestamp}
		l.push(completion{commit: commit, entries: c.entries, results: func(int) Result { return result }})
	}
}

func (l *Log) push(c completion) {
	l.mu.completions = append(l.mu.completions, c)
	notify(l.complete)
}

// fail stops the log for good: nothing is minted or acknowledged any more, and
// every waiter gets a retryable error. at is the cut whose put found out, or nil.
func (l *Log) fail(cause error, at *cut) {
	l.mu.seq.stop()
	l.mu.fatal = cause
	l.cancel()
	l.room.close(l.stoppedError())

	// A position is surely lost when the log surely ends at or before it.
	lostFrom := l.mu.seq.next
	if at != nil && !errs.Is(cause, errs.Unknown) && !errs.Is(cause, errs.Corrupt) {
		lostFrom = at.seq
	}
	var c completion
	var lost []bool
	add := func(entries []Entry, surely bool) {
		for _, e := range entries {
			c.entries = append(c.entries, e)
			lost = append(lost, surely)
		}
	}
	for seq := l.mu.seq.acked; seq < l.mu.seq.next; seq++ {
		add(l.mu.flights[seq].entries, seq >= lostFrom)
	}
	for _, q := range l.mu.queue {
		add(q.entries, true)
	}
	for _, w := range l.mu.batch.entries {
		add([]Entry{w.Entry}, true)
	}
	clear(l.mu.flights)
	l.mu.queue, l.mu.batch.entries, l.mu.batch.tails = nil, nil, nil
	notWritten := l.stoppedError()
	open := &errs.Error{Class: errs.Unknown, Op: "append rows", RetryAfter: roomRetryAfter, Cause: cause,
		Msg: "the write-ahead log of " + l.opts.Incarnation + " stopped before the outcome was known; retry"}
	c.fatal = cause
	c.results = func(i int) Result {
		if lost[i] {
			return Result{Err: notWritten}
		}
		return Result{Err: open}
	}
	l.push(c)
}

// completer calls back, in order, until the log is over.
func (l *Log) completer() {
	for {
		l.mu.Lock()
		batch := l.mu.completions
		over := l.mu.sealed && len(batch) == 0
		l.mu.Unlock()
		if over {
			return
		}
		if len(batch) == 0 {
			<-l.complete
			continue
		}
		for i := range batch {
			l.callBack(&batch[i])
		}
		l.mu.Lock()
		clear(l.mu.completions[:len(batch)]) // here, because push copies what it outgrows
		l.mu.completions = l.mu.completions[len(batch):]
		l.answerFlushers()
		l.mu.Unlock()
		notify(l.wake)
	}
}

func (l *Log) callBack(c *completion) {
	if c.commit != nil && l.opts.OnCommit != nil {
		l.opts.OnCommit(*c.commit)
	}
	if c.fatal != nil && !errs.Is(c.fatal, errs.Closed) {
		l.opts.Logger.Error("write-ahead log stopped", "incarnation", l.opts.Incarnation, "error", c.fatal)
		if l.opts.OnFatal != nil {
			l.opts.OnFatal(c.fatal)
		}
	}
	var bytes int64
	for i := range c.entries {
		bytes += c.entries[i].Bytes + entryOverhead
		if done := c.entries[i].Done; done != nil {
			done(c.results(i))
		}
	}
	l.room.give(bytes)
	if c.commit != nil {
		l.mu.Lock()
		l.mu.durable += uint64(len(c.entries))
		l.mu.Unlock()
	}
}

// answerFlushers tells those whose entries are all answered.
func (l *Log) answerFlushers() {
	l.mu.flushers = slices.DeleteFunc(l.mu.flushers, func(f flusher) bool {
		switch {
		case l.mu.durable >= f.upTo:
			f.done <- nil
		case l.mu.fatal != nil && len(l.mu.completions) == 0:
			f.done <- l.stoppedError()
		default:
			return false
		}
		return true
	})
}

// post reports news to run.
func (l *Log) post(e event) {
	l.mu.Lock()
	l.mu.events = append(l.mu.events, e)
	l.mu.Unlock()
	notify(l.wake)
}
