package agent

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/firn-data/firn/api/appendwire"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/internal/objstore"
)

// upgraded is an append stream over a connection of its own.
type upgraded struct {
	io.ReadWriteCloser
	in *bufio.Reader
}

func (h *harness) upgrade(headers ...string) (*upgraded, *http.Response) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, h.url+firnv1connect.DataServiceAppendStreamProcedure, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	appendwire.Ask(req.Header)
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		h.t.Fatal(err)
	}
	conn, ok := res.Body.(io.ReadWriteCloser)
	if res.StatusCode != http.StatusSwitchingProtocols || !ok {
		_ = res.Body.Close()
		return nil, res
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	return &upgraded{conn, bufio.NewReader(conn)}, res
}

// budgetIsBack waits until no stream holds memory for a body.
func (h *harness) budgetIsBack() {
	h.t.Helper()
	all := int64(h.agent.cfg.MaxRequests) * h.agent.cfg.MaxRequestBytes
	if err := h.agent.bodies.Acquire(h.t.Context(), all); err != nil {
		h.t.Fatal(err)
	}
	h.agent.bodies.Release(all)
}

func TestAnUpgradedAppendStreamAnswersInOrderAndStopsAtTheFirstFailure(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.MaxRequestBytes = 1 << 20 })
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 5))
	_, ipc := h.do("GET", tableURL+"o/rows", "", "Accept", "application/vnd.apache.arrow.stream")
	for name, bad := range map[string][]byte{"nonsense": []byte("nonsense"), "large": make([]byte, 1<<20+1)} {
		s, _ := h.upgrade()
		if s == nil {
			t.Fatal("no upgrade")
		}
		go func() { // more than a connection buffers, behind the failure too
			for i := range int64(40) {
				first := i * 5
				m := &firnv1.AppendStreamRequest{ProducerId: name, RequestId: i + 1, FirstSequence: &first}
				if i == 0 {
					m.Database, m.Table = "shop", "o"
				}
				rows := []byte(ipc)
				if i > 3 {
					rows = bad
				}
				if i > 4 {
					rows = make([]byte, 1<<20)
				}
				if appendwire.WriteRequest(s, m, rows) != nil {
					return
				}
			}
		}()
		for i := range int64(5) {
			res, err := appendwire.ReadResponse(s.in)
			if err != nil || res.RequestId != i+1 {
				t.Fatalf("%s: answer %d: %v %v", name, i, res, err)
			}
			want := map[string]string{"nonsense": "invalid_argument", "large": "resource_exhausted"}[name]
			if i < 4 && res.GetResult().GetRows() != 5 || i == 4 && res.GetError().GetCode() != want {
				t.Errorf("%s: answer %d: %v", name, i, res)
			}
		}
		if res, err := appendwire.ReadResponse(s.in); err != io.EOF {
			t.Errorf("%s: behind the failure: %v %v", name, res, err)
		}
		_ = s.Close()
		h.budgetIsBack()
	}
	if n := h.count("o", ""); n != 45 {
		t.Errorf("%d rows", n)
	}
}

func TestAnAgentThatLeavesEndsAppendStreamsOfTheirOwnConnections(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 5))
	_, ipc := h.do("GET", tableURL+"o/rows", "", "Accept", "application/vnd.apache.arrow.stream")
	idle, _ := h.upgrade()
	used, _ := h.upgrade()
	halfway, _ := h.upgrade()
	if err := appendwire.WriteRequest(used, &firnv1.AppendStreamRequest{Database: "shop", Table: "o", RequestId: 7}, []byte(ipc)); err != nil {
		t.Fatal(err)
	}
	if res, err := appendwire.ReadResponse(used.in); err != nil || res.GetResult().GetRows() != 5 {
		t.Fatal(res, err)
	}
	var cut bytes.Buffer
	if err := appendwire.WriteRequest(&cut, &firnv1.AppendStreamRequest{Database: "shop", Table: "o"}, make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	if _, err := halfway.Write(cut.Bytes()[:1<<19]); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 3)
	for _, s := range []*upgraded{idle, used, halfway} {
		go func() {
			_, err := appendwire.ReadResponse(s.in)
			_ = s.Close()
			ended <- err
		}()
	}
	begun := time.Now()
	h.stop()
	if took := time.Since(begun); took > lingerTime {
		t.Errorf("leaving took %s", took)
	}
	for range 3 {
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("a stream ended with %v", err)
		}
	}
	h.budgetIsBack()
}

func TestAnUpgradeNeedsTheToken(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.Token = "secret" })
	if s, res := h.upgrade(); s != nil || res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a token: %s", res.Status)
	}
	if s, res := h.upgrade("Authorization", "Bearer secret"); s == nil {
		t.Errorf("with the token: %s", res.Status)
	}
	if s, res := h.upgrade("Authorization", "Bearer secret", "Upgrade", "websocket"); s != nil || res.StatusCode < 400 {
		t.Errorf("another protocol: %s", res.Status)
	}
}

func TestBrokenMessagesEndAnAppendStreamAlone(t *testing.T) {
	h := start(t, objstore.NewMem())
	for _, garbage := range [][]byte{
		bytes.Repeat([]byte{0xff}, 64),
		{1, 0, 0, 0, 0, 0, 0, 0, 0xff},
		{0, 0, 0, 0, 0, 0, 0, 0},
		{2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 1}, // request 1 with 4 GiB of rows
	} {
		s, _ := h.upgrade()
		if _, err := s.Write(garbage); err != nil {
			t.Fatal(err)
		}
		for {
			res, err := appendwire.ReadResponse(s.in)
			if err != nil {
				break
			}
			if res.GetError() == nil {
				t.Errorf("% x was answered %v", garbage, res)
			}
		}
		_ = s.Close()
	}
	h.budgetIsBack()
	if code, _ := h.do("GET", "/health", ""); code != http.StatusOK {
		t.Errorf("health: %d", code)
	}
}
