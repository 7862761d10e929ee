package agent

import (
	"bufio"
	"context"
	"mime"
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
	best := 0.0
	for _, part := range strings.Split(accept, ",") {
		media, q := weighed(part)
		if q <= best {
			continue
		}
		if media == "text/event-stream" && offerSSE {
			format, sse, best = rows.NDJSON, true, q
		} else if f, ok := offered(media); ok {
			format, sse, best = f, false, q
		}
	}
	if best > 0 {
		return format, sse, nil
	}
	accepted := rows.ContentTypes()
	if offerSSE {
		accepted = append(accepted, "text/event-stream")
	}
	return 0, false, unsupportedMedia(http.StatusNotAcceptable, accepted, "Accept %q: rows are served as %s", accept, strings.Join(accepted, ", "))
}

// weighed splits one part of an Accept header into media type and weight; the
// weight of what cannot be read is 0.
func weighed(part string) (media string, q float64) {
	media, params, err := mime.ParseMediaType(part)
	if err != nil {
		return "", 0
	}
	if text, ok := params["q"]; ok {
		if q, err = strconv.ParseFloat(text, 64); err != nil || !(q >= 0) {
			return "", 0
		}
		return media, q
	}
	return media, 1
}

// offered returns the format that a media range asks for.
func offered(media string) (rows.Format, bool) {
	switch media {
	case "*/*", "application/*":
		return rows.NDJSON, true
	case "text/*":
		return rows.CSV, true
	case "application/vnd.apache.arrow.file": // taken, not served: a file has its footer at the end
		return 0, false
	}
	return rows.FormatFromContentType(media)
}

// readParams parses query parameters, keeping the first error.
type readParams struct {
	q   url.Values
	err error
}

func newReadParams(r *http.Request, known ...string) *readParams {
	p := &readParams{}
	allowed := map[string]bool{}
	for _, k := range known {
		allowed[k] = true
	}
	if p.q, p.err = queryOf(r); p.err == nil {
		p.err = oneOf(p.q, allowed)
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

// parseMoment reads RFC 3339 or integer epoch microseconds. A space where the
// zone's sign belongs is the + of a URL that was not escaped.
func parseMoment(v string) (time.Time, error) {
	if us, err := strconv.ParseInt(v, 10, 64); err == nil {
		return time.UnixMicro(us), nil
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	if err != nil {
		t, err = time.Parse(time.RFC3339Nano, strings.ReplaceAll(v, " ", "+"))
	}
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
	p := newReadParams(r, "columns", "where", "limit", "layer", "snapshot", "as_of", "long")
	req := ScanRequest{
		Columns: p.columns(), Where: p.q.Get("where"), Limit: p.int("limit", 0), Layer: Layer(p.q.Get("layer")),
		Snapshot: p.int("snapshot", 1), AsOf: p.time("as_of"),
	}
	longs := p.longAsString()
	p.checkMoment(req)
	format, _, err := negotiate(acceptOf(r), false)
	if p.err == nil {
		p.err = err
	}
	if p.err != nil {
		writeError(w, p.err)
		return
	}
	def, n, err := a.tableAndOwner(r.Context(), r.PathValue("database"), r.PathValue("table"))
	if err != nil {
		writeError(w, err)
		return
	}
	if r.Method == http.MethodHead {
		_, err := newProjection(def.Current(), req.Columns, req.Where)
		writeHead(w, format.ContentType(), err)
		return
	}
	stream, err := n.Scan(r.Context(), def, req)
	if err != nil {
		writeError(w, err)
		return
	}
	defer stream.Close()
	if p.q.Has("limit") && req.Limit == 0 {
		stream.Batches = func(func(arrow.RecordBatch, error) bool) {}
	}
	a.sendRows(r.Context(), w, stream, format, longs)
}

// acceptOf joins all Accept headers.
func acceptOf(r *http.Request) string { return strings.Join(r.Header.Values("Accept"), ",") }

// writeHead answers HEAD on a route whose body would cost a scan.
func writeHead(w http.ResponseWriter, contentType string, err error) {
	if err != nil {
		writeError(w, err)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(http.StatusOK)
}

// checkMoment refuses reads that name a moment in two ways, or an unknown layer.
func (p *readParams) checkMoment(req ScanRequest) {
	switch {
	case req.Layer != "" && req.Layer != LayerUnion && req.Layer != LayerLake:
		p.fail("layer %q: must be union or lake", req.Layer)
	case req.Snapshot != 0 && !req.AsOf.IsZero():
		p.fail("give snapshot or as_of, not both")
	case req.Layer == LayerUnion && (req.Snapshot != 0 || !req.AsOf.IsZero()):
		p.fail("snapshot and as_of read the lake as it was: leave out layer, or give layer=lake")
	}
}

// sendRows writes a scan's result. Nothing is sent before the first batch, so
// that an error until then has its own status; a later one breaks the
// connection, because a silent cut would look like the end.
func (a *Agent) sendRows(ctx context.Context, w http.ResponseWriter, s *RowStream, format rows.Format, longs bool) {
	out := bufio.NewWriterSize(w, 64<<10)
	var enc rows.Encoder
	start := func() (err error) {
		w.Header().Set("Content-Type", format.ContentType())
		enc, err = rows.NewEncoder(out, rows.EncodeOptions{Schema: s.Schema.Arrow(), Table: s.Schema, Format: format, LongAsString: longs})
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
	p := newReadParams(r, "layer", "where", "snapshot", "as_of")
	req := ScanRequest{Where: p.q.Get("where"), Layer: Layer(p.q.Get("layer")), Snapshot: p.int("snapshot", 1), AsOf: p.time("as_of")}
	p.checkMoment(req)
	if p.err != nil {
		writeError(w, p.err)
		return
	}
	def, n, err := a.tableAndOwner(r.Context(), r.PathValue("database"), r.PathValue("table"))
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
