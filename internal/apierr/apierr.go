package apierr

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// wire is what a class looks like to a client.
type wire struct {
	code   connect.Code
	status int
}

// Every class has a row; TestEveryClassHasAWireForm holds that.
var byClass = map[errs.Class]wire{
	errs.Internal: {connect.CodeInternal, http.StatusInternalServerError},
	errs.Invalid:  {connect.CodeInvalidArgument, http.StatusBadRequest},
	errs.NotFound: {connect.CodeNotFound, http.StatusNotFound},
	errs.Exists:   {connect.CodeAlreadyExists, http.StatusConflict},
	errs.Conflict: {connect.CodeAborted, http.StatusConflict},
	// Another incarnation serves what this one no longer may: to a client that
	// is a passing fault.
	errs.Fenced:      {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Unavailable: {connect.CodeUnavailable, http.StatusServiceUnavailable},
	// Retrying is right with a producer or an idempotency key; the class tells it
	// from a request that surely was not applied.
	errs.Unknown:   {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Corrupt:   {connect.CodeDataLoss, http.StatusInternalServerError},
	errs.Exhausted: {connect.CodeResourceExhausted, http.StatusTooManyRequests},
	// A fixed limit: the status keeps it apart from Exhausted, which passes.
	errs.TooLarge:         {connect.CodeResourceExhausted, http.StatusRequestEntityTooLarge},
	errs.OutOfRange:       {connect.CodeOutOfRange, http.StatusGone},
	errs.Unauthenticated:  {connect.CodeUnauthenticated, http.StatusUnauthorized},
	errs.PermissionDenied: {connect.CodePermissionDenied, http.StatusForbidden},
	errs.Unsupported:      {connect.CodeUnimplemented, http.StatusNotImplemented},
	errs.Closed:           {connect.CodeUnavailable, http.StatusServiceUnavailable},
	errs.Canceled:         {connect.CodeCanceled, 499},
}

// defaultRetryAfter is the hint of a 429 or 503 that brings none of its own.
const defaultRetryAfter = time.Second

// Code returns the Connect code of err.
func Code(err error) connect.Code {
	if errors.Is(err, context.DeadlineExceeded) && errs.ClassOf(err) == errs.Canceled {
		return connect.CodeDeadlineExceeded
	}
	return byClass[errs.ClassOf(err)].code
}

// Status returns the HTTP status of err.
func Status(err error) int {
	if errors.Is(err, context.DeadlineExceeded) && errs.ClassOf(err) == errs.Canceled {
		return http.StatusGatewayTimeout
	}
	return byClass[errs.ClassOf(err)].status
}

// retryAfter returns the hint for a client, zero when retrying is no use.
func retryAfter(err error) time.Duration {
	if d := errs.RetryAfter(err); d > 0 {
		return d
	}
	switch Status(err) {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return defaultRetryAfter
	}
	return 0
}

// Connect returns err as a Connect error with its class, details and retry
// hint. Nil stays nil; a Connect error is returned as it is.
func Connect(err error) *connect.Error {
	if err == nil {
		return nil
	}
	var ready *connect.Error
	if errors.As(err, &ready) {
		return ready
	}
	out := connect.NewError(Code(err), errors.New(err.Error()))
	info := Info(err)
	if d, e := connect.NewErrorDetail(info); e == nil {
		out.AddDetail(d)
	}
	if info.RetryAfterMs > 0 {
		out.Meta().Set("Retry-After", retryAfterHeader(time.Duration(info.RetryAfterMs)*time.Millisecond))
	}
	return out
}

// Info returns the machine-readable part of err.
func Info(err error) *firnv1.ErrorInfo {
	info := &firnv1.ErrorInfo{Class: errs.ClassOf(err).String(), RetryAfterMs: retryAfter(err).Milliseconds()}
	for _, d := range errs.Details(err) {
		if v := toValue(d); v != nil {
			info.Details = append(info.Details, v)
		}
	}
	return info
}

// StreamError returns err in the form of a failure inside a stream.
func StreamError(err error) *firnv1.StreamError {
	return &firnv1.StreamError{Code: Code(err).String(), Message: err.Error(), Info: Info(err)}
}

func toValue(d any) *structpb.Value {
	b, err := json.Marshal(d)
	if err != nil {
		return nil
	}
	v := new(structpb.Value)
	if protojson.Unmarshal(b, v) != nil {
		return nil
	}
	return v
}

// retryAfterHeader is in whole seconds, at least one: the header knows no less.
func retryAfterHeader(d time.Duration) string {
	return strconv.FormatInt(int64(math.Ceil(max(d, time.Second).Seconds())), 10)
}

// Body is the JSON error body of the plain routes.
type Body struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Details []any  `json:"details"`
}

// BodyOf returns err as a JSON error body. Details is never nil.
func BodyOf(err error) Body {
	b := Body{Code: Code(err).String(), Message: err.Error(), Details: errs.Details(err)}
	if b.Details == nil {
		b.Details = []any{}
	}
	return b
}

// WriteHTTP answers a plain HTTP request with err, under its class's status.
func WriteHTTP(w http.ResponseWriter, err error) { WriteHTTPStatus(w, Status(err), err) }

// WriteHTTPStatus answers with err under a status that says more than its
// class does (405, 406, 415).
func WriteHTTPStatus(w http.ResponseWriter, status int, err error) {
	if d := retryAfter(err); d > 0 {
		w.Header().Set("Retry-After", retryAfterHeader(d))
	}
	write(w, status, BodyOf(err))
}

func write(w http.ResponseWriter, status int, body Body) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Encoding")
	w.Header().Del("Content-Length")
	w.WriteHeader(status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(body) // the client has gone; nobody is left to tell
}
