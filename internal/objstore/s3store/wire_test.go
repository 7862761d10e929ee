package s3store

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// wire is what a server saw of one request, without what changes with time.
func wire(r *http.Request) string {
	var names []string
	for name := range r.Header {
		switch name {
		case "Authorization", "User-Agent", "X-Amz-Date", "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request":
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	body, _ := io.ReadAll(r.Body)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", r.Method, r.URL.RequestURI())
	for _, name := range names {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
	}
	fmt.Fprintf(&b, "length %d, transfer encoding %v, trailer %v\n%s", r.ContentLength, r.TransferEncoding, r.Trailer, body)
	return b.String()
}

// The aws-sdk-go-v2 sends checksum trailers in aws-chunked bodies by default;
// stores other than AWS's own refuse them (aws-sdk-go-v2 #3469).
func TestWireOffAWSIsPlain(t *testing.T) {
	var mu sync.Mutex
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, wire(r))
		mu.Unlock()
		w.Header().Set("Content-Length", "0")
	}))
	defer server.Close()
	s := openAt(t, server.URL, "bucket", "pre", nil)
	if outcome, err := s.PutIfAbsent(t.Context(), "a b/c", []byte("hello")); outcome != objstore.Created {
		t.Fatal(outcome, err)
	}
	if err := s.Put(t.Context(), "d", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.GetRange(t.Context(), "d", 5, 10); err != nil && !errs.Is(err, errs.Unavailable) {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	want := []string{
		`PUT /bucket/pre/a%20b/c?x-id=PutObject
Accept-Encoding: identity
Content-Length: 5
Content-Type: application/octet-stream
If-None-Match: *
X-Amz-Content-Sha256: 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824
length 5, transfer encoding [], trailer map[]
hello`,
		`PUT /bucket/pre/d?x-id=PutObject
Accept-Encoding: identity
Content-Length: 0
Content-Type: application/octet-stream
X-Amz-Content-Sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
length 0, transfer encoding [], trailer map[]
`,
		`GET /bucket/pre/d?x-id=GetObject
Accept-Encoding: identity
Range: bytes=5-14
X-Amz-Content-Sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
length 0, transfer encoding [], trailer map[]
`,
	}
	mu.Lock()
	defer mu.Unlock()
	for i, w := range want {
		if seen[i] != w {
			t.Errorf("request %d is\n%s\nwant\n%s", i, seen[i], w)
		}
	}
	if last := seen[len(seen)-1]; !strings.HasPrefix(last, "DELETE /bucket/pre/d?") {
		t.Errorf("last request is\n%s", last)
	}
}

func TestAWSEndpointKeepsItsChecksumsAndVirtualHosts(t *testing.T) {
	for endpoint, own := range map[string]bool{
		"": true, "https://s3.eu-central-1.amazonaws.com": true, "https://bucket.vpce-1.s3.us-east-1.vpce.amazonaws.com": true,
		"http://127.0.0.1:9000": false, "https://minio.example.com/": false, "https://amazonaws.com.example.org": false,
	} {
		var so s3.Options
		tune(&so, Options{Endpoint: endpoint})
		plain := so.RequestChecksumCalculation == aws.RequestChecksumCalculationWhenRequired &&
			so.ResponseChecksumValidation == aws.ResponseChecksumValidationWhenRequired && so.UsePathStyle
		if plain == own {
			t.Errorf("endpoint %q: %+v", endpoint, so.RequestChecksumCalculation)
		}
	}
	for _, variable := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		t.Setenv(variable, "http://127.0.0.1:9000")
		s := openAt(t, "", "bucket", "", nil)
		if o := s.client.Options(); !o.UsePathStyle || o.RequestChecksumCalculation != aws.RequestChecksumCalculationWhenRequired {
			t.Errorf("%s is not honoured", variable)
		}
		t.Setenv(variable, "")
	}
}

func TestURLsAreReadAndNeverHoldCredentials(t *testing.T) {
	o, err := ParseURL("s3://bucket/some/prefix/?endpoint=http://127.0.0.1:9000&region=eu-west-1&path_style=false&profile=p&unordered_list=true", Options{MaxAttempts: 7})
	if err != nil || o.Bucket != "bucket" || o.Prefix != "some/prefix" || o.Endpoint != "http://127.0.0.1:9000" ||
		o.Region != "eu-west-1" || *o.PathStyle || o.Profile != "p" || !o.Unordered || o.MaxAttempts != 7 {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{
		"s3://", "s3:///prefix", "http://bucket", "s3://b/../x", "s3://b?nope=1", "s3://b?path_style=maybe", "s3://b?endpoint=127.0.0.1:9000",
		"s3://b?endpoint=http://", "s3://key:topsecret@b/p", "s3://b?endpoint=http://key:topsecret@h", "s3://b/%zz?x=topsecret", "s3://b#f", "s3://b/a//b",
	} {
		_, err := ParseURL(bad, Options{})
		if !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", bad, err)
		} else if strings.Contains(err.Error(), "topsecret") {
			t.Errorf("the error shows a credential: %v", err)
		}
	}
}

func TestMissingCredentialsAndRegionAreToldAtOpen(t *testing.T) {
	for _, v := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(v, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/nonexistent")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	_, err := Open(context.Background(), Options{Bucket: "b", Region: "us-east-1"})
	if !errs.Is(err, errs.Unauthenticated) || !strings.Contains(err.Error(), "AWS_ACCESS_KEY_ID") {
		t.Errorf("without credentials: %v", err)
	}
	_, err = Open(context.Background(), Options{Bucket: "b", AccessKeyID: "k", SecretAccessKey: "s"})
	if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), "region") {
		t.Errorf("without a region: %v", err)
	}
}
