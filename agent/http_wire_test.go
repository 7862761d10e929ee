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

// rawConn is one HTTP/1.1 connection, byte by byte.
type rawConn struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func (h *harness) dial() *rawConn {
	h.t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	return &rawConn{h.t, c, bufio.NewReader(c)}
}

func (c *rawConn) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

// answer reads one whole answer.
func (c *rawConn) answer() (*http.Response, string) {
	c.t.Helper()
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	body, err := io.ReadAll(res.Body)
	if err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	return res, string(body)
}

func chunk(s string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(s), s) }

func TestAConnectionServesOnAfterAnErrorThatDidNotReadTheBody(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1)
	c := h.dial()
	big := strings.Repeat(`{"id":1,"name":"abcdefgh"}`+"\n", 40_000) // more than net/http throws away by itself
	for _, body := range []string{rowsBody(0, 3), big} {
		c.send(fmt.Sprintf("POST %snope/rows HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", tableURL, len(body), body))
		if res, text := c.answer(); res.StatusCode != http.StatusNotFound {
			t.Fatalf("%d %s", res.StatusCode, text)
		}
		c.send("POST " + tableURL + "nope/rows HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(body) + "0\r\n\r\n")
		if res, text := c.answer(); res.StatusCode != http.StatusNotFound {
			t.Fatalf("%d %s", res.StatusCode, text)
		}
	}
	c.send(fmt.Sprintf("POST %sorders/rows HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", tableURL, len(rowsBody(0, 3)), rowsBody(0, 3)))
	if res, text := c.answer(); res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	if n := h.count("orders", ""); n != 3 {
		t.Fatalf("%d rows", n)
	}
}

func TestAClientThatSendsAWholeTooLargeBodyFirstStillGetsThe413(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.MaxRequestBytes = 1 << 20 })
	h.createTable("orders", 1)
	line := strings.Repeat(`{"id":1,"name":"abcdefgh"}`+"\n", 4000)
	const times = 300 // some 30 MB
	for _, header := range []string{fmt.Sprintf("Content-Length: %d\r\n", times*len(line)), "Transfer-Encoding: chunked\r\n"} {
		c := h.dial()
		c.send("POST " + tableURL + "orders/rows HTTP/1.1\r\nHost: x\r\n" + header + "\r\n")
		for range times {
			if strings.HasPrefix(header, "T") {
				c.send(chunk(line))
			} else {
				c.send(line)
			}
		}
		res, text := c.answer()
		if res.StatusCode != http.StatusRequestEntityTooLarge || !strings.Contains(text, "1048576") || !strings.Contains(text, `"code":"resource_exhausted"`) {
			t.Fatalf("%d %s", res.StatusCode, text)
		}
	}
	if n := h.count("orders", ""); n != 0 {
		t.Fatalf("%d rows were applied", n)
	}
}

func TestARefusedRequestThatWaitsToBeAskedForItsBodyIsNotAsked(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.MaxRequestBytes = 1 << 20 })
	h.createTable("orders", 1)
	for path, status := range map[string]int{"nope/rows": 404, "orders/rows": 413, "orders/rows?x=1": 400} {
		c := h.dial()
		c.send("POST " + tableURL + path + " HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\nExpect: 100-continue\r\n\r\n")
		begun := time.Now()
		if res, text := c.answer(); res.StatusCode != status {
			t.Fatalf("%s: %d %s", path, res.StatusCode, text)
		}
		if took := time.Since(begun); took > lingerTime/2 {
			t.Fatalf("%s: the answer took %s", path, took)
		}
	}
	c := h.dial()
	c.send(fmt.Sprintf("POST %sorders/rows HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", tableURL, len(rowsBody(0, 2))))
	if res, err := http.ReadResponse(c.in, nil); err != nil || res.StatusCode != http.StatusContinue {
		t.Fatalf("%v %v", res, err)
	}
	c.send(rowsBody(0, 2))
	if res, text := c.answer(); res.StatusCode != http.StatusOK {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
}

func TestAnEndlessBodyIsAnsweredAsSoonAsARowIsBad(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1)
	c := h.dial()
	c.send("POST " + tableURL + "orders/rows?stream=true HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(rowsBody(0, 5)))
	h.eventually(func() bool { return h.count("orders", "") == 5 })
	c.send(chunk("{\"id\":\"x\"}\n")) // and the body stays open
	res, text := c.answer()
	if res.StatusCode != http.StatusBadRequest {
		t.Fatalf("%d %s", res.StatusCode, text)
	}
	for _, want := range []string{`"rows":5`, `"code":"invalid_argument"`, `"stopped_at_row":5`, `"column":"id"`, `"end_offset":5`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

// The columns of the rows before it held pieces of the broken one, which ended the process.
func TestABodyThatBreaksInMidRowIsAppliedUpToThatRow(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("orders", 1)
	body := `[{"id":1},{"id":2,"name":null "x":1}]`
	for _, q := range []string{"?stream=true", "?stream=true&on_error=skip"} {
		text := h.wantError("POST", tableURL+"orders/rows"+q, body, "400 invalid_argument", "Content-Type", "application/json")
		if !strings.Contains(text, `"rows":1`) || !strings.Contains(text, `"stopped_at_row":1`) {
			t.Error(text)
		}
	}
	h.wantError("POST", tableURL+"orders/rows", body, "400 invalid_argument", "Content-Type", "application/json")
	if n := h.count("orders", ""); n != 2 {
		t.Errorf("%d rows", n)
	}
}

// eventually waits for a condition.
func (h *harness) eventually(ok func() bool) {
	h.t.Helper()
	for range 3000 {
		if ok() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	h.t.Fatal("the condition never came")
}
