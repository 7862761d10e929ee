package agent

import (
	"net/http"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
)

// procedures are the paths of all Connect methods.
var procedures = func() map[string]bool {
	out := map[string]bool{}
	for _, file := range []protoreflect.FileDescriptor{firnv1.File_firn_v1_catalog_proto, firnv1.File_firn_v1_cluster_proto, firnv1.File_firn_v1_data_proto} {
		for i := range file.Services().Len() {
			service := file.Services().Get(i)
			for j := range service.Methods().Len() {
				out["/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name())] = true
			}
		}
	}
	return out
}()

// spoken gives the 405 and 415 that connect-go sends without a body the error
// form of every other route.
func spoken(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(&spokenWriter{ResponseWriter: w, r: r}, r)
	})
}

type spokenWriter struct {
	http.ResponseWriter
	r *http.Request
}

// WriteHeader implements http.ResponseWriter.
func (s *spokenWriter) WriteHeader(status int) {
	h := s.Header()
	switch status {
	case http.StatusMethodNotAllowed:
		writeError(s.ResponseWriter, finerError{errs.New(errs.Unsupported, "method %s is not served here; use %s", s.r.Method, h.Get("Allow")), status})
	case http.StatusUnsupportedMediaType:
		writeError(s.ResponseWriter, unsupportedMedia(status, strings.Split(h.Get("Accept-Post"), ", "),
			"content type %q: this route takes %s", s.r.Header.Get("Content-Type"), h.Get("Accept-Post")))
	default:
		s.ResponseWriter.WriteHeader(status)
	}
}

// Unwrap lets http.ResponseController reach the connection.
func (s *spokenWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Flush implements http.Flusher, which connect-go asks for.
func (s *spokenWriter) Flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() }
