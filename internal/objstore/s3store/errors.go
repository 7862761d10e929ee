package s3store

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/firn-data/firn/internal/errs"
)

// codeClasses are the error codes of S3 and its like that say more than their
// HTTP status. On a write every one of them means "not applied".
var codeClasses = map[string]struct {
	class errs.Class
	hint  string
}{
	"NoSuchKey":                    {errs.NotFound, ""},
	"NoSuchBucket":                 {errs.Invalid, "the bucket does not exist; create it or correct the store's URL"},
	"InvalidBucketName":            {errs.Invalid, "correct the bucket's name in the store's URL"},
	"KeyTooLongError":              {errs.Invalid, ""},
	"EntityTooLarge":               {errs.TooLarge, ""},
	"PermanentRedirect":            {errs.Invalid, "the bucket is in another region or behind another endpoint; add ?region=… or ?endpoint=… to the store's URL"},
	"AuthorizationHeaderMalformed": {errs.Invalid, "the bucket is probably in another region; add ?region=… to the store's URL"},
	"IllegalLocationConstraint":    {errs.Invalid, "the bucket is probably in another region; add ?region=… to the store's URL"},
	"NotImplemented":               {errs.Unsupported, "the store does not know this request"},
	"InvalidAccessKeyId":           {errs.Unauthenticated, "the access key is unknown to the store; check AWS_ACCESS_KEY_ID"},
	"SignatureDoesNotMatch":        {errs.Unauthenticated, "the secret key does not fit the access key; check AWS_SECRET_ACCESS_KEY"},
	"XAdminUserNotFound":           {errs.Unauthenticated, "the access key is unknown to the store; check AWS_ACCESS_KEY_ID"},
	"InvalidToken":                 {errs.Unauthenticated, "the session token is not valid; check AWS_SESSION_TOKEN"},
	"ExpiredToken":                 {errs.Unauthenticated, "the session token has expired; renew it"},
	"ExpiredTokenException":        {errs.Unauthenticated, "the session token has expired; renew it"},
	"TokenRefreshRequired":         {errs.Unauthenticated, "the session token has expired; renew it"},
	"MissingAuthenticationToken":   {errs.Unauthenticated, "the store wants credentials"},
	"CredentialsNotSupported":      {errs.Unauthenticated, ""},
	"AccessDenied":                 {errs.PermissionDenied, "the credentials are valid but lack a right; Firn needs to get, put, list and delete objects below the prefix"},
	"AllAccessDisabled":            {errs.PermissionDenied, ""},
	"AccountProblem":               {errs.PermissionDenied, ""},
	"RequestTimeTooSkewed":         {errs.Unavailable, "clock skew: this machine's clock and the store's are more than 15 minutes apart; set the clock (NTP)"},
	"BadDigest":                    {errs.Unavailable, "the body was damaged on its way"},
	"XAmzContentSHA256Mismatch":    {errs.Unavailable, "the body was damaged on its way"},
	"QuotaExceeded":                {errs.Exhausted, "the bucket's quota is used up"},
	"QuotaExceededException":       {errs.Exhausted, "the bucket's quota is used up"},
	"XMinioStorageFull":            {errs.Exhausted, "the store's disks are full"},
	"InsufficientStorage":          {errs.Exhausted, "the store's disks are full"},
	"InvalidRange":                 {errs.OutOfRange, ""},
}

