package wal

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
)

// startEncode encodes a cut's groups in parallel and posts evEncoded when all are
// done. Called under mu; it only starts goroutines.
func (l *Log) startEncode(c *cut) {
	c.encoding = true
	workers := min(len(c.groups), l.opts.EncodeWorkers)
	var next, failed atomic.Int64
	var open atomic.Int64
	open.Store(int64(workers))
	first := make(chan error, workers)
	for range workers {
		l.work.Go(func() {
			l.encoders <- struct{}{}
			for failed.Load() == 0 {
				i := int(next.Add(1)) - 1
				if i >= len(c.groups) {
					break
				}
				if err := c.groups[i].encode(l.opts.Codec); err != nil {
					failed.Store(1)
					first <- err
				}
			}
			<-l.encoders
			if open.Add(-1) > 0 {
				return
			}
			var err error
			select {
			case err = <-first:
			default:
			}
			l.post(event{kind: evEncoded, cut: c, err: err})
		})
	}
}

// encode encodes the group's batches as one segment.
func (g *group) encode(codec segments.Codec) error {
	if g.rows == 0 {
		g.encoded = &segments.Encoded{}
		return nil
	}
	enc, err := segments.EncodeAll(g.batches, g.schema, codec)
	if err != nil {
		return errs.In("encode rows of bucket "+g.bucket.String(), err)
	}
	if enc.Rows != g.rows {
		return errs.New(errs.Internal, "bucket %s: %d rows encoded of %d", g.bucket, enc.Rows, g.rows)
	}
	g.encoded = enc
	return nil
}

// assemble builds the object of a dispatched cut: header, bodies, footer.
func (c *cut) assemble(id ObjectID, codec segments.Codec, random io.Reader) error {
	h := header{kind: kindData, codec: uint8(codec), id: id}
	if _, err := io.ReadFull(random, h.nonce[:]); err != nil {
		return errs.Wrap(errs.Internal, "read random nonce", err)
	}
	at := int64(h.size())
	c.footer.Segments = make([]Segment, len(c.groups))
	for i, g := range c.groups {
		at = (at + alignBytes - 1) / alignBytes * alignBytes
		c.footer.Segments[i] = Segment{
			Bucket: g.bucket, SchemaID: g.schema.ID, BaseOffset: g.base, Rows: g.rows,
			Timestamp: c.footer.Timestamp, BodyOff: at, BodyLen: int64(len(g.encoded.Body)),
			RawBytes: g.bytes, Columns: g.encoded.Columns, Producers: g.deltas,
		}
		at += int64(len(g.encoded.Body))
	}
	// The footer comes first, so that the object has its length from the start: a
	// copy of it because of a footer longer than was thought costs as much as a put.
	footer, err := appendFooter(nil, &h, &c.footer)
	if err != nil {
		return err
	}
	b := h.append(make([]byte, 0, at+int64(len(footer))))
	for i, g := range c.groups {
		for int64(len(b)) < c.footer.Segments[i].BodyOff {
			b = append(b, 0)
		}
		b = append(b, g.encoded.Body...)
		g.encoded.Recycle()
		g.encoded = nil
	}
	c.object = append(b, footer...)
	return nil
}

// put writes a dispatched cut and posts what came of it.
func (l *Log) put(c *cut) {
	if err := c.assemble(c.id(l), l.opts.Codec, l.opts.Rand); err != nil {
		l.post(event{kind: evFailed, cut: c, err: err})
		return
	}
	policy := l.opts.Create
	policy.OnRetry = func(attempt int, err error) {
		l.post(event{kind: evUnknown, cut: c, err: err})
		l.opts.Logger.Warn("WAL put has no outcome yet; retrying the same bytes", "object", c.id(l).Key(), "attempt", attempt, "error", err)
		if l.opts.Create.OnRetry != nil {
			l.opts.Create.OnRetry(attempt, err)
		}
	}
	err := createObject(l.lifetime, l.opts.Store, c.id(l), c.object, policy)
	if err != nil {
		l.post(event{kind: evFailed, cut: c, err: err})
		return
	}
	l.post(event{kind: evCreated, cut: c})
}

// createObject puts a WAL object. It returns nil when our bytes stand there, a
// Fenced error when anything else does, and otherwise what objstore.Create says.
func createObject(ctx context.Context, store objstore.Store, id ObjectID, object []byte, p objstore.CreatePolicy) error {
	footer, err := createOrRead(ctx, store, id, object, p)
	switch {
	case err != nil:
		return errs.In("write "+id.Key(), err)
	case footer == nil:
		return nil
	case footer.IsFence():
		return &errs.Error{Class: errs.Fenced, Op: "write " + id.Key(), Details: []any{FencedBy{footer.FencedBy}},
			Msg: "this incarnation was fenced by " + footer.FencedBy + ": its slots belong to another owner now"}
	}
	return &errs.Error{Class: errs.Fenced, Op: "write " + id.Key(),
		Msg: "the position holds an object that this incarnation did not write: another process uses its id"}
}

// maxReadBacks is how often an object that stands in the way is read before a
// damaged answer is believed. A fault in the answer must not make our own object
// look like another's.
const maxReadBacks = 4

// createOrRead puts an object and returns nil when our bytes stand there, or else
// what does (INVARIANT(wal-4)). An object that vanished meanwhile is an error of
// class Unknown from objstore.Create, after which nothing is put (INVARIANT(wal-6)).
func createOrRead(ctx context.Context, store objstore.Store, id ObjectID, object []byte, p objstore.CreatePolicy) (*Footer, error) {
	for reads := 1; ; reads++ {
		made, err := objstore.Create(ctx, store, id.Key(), object, p)
		if err != nil || made.Created {
			return nil, err
		}
		footer, err := parseObject(id.Key(), id, made.Existing)
		if err == nil && bytes.Equal(footer.nonce[:], nonceOf(object)) {
			err = corrupt(id.Key(), 0, "our own object came back with other bytes")
		}
		if err == nil || reads == maxReadBacks {
			return footer, err
		}
	}
}

// FencedBy stands in the details of Fenced errors: who put the fence.
type FencedBy struct {
	By string `json:"by"`
}
