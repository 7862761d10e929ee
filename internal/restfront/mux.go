package restfront

import (
	"net/http"

	"github.com/firn-data/firn/internal/apierr"
	"github.com/firn-data/firn/internal/errs"
)

// JSONErrors serves mux, and answers in the error form of the plain routes where
// mux knows no route: 404, or 405 with the methods that the path allows.
func JSONErrors(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r) // not h: only the mux sets path values
			return
		}
		answer := &recorder{header: http.Header{}}
		h.ServeHTTP(answer, r)
		switch answer.status {
		case http.StatusMethodNotAllowed:
			allow := answer.header.Get("Allow")
			w.Header().Set("Allow", allow)
			apierr.WriteHTTPStatus(w, answer.status,
				errs.New(errs.Unsupported, "%s is not served at %s; it allows %s", r.Method, r.URL.Path, allow))
		case http.StatusNotFound:
			apierr.WriteHTTP(w, errs.New(errs.NotFound, "no route %s %s; the routes are listed in docs/api.md", r.Method, r.URL.Path))
		default: // a redirect to the clean path
			h.ServeHTTP(w, r)
		}
	})
}