// classify turns an SDK error into a classified one. write says that the request
// may have changed the store, so that a lost answer is Unknown.
func classify(ctx context.Context, op string, err error, write bool) error {
	if err == nil {
		return nil
	}
	e := &errs.Error{Op: op, Cause: brief{err}}
	lost := errs.Unavailable
	if write {
		lost = errs.Unknown
	}
	status, header := statusOf(err)
	code := codeOf(err)
	switch known, ok := codeClasses[code]; {
	case code == "RequestTimeout": // 400: the body came too slowly
		e.Class = lost
	case ok:
		e.Class, e.Msg = known.class, known.hint
	case status == http.StatusNotFound && code != "" && code != "NotFound" && code != "UnknownError":
		// Something is missing, but not the object: never "the store is empty".
		e.Class, e.Msg = errs.Invalid, "the endpoint does not answer as an S3 bucket; check the store's URL"
	case status != 0:
		e.Class, e.Msg = statusClass(status, write)
		e.RetryAfter = retryAfter(header)
	case errors.Is(context.Cause(ctx), errTooSlow):
		e.Class, e.Cause = lost, errTooSlow
	case ctx.Err() != nil && write:
		e.Class, e.Cause = errs.Unknown, ctx.Err()
	case ctx.Err() != nil:
		e.Class, e.Cause = errs.Canceled, ctx.Err()
	case notSent(err):
		e.Class, e.Msg = errs.Unavailable, "the store cannot be reached; check its endpoint and the network"
	case credentialsFailed(err):
		return errs.In(op, noCredentials(err))
	default:
		e.Class = lost
	}
	return e
}

// statusClass judges an answer by its HTTP status alone: a HEAD has no body, and
// proxies answer in their own words.
func statusClass(status int, write bool) (errs.Class, string) {
	switch {
	case status == http.StatusNotFound:
		return errs.NotFound, ""
	case status == http.StatusUnauthorized:
		return errs.Unauthenticated, "the store wants other credentials"
	case status == http.StatusForbidden:
		return errs.PermissionDenied, "the store refused the request"
	case status == http.StatusRequestEntityTooLarge:
		return errs.TooLarge, ""
	case status == http.StatusRequestedRangeNotSatisfiable:
		return errs.OutOfRange, ""
	case status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented:
		return errs.Unsupported, "the store does not know this request"
	case status == http.StatusInsufficientStorage:
		return errs.Exhausted, "the store is full"
	case status == http.StatusMovedPermanently:
		return errs.Invalid, "the bucket is in another region or behind another endpoint; add ?region=… or ?endpoint=… to the store's URL"
	case write && (status == http.StatusConflict || status == http.StatusRequestTimeout || status >= 500 || status < 300):
		return errs.Unknown, ""
	case status == http.StatusBadRequest:
		return errs.Invalid, "the store does not take the request"
	}
	return errs.Unavailable, ""
}

// noCredentials is the error for a source of credentials that gave none.
func noCredentials(err error) error {
	return &errs.Error{Class: errs.Unauthenticated, Op: "find AWS credentials", Cause: err,
		Msg: "none were found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or run with a role"}
}

// credentialsFailed reports whether signing failed for want of credentials. The
// SDK has no type for it.
func credentialsFailed(err error) bool {
	return strings.Contains(err.Error(), "get identity:") || strings.Contains(err.Error(), "refresh cached credentials")
}

// notSent reports whether the request surely never left: no connection was made.
func notSent(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || (errors.As(err, &op) && op.Op == "dial")
}

func codeOf(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// statusOf returns the HTTP status and headers of an answer, or zero when there
// was none.
func statusOf(err error) (int, http.Header) {
	var re *smithyhttp.ResponseError
	if errors.As(err, &re) && re.Response != nil && re.Response.Response != nil {
		return re.Response.StatusCode, re.Response.Header
	}
	return 0, nil
}

func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}

// brief says an SDK error in one line: status, code, message and request id.
type brief struct{ err error }

func (b brief) Unwrap() error { return b.err }

func (b brief) Error() string {
	status, header := statusOf(b.err)
	if status == 0 {
		return b.err.Error()
	}
	s := fmt.Sprintf("HTTP %d", status)
	var api smithy.APIError
	if errors.As(b.err, &api) {
		s += fmt.Sprintf(" %s: %.300s", api.ErrorCode(), api.ErrorMessage())
	}
	if id := header.Get("X-Amz-Request-Id"); id != "" {
		s += fmt.Sprintf(" (request %.64s)", id)
	}
	return s
}
