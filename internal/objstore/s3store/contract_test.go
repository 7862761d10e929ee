package s3store

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/storetest"
	"github.com/firn-data/firn/internal/testkit/s3test"
)

// openAt opens a bucket behind an endpoint with the test server's credentials.
func openAt(t *testing.T, endpoint, bucket, prefix string, change func(*Options)) *Store {
	t.Helper()
	o := Options{
		Bucket: bucket, Prefix: prefix, Endpoint: endpoint, Region: s3test.Region,
		AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey,
		MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// fake runs gofakes3 with one empty bucket and returns its endpoint.
func fake(t *testing.T, bucket string) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket(bucket); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(gofakes3.New(backend).Server())
	t.Cleanup(server.Close)
	return server.URL
}

func TestContractOnARealServer(t *testing.T) {
	server := s3test.Start(t)
	n := 0
	storetest.Run(t, storetest.Options{}, func(t *testing.T) objstore.Store {
		n++
		bucket := "bucket-" + string(rune('a'+n))
		server.NewBucket(bucket)
		prefix := ""
		if n%2 == 0 {
			prefix = "some/prefix"
		}
		return openAt(t, server.Endpoint, bucket, prefix, nil)
	})
}

func TestContractOnAFake(t *testing.T) {
	storetest.Run(t, storetest.Options{RaceKeys: 4, ListKeys: 60}, func(t *testing.T) objstore.Store {
		return openAt(t, fake(t, "bucket"), "bucket", "", nil)
	})
}
