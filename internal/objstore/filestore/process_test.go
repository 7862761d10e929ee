package filestore

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// childEnv makes the test binary a writer process: "race" or "forever".
const childEnv = "FIRN_FILESTORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode, dir, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		child(mode, dir)
		return
	}
	os.Exit(m.Run())
}

const raceKeys = 150

// child writes to the store in dir and prints a line for each thing done.
func child(mode, dir string) {
	s, err := Open(dir)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	out := bufio.NewWriter(os.Stdout)
	me := fmt.Sprint(os.Getpid())
	if mode == "forever" {
		for i := 0; ; i++ {
			key := fmt.Sprintf("kill/%s/%06d", me, i)
			if outcome, err := s.PutIfAbsent(context.Background(), key, killBody(key)); outcome != objstore.Created {
				fmt.Println("error", outcome, err)
				os.Exit(1)
			}
			fmt.Fprintln(out, key)
			_ = out.Flush()
		}
	}
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // the starting shot
	for i := range raceKeys {
		outcome, err := s.PutIfAbsent(context.Background(), fmt.Sprintf("race/%d", i), []byte(me))
		switch outcome {
		case objstore.Created:
			fmt.Fprintln(out, "won", i)
		case objstore.Exists:
		default:
			fmt.Fprintln(out, "error", err)
		}
	}
	_ = out.Flush()
}

func killBody(key string) []byte { return bytes.Repeat([]byte(key+"\n"), 400) }

