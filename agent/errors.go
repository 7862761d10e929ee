package agent

import (
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
	errs.Unsupported:      {connect.CodeUnimplemented, http.StatusUnsupportedMediaType},
	errs.Closed:           {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Canceled:         {connect.CodeCanceled, 499},
}

func faceOf(err error) face {
	if errors.As(err, new(notAcceptableError)) {
		return face{connect.CodeUnimplemented, http.StatusNotAcceptable}
	}
	if f, ok := faces[errs.ClassOf(err)]; ok {
		return f
	}
	return faces[errs.Internal]
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

// bodyOf returns an error's JSON form.
func bodyOf(err error) errorBody {
	b := errorBody{Code: faceOf(err).code.String(), Message: err.Error(), Details: errs.Details(err)}
	if b.Details == nil {
		b.Details = []any{}
	}
	return b
}

// writeError answers a plain route with an error.
func writeError(w http.ResponseWriter, err error) {
	f := faceOf(err)
	h := w.Header()
	if d := retryHint(err, f.status); d > 0 {
		h.Set("Retry-After", strconv.Itoa(int(math.Ceil(d.Seconds()))))
	}
	if f.status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", "Bearer")
	}
	h.Set("Content-Type", "application/json")
	h.Del("Content-Encoding")
	w.WriteHeader(f.status)
	body, _ := json.Marshal(bodyOf(err))
	_, _ = w.Write(append(body, '\n'))
}

// connectError gives an error the form of the Connect, gRPC and gRPC-Web routes.
func connectError(err error) error {
	if err == nil {
		return nil
	}
	f := faceOf(err)
	out := connect.NewError(f.code, err)
	info := &firnv1.ErrorInfo{Class: errs.ClassOf(err).String(), RetryAfterMs: retryHint(err, f.status).Milliseconds()}
	for _, d := range errs.Details(err) {
		if v := protoValue(d); v != nil {
			info.Details = append(info.Details, v)
		}
	}
	if detail, derr := connect.NewErrorDetail(info); derr == nil {
		out.AddDetail(detail)
	}
	if info.RetryAfterMs > 0 {
		out.Meta().Set("Retry-After", strconv.FormatInt((info.RetryAfterMs+999)/1000, 10))
	}
	return out
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
