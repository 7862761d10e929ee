package lakehouse

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
)

// restError is an error in the form of the Iceberg REST protocol.
type restError struct {
	status     int
	kind       string // the name of Iceberg's exception
	message    string
	retryAfter time.Duration
}

// Error returns the message.
func (e restError) Error() string { return e.message }

func noRoute(r *http.Request) restError {
	return restError{http.StatusNotFound, "NoSuchEndpointException", "No such endpoint: " + r.Method + " " + r.URL.Path, 0}
}

func noNamespace(namespace string) restError {
	return restError{http.StatusNotFound, "NoSuchNamespaceException", "Namespace does not exist: " + display(namespace), 0}
}

// readOnly refuses a write: 406 is what the protocol has for an operation that
// the server does not support, and engines turn it into their
// UnsupportedOperationException without a retry.
func readOnly(r *http.Request) restError {
	return restError{
		http.StatusNotAcceptable, "UnsupportedOperationException",
		"This catalog is read-only, " + r.Method + " is not served: create, alter and write tables through Firn's own API", 0,
	}
}

// display prints a namespace's levels with dots, as engines do.
func display(namespace string) string { return strings.ReplaceAll(namespace, namespaceSeparator, ".") }

// toRESTError is the one place where error classes become Iceberg errors.
func toRESTError(err error) restError {
	var rest restError
	if errors.As(err, &rest) {
		return rest
	}
	rest = restError{message: err.Error(), retryAfter: errs.RetryAfter(err)}
	switch errs.ClassOf(err) {
	case errs.Invalid, errs.OutOfRange:
		rest.status, rest.kind = http.StatusBadRequest, "BadRequestException"
	case errs.NotFound:
		rest.status, rest.kind = http.StatusNotFound, "NotFoundException"
	case errs.Exists:
		rest.status, rest.kind = http.StatusConflict, "AlreadyExistsException"
	case errs.Unauthenticated:
		rest.status, rest.kind = http.StatusUnauthorized, "NotAuthorizedException"
	case errs.PermissionDenied:
		rest.status, rest.kind = http.StatusForbidden, "ForbiddenException"
	case errs.Unsupported:
		rest.status, rest.kind = http.StatusNotAcceptable, "UnsupportedOperationException"
	case errs.TooLarge:
		rest.status, rest.kind = http.StatusRequestEntityTooLarge, "BadRequestException"
	case errs.Exhausted:
		rest.status, rest.kind = http.StatusTooManyRequests, "TooManyRequestsException"
	case errs.Conflict, errs.Fenced, errs.Unavailable, errs.Unknown, errs.Closed, errs.Canceled:
		rest.status, rest.kind = http.StatusServiceUnavailable, "ServiceUnavailableException"
	case errs.Internal, errs.Corrupt:
		rest.status, rest.kind = http.StatusInternalServerError, "InternalServerError"
	default:
		rest.status, rest.kind = http.StatusInternalServerError, "InternalServerError"
	}
	if rest.retryAfter == 0 && (rest.status == http.StatusServiceUnavailable || rest.status == http.StatusTooManyRequests) {
		rest.retryAfter = time.Second
	}
	return rest
}

// fail answers with an error, in Iceberg's form; HEAD gets the status alone.
func (h *catalogHandler) fail(w http.ResponseWriter, r *http.Request, err error) {
	rest := toRESTError(err)
	if rest.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		h.logger.WarnContext(r.Context(), "iceberg catalog request failed", "method", r.Method, "path", r.URL.Path, "status", rest.status, "error", err)
	}
	if rest.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(rest.retryAfter.Seconds()))))
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(rest.status)
		return
	}
	writeJSON(w, rest.status, map[string]any{
		"error": map[string]any{"message": rest.message, "type": rest.kind, "code": rest.status},
	})
}

// writeJSON answers with a JSON body. Encoding our own maps cannot fail, and a
// client that went away is no one's error.
func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error":{"message":"encode answer","type":"InternalServerError","code":500}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	w.WriteHeader(status)
	_, _ = w.Write(data)
}
