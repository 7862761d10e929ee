package objstore

import (
	"net/http"

	"github.com/firn-data/firn/internal/errs"
)

// StatusClass judges an answer of an HTTP store by its status alone, for drivers
// whose provider says no more. lost is the class of an answer that leaves open
// whether the request was applied: Unknown of a write, Unavailable of a read. The
// hint may be empty.
func StatusClass(status int, lost errs.Class) (class errs.Class, hint string) {
	switch {
	case status == http.StatusUnauthorized:
		return errs.Unauthenticated, "the store does not accept the credentials"
	case status == http.StatusForbidden:
		return errs.PermissionDenied, "the credentials lack a right; Firn needs to get, put, list and delete objects"
	case status == http.StatusNotFound:
		return errs.NotFound, ""
	case status == http.StatusRequestEntityTooLarge:
		return errs.TooLarge, ""
	case status == http.StatusRequestedRangeNotSatisfiable:
		return errs.OutOfRange, ""
	case status == http.StatusConflict || status == http.StatusRequestTimeout || status >= 500:
		return lost, ""
	case status == http.StatusTooManyRequests:
		return errs.Unavailable, "the store asks to slow down"
	case status == http.StatusBadRequest:
		return errs.Invalid, ""
	}
	return errs.Unavailable, ""
}
