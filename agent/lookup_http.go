package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
)

const maxLookupKeys = 10_000 // keys of one lookup

// lookupQuery is the body of POST …/lookup.
type lookupQuery struct {
	Keys              json.RawMessage `json:"keys"`
	Columns           []string        `json:"columns"`
	Prefix            bool            `json:"prefix"`
	InsertIfNotExists bool            `json:"insert_if_not_exists"`
}

// handleLookup serves POST …/lookup.
func (a *Agent) handleLookup(w http.ResponseWriter, r *http.Request) {
	p := newReadParams(r, "long")
	longs := p.longAsString()
	format, err := lookupFormat(acceptOf(r))
	if p.err == nil {
		p.err = err
	}
	if p.err != nil {
		writeError(w, p.err)
		return
	}
	def, err := a.tableOf(r)
	if err == nil {
		err = keyedOnly(def)
	}
	var q lookupQuery
	if err == nil {
		q, err = a.readLookup(w, r)
	}
	var res LookupResult
	var out *segments.Schema
	if err == nil {
		res, out, err = a.lookup(r.Context(), def, q.Columns, q.Prefix, bytes.NewReader(q.Keys), rows.JSON)
	}
	var body []byte
	if err == nil {
		body, err = encodeLookup(res, out, format, q.Prefix, longs)
	}
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", format.ContentType())
	_, _ = w.Write(body) // a client that left
}

func keyedOnly(def *metastore.Table) error {
	if !def.Keyed() {
		return errs.New(errs.Invalid, "table %s has no primary key: a lookup needs one; use GET …/rows?where=", def)
	}
	return nil
}

// lookupFormat is negotiate with JSON as the default.
func lookupFormat(accept string) (rows.Format, error) {
	format, _, err := negotiate(accept, false)
	if err == nil && format == rows.NDJSON && !strings.Contains(accept, "json") {
		format = rows.JSON
	}
	return format, err
}

// readLookup reads the body of a lookup.
func (a *Agent) readLookup(w http.ResponseWriter, r *http.Request) (q lookupQuery, err error) {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	encoding := r.Header.Get("Content-Encoding")
	if r.Header.Get("Content-Type") != "" && (err != nil || media != "application/json" && media != "application/x-www-form-urlencoded") || encoding != "" && encoding != "identity" {
		return q, unsupportedMedia(http.StatusUnsupportedMediaType, []string{"application/json"},
			"content type %q, encoding %q: keys are taken as plain application/json", r.Header.Get("Content-Type"), encoding)
	}
	if r.ContentLength > a.cfg.MaxRequestBytes {
		return q, tooLargeBody(a.cfg.MaxRequestBytes)
	}
	budget, err := a.newBudgetReader(r.Context(), r, "")
	if err != nil {
		return q, err
	}
	defer budget.release()
	defer bodyWithin(w, bodyTimeout)()
	raw, err := io.ReadAll(io.LimitReader(budget, a.cfg.MaxRequestBytes+1))
	if err != nil {
		return q, err
	}
	if int64(len(raw)) > a.cfg.MaxRequestBytes {
		return q, tooLargeBody(a.cfg.MaxRequestBytes)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&q); err != nil {
		return q, errs.New(errs.Invalid, `the body is no lookup: %v; send {"keys":[{…}],"columns":[…]}`, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return q, errs.New(errs.Invalid, "the body goes on after the lookup")
	}
	if keys := bytes.TrimSpace(q.Keys); len(keys) == 0 || keys[0] != '[' {
		return q, errs.New(errs.Invalid, `"keys" must be a list of objects with the key columns`)
	}
	if q.InsertIfNotExists {
		return q, errs.New(errs.Unsupported, "insert_if_not_exists is not served in this version; a table with merge_engine=first_row keeps the first row of each key")
	}
	return q, nil
}

func tooLargeBody(limit int64) error {
	e := errs.New(errs.TooLarge, "the body is larger than max_request_bytes, which is %d", limit)
	e.Details = []any{map[string]any{"limit": limit}}
	return e
}

// lookup decodes keys and looks them up. The schema is that of the rows.
func (a *Agent) lookup(ctx context.Context, def *metastore.Table, columns []string, prefix bool, keys io.Reader, format rows.Format) (LookupResult, *segments.Schema, error) {
	out, err := def.Current().Select(columns)
	if err != nil {
		return LookupResult{}, nil, errs.In("columns", err)
	}
	ids := def.PrimaryKey
	if prefix {
		ids = def.BucketKey
	}
	schema, err := def.Current().SelectIDs(ids)
	if err != nil {
		return LookupResult{}, nil, err
	}
	batch, err := a.decodeKeys(def, schema, prefix, keys, format)
	if err != nil || batch == nil {
		return LookupResult{}, out, err
	}
	n, err := a.owner()
	if err != nil {
		return LookupResult{}, nil, err
	}
	res, err := n.lookup(ctx, LookupRequest{Table: def, Keys: batch, Schema: schema, Prefix: prefix, Out: out})
	if err != nil || res.Rows == nil {
		return res, out, err
	}
	if bytes := segments.SizeOf(res.Rows); bytes > a.cfg.MaxRequestBytes {
		e := errs.New(errs.TooLarge, "the rows have %d bytes, the limit of a lookup is max_request_bytes, %d; ask for fewer keys or columns", bytes, a.cfg.MaxRequestBytes)
		e.Details = []any{map[string]any{"limit": a.cfg.MaxRequestBytes}}
		return res, nil, e
	}
	a.metrics.rowsOut.Add(float64(res.Rows.NumRows()))
	return res, out, nil
}

// decodeKeys reads the keys of a lookup; nil when there are none.
func (a *Agent) decodeKeys(def *metastore.Table, schema *segments.Schema, prefix bool, body io.Reader, format rows.Format) (arrow.RecordBatch, error) {
	dec, err := rows.NewDecoder(body, rows.DecodeOptions{
		Schema: def.Current(), Columns: schema.Names(), Format: format, SkipBadRows: true,
		MaxBytes: a.cfg.MaxRequestBytes, MaxDecodedBytes: 2 * a.cfg.MaxRequestBytes,
	})
	if err != nil {
		return nil, err
	}
	defer func() { _ = dec.Close() }() // it was only read
	var batches []arrow.RecordBatch
	for {
		c, err := dec.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errs.In("keys", err)
		}
		batches = append(batches, c.Rows)
		if dec.Rows() > maxLookupKeys {
			break
		}
	}
	if dec.Rows() > maxLookupKeys {
		e := errs.New(errs.TooLarge, "the lookup has %d keys or more, the limit is %d", dec.Rows(), maxLookupKeys)
		e.Details = []any{map[string]any{"limit": maxLookupKeys}}
		return nil, e
	}
	if total, bad := dec.Rejected(); total > 0 {
		return nil, badKeys(total, bad, schema, prefix)
	}
	if len(batches) == 0 {
		return nil, nil
	}
	return segments.Concat(batches)
}

