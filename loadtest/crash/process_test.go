package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	buildLimit = 15 * time.Minute
	readyLimit = 30 * time.Second
	leaveLimit = 40 * time.Second
)

// firnBinary builds the binary once for all tests, or takes FIRN_BIN's.
var firnBinary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("FIRN_BIN"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "firn-crash-bin-")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	path := filepath.Join(dir, "firn")
	out, err := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/firn-data/firn/cmd/firn").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build firn: %w\n%s", err, out)
	}
	return path, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, err := firnBinary(); err == nil && os.Getenv("FIRN_BIN") == "" && filepath.Base(path) == "firn" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// process is `firn serve` on one store and port, over many lives.
type process struct {
	t      testing.TB
	bin    string
	store  string
	listen string
	config string
	env    []string
	log    *os.File

	cmd   *exec.Cmd
	ended chan struct{}
	lives int
}

// newProcess prepares an agent; nothing runs yet.
func newProcess(t testing.TB, dir, store, config string, env ...string) *process {
	t.Helper()
	bin, err := firnBinary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, bin: bin, store: store, env: env, config: filepath.Join(dir, "firn.yaml")}
	if err := os.WriteFile(p.config, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if p.log, err = os.Create(filepath.Join(dir, "agent.log")); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.listen = l.Addr().String()
	_ = l.Close()
	t.Cleanup(func() {
		p.kill()
		_ = p.log.Close()
		if t.Failed() {
			t.Logf("the agent's last words:\n%s", p.tail(256<<10, 40))
		}
	})
	return p
}

func (p *process) url() string { return "http://" + p.listen }

func (p *process) pid() int { return p.cmd.Process.Pid }

// start runs the agent and returns how long it took to be ready.
func (p *process) start() time.Duration {
	p.t.Helper()
	begun := time.Now()
	p.lives++
	fmt.Fprintf(p.log, "=== life %d\n", p.lives)
	p.cmd = exec.Command(p.bin, "serve", "--store", p.store, "--listen", p.listen, "--agent-id", "crash", "--config", p.config, "--log-level", "debug")
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	dieWithParent(p.cmd)
	if err := p.cmd.Start(); err != nil {
		p.t.Fatalf("start firn: %v", err)
	}
	ended, cmd := make(chan struct{}), p.cmd
	p.ended = ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	for time.Since(begun) < readyLimit {
		select {
		case <-ended:
			p.t.Fatalf("life %d: the agent ended at once (%v)", p.lives, cmd.ProcessState)
		case <-time.After(10 * time.Millisecond):
		}
		res, err := http.Get(p.url() + "/readyz")
		if err != nil {
			continue
		}
		_ = res.Body.Close()
		if res.StatusCode == http.StatusOK {
			return time.Since(begun)
		}
	}
	p.t.Fatalf("life %d: not ready after %v", p.lives, readyLimit)
	return 0
}

// alive reports whether the agent runs.
func (p *process) alive() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// lifetime returns a context that ends with this life of the agent.
func (p *process) lifetime(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	ended := p.ended
	go func() {
		select {
		case <-ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// kill ends the agent as kill -9 does.
func (p *process) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// leave ends the agent as an orchestrator does; it must hand over and exit 0.
func (p *process) leave() error {
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.ended:
	case <-time.After(leaveLimit):
		p.kill()
		return fmt.Errorf("life %d: still there %v after SIGTERM", p.lives, leaveLimit)
	}
	if !p.cmd.ProcessState.Success() {
		return fmt.Errorf("life %d: %v after SIGTERM", p.lives, p.cmd.ProcessState)
	}
	return nil
}

// run runs another firn command against the agent.
func (p *process) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Env = append(append(os.Environ(), p.env...), "FIRN_SERVER="+p.url())
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if err != nil {
		err = fmt.Errorf("firn %v: %w\n%s", args, err, errOut.String())
	}
	return out.String(), err
}

// tail returns the last lines of the agent's log, requests left out.
func (p *process) tail(bytes int64, lines int) string {
	f, err := os.Open(p.log.Name())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err.Error()
	}
	buf := make([]byte, min(bytes, info.Size()))
	if _, err := f.ReadAt(buf, info.Size()-int64(len(buf))); err != nil {
		return err.Error()
	}
	var kept []string
	for line := range strings.Lines(string(buf)) {
		if !strings.Contains(line, "msg=request") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept[max(0, len(kept)-lines):], "")
}

// folder returns where a test keeps its store and logs.
func folder(t testing.TB) string {
	base := os.Getenv("FIRN_CRASH_DIR")
	if base == "" {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(base, "crash-")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("store and logs stay in %s", dir)
	return dir
}

// number reads a number from the environment.
func number(t testing.TB, name string, def int64) int64 {
	v := os.Getenv(name)
	if v == "" {
		return def
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

var errGone = errors.New("the source was stopped")
