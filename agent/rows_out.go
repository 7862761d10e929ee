package agent

import (
	"bufio"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments/rows"
)

// negotiate picks the response format for an Accept header; sse is set for
// text/event-stream where the route offers it.
func negotiate(accept string, offerSSE bool) (format rows.Format, sse bool, err error) {
	if strings.TrimSpace(accept) == "" {
		return rows.NDJSON, false, nil
	}
	for _, part := range strings.Split(accept, ",") {
		media, params, _ := strings.Cut(part, ";")
		media = strings.ToLower(strings.TrimSpace(media))
		if strings.Contains(strings.ReplaceAll(params, " ", ""), "q=0") && !strings.Contains(params, "q=0.") {
			continue
		}
		switch media {
		case "*/*", "application/*":
			return rows.NDJSON, false, nil
		case "text/event-stream":
			if offerSSE {
				return rows.NDJSON, true, nil
			}
		default:
			if f, ok := rows.FormatFromContentType(media); ok {
				return f, false, nil
			}
		}
	}
	accepted := rows.ContentTypes()
	if offerSSE {
		accepted = append(accepted, "text/event-stream")
	}
	return 0, false, notAcceptable(accept, accepted)
}

// notAcceptableError is an Unsupported error that answers 406 instead of 415.
type notAcceptableError struct{ cause *errs.Error }

// Error implements error.
func (e notAcceptableError) Error() string { return e.cause.Error() }

// Unwrap keeps the class.
func (e notAcceptableError) Unwrap() error { return e.cause }

func notAcceptable(accept string, accepted []string) error {
	e := errs.New(errs.Unsupported, "Accept %q: rows are served as %s", accept, strings.Join(accepted, ", "))
	e.Details = []any{map[string]any{"accepted": accepted}}
	return notAcceptableError{e}
}

// readParams parses query parameters, keeping the first error.
type readParams struct {
	q   url.Values
	err error
}

func newReadParams(q url.Values, known ...string) *readParams {
	p := &readParams{q: q}
	allowed := map[string]bool{}
	for _, k := range known {
		allowed[k] = true
	}
	for name, values := range q {
		if !allowed[name] {
			p.fail("query parameter %q is not known on this route", name)
		} else if len(values) > 1 {
			p.fail("query parameter %q is given %d times", name, len(values))
		}
	}
	return p
}

func (p *readParams) fail(format string, args ...any) {
	if p.err == nil {
		p.err = errs.New(errs.Invalid, format, args...)
	}
}

func (p *readParams) columns() []string {
	v := p.q.Get("columns")
	if v == "" {
		return nil
	}
	var out []string
	for _, c := range strings.Split(v, ",") {
		out = append(out, strings.TrimSpace(c))
	}
	return out
}

func (p *readParams) int(name string, least int64) int64 {
	v := p.q.Get(name)
	if v == "" {
		return 0
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < least {
		p.fail("%s is %q: must be a whole number from %d", name, v, least)
	}
	return n
}

func (p *readParams) bool(name string) bool {
	v, err := choice(p.q, name, "false", "true")
	if err != nil {
		p.fail("%s", err)
	}
	return v
}

func (p *readParams) time(name string) time.Time {
	v := p.q.Get(name)
	if v == "" {
		return time.Time{}
	}
	t, err := parseMoment(v)
	if err != nil {
		p.fail("%s: %s", name, err)
	}
	return t
}

// parseMoment reads RFC 3339 or integer epoch microseconds.
func parseMoment(v string) (time.Time, error) {
	if us, err := strconv.ParseInt(v, 10, 64); err == nil {
		return time.UnixMicro(us), nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		return t, errs.New(errs.Invalid, "%q is no moment: give RFC 3339 with a zone, or epoch microseconds", v)
	}
	return t, nil
}

// longAsString reads long=string.
func (p *readParams) longAsString() bool {
	v, err := choice(p.q, "long", "number", "string")
	if err != nil {
		p.fail("%s", err)
	}
	return v
}

// handleScan serves GET …/rows.
func (a *Agent) handleScan(w http.ResponseWriter, r *http.Request) {
	p := newReadParams(r.URL.Query(), "columns", "where", "limit", "layer", "snapshot", "as_of", "long")
	req := ScanRequest{
		Columns: p.columns(), Where: p.q.Get("where"), Limit: p.int("limit", 0), Layer: Layer(p.q.Get("layer")),
		Snapshot: p.int("snapshot", 1), AsOf: p.time("as_of"),
	}
	longs := p.longAsString()
	if p.err != nil {
		writeError(w, p.err)
		return
	}
	format, _, err := negotiate(r.Header.Get("Accept"), false)
	if err != nil {
		writeError(w, err)
		return
	}
	def, err := a.tableOf(r)
	if err != nil {
		writeError(w, err)
		return
	}
	n, err := a.owner()
	if err != nil {
		writeError(w, err)
		return
	}
	stream, err := n.Scan(r.Context(), def, req)
	if err != nil {
		writeError(w, err)
		return
	}
	if p.q.Has("limit") && req.Limit == 0 {
		stream.Batches = func(func(arrow.RecordBatch, error) bool) {}
	}
	a.sendRows(r.Context(), w, stream, format, longs)
}

// sendRows writes a scan's result. Nothing is sent before the first batch, so
// that an error until then has its own status; a later one breaks the
// connection, because a silent cut would look like the end.
func (a *Agent) sendRows(ctx context.Context, w http.ResponseWriter, s *RowStream, format rows.Format, longs bool) {
	out := bufio.NewWriterSize(w, 64<<10)
	var enc rows.Encoder
	start := func() (err error) {
		w.Header().Set("Content-Type", format.ContentType())
		enc, err = rows.NewEncoder(out, rows.EncodeOptions{Schema: s.Schema.Arrow(), Format: format, LongAsString: longs})
		return err
	}
	finish := func(err error) {
		if err == nil {
			return
		}
		if enc == nil {
			writeError(w, err)
			return
		}
		a.logger.Warn("scan broken off", "error", err)
		panic(http.ErrAbortHandler) // net/http's way to break the connection
	}
	for rec, err := range s.Batches {
		if err == nil && enc == nil {
			err = start()
		}
		if err == nil {
			err = enc.Write(rec)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			finish(err)
			return
		}
		a.metrics.rowsOut.Add(float64(rec.NumRows()))
	}
	if enc == nil {
		if err := start(); err != nil {
			writeError(w, err)
			return
		}
	}
	err := enc.Close()
	if err == nil {
		err = out.Flush()
	}
	finish(err)
}

// handleCount serves GET …/count; with where it scans.
func (a *Agent) handleCount(w http.ResponseWriter, r *http.Request) {
	p := newReadParams(r.URL.Query(), "layer", "where", "snapshot", "as_of")
	req := ScanRequest{Where: p.q.Get("where"), Layer: Layer(p.q.Get("layer")), Snapshot: p.int("snapshot", 1), AsOf: p.time("as_of")}
	if p.err != nil {
		writeError(w, p.err)
		return
	}
	def, err := a.tableOf(r)
	if err != nil {
		writeError(w, err)
		return
	}
	n, err := a.owner()
	if err != nil {
		writeError(w, err)
		return
	}
	count, err := n.count(r.Context(), def, req)
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]int64{"count": count})
}
