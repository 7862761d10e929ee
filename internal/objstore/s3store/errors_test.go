package s3store

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/testkit/s3test"
)

func TestAnswersAreClassifiedByWhatTheCallerDoes(t *testing.T) {
	for _, c := range []struct {
		status      int
		code        string
		read, write errs.Class
		word        string
	}{
		{403, "AccessDenied", errs.PermissionDenied, errs.PermissionDenied, "lack a right"},
		{403, "InvalidAccessKeyId", errs.Unauthenticated, errs.Unauthenticated, "AWS_ACCESS_KEY_ID"},
		{403, "SignatureDoesNotMatch", errs.Unauthenticated, errs.Unauthenticated, "AWS_SECRET_ACCESS_KEY"},
		{400, "ExpiredToken", errs.Unauthenticated, errs.Unauthenticated, "expired"},
		{403, "RequestTimeTooSkewed", errs.Unavailable, errs.Unavailable, "clock skew"},
		{403, "", errs.PermissionDenied, errs.PermissionDenied, ""},
		{401, "", errs.Unauthenticated, errs.Unauthenticated, ""},
		{404, "NoSuchKey", errs.NotFound, errs.NotFound, ""},
		{404, "XAdminUserNotFound", errs.Unauthenticated, errs.Unauthenticated, "AWS_ACCESS_KEY_ID"},
		{404, "NoSuchPage", errs.Invalid, errs.Invalid, "URL"},
		{404, "", errs.NotFound, errs.NotFound, ""},
		{404, "NoSuchBucket", errs.Invalid, errs.Invalid, "bucket does not exist"},
		{301, "PermanentRedirect", errs.Invalid, errs.Invalid, "region"},
		{307, "TemporaryRedirect", errs.Unavailable, errs.Unavailable, ""},
		{400, "InvalidArgument", errs.Invalid, errs.Invalid, ""},
		{400, "RequestTimeout", errs.Unavailable, errs.Unknown, ""},
		{400, "EntityTooLarge", errs.TooLarge, errs.TooLarge, ""},
		{409, "OperationAborted", errs.Unavailable, errs.Unknown, ""},
		{429, "TooManyRequests", errs.Unavailable, errs.Unavailable, ""},
		{500, "InternalError", errs.Unavailable, errs.Unknown, ""},
		{501, "NotImplemented", errs.Unsupported, errs.Unsupported, ""},
		{502, "", errs.Unavailable, errs.Unknown, ""},
		{503, "SlowDown", errs.Unavailable, errs.Unknown, ""},
		{507, "XMinioStorageFull", errs.Exhausted, errs.Exhausted, "full"},
		{403, "QuotaExceeded", errs.Exhausted, errs.Exhausted, "quota"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amz-Request-Id", "REQ1")
			w.WriteHeader(c.status)
			if c.code != "" {
				fmt.Fprintf(w, "<Error><Code>%s</Code><Message>said so</Message><AWSAccessKeyId>LEAK</AWSAccessKeyId></Error>", c.code)
			}
		}))
		s := openAt(t, server.URL, "bucket", "", func(o *Options) { o.MaxAttempts = 2 })
		_, _, err := s.Get(t.Context(), "k")
		check(t, fmt.Sprintf("get %d %s", c.status, c.code), err, c.read, c.word)
		outcome, err := s.PutIfAbsent(t.Context(), "k", []byte("x"))
		check(t, fmt.Sprintf("put-if-absent %d %s", c.status, c.code), err, c.write, c.word)
		if outcome != objstore.Unknown {
			t.Errorf("%d %s: outcome %d", c.status, c.code, outcome)
		}
		check(t, fmt.Sprintf("put %d %s", c.status, c.code), s.Put(t.Context(), "k", nil), c.write, c.word)
		server.Close()
	}
}

func check(t *testing.T, what string, err error, class errs.Class, word string) {
	t.Helper()
	if !errs.Is(err, class) || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "LEAK") || !strings.Contains(err.Error(), "REQ1") {
		t.Errorf("%s: %v (class %v), want %v with %q", what, err, errs.ClassOf(err), class, word)
	}
}

func TestRetryAfterIsPassedOn(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer server.Close()
	s := openAt(t, server.URL, "bucket", "", nil)
	if _, err := s.PutIfAbsent(t.Context(), "k", nil); errs.RetryAfter(err).Seconds() != 7 {
		t.Errorf("%v: retry after %v", err, errs.RetryAfter(err))
	}
}

