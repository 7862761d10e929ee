package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// asCommand makes the test binary behave as firn, for shell scripts of the docs.
const asCommand = "FIRN_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// shellBlocks returns the ```sh blocks of a document.
func shellBlocks(t *testing.T, file string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	rest := string(text)
	for {
		_, after, ok := strings.Cut(rest, "```sh\n")
		if !ok {
			return out
		}
		block, next, _ := strings.Cut(after, "```")
		out, rest = append(out, block), next
	}
}

// The functions stand for the binary and for curl. What follows a stream is ended
// after a moment, which is no failure.
const shellPrelude = `set -eu
firn() {
  limit=20; case "$*" in *--follow*) limit=1;; esac
  ` + asCommand + `=1 timeout -s INT $limit "$FIRN_TEST_BINARY" "$@" || { [ $? -eq 124 ] && [ $limit = 1 ]; }
}
curl() {
  limit=20; case "$*" in *follow=true*) limit=1;; esac
  command curl --fail-with-body --max-time $limit "$@" || { [ $? -eq 28 ] && [ $limit = 1 ]; }
}
`

func TestCommandsOfTheDocsWork(t *testing.T) {
	for _, tool := range []string{"bash", "curl", "timeout"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the docs' commands need %s, which this machine does not have", tool)
		}
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	for _, file := range []string{"../../docs/api.md", "../../docs/operations.md", "../../README.md"} {
		t.Run(filepath.Base(file), func(t *testing.T) {
			startAgent(t)
			server := os.Getenv("FIRN_SERVER")
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "orders.csv"), []byte("order_id,ts,amount\n7,2026-11-29T10:00:02Z,3.00\n"), 0o600))
			for _, block := range shellBlocks(t, file) {
				script := shellPrelude + runnable(block)
				script = strings.ReplaceAll(script, "localhost:7070", strings.TrimPrefix(server, "http://"))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				cmd := exec.CommandContext(ctx, "bash", "-c", script)
				cmd.Dir = dir
				cmd.Env = append(os.Environ(), "FIRN_SERVER="+server, "FIRN_TEST_BINARY="+binary)
				out, err := cmd.CombinedOutput()
				cancel()
				require.NoError(t, err, "%s\n%s", block, out)
				shows(t, block, string(out))
			}
		})
	}
}

// shows checks that the output of a block has, in order, what its lines "# → …" say.
func shows(t *testing.T, block, out string) {
	t.Helper()
	for line := range strings.Lines(block) {
		want, ok := strings.CutPrefix(strings.TrimSpace(line), "# → ")
		if !ok {
			continue
		}
		_, after, found := strings.Cut(out, want)
		require.True(t, found, "%s\nshows no (more) %s in\n%s", block, want, out)
		out = after
	}
}

// runnable leaves out what builds, installs or stays up.
func runnable(block string) string {
	var out []string
	for line := range strings.Lines(block) {
		switch word, _, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case word == "go", word == "make", word == "docker", word == "kubectl", strings.Contains(line, " serve "):
			continue
		}
		out = append(out, strings.ReplaceAll(line, "bin/firn ", "firn "))
	}
	return strings.Join(out, "")
}
