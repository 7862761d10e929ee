package agent

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
)

// rowsRequest is a parsed POST …/rows.
type rowsRequest struct {
	table    *metastore.Table
	schema   *segments.Schema
	mode     rowsMode
	decode   rows.DecodeOptions
	producer *Producer
	stream   bool
}

var rowsParams = map[string]bool{
	"op": true, "columns": true, "on_error": true, "unknown": true, "envelope": true,
	"producer_id": true, "first_sequence": true, "acked_below": true, "stream": true,
}

// parseRowsRequest reads the parameters and headers of an append.
func (a *Agent) parseRowsRequest(r *http.Request) (*rowsRequest, error) {
	q, err := queryOf(r)
	if err == nil {
		err = oneOf(q, rowsParams)
	}
	if err != nil {
		return nil, err
	}
	def, err := a.tableOf(r)
	if err != nil {
		return nil, err
	}
	req := &rowsRequest{table: def, schema: def.Current()}
	if req.mode, err = modeOf(def, q.Get("op"), columnsOf(q), q.Get("envelope")); err != nil {
		return nil, err
	}
	req.decode = rows.DecodeOptions{Schema: req.schema, ChunkRows: 64 << 10, ChunkBytes: 4 << 20}
	if req.decode.SkipBadRows, err = choice(q, "on_error", "reject", "skip"); err != nil {
		return nil, err
	}
	if req.decode.IgnoreUnknown, err = choice(q, "unknown", "reject", "ignore"); err != nil {
		return nil, err
	}
	if req.stream, err = choice(q, "stream", "false", "true"); err != nil {
		return nil, err
	}
	if err := req.parseMedia(r); err != nil {
		return nil, err
	}
	req.mode.prepare(&req.decode)
	req.producer, err = parseProducer(q, r.Header.Get("Idempotency-Key"))
	if err != nil {
		return nil, err
	}
	if req.stream && req.producer != nil && req.producer.Idempotency {
		return nil, errs.New(errs.Invalid, "an endless body cannot be repeated: use producer_id instead of Idempotency-Key with stream=true")
	}
	if req.stream {
		req.decode.MaxDelay = 100 * time.Millisecond
	} else {
		req.decode.MaxBytes = a.cfg.MaxRequestBytes
		req.decode.MaxDecodedBytes = 2 * a.cfg.MaxRequestBytes
	}
	return req, nil
}

func (r *rowsRequest) parseMedia(req *http.Request) error {
	ct := req.Header.Get("Content-Type")
	if strings.HasPrefix(ct, "application/x-www-form-urlencoded") {
		ct = "" // what curl sends with --data and no header of its own
	}
	format, ok := rows.FormatFromContentType(ct)
	if !ok {
		return unsupportedMedia(http.StatusUnsupportedMediaType, rows.ContentTypes(),
			"content type %q: rows are taken as %s", ct, strings.Join(rows.ContentTypes(), ", "))
	}
	if r.mode.debezium && format != rows.NDJSON && format != rows.JSON {
		return unsupportedMedia(http.StatusUnsupportedMediaType, []string{rows.NDJSON.ContentType(), rows.JSON.ContentType()},
			"content type %q: Debezium change events are taken as %s or %s", ct, rows.NDJSON.ContentType(), rows.JSON.ContentType())
	}
	r.decode.Format = format
	switch enc := strings.ToLower(strings.TrimSpace(req.Header.Get("Content-Encoding"))); enc {
	case "", "identity", "gzip", "x-gzip", "zstd":
		r.decode.Compression = enc
	default:
		return unsupportedMedia(http.StatusUnsupportedMediaType, []string{"identity", "gzip", "zstd"},
			"content encoding %q: bodies are taken plain, gzip or zstd", enc)
	}
	return nil
}

// columnsOf splits a list of column names; nil when the parameter is not given.
func columnsOf(q url.Values) []string {
	if !q.Has("columns") {
		return nil
	}
	var out []string
	for _, c := range strings.Split(q.Get("columns"), ",") {
		out = append(out, strings.TrimSpace(c))
	}
	return out
}

// choice reads a parameter with two values and reports whether it has the second.
func choice(q url.Values, name, no, yes string) (bool, error) {
	switch v := q.Get(name); v {
	case "", no:
		return false, nil
	case yes:
		return true, nil
	default:
		return false, errs.New(errs.Invalid, "%s is %q: must be %s or %s", name, v, no, yes)
	}
}