func command(mode, dir string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+mode+":"+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

func TestTwoProcessesNeverBothWin(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	won := make(map[string]int)
	var all sync.WaitGroup
	var shots []*os.File
	for range 2 {
		cmd := command("race", dir)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin = r
		shots = append(shots, w)
		all.Go(func() {
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("child: %v", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for line := range strings.Lines(string(out)) {
				won[line]++
			}
		})
	}
	for _, w := range shots {
		fmt.Fprintln(w)
		_ = w.Close()
	}
	all.Wait()
	for line, n := range won {
		if n != 1 || !strings.HasPrefix(line, "won") {
			t.Errorf("%q %d times", line, n)
		}
	}
	if len(won) != raceKeys {
		t.Errorf("%d of %d keys were won", len(won), raceKeys)
	}
}

func TestKilledWriterLeavesOnlyWholeAcknowledgedObjects(t *testing.T) {
	dir := t.TempDir()
	acknowledged := make(map[string]bool)
	for range 4 {
		cmd := command("forever", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; n < 20 && lines.Scan(); n++ {
			acknowledged[lines.Text()] = true
		}
		_ = cmd.Process.Signal(syscall.SIGKILL)
		for lines.Scan() {
			acknowledged[lines.Text()] = true
		}
		_ = cmd.Wait()
	}
	s := open(t, dir)
	present := 0
	for info, err := range s.List(t.Context(), "", "") {
		if err != nil {
			t.Fatal(err)
		}
		body, _, err := s.Get(t.Context(), info.Key)
		if err != nil || !bytes.Equal(body, killBody(info.Key)) {
			t.Errorf("%s: %d bytes, %v", info.Key, len(body), err)
		}
		present++
		delete(acknowledged, info.Key)
	}
	if present == 0 || len(acknowledged) != 0 {
		t.Errorf("%d present; acknowledged and missing: %v", present, acknowledged)
	}
}

func TestOldTemporariesAreSweptAndYoungOnesKept(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	old, young := filepath.Join(dir, tempFolder, "1-old"), filepath.Join(dir, tempFolder, "1-young")
	for _, path := range []string{old, young} {
		if err := os.WriteFile(path, []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * tempMaxAge)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	if _, err := os.Stat(old); !os.IsNotExist(err) {
		t.Errorf("old temporary: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("young temporary: %v", err)
	}
	for info, err := range s.List(t.Context(), "", "") {
		t.Errorf("listed %s, %v", info.Key, err)
	}
}

func TestNoTemporaryStaysBehind(t *testing.T) {
	s := open(t, t.TempDir())
	for range 2 {
		_, _ = s.PutIfAbsent(t.Context(), "a/b", []byte("x"))
		_ = s.Put(t.Context(), "a/b", []byte("y"))
		_ = s.Put(t.Context(), "a", []byte("a folder is in the way"))
		_ = s.Put(t.Context(), "a/b/c", []byte("an object is in the way"))
	}
	if left, err := os.ReadDir(s.temp); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestConcurrentPutsShareFolderSyncs(t *testing.T) {
	s := open(t, t.TempDir())
	if err := s.Put(t.Context(), "d/warm", nil); err != nil {
		t.Fatal(err)
	}
	before := fsyncCount.Load()
	if err := s.Put(t.Context(), "d/alone", nil); err != nil {
		t.Fatal(err)
	}
	if n := fsyncCount.Load() - before; n != 1 {
		t.Errorf("a lone put into a known folder cost %d folder fsyncs", n)
	}
	// With the folder's sync held up, every waiter is covered by the next one.
	folder := filepath.Join(s.root, "d")
	d := s.folders.get(folder)
	before = fsyncCount.Load()
	d.syncMu.Lock()
	const writers = 16
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			if err := s.folders.sync(folder); err != nil {
				t.Error(err)
			}
		})
	}
	for d.waiting.Load() < writers {
		time.Sleep(time.Millisecond)
	}
	d.syncMu.Unlock()
	all.Wait()
	if n := fsyncCount.Load() - before; n != 1 {
		t.Errorf("%d waiters cost %d fsyncs", writers, n)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for _, c := range []struct {
		err   error
		class errs.Class
		word  string
	}{
		{&os.PathError{Op: "write", Err: syscall.ENOSPC}, errs.Exhausted, "full"},
		{&os.PathError{Op: "write", Err: syscall.EDQUOT}, errs.Exhausted, "quota"},
		{&os.PathError{Op: "open", Err: syscall.EMFILE}, errs.Exhausted, "ulimit"},
		{&os.PathError{Op: "open", Err: syscall.EROFS}, errs.PermissionDenied, "read-only"},
		{&os.PathError{Op: "open", Err: syscall.EACCES}, errs.PermissionDenied, "owner"},
		{&os.LinkError{Op: "link", Err: syscall.EPERM}, errs.Unsupported, "hard links"},
		{&os.LinkError{Op: "link", Err: syscall.ENOTSUP}, errs.Unsupported, "hard links"},
		{&os.LinkError{Op: "rename", Err: syscall.EPERM}, errs.PermissionDenied, "owner"},
		{&os.PathError{Op: "open", Err: syscall.ENOENT}, errs.NotFound, ""},
		{&os.PathError{Op: "write", Err: syscall.EIO}, errs.Unavailable, ""},
	} {
		err := classify("put key", c.err)
		if !errs.Is(err, c.class) || !strings.Contains(err.Error(), c.word) || !strings.HasPrefix(err.Error(), "put key: ") {
			t.Errorf("%v → %q of class %q", c.err, err, errs.ClassOf(err))
		}
	}
}

func TestRootThatIsAFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errs.Is(err, errs.Invalid) {
		t.Errorf("open: %v (%v)", err, errs.ClassOf(err))
	}
}

func TestURLsNameFolders(t *testing.T) {
	for url, want := range map[string]string{
		"file://./firn-data": "./firn-data", "file:///var/x y%20z": "/var/x y%20z", "file://rel/dir": "rel/dir", "file://": "", "s3://x": "",
	} {
		if got, err := ParseURL(url); got != want || (err != nil) != (want == "") {
			t.Errorf("%s → %q, %v", url, got, err)
		}
	}
	t.Chdir(t.TempDir())
	s := open(t, "./new/data")
	if err := s.Put(t.Context(), "k/l", []byte("v")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("new/data/k/l"); err != nil {
		t.Error(err)
	}
	if !strings.HasPrefix(s.URL(), "file:///") || !strings.HasSuffix(s.URL(), "/new/data") {
		t.Error(s.URL())
	}
}
