package apierr_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/firn-data/firn/internal/apierr"
	"github.com/firn-data/firn/internal/errs"
	"github.com/stretchr/testify/require"
)

func everyClass() []errs.Class {
	var out []errs.Class
	for c := errs.Internal; !strings.HasPrefix(c.String(), "class("); c++ {
		out = append(out, c)
	}
	return out
}

func TestEveryClassHasAWireForm(t *testing.T) {
	for _, c := range everyClass() {
		err := errs.New(c, "x")
		require.NotZero(t, apierr.Code(err), c)
		require.GreaterOrEqual(t, apierr.Status(err), 400, c)
		back, ok := apierr.ClassByName(c.String())
		require.True(t, ok)
		require.Equal(t, c, back)
	}
}

func TestClassDetailsAndHintSurviveTheWire(t *testing.T) {
	for _, c := range everyClass() {
		in := &errs.Error{Class: c, Op: "read changes", Msg: "no", RetryAfter: 1500 * time.Millisecond, Details: []any{map[string]any{"earliest": 12.0}}}
		ce := apierr.Connect(fmt.Errorf("outer: %w", in))
		require.Equal(t, "2", ce.Meta().Get("Retry-After"), "whole seconds, rounded up")
		out := apierr.From(ce)
		require.Equal(t, c, errs.ClassOf(out))
		require.Equal(t, "outer: read changes: no", out.Error())
		require.Equal(t, in.Details, errs.Details(out))
		require.Equal(t, in.RetryAfter, errs.RetryAfter(out))
		require.Equal(t, c, errs.ClassOf(apierr.FromStream(apierr.StreamError(in))))
	}
	require.NoError(t, apierr.From(nil))
	require.Nil(t, apierr.Connect(nil))
}

func TestPlainErrorsFollowTheDocumentation(t *testing.T) {
	for class, status := range map[errs.Class]int{
		errs.Invalid: 400, errs.Unauthenticated: 401, errs.PermissionDenied: 403, errs.NotFound: 404, errs.Exists: 409,
		errs.Conflict: 409, errs.OutOfRange: 410, errs.TooLarge: 413, errs.Exhausted: 429, errs.Unavailable: 503, errs.Fenced: 503,
	} {
		w := httptest.NewRecorder()
		apierr.WriteHTTP(w, errs.New(class, "a<b"))
		require.Equal(t, status, w.Code, class)
		require.Equal(t, status == 429 || status == 503, w.Header().Get("Retry-After") != "", class)
		require.JSONEq(t, fmt.Sprintf(`{"code":%q,"message":"a<b","details":[]}`, apierr.Code(errs.New(class, "")).String()), w.Body.String())
	}
}

func TestTheEndOfAContextIsNotAServerFault(t *testing.T) {
	require.Equal(t, connect.CodeCanceled, apierr.Code(context.Canceled))
	err := fmt.Errorf("append: %w", context.DeadlineExceeded)
	require.Equal(t, connect.CodeDeadlineExceeded, apierr.Code(err))
	require.Equal(t, http.StatusGatewayTimeout, apierr.Status(err))
	back := apierr.From(connect.NewError(connect.CodeCanceled, context.Canceled))
	require.ErrorIs(t, back, context.Canceled)
}

func TestAnswersThatNameNoClassAreClassedByCodeOrStatus(t *testing.T) {
	require.Equal(t, errs.Unavailable, errs.ClassOf(apierr.From(connect.NewError(connect.CodeUnavailable, nil))))
	require.Equal(t, errs.Unavailable, apierr.ClassOfStatus(502))
	require.Equal(t, errs.Invalid, apierr.ClassOfStatus(422))
	require.Equal(t, errs.Internal, apierr.ClassOfStatus(500))
}
