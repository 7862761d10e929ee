package client

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/protobuf/encoding/protojson"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// Format is the media type of rows.
type Format string

// The formats that rows travel in.
const (
	NDJSON  Format = "application/x-ndjson"
	JSON    Format = "application/json"
	CSV     Format = "text/csv"
	Arrow   Format = "application/vnd.apache.arrow.stream"
	Parquet Format = "application/vnd.apache.parquet"
)

// AppendOptions says what a body holds and how it is applied.
type AppendOptions struct {
	Format      Format // default NDJSON
	Compression string // "", "gzip" or "zstd"
	Op          Op     // default: append, of a primary-key table upsert
	// Columns makes a partial write of a primary-key table: only these and the key
	// are read and written.
	Columns []string
	// Debezium says that the rows are change events of Debezium, as NDJSON or JSON.
	Debezium bool
	// SkipBadRows applies the good rows and reports the others; without it one bad
	// row refuses the whole request.
	SkipBadRows bool
	// IgnoreUnknown drops fields that the table does not have.
	IgnoreUnknown bool
	// Producer numbers the rows for exactly-once across restarts of the program.
	Producer *Sequence
	// IdempotencyKey makes a repeat of the request within 24 h harmless. Without a
	// key and a producer, Append makes a key of its own, so that its retries are.
	IdempotencyKey string
}

// Sequence numbers the rows of one request: row i is First + i.
type Sequence struct {
	ID         string
	First      int64
	AckedBelow int64 // every row below it is acknowledged; at most First
}

// Append sends one body as one request: a single atomic batch per bucket,
// acknowledged when it is durable. It is retried as the client's policy says.
func (t *Table) Append(ctx context.Context, body []byte, o AppendOptions) (*firnv1.AppendResponse, error) {
	if o.Producer == nil && o.IdempotencyKey == "" {
		o.IdempotencyKey = newKey()
	}
	for failures := 1; ; failures++ {
		res, err := t.post(ctx, bytes.NewReader(body), o, false)
		if err == nil || !retryable(err, true) {
			return res, err
		}
		if werr := t.c.retry.wait(ctx, failures, err); werr != nil {
			return nil, werr
		}
	}
}

// AppendRecords sends record batches of one schema as one request.
func (t *Table) AppendRecords(ctx context.Context, recs ...arrow.RecordBatch) (*firnv1.AppendResponse, error) {
	if len(recs) == 0 {
		return &firnv1.AppendResponse{}, nil
	}
	body, err := encodeArrow(recs)
	if err != nil {
		return nil, err
	}
	return t.Append(ctx, body, AppendOptions{Format: Arrow})
}

// AppendRows sends rows of any type that marshals to a JSON object, as one
// request. Maps and structs with json tags are at home here; for many rows a
// [Writer] is faster.
func (t *Table) AppendRows(ctx context.Context, rows ...any) (*firnv1.AppendResponse, error) {
	return t.writeRows(ctx, AppendOptions{}, rows)
}

// AppendReader sends a body of any length in one request, which the agent
// applies in order in chunks. It is not retried. After an error the result, when
// there is one, says how much was applied; with a producer the source can be
// replayed from [Table.Producer].
func (t *Table) AppendReader(ctx context.Context, body io.Reader, o AppendOptions) (*firnv1.AppendResponse, error) {
	return t.post(ctx, body, o, true)
}

// post makes one attempt of POST …/rows.
func (t *Table) post(ctx context.Context, body io.Reader, o AppendOptions, stream bool) (*firnv1.AppendResponse, error) {
	q := url.Values{}
	if o.Op != "" {
		q.Set("op", string(o.Op))
	}
	if len(o.Columns) > 0 {
		q.Set("columns", strings.Join(o.Columns, ","))
	}
	if o.Debezium {
		q.Set("envelope", "debezium")
	}
	if o.SkipBadRows {
		q.Set("on_error", "skip")
	}
	if o.IgnoreUnknown {
		q.Set("unknown", "ignore")
	}
	if stream {
		q.Set("stream", "true")
	}
	if p := o.Producer; p != nil {
		q.Set("producer_id", p.ID)
		q.Set("first_sequence", strconv.FormatInt(p.First, 10))
		q.Set("acked_below", strconv.FormatInt(min(p.AckedBelow, p.First), 10))
	}
	req, err := t.request(ctx, http.MethodPost, "rows", q, body)
	if err != nil {
		return nil, err
	}
	if o.Format == "" {
		o.Format = NDJSON
	}
	req.Header.Set("Content-Type", string(o.Format))
	if o.Compression != "" {
		req.Header.Set("Content-Encoding", o.Compression)
	}
	if o.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", o.IdempotencyKey)
	}
	resp, err := t.c.bulk.Do(req)
	if err != nil {
		return nil, transport(ctx, err)
	}
	defer resp.Body.Close()
	return appendAnswer(ctx, resp)
}

// maxAnswerBytes bounds the answer to an append: 100 row errors and some thousand
// buckets fit.
const maxAnswerBytes = 8 << 20

func appendAnswer(ctx context.Context, resp *http.Response) (*firnv1.AppendResponse, error) {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if err != nil {
		return nil, transport(ctx, err)
	}
	res := new(firnv1.AppendResponse)
	uerr := protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(raw, res)
	if resp.StatusCode == http.StatusOK {
		if uerr != nil { // an answer that was cut: the rows may be there
			return nil, &Error{Class: Unknown, Code: "unknown", Message: "read answer: " + uerr.Error(), cause: uerr}
		}
		return res, nil
	}
	resp.Body = io.NopCloser(bytes.NewReader(raw))
	if uerr != nil || (res.Rows == 0 && res.Skipped == 0) {
		res = nil
	}
	return res, fromResponse(resp)
}

// request makes a request to a plain route of the table.
func (t *Table) request(ctx context.Context, method, route string, q url.Values, body io.Reader) (*http.Request, error) {
	u := t.c.base + "/v1/databases/" + url.PathEscape(t.database) + "/tables/" + url.PathEscape(t.name) + "/" + route
	if len(q) > 0 {
		u += "?" + strings.ReplaceAll(q.Encode(), "+", "%20")
	}
	req, err := http.NewRequestWithContext(ctx, method, u, body)
	if err != nil {
		return nil, invalid("make request: %v", err)
	}
	t.c.authorize(req.Header)
	return req, nil
}
