package gcsstore

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"

	"cloud.google.com/go/auth"
	"google.golang.org/api/googleapi"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// classify turns the client's error into a classified one. ctx is the caller's,
// without the attempt's own time limit. write says that a lost answer is Unknown.
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
	var answer *googleapi.Error
	var login *auth.Error
	switch {
	case errors.As(err, &answer) && missingBucket(answer):
		e.Class, e.Msg = errs.Invalid, "the bucket does not exist; create it or correct the store's URL"
	case errors.As(err, &answer):
		e.Class, e.Msg = objstore.StatusClass(answer.Code, lost)
	case errors.As(err, &login) && login.Response != nil && login.Response.StatusCode < 500:
		e.Class, e.Msg = errs.Unauthenticated, "no token was given for the credentials; renew them"
	case ctx.Err() != nil && write:
		e.Class = errs.Unknown
	case ctx.Err() != nil:
		e.Class = errs.Canceled
	case errors.As(err, &dns), errors.As(err, &dial) && dial.Op == "dial":
		e.Class, e.Msg = errs.Unavailable, "the store cannot be reached; check its name and the network"
	default:
		e.Class = lost
	}
	return e
}

// missingBucket tells a missing bucket from a missing object, which the API does
// in words alone.
func missingBucket(e *googleapi.Error) bool {
	return e.Code == http.StatusNotFound && strings.Contains(e.Message+e.Body, "bucket does not exist")
}

// isTaken reports whether a conditional put was refused because of its condition.
func isTaken(err error) bool {
	var e *googleapi.Error
	return errors.As(err, &e) && e.Code == http.StatusPreconditionFailed
}