func parseProducer(q url.Values, idempotencyKey string) (*Producer, error) {
	id := q.Get("producer_id")
	switch {
	case id == "" && (q.Has("first_sequence") || q.Has("acked_below")):
		return nil, errs.New(errs.Invalid, "first_sequence and acked_below need producer_id")
	case id != "" && idempotencyKey != "":
		return nil, errs.New(errs.Invalid, "give producer_id or an Idempotency-Key, not both")
	case id == "" && idempotencyKey == "":
		return nil, nil
	case id == "":
		if len(idempotencyKey) > 255 {
			return nil, errs.New(errs.Invalid, "Idempotency-Key has %d bytes, the limit is 255", len(idempotencyKey))
		}
		return &Producer{ID: idempotencyKey, Idempotency: true}, nil
	}
	first, err := sequenceParam(q, "first_sequence", -1)
	if err != nil {
		return nil, err
	}
	if first < 0 {
		return nil, errs.New(errs.Invalid, "producer_id needs first_sequence, the sequence of the body's first row")
	}
	acked, err := sequenceParam(q, "acked_below", first)
	if err != nil {
		return nil, err
	}
	return &Producer{ID: id, FirstSequence: first, AckedBelow: acked}, nil
}

func sequenceParam(q url.Values, name string, def int64) (int64, error) {
	if !q.Has(name) {
		return def, nil
	}
	v, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || v < 0 {
		return 0, errs.New(errs.Invalid, "%s is %q: must be a whole number from 0", name, q.Get(name))
	}
	return v, nil
}

// rowsAnswer is the body of a 200.
type rowsAnswer struct {
	Rows      int64           `json:"rows"`
	Skipped   int64           `json:"skipped"`
	Rejected  int64           `json:"rejected"`
	Errors    []rows.RowError `json:"errors"`
	Buckets   []bucketAnswer  `json:"buckets"`
	Duplicate bool            `json:"duplicate,omitempty"`

	refused []rows.RowError // rows that the table's rules refuse
}

type bucketAnswer struct {
	Bucket     int32 `json:"bucket"`
	BaseOffset int64 `json:"base_offset"`
	Count      int64 `json:"count"`
	EndOffset  int64 `json:"end_offset"`
}

// add folds the result of one chunk into the answer.
func (a *rowsAnswer) add(res AppendResult) {
	a.Rows += res.Rows
	a.Skipped += res.Skipped
	a.Duplicate = res.Duplicate
	for _, b := range res.Buckets {
		i := sort.Search(len(a.Buckets), func(i int) bool { return a.Buckets[i].Bucket >= b.Bucket })
		if i < len(a.Buckets) && a.Buckets[i].Bucket == b.Bucket {
			a.Buckets[i].Count += b.Count
			a.Buckets[i].EndOffset = b.EndOffset
			continue
		}
		a.Buckets = append(a.Buckets, bucketAnswer{})
		copy(a.Buckets[i+1:], a.Buckets[i:])
		a.Buckets[i] = bucketAnswer(b)
	}
}

func (a *rowsAnswer) reject(d rows.Decoder) {
	total, first := d.Rejected()
	a.Rejected = total + int64(len(a.refused))
	a.Errors = append(append([]rows.RowError{}, first...), a.refused...)
	slices.SortStableFunc(a.Errors, func(x, y rows.RowError) int { return cmp.Compare(x.Row, y.Row) })
	a.Errors = a.Errors[:min(len(a.Errors), maxRowErrors)]
}

// handleRows serves POST …/rows.
func (a *Agent) handleRows(w http.ResponseWriter, r *http.Request) {
	req, err := a.parseRowsRequest(r)
	if err != nil {
		writeError(w, err)
		return
	}
	if req.stream {
		a.appendEndless(w, r, req)
		return
	}
	if err := a.checkLength(r, req); err != nil {
		writeError(w, err)
		return
	}
	answer, err := a.appendBody(r.Context(), w, r, req)
	a.metrics.rowsRejected.Add(float64(answer.Rejected))
	if err != nil && answer.Rejected > 0 {
		sendError(w, err, struct {
			errorBody
			Rejected int64 `json:"rejected"` // all bad rows; the details list the first of them
		}{bodyOf(err), answer.Rejected})
		return
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, answer)
}

const bodyTimeout = 5 * time.Minute // longest time for a bounded body to arrive

func (a *Agent) checkLength(r *http.Request, req *rowsRequest) error {
	if r.ContentLength > a.cfg.MaxRequestBytes {
		e := errs.New(errs.TooLarge, "the body has %d bytes, max_request_bytes is %d: send smaller requests, or stream=true", r.ContentLength, a.cfg.MaxRequestBytes)
		e.Details = []any{map[string]any{"limit": a.cfg.MaxRequestBytes}}
		return e
	}
	return nil
}

