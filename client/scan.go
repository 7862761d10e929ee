package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// Layer chooses where rows are read from.
type Layer string

// The layers.
const (
	Union Layer = "union" // the lake and the live rows, as one exact result
	Lake  Layer = "lake"  // the newest lake snapshot alone
)

// ScanOptions selects rows. Zero values mean everything, now.
type ScanOptions struct {
	Columns  []string // top-level columns, in the order wanted
	Where    string   // an SQL predicate
	Limit    int64    // 0 means no limit
	Layer    Layer
	Snapshot int64  // a lake snapshot id; 0 means none
	AsOf     string // RFC 3339: the newest lake snapshot at or before it
}

func (o ScanOptions) query() url.Values {
	q := url.Values{}
	if len(o.Columns) > 0 {
		q.Set("columns", strings.Join(o.Columns, ","))
	}
	if o.Where != "" {
		q.Set("where", o.Where)
	}
	if o.Limit > 0 {
		q.Set("limit", strconv.FormatInt(o.Limit, 10))
	}
	if o.Layer != "" {
		q.Set("layer", string(o.Layer))
	}
	if o.Snapshot != 0 {
		q.Set("snapshot", strconv.FormatInt(o.Snapshot, 10))
	}
	if o.AsOf != "" {
		q.Set("as_of", o.AsOf)
	}
	return q
}

// Rows reads record batches of one schema. It belongs to one goroutine.
type Rows struct {
	ctx    context.Context
	cancel context.CancelFunc
	body   io.ReadCloser
	arrow  *ipc.Reader
	err    error
}

// Scan reads the table as of one point in time. The start of a scan is retried; a
// break in its middle is an error, because the point in time is gone.
func (t *Table) Scan(ctx context.Context, o ScanOptions) (*Rows, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, err := t.open(ctx, "rows", o.query(), Arrow)
	if err != nil {
		cancel()
		return nil, err
	}
	rd, err := ipc.NewReader(body)
	if err != nil {
		err = readFault(ctx, err)
		body.Close()
		cancel()
		return nil, err
	}
	return &Rows{ctx: ctx, cancel: cancel, body: body, arrow: rd}, nil
}

// ScanRaw is Scan in any format, as the bytes that the agent sends. The caller
// closes the body. A body that ends early ends in an error.
func (t *Table) ScanRaw(ctx context.Context, o ScanOptions, f Format) (io.ReadCloser, error) {
	return t.open(ctx, "rows", o.query(), f)
}

// Schema returns the Arrow schema of the rows.
func (r *Rows) Schema() *arrow.Schema { return r.arrow.Schema() }

// Next returns the next batch, which the caller releases; io.EOF after the last.
func (r *Rows) Next() (arrow.RecordBatch, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.arrow.Next() {
		rec := r.arrow.RecordBatch()
		rec.Retain()
		return rec, nil
	}
	r.err = io.EOF
	if err := r.arrow.Err(); err != nil && !errors.Is(err, io.EOF) {
		r.err = readFault(r.ctx, err)
	} else if _, err := io.Copy(io.Discard, r.body); err != nil { // the end must be the body's end
		r.err = readFault(r.ctx, err)
	}
	return nil, r.err
}

// Close ends the read; it may be called at any time by the goroutine that reads.
func (r *Rows) Close() error {
	r.cancel()
	r.arrow.Release()
	return r.body.Close()
}

// open makes a GET of a plain route, retrying until an answer begins.
func (t *Table) open(ctx context.Context, route string, q url.Values, f Format) (io.ReadCloser, error) {
	for failures := 1; ; failures++ {
		body, err := t.openOnce(ctx, route, q, f)
		if err == nil || !retryable(err, true) {
			return body, err
		}
		if werr := t.c.retry.wait(ctx, failures, err); werr != nil {
			return nil, werr
		}
	}
}

func (t *Table) openOnce(ctx context.Context, route string, q url.Values, f Format) (io.ReadCloser, error) {
	req, err := t.request(ctx, http.MethodGet, route, q, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", string(f))
	resp, err := t.c.bulk.Do(req)
	if err != nil {
		return nil, transport(ctx, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, fromResponse(resp)
	}
	return resp.Body, nil
}

// readFault classifies a failure in the middle of an answer.
func readFault(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &Error{Class: Unavailable, Code: "unavailable", Message: "read rows: " + err.Error(), cause: err}
}
