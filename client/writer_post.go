package client

import (
	"bytes"
	"context"
)

// postLoop is one of the workers of an unordered writer, or the only one of an
// ordered writer whose agent offers no streams.
func (w *Writer) postLoop() {
	for {
		b := w.take(w.ctx, w.opt.InFlight)
		if b == nil {
			return
		}
		if !w.postBatch(b) {
			return
		}
	}
}

// postBatch sends a batch until it is durable; false ends the worker.
func (w *Writer) postBatch(b *batch) bool {
	for failures := 1; ; failures++ {
		err := w.postOnce(b)
		if err == nil {
			return true
		}
		if w.ctx.Err() != nil {
			return false
		}
		if retryable(err, true) {
			err = w.t.c.retry.wait(w.ctx, failures, err)
		}
		if err != nil {
			if w.ctx.Err() == nil {
				w.refused(b, err)
			}
			return false
		}
	}
}

func (w *Writer) postOnce(b *batch) error {
	ctx, cancel := context.WithTimeoutCause(w.ctx, w.opt.AckTimeout, errAckTimeout)
	defer cancel()
	o := AppendOptions{Format: Arrow, Op: w.opt.Op, Columns: w.opt.Columns, SkipBadRows: w.opt.SkipBadRows, IdempotencyKey: b.key}
	if w.opt.ProducerID != "" {
		o.Producer = &Sequence{ID: w.opt.ProducerID, First: b.first, AckedBelow: w.Acked()}
	}
	res, err := w.t.post(ctx, bytes.NewReader(b.body), o, false)
	if err != nil {
		return err
	}
	w.acked(b.id, res)
	return nil
}

// errAckTimeout stands for an agent that took a request and fell silent.
var errAckTimeout = &Error{Class: Unknown, Code: "deadline_exceeded", Message: "no acknowledgement within AckTimeout"}