// budgetReader counts a body against the memory of all bodies that are decoded
// at once: one of known length as a whole, so that those that began can end; one
// of unknown length as its bytes arrive, so that a slow one holds what it has sent.
type budgetReader struct {
	agent  *Agent
	ctx    context.Context //nolint:containedctx // lives as long as the request
	body   io.Reader
	factor int64 // decoded bytes that one byte of the body stands for
	read   int64
	held   int64
}

const (
	budgetStep       = 64 << 10 // grain of the accounting
	compressedFactor = 8        // usual gain of a compressed body
)

func (a *Agent) newBudgetReader(ctx context.Context, r *http.Request, compression string) (*budgetReader, error) {
	b := &budgetReader{agent: a, ctx: ctx, body: r.Body, factor: 1}
	if compression != "" && compression != "identity" {
		b.factor = compressedFactor
	}
	return b, b.grow(max(r.ContentLength, 0))
}

// grow takes room for so many bytes of the body in all.
func (b *budgetReader) grow(bytes int64) error {
	want := min((bytes*b.factor/budgetStep+1)*budgetStep, b.agent.cfg.MaxRequestBytes)
	if want <= b.held {
		return nil
	}
	return b.acquire(want - b.held)
}

// Read implements io.Reader. It waits for room, for a bounded time.
func (b *budgetReader) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.read += int64(n)
	if full := b.grow(b.read); full != nil {
		return 0, full
	}
	return n, err
}

func (b *budgetReader) acquire(n int64) error {
	wait, cancel := context.WithTimeout(b.ctx, backpressureWait)
	defer cancel()
	if err := b.agent.bodies.Acquire(wait, n); err != nil {
		if cause := b.ctx.Err(); cause != nil {
			return errs.Wrap(errs.Canceled, "read body", cause)
		}
		e := errs.New(errs.Exhausted, "the limit max_requests (%d bodies of max_request_bytes at once) is reached; slow down and retry", b.agent.cfg.MaxRequests)
		e.RetryAfter = time.Second
		return e
	}
	b.held += n
	return nil
}

// release gives the room back; a second call does nothing.
func (b *budgetReader) release() {
	b.agent.bodies.Release(b.held)
	b.held = 0
}

// appendBody decodes a bounded body whole, then applies it: one atomic batch a bucket.
func (a *Agent) appendBody(ctx context.Context, w http.ResponseWriter, r *http.Request, req *rowsRequest) (rowsAnswer, error) {
	answer := rowsAnswer{Errors: []rows.RowError{}, Buckets: []bucketAnswer{}}
	budget, err := a.newBudgetReader(ctx, r, req.decode.Compression)
	if err != nil {
		return answer, err
	}
	defer budget.release()
	keyed := req.producer != nil && req.producer.Idempotency
	if keyed {
		req.decode.Digest = fingerprint(req.decode, &req.mode)
	}
	arrived := bodyWithin(w, bodyTimeout)
	defer arrived()
	dec, err := decoderOf(budget, r.ContentLength, req.decode)
	if err != nil {
		return answer, err
	}
	defer func() { _ = dec.Close() }()
	var chunks []rows.Chunk
	for {
		c, err := dec.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			answer.reject(dec)
			return answer, err
		}
		chunks = append(chunks, c)
	}
	arrived()
	answer.reject(dec)
	if keyed {
		req.producer.FirstSequence = sequenceOf(req.decode.Digest)
	}
	n, err := a.owner()
	if err != nil {
		return answer, err
	}
	p, bad, err := n.beginRows(ctx, &req.mode, req.decode.SkipBadRows,
		AppendRequest{Table: req.table, Schema: req.schema, Chunks: chunks, BodyRows: dec.Rows(), Producer: req.producer})
	answer.refused = bad
	answer.reject(dec)
	if err != nil {
		return answer, err
	}
	budget.release() // from here on the rows count against max_pending_bytes
	res, err := p.await(ctx)
	if err != nil {
		return answer, err
	}
	answer.add(res)
	return answer, nil
}

// decoderOf decodes a bounded body. An Arrow stream of known length, whose room is
// taken already, is read whole: its batches are then decoded in place.
func decoderOf(body *budgetReader, length int64, o rows.DecodeOptions) (rows.Decoder, error) {
	if o.Format != rows.ArrowStream || body.factor != 1 || length <= 0 || length > body.held {
		return rows.NewDecoder(body, o)
	}
	whole := make([]byte, length)
	n, err := io.ReadFull(body, whole)
	if err != nil { // the decoder finds it behind what came
		return rows.NewDecoder(io.MultiReader(bytes.NewReader(whole[:n]), failedReader{err}), o)
	}
	return rows.NewBodyDecoder(whole, o)
}

