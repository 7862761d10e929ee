package s3store

import (
	"bytes"
	"os"
	"strconv"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/testkit/s3test"
)

func TestHalfAGibibyteGoesInOnePut(t *testing.T) {
	if os.Getenv("FIRN_BIG") == "" {
		t.Skip("moves 1 GiB; set FIRN_BIG=1")
	}
	server := s3test.Start(t)
	s := openAt(t, server.Endpoint, server.Bucket, "", nil)
	body := bytes.Repeat([]byte("0123456789abcdef"), 32<<20)
	c, err := objstore.Create(t.Context(), s, "big", body, objstore.CreatePolicy{})
	if err != nil || !c.Created || c.Attempts != 1 {
		t.Fatalf("%+v, %v", c, err)
	}
	got, info, err := s.Get(t.Context(), "big")
	if err != nil || info.Size != int64(len(body)) || !bytes.Equal(got, body) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func BenchmarkPutIfAbsent(b *testing.B) {
	server := s3test.Start(b)
	s, err := Open(b.Context(), Options{Bucket: server.Bucket, Endpoint: server.Endpoint, AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	body := make([]byte, 16<<10)
	n := 0
	for b.Loop() {
		n++
		if outcome, err := s.PutIfAbsent(b.Context(), "bench/"+string(rune('a'+n%26))+"/"+strconv.Itoa(n), body); outcome != objstore.Created {
			b.Fatal(err)
		}
	}
}
