package open_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore/open"
	"github.com/firn-data/firn/internal/objstore/probe"
	"github.com/firn-data/firn/internal/objstore/s3store"
	"github.com/firn-data/firn/internal/testkit/s3test"
)

func TestURLChoosesTheDriver(t *testing.T) {
	folder := filepath.ToSlash(t.TempDir())
	o := open.Options{S3: s3store.Options{AccessKeyID: "k", SecretAccessKey: "s"}}
	for url, want := range map[string]string{
		"mem://open-test":  "mem://open-test",
		"file://" + folder: "file://" + folder,
		"s3://b/p?region=eu-west-1&endpoint=http://127.0.0.1:1": "s3://b/p",
		"gs://b/p?anonymous=true":                               "gs://b/p",
	} {
		s, err := open.Open(t.Context(), url, o)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if s.URL() != want {
			t.Errorf("%s opened %s", url, s.URL())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadURLsAreToldWithWhatIsKnown(t *testing.T) {
	for url, word := range map[string]string{"./folder": "file://", "ftp://x": "azblob", "file://": "folder", "s3://b?x=1": "endpoint", "gs://": "gs://bucket"} {
		s, err := open.Open(t.Context(), url, open.Options{})
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), word) || s != nil {
			t.Errorf("%s: %v, %v", url, s, err)
		}
	}
}

func TestRealS3ServerPassesTheDoctor(t *testing.T) {
	server := s3test.Start(t)
	server.Setenv()
	s, err := open.Open(t.Context(), server.URL("some/prefix", ""), open.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := probe.StartupProbe(t.Context(), s); err != nil {
		t.Error(err)
	}
	for _, f := range probe.Examine(t.Context(), s, probe.Options{Samples: 5}) {
		if f.Level != probe.OK {
			t.Errorf("%+v", f)
		}
	}
}