// failedReader is the end of a body that broke.
type failedReader struct{ err error }

// Read implements io.Reader.
func (f failedReader) Read([]byte) (int, error) { return 0, f.err }

const endlessInFlight = 8 // chunks of an endless body that wait for durability at once

// appendEndless applies a body of any length in order, chunk by chunk, in
// bounded memory. The answer tells what was applied, also when it stopped early.
func (a *Agent) appendEndless(w http.ResponseWriter, r *http.Request, req *rowsRequest) {
	answer := rowsAnswer{Errors: []rows.RowError{}, Buckets: []bucketAnswer{}}
	dec, err := rows.NewDecoder(r.Body, req.decode)
	if err != nil {
		writeError(w, err)
		return
	}
	defer func() { _ = dec.Close() }()
	n, err := a.owner()
	if err != nil {
		writeError(w, err)
		return
	}
	defer n.interrupt(w)()
	stopped, err := a.pump(r.Context(), n, dec, req, &answer)
	if err != nil && n.leaving() {
		err = errs.New(errs.Unavailable, "this agent is shutting down: send the rest of the body, from stopped_at_row on, to another one")
	}
	answer.reject(dec)
	a.metrics.rowsRejected.Add(float64(answer.Rejected))
	if err == nil {
		writeJSON(w, http.StatusOK, answer)
		return
	}
	stop := struct {
		rowsAnswer
		errorBody
		StoppedAtRow int64 `json:"stopped_at_row"`
	}{answer, bodyOf(err), stopped}
	sendError(w, err, stop)
}

// pump moves chunks from the decoder to the WAL, some ahead of their
// acknowledgement, and returns the first body row that was not acknowledged.
//
// One incarnation serves the whole body: after a change of incarnation a later
// chunk must not be applied where an earlier one was lost.
func (a *Agent) pump(ctx context.Context, n *incarnation, dec rows.Decoder, req *rowsRequest, answer *rowsAnswer) (int64, error) {
	type flying struct {
		p   *pendingAppend
		end int64
	}
	var window []flying
	var acked int64
	land := func() error {
		first := window[0]
		window = window[1:]
		res, err := first.p.await(ctx)
		if err == nil {
			answer.add(res)
			acked = first.end
		}
		return err
	}
	sticky := rand.Int32N(4096) //nolint:gosec // spreads load, guards nothing
	var failed error
	for failed == nil {
		c, err := dec.Next()
		if err != nil {
			if err != io.EOF {
				failed = err
			}
			break
		}
		end := c.Ordinal(int(c.Rows.NumRows())-1) + 1
		p, bad, err := n.beginRows(ctx, &req.mode, req.decode.SkipBadRows, chunkRequest(req, c, end, sticky))
		if req.producer != nil {
			bad = shifted(bad, c.First)
		}
		answer.refused = append(answer.refused, bad...)
		if err != nil && len(bad) > 0 {
			err = refusedRows(bad)
		}
		if err != nil {
			failed = err
			break
		}
		window = append(window, flying{p, end})
		if len(window) >= endlessInFlight {
			failed = land()
		}
	}
	for len(window) > 0 {
		if err := land(); err != nil && failed == nil {
			failed = err
		}
	}
	return acked, failed
}

// shifted returns errors of rows that were numbered from first on as numbers of the body.
func shifted(bad []rows.RowError, first int64) []rows.RowError {
	for i := range bad {
		bad[i].Row += first
	}
	return bad
}

// chunkRequest makes an append of one chunk of an endless body. With a producer
// each chunk covers its own sequences, and what came before it in the body is
// not promised to be acknowledged.
func chunkRequest(req *rowsRequest, c rows.Chunk, end int64, sticky int32) AppendRequest {
	out := AppendRequest{Table: req.table, Schema: req.schema, Chunks: []rows.Chunk{c}, BodyRows: end - c.First, Sticky: &sticky}
	if req.producer != nil {
		p := *req.producer
		p.FirstSequence += c.First
		out.Producer = &p
		rebased := c
		rebased.First = 0
		if c.Ordinals != nil {
			rebased.Ordinals = make([]int64, len(c.Ordinals))
			for i, o := range c.Ordinals {
				rebased.Ordinals[i] = o - c.First
			}
		}
		out.Chunks = []rows.Chunk{rebased}
	}
	return out
}
