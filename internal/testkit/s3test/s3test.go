package s3test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// The credentials and region of every server.
const (
	AccessKeyID     = "firn-test"
	SecretAccessKey = "firn-test-secret"
	Region          = "us-east-1"
)

const (
	buildLimit = 15 * time.Minute
	startLimit = 20 * time.Second
	stopLimit  = 10 * time.Second
)

// Server is a running S3 server with one empty bucket. Make one with Start.
type Server struct {
	Endpoint string // http://127.0.0.1:port
	Bucket   string
	Folder   string // the bucket's objects as files

	t       testing.TB
	binary  string
	address string
	root    string

	mu  sync.Mutex // guards the process below
	cmd *exec.Cmd
	end chan struct{} // closed when cmd has ended
	log bytes.Buffer  // of cmd; read after its end
}

// Start runs a server until the test ends. The test fails when the server
// cannot be built; FIRN_S3=off skips it instead.
func Start(t testing.TB) *Server {
	t.Helper()
	if os.Getenv("FIRN_S3") == "off" {
		t.Skip("FIRN_S3=off: tests against a real S3 server are switched off")
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	binary, err := Binary(ctx)
	if err != nil {
		t.Fatalf("S3 server (FIRN_S3=off skips tests that need it): %v", err)
	}
	s := &Server{t: t, binary: binary, Bucket: "firn", root: t.TempDir()}
	s.NewBucket(s.Bucket)
	s.Folder = filepath.Join(s.root, s.Bucket)
	if s.address, err = freeAddress(); err != nil {
		t.Fatalf("S3 server: %v", err)
	}
	s.Endpoint = "http://" + s.address
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// NewBucket makes another empty bucket.
func (s *Server) NewBucket(name string) {
	s.t.Helper()
	if err := os.Mkdir(filepath.Join(s.root, name), 0o755); err != nil {
		s.t.Fatalf("make bucket: %v", err)
	}
}

// URL returns the store URL of a prefix in the bucket, through endpoint when it
// is not empty (a proxy before the server).
func (s *Server) URL(prefix, endpoint string) string {
	if endpoint == "" {
		endpoint = s.Endpoint
	}
	q := url.Values{"endpoint": {endpoint}, "region": {Region}, "path_style": {"true"}}
	return (&url.URL{Scheme: "s3", Host: s.Bucket, Path: "/" + prefix, RawQuery: q.Encode()}).String()
}

// Env returns the environment that gives a child process the credentials.
func (s *Server) Env() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + SecretAccessKey, "AWS_REGION=" + Region,
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull, "AWS_EC2_METADATA_DISABLED=true",
	}
}

// Setenv gives this process the credentials for the length of the test.
func (s *Server) Setenv() {
	s.t.Helper()
	t, ok := s.t.(interface{ Setenv(key, value string) })
	if !ok {
		s.t.Fatal("this test cannot set its environment")
	}
	for _, pair := range s.Env() {
		for i := range pair {
			if pair[i] == '=' {
				t.Setenv(pair[:i], pair[i+1:])
				break
			}
		}
	}
}

// Restart starts the server, on the port and folder that it had before, and
// returns when it answers. A running one is stopped first.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log.Reset()
	cmd := exec.Command(s.binary, "--port", s.address, "--quiet", "--keep-alive", "--health", "/health",
		"posix", "--disableotmp", s.root)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKeyID, "ROOT_SECRET_KEY="+SecretAccessKey)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("start S3 server: %v", err)
	}
	end := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(end)
	}()
	s.cmd, s.end = cmd, end
	s.awaitHealth()
}

func (s *Server) awaitHealth() {
	s.t.Helper()
	deadline := time.After(startLimit)
	for {
		select {
		case <-s.end:
			s.t.Fatalf("S3 server ended at once: %s", s.log.String())
		case <-deadline:
			s.t.Fatalf("S3 server does not answer at %s", s.Endpoint)
		case <-time.After(10 * time.Millisecond):
		}
		answer, err := http.Get(s.Endpoint + "/health")
		if err != nil {
			continue
		}
		_ = answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			return
		}
	}
}

// Stop asks the server to end and waits; one that does not listen is killed.
func (s *Server) Stop() { s.terminate(os.Interrupt) }

// Kill ends the server at once, as kill -9 does.
func (s *Server) Kill() { s.terminate(os.Kill) }

func (s *Server) terminate(signal os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(signal)
	select {
	case <-s.end:
	case <-time.After(stopLimit):
		_ = s.cmd.Process.Kill()
		<-s.end
	}
	s.cmd = nil
}

// freeAddress returns a local address that nothing listens on just now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}
