package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/structpb"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
)

// face is how a class of errors looks from outside.
type face struct {
	code   connect.Code
	status int
}

// faces maps error classes to Connect codes and HTTP statuses: the only place
// that does.
var faces = map[errs.Class]face{
	errs.Internal:         {connect.CodeInternal, http.StatusInternalServerError},
	errs.Invalid:          {connect.CodeInvalidArgument, http.StatusBadRequest},
	errs.NotFound:         {connect.CodeNotFound, http.StatusNotFound},
	errs.Exists:           {connect.CodeAlreadyExists, http.StatusConflict},
	errs.Conflict:         {connect.CodeFailedPrecondition, http.StatusConflict},
	errs.Fenced:           {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Unavailable:      {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Unknown:          {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Corrupt:          {connect.CodeDataLoss, http.StatusInternalServerError},
	errs.Exhausted:        {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	errs.TooLarge:         {connect.CodeResourceExhausted, http.StatusRequestEntityTooLarge},
	errs.OutOfRange:       {connect.CodeOutOfRange, http.StatusGone},
	errs.Unauthenticated:  {connect.CodeUnauthenticated, http.StatusUnauthorized},
	errs.PermissionDenied: {connect.CodePermissionDenied, http.StatusForbidden},
	errs.Unsupported:      {connect.CodeUnimplemented, http.StatusNotImplemented},
	errs.Closed:           {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Canceled:         {connect.CodeCanceled, 499},
}

// finerError is an error that HTTP has a finer status for than its class.
type finerError struct {
	cause  *errs.Error
	status int
}

// Error implements error.
func (e finerError) Error() string { return e.cause.Error() }

// Unwrap keeps class, details and hints.
func (e finerError) Unwrap() error { return e.cause }

// classOf is the class that a caller of the API is told. An error of the store
// speaks of Firn's own objects and credentials, never of the caller's: a lost
// object is not "no such table", a refused key is not the caller's token.
func classOf(err error) errs.Class {
	class := errs.ClassOf(err)
	if !errors.As(err, new(storeError)) {
		return class
	}
	switch class {
	case errs.NotFound:
		return errs.Corrupt
	case errs.Invalid, errs.Unauthenticated, errs.PermissionDenied, errs.Unsupported, errs.OutOfRange, errs.TooLarge, errs.Exists:
		return errs.Unavailable
	}
	return class
}

func faceOf(err error) face {
	f, ok := faces[classOf(err)]
	if !ok {
		f = faces[errs.Internal]
	}
	var finer finerError
	if errors.As(err, &finer) {
		f.status = finer.status
	}
	return f
}

// unsupportedMedia is the 415 or 406 of a media type, with those that are taken.
func unsupportedMedia(status int, accepted []string, format string, args ...any) error {
	e := errs.New(errs.Unsupported, format, args...)
	e.Details = []any{map[string]any{"accepted": accepted}}
	return finerError{e, status}
}

// retryHint is the wait that a refused caller is told: every 429 and 503 has one.
func retryHint(err error, status int) time.Duration {
	if d := errs.RetryAfter(err); d > 0 {
		return d
	}
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		return time.Second
	}
	return 0
}

// errorBody is the JSON form of an error on every plain route.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details []any  `json:"details"`
}

// refusal is the detail of an error that passes with time. The code alone does
// not tell a request that was surely not applied from one that may have been:
// the class does, "unknown outcome" being the latter.
type refusal struct {
	Class        string `json:"class"`
	RetryAfterMs int64  `json:"retry_after_ms"`
}

// bodyOf returns an error's JSON form.
func bodyOf(err error) errorBody {
	f := faceOf(err)
	b := errorBody{Code: f.code.String(), Message: err.Error(), Details: errs.Details(err)}
	if f.code == connect.CodeUnavailable || f.status == http.StatusTooManyRequests {
		b.Details = append([]any{refusal{classOf(err).String(), retryHint(err, f.status).Milliseconds()}}, b.Details...)
	}
	if b.Details == nil {
		b.Details = []any{}
	}
	return b
}

// writeError answers a plain route with an error.
func writeError(w http.ResponseWriter, err error) {
	sendError(w, err, bodyOf(err))
}

// sendError answers with an error's status and headers and a body of its own.
func sendError(w http.ResponseWriter, err error, body any) {
	f := faceOf(err)
	h := w.Header()
	if d := retryHint(err, f.status); d > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Del("Content-Encoding")
	writeJSON(w, f.status, body)
}

// writeJSON answers with a whole JSON body of known length.
func writeJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		status = http.StatusInternalServerError
		body.Reset()
		body.WriteString(`{"code":"internal","message":"encode answer","details":[]}` + "\n")
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes())
}

// connectError gives an error the form of the Connect, gRPC and gRPC-Web routes.
func connectError(err error) error {
	if err == nil {
		return nil
	}
	out := connect.NewError(faceOf(err).code, err)
	info := errorInfo(err)
	if detail, derr := connect.NewErrorDetail(info); derr == nil {
		out.AddDetail(detail)
	}
	if info.RetryAfterMs > 0 {
		out.Meta().Set("Retry-After", strconv.FormatInt((info.RetryAfterMs+999)/1000, 10))
	}
	return out
}

// errorInfo is the detail that every error carries inside protobuf messages.
func errorInfo(err error) *firnv1.ErrorInfo {
	info := &firnv1.ErrorInfo{Class: classOf(err).String(), RetryAfterMs: retryHint(err, faceOf(err).status).Milliseconds()}
	for _, d := range errs.Details(err) {
		if v := protoValue(d); v != nil {
			info.Details = append(info.Details, v)
		}
	}
	return info
}

// protoValue converts any JSON-encodable value.
func protoValue(v any) *structpb.Value {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	out := &structpb.Value{}
	if out.UnmarshalJSON(raw) != nil {
		return nil
	}
	return out
}
