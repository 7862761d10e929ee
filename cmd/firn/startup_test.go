package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/testkit/faultproxy"
	"github.com/firn-data/firn/internal/testkit/s3test"
)

// serveUntilItFails runs "firn serve" on a store that it must refuse.
func serveUntilItFails(t *testing.T, store string) (code int, errOut string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	config := filepath.Join(t.TempDir(), "firn.yaml")
	require.NoError(t, os.WriteFile(config, []byte("start_timeout: 1s\n"), 0o600))
	var out, errs bytes.Buffer
	code = run(ctx, []string{"serve", "--config", config, "--store", store, "--listen", "127.0.0.1:0"}, strings.NewReader(""), &out, &errs)
	require.NoError(t, ctx.Err(), "it did not give up on %s", store)
	require.Empty(t, out.String())
	return code, errs.String()
}

// refusal is what a store's S3 API answers, made by the proxy.
func refusal(status int, code string, header http.Header) faultproxy.Rule {
	return faultproxy.Rule{Kind: faultproxy.Answer, Status: status, Header: header, Body: "<Error><Code>" + code + "</Code><Message>no</Message></Error>"}
}

// What an operator meets at start: the error names what is wrong, where, and what
// to do; the exit code tells a wrong setting from a fault that may pass.
func TestAnAgentThatCannotUseItsStoreSaysWhyAndExits(t *testing.T) {
	s3 := s3test.Start(t)
	s3.Setenv()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := l.Addr().String()
	require.NoError(t, l.Close())
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	through := func(rules ...faultproxy.Rule) string {
		return s3.URL("p", faultproxy.Start(t, s3.Endpoint, 1, rules...).URL)
	}
	late := http.Header{"Date": {time.Now().Add(20 * time.Minute).UTC().Format(http.TimeFormat)}}
	for name, c := range map[string]struct {
		store string
		code  int
		want  []string
	}{
		"no URL":             {"nonsense", exitUsage, []string{"names no scheme", "file://"}},
		"unknown scheme":     {"ftp://x", exitUsage, []string{`"ftp"`, "s3"}},
		"file for folder":    {"file://" + file, exitUsage, []string{file, "not a folder"}},
		"folder in a file":   {"file://" + file + "/x", exitUsage, []string{file + "/x"}},
		"nobody there":       {s3.URL("p", "http://"+closed), exitUnavailable, []string{"s3://firn/p", closed, "cannot be reached", "check its endpoint", "does not answer yet"}},
		"no such host":       {s3.URL("p", "http://no.such.host.invalid"), exitUnavailable, []string{"no.such.host.invalid", "cannot be reached"}},
		"no such bucket":     {strings.Replace(s3.URL("p", ""), "s3://firn", "s3://nobucket", 1), exitUsage, []string{"s3://nobucket/p", "the bucket does not exist", "correct the store's URL"}},
		"connections broken": {through(faultproxy.Rule{Kind: faultproxy.Reset}), exitUnavailable, []string{"s3://firn/p"}},
		"forbidden":          {through(refusal(403, "AccessDenied", nil)), exitDenied, []string{"AccessDenied"}},
		"full":               {through(refusal(507, "InsufficientStorage", nil)), exitUnavailable, []string{"InsufficientStorage"}},
		"clock skewed":       {through(refusal(403, "RequestTimeTooSkewed", late)), exitUnavailable, []string{"clock"}},
	} {
		code, errOut := serveUntilItFails(t, c.store)
		require.Equal(t, c.code, code, "%s: %s", name, errOut)
		for _, want := range append(c.want, "firn: ") {
			require.Contains(t, errOut, want, name)
		}
		require.NotContains(t, errOut, s3test.SecretAccessKey, name)
	}
	if runtime.GOOS == "linux" { // root may write anywhere but here
		code, errOut := serveUntilItFails(t, "file:///sys/firn")
		require.Equal(t, exitDenied, code, errOut)
		require.Contains(t, errOut, "check its owner and mode")
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	code, errOut := serveUntilItFails(t, s3.URL("p", ""))
	require.Equal(t, exitDenied, code, errOut)
	require.Contains(t, errOut, "check AWS_SECRET_ACCESS_KEY")
	t.Setenv("AWS_ACCESS_KEY_ID", "WRONG")
	code, errOut = serveUntilItFails(t, s3.URL("p", ""))
	require.Equal(t, exitDenied, code, errOut)
	require.Contains(t, errOut, "check AWS_ACCESS_KEY_ID")
}
