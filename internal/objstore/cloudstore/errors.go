package cloudstore

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"

	"cloud.google.com/go/storage"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"gocloud.dev/gcerrors"
	"google.golang.org/api/googleapi"

	"github.com/firn-data/firn/internal/errs"
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
	case errors.Is(err, storage.ErrBucketNotExist), code == "ContainerNotFound":
		e.Class, e.Msg = errs.Invalid, "the bucket does not exist; create it or correct the store's URL"
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
	var google *googleapi.Error
	var azure *azcore.ResponseError
	switch {
	case errors.As(err, &azure):
		return azure.StatusCode, azure.ErrorCode
	case errors.As(err, &google):
		return google.Code, ""
	}
	return 0, ""
}

func statusClass(status int, code string, lost errs.Class) (errs.Class, string) {
	switch {
	case code == "AuthenticationFailed" || status == http.StatusUnauthorized:
		return errs.Unauthenticated, "the store does not accept the credentials"
	case status == http.StatusForbidden:
		return errs.PermissionDenied, "the credentials lack a right; Firn needs to get, put, list and delete objects"
	case status == http.StatusNotFound:
		return errs.NotFound, ""
	case status == http.StatusRequestEntityTooLarge:
		return errs.TooLarge, ""
	case status == http.StatusConflict || status == http.StatusRequestTimeout || status >= 500:
		return lost, ""
	case status == http.StatusTooManyRequests:
		return errs.Unavailable, "the store asks to slow down"
	case status == http.StatusBadRequest:
		return errs.Invalid, ""
	}
	return errs.Unavailable, ""
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
