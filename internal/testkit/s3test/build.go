package s3test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// toolsModule pins the server, relative to the main module's root.
const toolsModule = "internal/tools/s3server"

const serverPackage = "github.com/versity/versitygw/cmd/versitygw"

// Binary returns the path of the server's binary, building it when this pin of
// it has not been built yet on this machine.
func Binary(ctx context.Context) (string, error) {
	folder, err := toolsFolder()
	if err != nil {
		return "", err
	}
	module, err := moduleFolder(ctx)
	if err != nil {
		return "", err
	}
	pin, err := pinOf(module)
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "versitygw-"+pin)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	unlock, err := lock(filepath.Join(folder, "versitygw.lock"))
	if err != nil {
		return "", fmt.Errorf("lock the tools folder: %w", err)
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil { // built while this one waited
		return path, nil
	}
	return path, build(ctx, module, path)
}

func build(ctx context.Context, module, path string) error {
	half := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer func() { _ = os.Remove(half) }()
	cmd := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", half, serverPackage)
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s in %s: %w\n%s", serverPackage, module, err, out)
	}
	return os.Rename(half, path)
}

func toolsFolder() (string, error) {
	folder := os.Getenv("FIRN_TOOLS_DIR")
	if folder == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find a cache folder (or set FIRN_TOOLS_DIR): %w", err)
		}
		folder = filepath.Join(cache, "firn-tools")
	}
	return folder, os.MkdirAll(folder, 0o755)
}

// moduleFolder finds the tools module from wherever in the main module a test
// runs.
func moduleFolder(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for root := filepath.Dir(strings.TrimSpace(string(out))); ; root = filepath.Dir(root) {
		folder := filepath.Join(root, filepath.FromSlash(toolsModule))
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil {
			return folder, nil
		}
		if root == filepath.Dir(root) {
			return "", fmt.Errorf("no %s above the current folder", toolsModule)
		}
	}
}

// pinOf names the state of a module's pins and of the toolchain.
func pinOf(module string) (string, error) {
	var all bytes.Buffer
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(module, name))
		if err != nil {
			return "", err
		}
		all.Write(b)
	}
	fmt.Fprint(&all, runtime.GOOS, runtime.GOARCH)
	return fmt.Sprintf("%.12x", sha256.Sum256(all.Bytes())), nil
}
