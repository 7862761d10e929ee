package azstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"gocloud.dev/blob/memblob"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/storetest"
)

func TestContractThroughGocloud(t *testing.T) {
	for _, prefix := range []string{"", "some/prefix"} {
		t.Run("prefix="+prefix, func(t *testing.T) {
			storetest.Run(t, storetest.Options{}, func(t *testing.T) objstore.Store {
				s, err := Wrap(memblob.OpenBucket(nil), "mem://test", prefix)
				if err != nil {
					t.Fatal(err)
				}
				return s
			})
		})
	}
}

func TestErrorsAreClassifiedByTheirStatus(t *testing.T) {
	for _, c := range []struct {
		err         error
		read, write errs.Class
	}{
		// gocloud calls an unknown host "not found".
		{&azcore.ResponseError{StatusCode: 401}, errs.Unauthenticated, errs.Unauthenticated},
		{&azcore.ResponseError{StatusCode: 409}, errs.Unavailable, errs.Unknown},
		{&azcore.ResponseError{StatusCode: 429}, errs.Unavailable, errs.Unavailable},
		{&azcore.ResponseError{StatusCode: 503}, errs.Unavailable, errs.Unknown},
		{&azcore.ResponseError{StatusCode: 404, ErrorCode: "ContainerNotFound"}, errs.Invalid, errs.Invalid},
		{&azcore.ResponseError{StatusCode: 404, ErrorCode: "BlobNotFound"}, errs.NotFound, errs.NotFound},
		{&azcore.ResponseError{StatusCode: 403, ErrorCode: "AuthenticationFailed"}, errs.Unauthenticated, errs.Unauthenticated},
		{&azcore.ResponseError{StatusCode: 403, ErrorCode: "AuthorizationFailure"}, errs.PermissionDenied, errs.PermissionDenied},
		{&azcore.ResponseError{StatusCode: 500}, errs.Unavailable, errs.Unknown},
		{&net.DNSError{Err: "no such host"}, errs.Unavailable, errs.Unavailable},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, errs.Unavailable, errs.Unavailable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, errs.Unavailable, errs.Unknown},
		{context.DeadlineExceeded, errs.Unavailable, errs.Unknown},
		{io.ErrUnexpectedEOF, errs.Unavailable, errs.Unknown},
	} {
		wrapped := fmt.Errorf("blob: %w", c.err)
		if err := classify(t.Context(), "read k", wrapped, false); !errs.Is(err, c.read) {
			t.Errorf("read: %v is %v, want %v", c.err, errs.ClassOf(err), c.read)
		}
		if err := classify(t.Context(), "put k", wrapped, true); !errs.Is(err, c.write) {
			t.Errorf("write: %v is %v, want %v", c.err, errs.ClassOf(err), c.write)
		}
	}
}

func TestBadURLsAreInvalid(t *testing.T) {
	for _, raw := range []string{"azblob://", "gs://bucket", "azblob://user:pass@container", "azblob:///x", "azblob://b#f"} {
		if _, err := Open(t.Context(), raw); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
