package agent

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// stalledReader asks for a path and reads the head of its answer only.
func stalledReader(t *testing.T, h *harness, path string, header ...string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", h.agent.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: firn\r\n%s\r\n", path, strings.Join(header, "\r\n"))
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Fatalf("%q %v", line, err)
	}
	return conn
}

// wideRows fills a table with far more than socket buffers take.
func wideRows(h *harness) {
	h.createTable("orders", 1)
	name := strings.Repeat("x", 30_000)
	for range 20 {
		var b strings.Builder
		for i := range 50 {
			fmt.Fprintf(&b, `{"id":%d,"name":%q}`+"\n", i, name)
		}
		h.must("POST", tableURL+"orders/rows", b.String())
	}
}

// logLines passes a logger's warnings on.
type logLines chan string

func (l logLines) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "level=WARN") {
		select {
		case l <- string(p):
		default:
		}
	}
	return len(p), nil
}

// A reader that stops reading once held its snapshot, its WAL objects and its
// buffers for as long as its connection lasted.
func TestReaderThatTakesNothingIsEndedAndHoldsNothing(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		fold bool
	}{
		"live scan":   {"orders/rows", false},
		"folded scan": {"orders/rows", true},
		"changes":     {"orders/changes?follow=true", false},
	} {
		t.Run(name, func(t *testing.T) {
			lines := make(logLines, 100)
			h := startLogging(t, objstore.NewMem(), lines, func(c *Config) { c.StallTimeout = 200 * time.Millisecond })
			wideRows(h)
			if c.fold {
				h.must("POST", "/v1/databases/shop/tables/orders/fold", "{}")
			}
			stalledReader(t, h, tableURL+c.path)
			select {
			case line := <-lines:
				if !strings.Contains(line, "took nothing") || !strings.Contains(line, "stall_timeout=200ms") {
					t.Errorf("log: %s", line)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("the reader was not ended")
			}
			n, err := h.agent.owner()
			if err != nil {
				t.Fatal(err)
			}
			waitUntil(t, func() bool {
				n.refs.mu.Lock()
				defer n.refs.mu.Unlock()
				return len(n.refs.pins) == 0
			})
			for _, table := range n.allTables() {
				waitUntil(t, func() bool {
					table.readers.mu.Lock()
					defer table.readers.mu.Unlock()
					return len(table.readers.readers) == 0
				})
			}
		})
	}
}

func waitUntil(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatal("still not so after 20 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestReaderThatIsOnlySlowReadsToTheEnd(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.StallTimeout = 400 * time.Millisecond })
	wideRows(h)
	res, err := http.Get(h.url + tableURL + "orders/rows")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var total int64
	begun := time.Now()
	for {
		n, err := io.CopyN(io.Discard, res.Body, 1<<20)
		if total += n; err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("after %d bytes: %v", total, err)
		}
		time.Sleep(40 * time.Millisecond) // the pace of a slow reader
	}
	if total < 1000*30_000 || time.Since(begun) < 2*h.agent.cfg.StallTimeout {
		t.Errorf("%d bytes in %v", total, time.Since(begun))
	}
}

func TestFollowerOfAQuietTableIsNotTakenForStalled(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.StallTimeout = 20 * time.Millisecond })
	h.createTable("orders", 1)
	res, err := http.Get(h.url + tableURL + "orders/changes?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	in := bufio.NewReader(res.Body)
	if _, err := in.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	time.Sleep(5 * h.agent.cfg.StallTimeout) // the silence that must not count
	h.must("POST", tableURL+"orders/rows", rowsBody(0, 1))
	if line, err := in.ReadString('\n'); err != nil || !strings.Contains(line, "row 0") {
		t.Errorf("%q %v", line, err)
	}
}