// badKeys tells which keys are none.
func badKeys(total int64, bad []rows.RowError, schema *segments.Schema, prefix bool) error {
	what := "primary key"
	if prefix {
		what = "prefix, the bucket key"
	}
	first := bad[0]
	if first.Column != "" {
		first.Reason = "column \"" + first.Column + "\": " + first.Reason
	}
	e := errs.New(errs.Invalid, "keys[%d]: %s (%d bad keys; a key has the columns of the %s: %s)", first.Row, first.Reason, total, what, strings.Join(schema.Names(), ", "))
	for _, b := range bad {
		e.Details = append(e.Details, b)
	}
	return e
}

// encodeLookup writes the answer: in JSON and NDJSON an entry for each key, in the
// other formats the rows with the position of their key as _key.
func encodeLookup(res LookupResult, out *segments.Schema, format rows.Format, prefix, longs bool) ([]byte, error) {
	if format != rows.JSON && format != rows.NDJSON {
		return encodeKeyed(res, out, format, longs)
	}
	var lines [][]byte
	if res.Rows != nil {
		text, err := encodeRows(res.Rows, rows.EncodeOptions{Schema: out.Arrow(), Table: out, Format: rows.NDJSON, LongAsString: longs})
		if err != nil {
			return nil, err
		}
		lines = bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
	}
	var entries [][]byte
	for _, c := range res.Counts {
		of := lines[:c]
		lines = lines[c:]
		switch {
		case prefix:
			entries = append(entries, append(append([]byte("["), bytes.Join(of, []byte(","))...), ']'))
		case c == 0:
			entries = append(entries, []byte("null"))
		default:
			entries = append(entries, of[0])
		}
	}
	if format == rows.JSON {
		return append(append([]byte(`{"rows":[`), bytes.Join(entries, []byte(","))...), "]}\n"...), nil
	}
	var body []byte
	for _, e := range entries {
		body = append(append(body, e...), '\n')
	}
	return body, nil
}

// lookupKeyColumn is the position of a row's key among those that were asked for.
var lookupKeyColumn = arrow.Field{Name: "_key", Type: arrow.PrimitiveTypes.Int32}

func encodeKeyed(res LookupResult, out *segments.Schema, format rows.Format, longs bool) ([]byte, error) {
	schema := arrow.NewSchema(append([]arrow.Field{lookupKeyColumn}, out.Arrow().Fields()...), nil)
	var rec arrow.RecordBatch
	if res.Rows != nil {
		b := array.NewInt32Builder(memory.DefaultAllocator)
		for key, c := range res.Counts {
			for range c {
				b.Append(int32(key)) //nolint:gosec // at most maxLookupKeys
			}
		}
		rec = array.NewRecordBatch(schema, append([]arrow.Array{b.NewArray()}, res.Rows.Columns()...), res.Rows.NumRows())
	}
	return encodeRows(rec, rows.EncodeOptions{Schema: schema, Table: out, Format: format, LongAsString: longs})
}

// encodeRows encodes one batch, or none.
func encodeRows(rec arrow.RecordBatch, o rows.EncodeOptions) ([]byte, error) {
	var buf bytes.Buffer
	enc, err := rows.NewEncoder(&buf, o)
	if err != nil {
		return nil, err
	}
	if rec != nil {
		if err := enc.Write(rec); err != nil {
			return nil, err
		}
	}
	err = enc.Close()
	return buf.Bytes(), err
}

// Lookup implements the service.
func (s dataService) Lookup(ctx context.Context, req *connect.Request[firnv1.LookupRequest]) (*connect.Response[firnv1.LookupResponse], error) {
	return answer(ctx, req, s.a.lookupMessage)
}

func (a *Agent) lookupMessage(ctx context.Context, m *firnv1.LookupRequest) (*firnv1.LookupResponse, error) {
	def, err := a.table(ctx, m.Database, m.Table)
	if err == nil {
		err = keyedOnly(def)
	}
	if err != nil {
		return nil, err
	}
	res, out, err := a.lookup(ctx, def, m.Columns, m.Prefix, bytes.NewReader(m.Keys), rows.ArrowStream)
	if err != nil {
		return nil, err
	}
	body, err := encodeRows(res.Rows, rows.EncodeOptions{Schema: out.Arrow(), Table: out, Format: rows.ArrowStream})
	return &firnv1.LookupResponse{Rows: body, Counts: res.Counts}, err
}