func TestWrongCredentialsAndMissingBucketOnARealServer(t *testing.T) {
	server := s3test.Start(t)
	for name, c := range map[string]struct {
		change func(*Options)
		class  errs.Class
	}{
		"unknown key":    {func(o *Options) { o.AccessKeyID = "someone-else" }, errs.Unauthenticated},
		"wrong secret":   {func(o *Options) { o.SecretAccessKey = "not it" }, errs.Unauthenticated},
		"missing bucket": {func(o *Options) { o.Bucket = "not-there" }, errs.Invalid},
	} {
		s := openAt(t, server.Endpoint, server.Bucket, "", c.change)
		if _, _, err := s.Get(t.Context(), "k"); !errs.Is(err, c.class) {
			t.Errorf("%s: get: %v (%v)", name, err, errs.ClassOf(err))
		}
		if _, err := objstore.Create(t.Context(), s, "k", []byte("x"), impatient); !errs.Is(err, c.class) {
			t.Errorf("%s: create: %v (%v)", name, err, errs.ClassOf(err))
		}
		for _, err := range s.List(t.Context(), "", "") {
			if !errs.Is(err, c.class) {
				t.Errorf("%s: list: %v (%v)", name, err, errs.ClassOf(err))
			}
		}
	}
}

// pageServer lists one fixed page.
func pageServer(t *testing.T, keys ...string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>`)
		for _, key := range keys {
			fmt.Fprintf(w, "<Contents><Key>%s</Key><Size>1</Size><ETag>&quot;random&quot;</ETag><LastModified>2026-11-29T00:00:00.000Z</LastModified></Contents>", key)
		}
		fmt.Fprint(w, "</ListBucketResult>")
	}))
	t.Cleanup(server.Close)
	return server
}

// S3 Express lists in no order (litestream #1529, lance #3771).
func TestUnorderedListingIsSortedOrRefused(t *testing.T) {
	server := pageServer(t, "a/3", "a/1", "a/", "b/1", "a/2")
	s := openAt(t, server.URL, "bucket", "", nil)
	var failed error
	for _, err := range s.List(t.Context(), "a/", "") {
		failed = err
	}
	if !errs.Is(failed, errs.Unsupported) || !strings.Contains(failed.Error(), "unordered_list") {
		t.Errorf("out of order: %v", failed)
	}
	for _, o := range []func(*Options){func(o *Options) { o.Unordered = true }, func(o *Options) { o.Bucket = "express--x-s3" }} {
		s = openAt(t, server.URL, "bucket", "", func(opts *Options) { o(opts); opts.PathStyle = new(bool); *opts.PathStyle = true })
		var keys []string
		for info, err := range s.List(t.Context(), "a/", "a/1") {
			if err != nil {
				t.Fatal(err)
			}
			keys = append(keys, info.Key)
		}
		if strings.Join(keys, " ") != "a/2 a/3" {
			t.Errorf("sorted: %v", keys)
		}
	}
}

func TestServerWithoutRangesIsCutHere(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "0123456789")
	}))
	defer server.Close()
	s := openAt(t, server.URL, "bucket", "", nil)
	for want, at := range map[string][2]int64{"345": {3, 3}, "89": {-1, 2}, "": {10, 4}} {
		got, info, err := s.GetRange(t.Context(), "k", at[0], at[1])
		if err != nil || string(got) != want || info.Size != 10 {
			t.Errorf("%v: %q, %+v, %v", at, got, info, err)
		}
	}
}

// shuffledServer lists its keys one a page, in a random order, with random ETags.
func shuffledServer(t *testing.T, keys []string) *httptest.Server {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		i, _ := strconv.Atoi(req.URL.Query().Get("continuation-token"))
		fmt.Fprintf(w, "<ListBucketResult><IsTruncated>%v</IsTruncated><NextContinuationToken>%d</NextContinuationToken>"+
			"<Contents><Key>%s</Key><Size>1</Size><ETag>&quot;%x&quot;</ETag></Contents></ListBucketResult>",
			i+1 < len(keys), i+1, keys[i], r.Uint64())
	}))
	t.Cleanup(server.Close)
	return server
}

func TestRandomOrderInPagesOfOneIsSorted(t *testing.T) {
	var keys []string
	for i := range 60 {
		keys = append(keys, fmt.Sprintf("wal/i/%020d", i))
	}
	want := strings.Join(keys[10:], " ")
	after := keys[9]
	s := openAt(t, shuffledServer(t, keys).URL, "bucket", "", func(o *Options) { o.Unordered = true })
	var got []string
	for info, err := range s.List(t.Context(), "wal/i/", after) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Key)
	}
	if strings.Join(got, " ") != want {
		t.Errorf("%v", got)
	}
}
