package apierr

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
)

// From returns a client's Connect error as a classified error: by the class that
// the server named, else by Connect's code. Nil stays nil; an error that is no
// Connect error keeps its own class.
func From(err error) error {
	if err == nil {
		return nil
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return err
	}
	for _, d := range ce.Details() {
		m, e := d.Value()
		if e != nil {
			continue
		}
		if info, ok := m.(*firnv1.ErrorInfo); ok {
			return fromInfo(ce.Code().String(), ce.Message(), info)
		}
	}
	out := &errs.Error{Class: ClassOfCode(ce.Code().String()), Msg: ce.Message()}
	// Keep the chain, so that errors.Is finds the end of the caller's context.
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		out.Cause, out.Msg = ce.Unwrap(), ""
	}
	return out
}

// FromStream returns the failure inside a stream as a classified error.
func FromStream(e *firnv1.StreamError) error {
	if e == nil {
		return nil
	}
	return fromInfo(e.GetCode(), e.GetMessage(), e.GetInfo())
}

func fromInfo(code, message string, info *firnv1.ErrorInfo) error {
	class, ok := ClassByName(info.GetClass())
	if !ok {
		class = ClassOfCode(code)
	}
	out := &errs.Error{
		Class: class, Msg: message,
		RetryAfter: time.Duration(info.GetRetryAfterMs()) * time.Millisecond,
	}
	for _, d := range info.GetDetails() {
		out.Details = append(out.Details, d.AsInterface())
	}
	return out
}

// ClassByName returns the class that prints as name.
func ClassByName(name string) (errs.Class, bool) {
	for class := range byClass {
		if class.String() == name {
			return class, true
		}
	}
	return errs.Internal, false
}

// ClassOfCode returns the class that a Connect code (as text) most likely
// means, for answers of proxies and of other servers that name no class.
func ClassOfCode(code string) errs.Class {
	switch code {
	case "canceled", "deadline_exceeded":
		return errs.Canceled
	case "invalid_argument", "failed_precondition":
		return errs.Invalid
	case "not_found":
		return errs.NotFound
	case "already_exists":
		return errs.Exists
	case "permission_denied":
		return errs.PermissionDenied
	case "resource_exhausted":
		return errs.Exhausted
	case "aborted":
		return errs.Conflict
	case "out_of_range":
		return errs.OutOfRange
	case "unimplemented":
		return errs.Unsupported
	case "unavailable":
		return errs.Unavailable
	case "unauthenticated":
		return errs.Unauthenticated
	case "data_loss":
		return errs.Corrupt
	case "unknown":
		return errs.Unknown
	}
	return errs.Internal
}

// ClassOfStatus returns the class that a bare HTTP status most likely means.
func ClassOfStatus(status int) errs.Class {
	switch status {
	case 401:
		return errs.Unauthenticated
	case 403:
		return errs.PermissionDenied
	case 404:
		return errs.NotFound
	case 409:
		return errs.Conflict
	case 410:
		return errs.OutOfRange
	case 413:
		return errs.TooLarge
	case 405, 406, 415, 501:
		return errs.Unsupported
	case 429:
		return errs.Exhausted
	case 408, 502, 503, 504:
		return errs.Unavailable
	}
	if status >= 400 && status < 500 {
		return errs.Invalid
	}
	return errs.Internal
}
