package faultproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kind is what a rule does to a request.
type Kind uint8

// The kinds of fault.
const (
	Delay      Kind = iota // wait Rule.Delay, then go on to the next rules
	Answer                 // answer Rule.Status and Rule.Body; the server sees nothing
	AnswerLate             // let the server do the work, then answer Rule.Status and Rule.Body
	LoseAnswer             // let the server do the work, then reset the connection
	Reset                  // reset the connection; the server sees nothing
	Truncate               // pass half of the server's answer, then reset
	Hang                   // answer nothing until the client gives up
)

// Rule says which requests meet which fault. The zero value of each selector
// selects everything.
type Rule struct {
	Kind   Kind
	Method string // "PUT"
	Path   string // substring of the path and query, percent-encoded
	If     func(*http.Request) bool
	After  int     // skip this many matching requests first
	Times  int     // then fire this often; zero is for ever
	Chance float64 // fire with this probability; zero is always

	Delay  time.Duration
	Status int
	Body   string
	Header http.Header // of the answer
}

// Request is what the proxy saw.
type Request struct {
	Method, Path, Query string
	Header              http.Header
	ContentLength       int64
	TransferEncoding    []string
}

// Proxy is a running proxy. Make one with Start.
type Proxy struct {
	URL string // http://127.0.0.1:port

	server *http.Server
	proxy  *httputil.ReverseProxy
	pool   *http.Transport
	seed   uint64

	mu    sync.Mutex
	rules []*state
	seen  []Request
}

type state struct {
	Rule
	matched, fired int
	rand           *rand.Rand
}

// maxSeen bounds the memory of requests.
const maxSeen = 100_000

// Start runs a proxy in front of target (http://host:port) until the test ends.
func Start(t testing.TB, target string, seed uint64, rules ...Rule) *Proxy {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatalf("faultproxy target: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("faultproxy: %v", err)
	}
	p := &Proxy{
		URL:  "http://" + listener.Addr().String(),
		seed: seed,
		pool: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true},
	}
	p.proxy = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host // signed
		},
		Transport:    p.pool,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { reset(w) },
	}
	p.Add(rules...)
	p.server = &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := p.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("faultproxy: %v", err)
		}
	}()
	t.Cleanup(func() {
		_ = p.server.Close()
		<-done
		p.pool.CloseIdleConnections()
	})
	return p
}

// Add appends rules.
func (p *Proxy) Add(rules ...Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range rules {
		source := rand.NewPCG(p.seed, uint64(len(p.rules)))
		p.rules = append(p.rules, &state{Rule: r, rand: rand.New(source)})
	}
}

// Clear removes all rules and forgets what was seen.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules, p.seen = nil, nil
}

// Seen returns the requests so far, in order of arrival.
func (p *Proxy) Seen() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]Request(nil), p.seen...)
}

// Count counts the requests seen of one method; an empty method means all.
func (p *Proxy) Count(method string) int {
	n := 0
	for _, r := range p.Seen() {
		if method == "" || r.Method == method {
			n++
		}
	}
	return n
}

// match notes the request and returns the delay it suffers and the rule that
// decides its fate, if any.
func (p *Proxy) match(r *http.Request) (delay time.Duration, fate *Rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen) < maxSeen {
		p.seen = append(p.seen, Request{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header.Clone(), r.ContentLength, r.TransferEncoding})
	}
	for _, s := range p.rules {
		if !s.fires(r) {
			continue
		}
		if s.Kind != Delay {
			return delay, &s.Rule
		}
		delay += s.Delay
	}
	return delay, nil
}

func (s *state) fires(r *http.Request) bool {
	if s.Method != "" && s.Method != r.Method ||
		s.Path != "" && !strings.Contains(r.URL.RequestURI(), s.Path) ||
		s.If != nil && !s.If(r) {
		return false
	}
	s.matched++
	if s.matched <= s.After || s.Times > 0 && s.fired >= s.Times {
		return false
	}
	if s.Chance > 0 && s.rand.Float64() >= s.Chance {
		return false
	}
	s.fired++
	return true
}

// ServeHTTP passes a request on, or does to it what the rules say.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	delay, fate := p.match(r)
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
	}
	if fate == nil {
		p.proxy.ServeHTTP(w, r)
		return
	}
	switch fate.Kind {
	case Reset:
		reset(w)
	case Hang:
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case Answer:
		_, _ = io.Copy(io.Discard, r.Body)
		fate.answer(w, r)
	case AnswerLate:
		p.forward(r)
		fate.answer(w, r)
	case LoseAnswer:
		p.forward(r)
		reset(w)
	case Truncate:
		got := p.forward(r)
		for k, v := range got.header {
			w.Header()[k] = v
		}
		w.Header().Set("Content-Length", fmt.Sprint(got.body.Len()))
		w.WriteHeader(got.status)
		_, _ = w.Write(got.body.Bytes()[:got.body.Len()/2])
		_ = http.NewResponseController(w).Flush()
		reset(w)
	case Delay: // added up by match
	}
}

func (r *Rule) answer(w http.ResponseWriter, req *http.Request) {
	for k, v := range r.Header {
		w.Header()[k] = v
	}
	status := r.Status
	if status == 0 {
		status = http.StatusServiceUnavailable
	}
	w.WriteHeader(status)
	if req.Method != http.MethodHead {
		_, _ = io.WriteString(w, r.Body)
	}
}

// kept is an answer held in memory.
type kept struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *kept) Header() http.Header         { return k.header }
func (k *kept) WriteHeader(status int)      { k.status = status }
func (k *kept) Write(b []byte) (int, error) { return k.body.Write(b) }

// forward lets the server answer, and keeps the answer from the client.
func (p *Proxy) forward(r *http.Request) *kept {
	k := &kept{header: make(http.Header), status: http.StatusOK}
	p.proxy.ServeHTTP(k, r)
	return k
}

// reset breaks the client's connection without an answer.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return // an answer that is only kept in memory
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
