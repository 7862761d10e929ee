package gcsstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"cloud.google.com/go/auth"
	"google.golang.org/api/googleapi"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/storetest"
)

func openFake(t *testing.T) (*fake, *Store) {
	t.Helper()
	f, raw := newFake(t)
	s, err := Open(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	return f, s
}

func TestContract(t *testing.T) {
	storetest.Run(t, storetest.Options{}, func(t *testing.T) objstore.Store {
		_, s := openFake(t)
		return s
	})
}

func TestASuffixIsReadInOneRequest(t *testing.T) {
	f, s := openFake(t)
	if err := s.Put(t.Context(), "k", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	f.seen = nil
	body, info, err := s.GetRange(t.Context(), "k", -1, 3)
	if err != nil || string(body) != "789" || info.Size != 10 {
		t.Fatalf("%q, size %d, %v", body, info.Size, err)
	}
	if want := []string{"GET /storage/v1/b/bucket/o/pre%2Ffix%2Fk bytes=-3"}; !slices.Equal(f.seen, want) {
		t.Errorf("sent %q, want %q", f.seen, want)
	}
}

func TestAPutWhoseAnswerWasLostIsSentAgain(t *testing.T) {
	f, s := openFake(t)
	left := 2
	f.refuse = func(*http.Request) int {
		if left--; left >= 0 {
			return http.StatusServiceUnavailable
		}
		return 0
	}
	if o, err := s.PutIfAbsent(t.Context(), "k", []byte("a")); o != objstore.Created || err != nil {
		t.Fatalf("%v, %v", o, err)
	}
	if o, err := s.PutIfAbsent(t.Context(), "k", []byte("b")); o != objstore.Exists || err != nil {
		t.Fatalf("%v, %v", o, err)
	}
	if len(f.seen) != 4 {
		t.Errorf("%d requests, want two refused, one created, one that lost", len(f.seen))
	}
}

func TestARefusalIsNotTriedAgain(t *testing.T) {
	f, s := openFake(t)
	f.refuse = func(*http.Request) int { return http.StatusForbidden }
	if _, err := s.PutIfAbsent(t.Context(), "k", nil); !errs.Is(err, errs.PermissionDenied) {
		t.Fatal(err)
	}
	if len(f.seen) != 1 {
		t.Errorf("%d requests, want one", len(f.seen))
	}
}

func TestAMissingBucketIsNotAnEmptyStore(t *testing.T) {
	_, raw := newFake(t)
	s, err := Open(t.Context(), strings.Replace(raw, "gs://bucket", "gs://other", 1))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Get(t.Context(), "k"); !errs.Is(err, errs.Invalid) {
		t.Error(err)
	}
}

func TestErrorsAreClassified(t *testing.T) {
	for _, c := range []struct {
		err         error
		read, write errs.Class
	}{
		{&googleapi.Error{Code: 403}, errs.PermissionDenied, errs.PermissionDenied},
		{&googleapi.Error{Code: 401}, errs.Unauthenticated, errs.Unauthenticated},
		{&googleapi.Error{Code: 404}, errs.NotFound, errs.NotFound},
		{&googleapi.Error{Code: 404, Message: "The specified bucket does not exist."}, errs.Invalid, errs.Invalid},
		{&googleapi.Error{Code: 409}, errs.Unavailable, errs.Unknown},
		{&googleapi.Error{Code: 429}, errs.Unavailable, errs.Unavailable},
		{&googleapi.Error{Code: 503}, errs.Unavailable, errs.Unknown},
		{&auth.Error{Response: &http.Response{StatusCode: 400}}, errs.Unauthenticated, errs.Unauthenticated},
		{&net.DNSError{Err: "no such host"}, errs.Unavailable, errs.Unavailable},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, errs.Unavailable, errs.Unavailable},
		{&net.OpError{Op: "read", Err: errors.New("reset")}, errs.Unavailable, errs.Unknown},
		{context.DeadlineExceeded, errs.Unavailable, errs.Unknown},
		{io.ErrUnexpectedEOF, errs.Unavailable, errs.Unknown},
	} {
		wrapped := fmt.Errorf("googleapi: %w", c.err)
		if err := classify(t.Context(), "read k", wrapped, false); !errs.Is(err, c.read) {
			t.Errorf("read: %v is %v, want %v", c.err, errs.ClassOf(err), c.read)
		}
		if err := classify(t.Context(), "put k", wrapped, true); !errs.Is(err, c.write) {
			t.Errorf("write: %v is %v, want %v", c.err, errs.ClassOf(err), c.write)
		}
	}
}

func TestBadURLsAreInvalid(t *testing.T) {
	for _, raw := range []string{
		"gs://", "s3://bucket", "gs://user:pass@bucket", "gs:///x", "gs://b#f", "gs://b?grpc=true", "gs://b?endpoint=host", "gs://b?endpoint=http://u:p@h",
	} {
		if _, err := Open(t.Context(), raw); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

func TestAnEmulatorIsFoundInTheEnvironment(t *testing.T) {
	f, raw := newFake(t)
	_, host, _ := strings.Cut(raw, "http%3A%2F%2F")
	t.Setenv("STORAGE_EMULATOR_HOST", strings.ReplaceAll(host, "%3A", ":"))
	s, err := Open(t.Context(), "gs://"+fakeBucket)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "k", []byte("a")); err != nil || len(f.seen) != 1 {
		t.Errorf("%v, %d requests", err, len(f.seen))
	}
	if s.URL() != "gs://bucket" {
		t.Error(s.URL())
	}
}
