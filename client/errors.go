package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// Class says what a caller does about an error.
type Class string

// The classes that an agent names.
const (
	Internal         Class = "internal"          // a fault of Firn; report it
	Invalid          Class = "invalid"           // fix the request
	NotFound         Class = "not found"         // it does not exist
	Exists           Class = "exists"            // it exists already
	Conflict         Class = "conflict"          // wrong state: reread, decide again
	Fenced           Class = "fenced"            // another incarnation took over; retry
	Unavailable      Class = "unavailable"       // a passing fault; retry
	Unknown          Class = "unknown outcome"   // it may have been applied
	Corrupt          Class = "corrupt"           // stored data fails its checksum
	Exhausted        Class = "exhausted"         // slow down and retry
	TooLarge         Class = "too large"         // over a fixed limit, which the message names
	OutOfRange       Class = "out of range"      // an offset outside the log; the details name the range
	Unauthenticated  Class = "unauthenticated"   // no token, or a wrong one
	PermissionDenied Class = "permission denied" // a good token without the right
	Unsupported      Class = "unsupported"       // this agent does not serve it
	Closed           Class = "closed"            // the other side, or this object, was shut down
	Canceled         Class = "canceled"          // the caller gave up or ran out of time
)

// Error is a failure with the class, code and details that the agent gave.
type Error struct {
	Class      Class
	Code       string // Connect's code: "invalid_argument", "unavailable", ...
	Message    string
	Details    []any         // JSON values: row errors, offset ranges, limits
	RetryAfter time.Duration // the agent's hint; zero is none
	cause      error
}

// Error returns the message after the code.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Unwrap returns what caused the error on this side, if anything did.
func (e *Error) Unwrap() error { return e.cause }

// ClassOf returns the class of err: Canceled for the end of a context, Internal
// for what no part of Firn classified.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return Canceled
	}
	return Internal
}

// fromConnect gives an error of a Connect call its class; nil stays nil.
func fromConnect(err error) error {
	var ce *connect.Error
	if err == nil || !errors.As(err, &ce) {
		return err
	}
	for _, d := range ce.Details() {
		if m, derr := d.Value(); derr == nil {
			if info, ok := m.(*firnv1.ErrorInfo); ok {
				return fromInfo(ce.Code().String(), ce.Message(), info, nil)
			}
		}
	}
	out := &Error{Class: classOfCode(ce.Code()), Code: ce.Code().String(), Message: ce.Message(), cause: ce}
	if !connect.IsWireError(err) && outcomeUnknown(ce) {
		out.Class = Unknown
	}
	return out
}

// outcomeUnknown reports whether a call failed on this side in a way that
// leaves open what the agent did: anything after a connection stood.
func outcomeUnknown(ce *connect.Error) bool {
	switch ce.Code() {
	case connect.CodeUnavailable, connect.CodeUnknown, connect.CodeInternal, connect.CodeAborted:
		return !neverSent(ce)
	}
	return false
}

// fromStream gives the failure inside a stream its class.
func fromStream(e *firnv1.StreamError) error {
	return fromInfo(e.GetCode(), e.GetMessage(), e.GetInfo(), nil)
}

func fromInfo(code, message string, info *firnv1.ErrorInfo, cause error) *Error {
	out := &Error{
		Class: Class(info.GetClass()), Code: code, Message: message, cause: cause,
		RetryAfter: time.Duration(info.GetRetryAfterMs()) * time.Millisecond,
	}
	for _, d := range info.GetDetails() {
		out.Details = append(out.Details, d.AsInterface())
	}
	if out.Class == "" {
		out.Class = classOfText(code)
	}
	return out
}

// maxErrorBytes bounds what is read of an error answer: 100 row errors fit.
const maxErrorBytes = 1 << 20

// fromResponse reads the error body of a plain route.
func fromResponse(r *http.Response) *Error {
	raw, _ := io.ReadAll(io.LimitReader(r.Body, maxErrorBytes)) // what was read is enough to report
	var body struct {
		Code    string `json:"code"`
		Message string `json:"message"`
		Details []any  `json:"details"`
	}
	e := &Error{Class: classOfStatus(r.StatusCode)}
	if err := json.Unmarshal(raw, &body); err == nil && body.Code != "" {
		e.Code, e.Message, e.Details = body.Code, body.Message, body.Details
		e.takeClass()
		if e.Class == "" {
			e.Class = classOfText(body.Code)
		}
	} else { // a proxy, or not Firn at all
		e.Code = "unknown"
		e.Message = fmt.Sprintf("%s answered %s: %.200s", r.Request.URL.Host, r.Status, raw)
	}
	if e.Class == "" {
		e.Class = Internal
	}
	if s, err := strconv.Atoi(r.Header.Get("Retry-After")); err == nil && s > 0 && e.RetryAfter == 0 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	return e
}

// takeClass moves the class that the agent tells with a passing fault out of the
// details: a request that was surely not applied, or one that may have been.
func (e *Error) takeClass() {
	if len(e.Details) == 0 {
		return
	}
	told, _ := e.Details[0].(map[string]any)
	class, ok := told["class"].(string)
	if !ok {
		return
	}
	e.Class, e.Details = Class(class), e.Details[1:]
	if ms, ok := told["retry_after_ms"].(float64); ok {
		e.RetryAfter = time.Duration(ms) * time.Millisecond
	}
}

// classOfStatus returns the class that a status alone tells, or "".
func classOfStatus(status int) Class {
	switch status {
	case http.StatusUnauthorized:
		return Unauthenticated
	case http.StatusForbidden:
		return PermissionDenied
	case http.StatusNotFound:
		return NotFound
	case http.StatusGone:
		return OutOfRange
	case http.StatusRequestEntityTooLarge:
		return TooLarge
	case http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusUnsupportedMediaType:
		return Unsupported
	case http.StatusTooManyRequests:
		return Exhausted
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return Unknown // a proxy lost the agent; the agent may have done it
	case http.StatusServiceUnavailable:
		return Unavailable
	}
	return ""
}

func classOfText(code string) Class {
	var c connect.Code
	if c.UnmarshalText([]byte(code)) != nil {
		return Internal
	}
	return classOfCode(c)
}

func classOfCode(code connect.Code) Class {
	switch code {
	case connect.CodeCanceled, connect.CodeDeadlineExceeded:
		return Canceled
	case connect.CodeInvalidArgument:
		return Invalid
	case connect.CodeNotFound:
		return NotFound
	case connect.CodeAlreadyExists:
		return Exists
	case connect.CodePermissionDenied:
		return PermissionDenied
	case connect.CodeResourceExhausted:
		return Exhausted
	case connect.CodeFailedPrecondition, connect.CodeAborted:
		return Conflict
	case connect.CodeOutOfRange:
		return OutOfRange
	case connect.CodeUnimplemented:
		return Unsupported
	case connect.CodeUnavailable:
		return Unavailable
	case connect.CodeUnauthenticated:
		return Unauthenticated
	case connect.CodeDataLoss:
		return Corrupt
	case connect.CodeUnknown:
		return Unknown
	}
	return Internal
}
