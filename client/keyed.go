package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// Op is what rows do to their table. Empty is what the table takes by default:
// append on log tables, upsert on primary-key tables.
type Op string

// The operations.
const (
	OpAppend Op = "append"
	OpUpsert Op = "upsert" // rows replace those with their key, as the merge engine says
	OpDelete Op = "delete" // rows hold the key columns
)

// Upsert sends rows of any type that marshals to a JSON object to a primary-key
// table, as one request. For many rows a [Writer] is faster.
func (t *Table) Upsert(ctx context.Context, rows ...any) (*firnv1.AppendResponse, error) {
	return t.writeRows(ctx, AppendOptions{Op: OpUpsert}, rows)
}

// UpsertColumns is Upsert of some columns: the others keep what they hold. The key
// columns are implied.
func (t *Table) UpsertColumns(ctx context.Context, columns []string, rows ...any) (*firnv1.AppendResponse, error) {
	return t.writeRows(ctx, AppendOptions{Op: OpUpsert, Columns: columns}, rows)
}

// Delete deletes the rows of keys, objects with the key columns, as one request. A
// key that has no row is no error.
func (t *Table) Delete(ctx context.Context, keys ...any) (*firnv1.AppendResponse, error) {
	return t.writeRows(ctx, AppendOptions{Op: OpDelete}, keys)
}

// writeRows sends rows as NDJSON.
func (t *Table) writeRows(ctx context.Context, o AppendOptions, rows []any) (*firnv1.AppendResponse, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return nil, invalid("encode row as JSON: %v", err)
		}
	}
	return t.Append(ctx, body.Bytes(), o)
}

// LookupOptions says what a lookup returns.
type LookupOptions struct {
	Columns []string // default all
	// Prefix says that keys hold the columns of the bucket key, which begin the
	// primary key: each has any number of rows.
	Prefix bool
}

// Found is the rows of a lookup, in the order of its keys.
type Found struct {
	// Rows belongs to the caller; nil when no key has a row.
	Rows arrow.RecordBatch
	// Counts is how many rows each key has: 0 or 1, with Prefix any number.
	Counts []int32
}

// Lookup returns the newest acknowledged rows of at most 10,000 keys: a batch with
// the columns of the primary key, matched by name.
func (t *Table) Lookup(ctx context.Context, keys arrow.RecordBatch, o LookupOptions) (*Found, error) {
	body, err := encodeArrow([]arrow.RecordBatch{keys})
	if err != nil {
		return nil, err
	}
	res, err := call(ctx, t.c.data.Lookup, &firnv1.LookupRequest{Database: t.database, Table: t.name, Keys: body, Columns: o.Columns, Prefix: o.Prefix})
	if err != nil {
		return nil, err
	}
	found := &Found{Counts: res.Counts}
	if len(res.Rows) == 0 {
		return found, nil
	}
	rd, err := ipc.NewReader(bytes.NewReader(res.Rows))
	if err != nil {
		return nil, badArrow(err)
	}
	defer rd.Release()
	if rd.Next() {
		found.Rows = rd.RecordBatch()
		found.Rows.Retain()
	}
	if err := rd.Err(); err != nil && !errors.Is(err, io.EOF) {
		return nil, badArrow(err)
	}
	return found, nil
}

// LookupRows is Lookup with keys of any type that marshals to a JSON object. Each
// key's entry is the JSON text of its row, null, or with Prefix a list of rows.
func (t *Table) LookupRows(ctx context.Context, o LookupOptions, keys ...any) ([]json.RawMessage, error) {
	if keys == nil {
		keys = []any{}
	}
	body, err := json.Marshal(map[string]any{"keys": keys, "columns": o.Columns, "prefix": o.Prefix})
	if err != nil {
		return nil, invalid("encode keys as JSON: %v", err)
	}
	for failures := 1; ; failures++ {
		rows, err := t.lookupOnce(ctx, body)
		if err == nil || !retryable(err, true) {
			return rows, err
		}
		if werr := t.c.retry.wait(ctx, failures, err); werr != nil {
			return nil, werr
		}
	}
}

func (t *Table) lookupOnce(ctx context.Context, body []byte) ([]json.RawMessage, error) {
	req, err := t.request(ctx, http.MethodPost, "lookup", nil, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", string(JSON))
	req.Header.Set("Accept", string(JSON))
	resp, err := t.c.bulk.Do(req)
	if err != nil {
		return nil, transport(ctx, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fromResponse(resp)
	}
	var answer struct {
		Rows []json.RawMessage `json:"rows"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, readFault(ctx, err)
	}
	return answer.Rows, nil
}
