package azstore

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"gocloud.dev/gcerrors"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// isTaken reports whether a conditional put was refused because of its condition.
func isTaken(err error) bool {
	code := gcerrors.Code(err)
	return code == gcerrors.FailedPrecondition || code == gcerrors.AlreadyExists
}

// classify turns a provider's error into a classified one. ctx is the caller's,
// without the call's own time limit. write says that a lost answer is Unknown.
func classify(ctx context.Context, op string, err error, write bool) error {
	if err == nil {
		return nil
	}
	e := &errs.Error{Op: op, Cause: err}
	lost := errs.Unavailable
	if write {
		lost = errs.Unknown
	}
	var dns *net.DNSError
	var dial *net.OpError
	status, code := statusOf(err)
	switch {
	case ctx.Err() != nil && write:
		e.Class = errs.Unknown
	case ctx.Err() != nil:
		e.Class = errs.Canceled
	case code == "ContainerNotFound":
		e.Class, e.Msg = errs.Invalid, "the container does not exist; create it or correct the store's URL"
	case errors.As(err, &dns), errors.As(err, &dial) && dial.Op == "dial":
		e.Class, e.Msg = errs.Unavailable, "the store cannot be reached; check its name and the network"
	case status != 0:
		e.Class, e.Msg = statusClass(status, code, lost)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		e.Class = lost
	default:
		e.Class = codeClass(gcerrors.Code(err), lost)
	}
	return e
}

// statusOf returns the HTTP status and error code below gocloud's error.
func statusOf(err error) (status int, code string) {
	var azure *azcore.ResponseError
	if errors.As(err, &azure) {
		return azure.StatusCode, azure.ErrorCode
	}
	return 0, ""
}

func statusClass(status int, code string, lost errs.Class) (errs.Class, string) {
	if code == "AuthenticationFailed" { // a 403
		status = http.StatusUnauthorized
	}
	return objstore.StatusClass(status, lost)
}

func codeClass(code gcerrors.ErrorCode, lost errs.Class) errs.Class {
	switch code {
	case gcerrors.NotFound:
		return errs.NotFound
	case gcerrors.InvalidArgument:
		return errs.Invalid
	case gcerrors.PermissionDenied:
		return errs.PermissionDenied
	case gcerrors.Unimplemented:
		return errs.Unsupported
	case gcerrors.ResourceExhausted:
		return errs.Unavailable
	}
	return lost
}
