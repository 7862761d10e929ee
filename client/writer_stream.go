package client

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"connectrpc.com/connect"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// appendStream is an ordered stream of requests and their answers.
type appendStream interface {
	// send is over with the rows when it returns.
	send(head *firnv1.AppendStreamRequest, rows []byte) error
	// receive returns io.EOF when the agent says that it ends the stream. Its other
	// errors have a class.
	receive() (*firnv1.AppendStreamResponse, error)
	closeSend()
	close()
}

// openStream opens the fastest stream that the agent, and what lies before it, offer.
func (w *Writer) openStream(ctx context.Context) (appendStream, error) {
	if !w.t.c.noUpgrade.Load() {
		s, err := w.t.c.upgrade(ctx)
		if ClassOf(err) != Unsupported {
			return s, err
		}
		w.t.c.noUpgrade.Store(true)
	}
	return http2Stream{w.t.c.ordered.AppendStream(ctx)}, nil
}

// http2Stream is a stream of Connect.
type http2Stream struct {
	s *connect.BidiStreamForClient[firnv1.AppendStreamRequest, firnv1.AppendStreamResponse]
}

func (h http2Stream) send(head *firnv1.AppendStreamRequest, rows []byte) error {
	head.ArrowIpc = rows
	return h.s.Send(head)
}

func (h http2Stream) receive() (*firnv1.AppendStreamResponse, error) {
	m, err := h.s.Receive()
	if err != nil && !errors.Is(err, io.EOF) {
		err = broken(err)
	}
	return m, err
}

func (h http2Stream) closeSend() { _ = h.s.CloseRequest() }
func (h http2Stream) close()     { _ = h.s.CloseResponse() }

// streamLoop sends batches over one ordered stream at a time. After a break it
// opens another and sends again, in order, what was not acknowledged.
func (w *Writer) streamLoop() {
	failures := 0
	for {
		if err := w.await(w.ctx, func() bool { return len(w.mu.win.batches) > 0 }); err != nil {
			return
		}
		before := w.Acked()
		failedBatch, err := w.runStream()
		if w.ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		w.mu.win.rewind()
		idle := len(w.mu.win.batches) == 0
		w.mu.Unlock()
		switch {
		case idle: // an agent that went away while nothing was in flight
			failures = 0
			continue
		case ClassOf(err) == Unsupported:
			w.opt.InFlight = 1 // keeps the order without a stream
			w.postLoop()
			return
		case !retryable(err, true):
			w.refused(failedBatch, err)
			return
		}
		if w.Acked() > before {
			failures = 0
		}
		failures++
		if err := w.t.c.retry.wait(w.ctx, failures, err); err != nil {
			if w.ctx.Err() == nil {
				w.refused(failedBatch, err)
			}
			return
		}
	}
}

// runStream uses one stream until it breaks; it returns why, and the batch at
// fault when the agent named one.
func (w *Writer) runStream() (*batch, error) {
	ctx, cancel := context.WithCancelCause(w.ctx)
	defer cancel(nil)
	watch := time.AfterFunc(w.opt.AckTimeout, func() { cancel(errAckTimeout) })
	defer watch.Stop()

	stream, err := w.openStream(ctx)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errAckTimeout) {
			err = errAckTimeout
		}
		return nil, err
	}
	sent := make(chan struct{})
	go func() { // ends with ctx, or when the stream does
		defer close(sent)
		w.sendAll(ctx, stream, watch)
	}()
	failed, err := w.receiveAll(stream, watch)
	if cause := context.Cause(ctx); errors.Is(cause, errAckTimeout) {
		err = errAckTimeout
	}
	cancel(nil)
	<-sent
	return failed, err
}

// sendAll sends batches as they come; what goes wrong is told by the receiving
// side.
func (w *Writer) sendAll(ctx context.Context, stream appendStream, watch *time.Timer) {
	defer stream.closeSend()
	first := true
	for {
		b := w.take(ctx, w.opt.InFlight)
		if b == nil {
			return
		}
		req := &firnv1.AppendStreamRequest{RequestId: b.id, IdempotencyKey: b.key}
		if w.opt.ProducerID != "" {
			acked := w.Acked()
			req.FirstSequence, req.AckedBelow = &b.first, &acked
		}
		if first {
			req.Database, req.Table, req.ProducerId = w.t.database, w.t.name, w.opt.ProducerID
			req.Op, req.Columns, req.SkipBadRows = string(w.opt.Op), w.opt.Columns, w.opt.SkipBadRows
			first = false
		}
		w.mu.Lock()
		alone := w.mu.win.inFlight == 1
		rows := b.body
		w.mu.Unlock()
		if alone { // the others' time runs already
			watch.Reset(w.opt.AckTimeout)
		}
		if err := stream.send(req, rows); err != nil {
			return
		}
		w.mu.Lock()
		b.busy = false
		w.mu.Unlock()
	}
}

// receiveAll settles batches by the agent's answers until the stream ends.
func (w *Writer) receiveAll(stream appendStream, watch *time.Timer) (*batch, error) {
	defer stream.close()
	for {
		resp, err := stream.receive()
		if errors.Is(err, io.EOF) { // ended in good order: an agent that shuts down
			return nil, &Error{Class: Unavailable, Code: "unavailable", Message: "the agent ended the stream"}
		}
		if err != nil {
			return nil, err
		}
		switch out := resp.Outcome.(type) {
		case *firnv1.AppendStreamResponse_Result:
			w.acked(resp.RequestId, out.Result)
			w.rearm(watch)
		case *firnv1.AppendStreamResponse_Error:
			w.mu.Lock()
			b := w.mu.win.find(resp.RequestId)
			w.mu.Unlock()
			return b, fromStream(out.Error)
		}
	}
}

// broken classifies the end of a stream that no answer explains.
func broken(err error) error {
	err = fromConnect(err)
	var e *Error
	if !errors.As(err, &e) {
		return err
	}
	switch {
	case strings.Contains(e.Message, "505 HTTP Version Not Supported"): // HTTP/1.1 only: no streams both ways
		e.Class = Unsupported
	case e.Class == Canceled && e.cause != nil: // reset by something in between; our own end is seen by the caller
		e.Class = Unknown
	}
	return e
}

// rearm gives the oldest batch in flight its time, or none when all are settled.
func (w *Writer) rearm(watch *time.Timer) {
	w.mu.Lock()
	waiting := w.mu.win.inFlight > 0
	w.mu.Unlock()
	if waiting {
		watch.Reset(w.opt.AckTimeout)
	} else {
		watch.Stop()
	}
}
