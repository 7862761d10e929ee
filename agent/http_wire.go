package agent

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// lingerTime is how long the rest of a refused HTTP/1 body is read and thrown
// away. Without it the kernel answers what still arrives with a reset, and a
// client that sends its whole body before it looks for the answer never sees it.
const lingerTime = 10 * time.Second

// patient lets an error answer overtake the body of its own request on HTTP/1:
// the answer is sent at once, then the rest of the body is discarded, for a
// bounded time and in bounded memory. A body that ends in time leaves the
// connection usable. HTTP/2 does all this by itself.
func patient(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		body := &wireBody{inner: r.Body}
		early := &earlyWriter{ResponseWriter: w, body: body}
		// A copy: net/http looks into its own request for a body that waits to be asked for.
		own := *r
		own.Body = body
		next.ServeHTTP(early, &own)
		asked := body.touched.Load() || !strings.EqualFold(r.Header.Get("Expect"), "100-continue")
		if early.early && asked && w.Header().Get("Content-Length") != "" {
			early.Flush()
			_, _ = io.Copy(io.Discard, r.Body)
		}
	})
}

// wireBody is a request's body that knows whether its end was reached. A
// decoder may still read it while the answer is written.
type wireBody struct {
	inner   io.ReadCloser
	touched atomic.Bool
	done    atomic.Bool
}

// Read implements io.Reader.
func (b *wireBody) Read(p []byte) (int, error) {
	b.touched.Store(true)
	n, err := b.inner.Read(p)
	if err == io.EOF {
		b.done.Store(true)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = finerError{errs.New(errs.Canceled, "the body did not arrive in time"), http.StatusRequestTimeout}
	}
	return n, err
}

// Close implements io.Closer.
func (b *wireBody) Close() error { return b.inner.Close() }

// earlyWriter notices an error answer that comes before the end of the body.
type earlyWriter struct {
	http.ResponseWriter
	body  *wireBody
	early bool
}

// WriteHeader implements http.ResponseWriter.
func (w *earlyWriter) WriteHeader(status int) {
	if status >= http.StatusBadRequest && !w.body.done.Load() && !w.early {
		w.early = true
		control := http.NewResponseController(w.ResponseWriter)
		_ = control.EnableFullDuplex() // else net/http waits for the body before it answers
		_ = control.SetReadDeadline(time.Now().Add(lingerTime))
	}
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (w *earlyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush implements http.Flusher, which connect-go asks for.
func (w *earlyWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// bodyWithin bounds the time in which a body arrives, until the returned
// function is called: net/http takes a later read timeout for a client that left.
func bodyWithin(w http.ResponseWriter, d time.Duration) (arrived func()) {
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(d))
	return func() { _ = control.SetReadDeadline(time.Time{}) }
}

// queryOf parses a request's query. A broken one is an error: a parameter must
// not be lost in silence.
func queryOf(r *http.Request) (url.Values, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errs.New(errs.Invalid, "the query is malformed: %v; write special characters as %%XX", err)
	}
	return q, nil
}

// oneOf refuses parameters that a route does not know and those given twice.
func oneOf(q url.Values, known map[string]bool) error {
	for name, values := range q {
		if !known[name] {
			return errs.New(errs.Invalid, "query parameter %q is not known on this route", name)
		}
		if len(values) > 1 {
			return errs.New(errs.Invalid, "query parameter %q is given %d times", name, len(values))
		}
	}
	return nil
}
