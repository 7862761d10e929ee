package client

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
)

// DefaultURL is where an agent listens unless it is told otherwise.
const DefaultURL = "http://127.0.0.1:7070"

// Bounds of the default transport.
const (
	maxConnsPerHost = 64 // connections kept open to one agent
	dialTimeout     = 10 * time.Second
)

// Client talks to the agents at one URL.
type Client struct {
	base    string // without a slash at its end
	token   string
	retry   RetryPolicy
	bulk    *http.Client // pooled HTTP/1.1: large bodies move fastest over it
	streams *http.Client // HTTP/2, also without TLS: streams in both directions
	owned   []*http.Transport

	noUpgrade atomic.Bool // append streams go over HTTP/2: an upgrade was turned down

	catalog firnv1connect.CatalogServiceClient
	cluster firnv1connect.ClusterServiceClient
	data    firnv1connect.DataServiceClient
	ordered firnv1connect.DataServiceClient // AppendStream, which needs HTTP/2
}

// Option changes how a Client works.
type Option func(*Client)

// WithToken sends a bearer token with every request.
func WithToken(token string) Option { return func(c *Client) { c.token = token } }

// WithHTTPClient sends everything through h instead of the two clients that New
// makes. Without HTTP/2 in it, writers fall back to one request in flight.
func WithHTTPClient(h *http.Client) Option {
	return func(c *Client) {
		c.bulk, c.streams = h, h
		c.noUpgrade.Store(true)
	}
}

// WithRetry replaces [DefaultRetry].
func WithRetry(p RetryPolicy) Option { return func(c *Client) { c.retry = p } }

// New returns a client of the agents at baseURL ("http://host:7070"; empty means
// [DefaultURL]). It sends nothing yet.
func New(baseURL string, opts ...Option) (*Client, error) {
	if baseURL == "" {
		baseURL = DefaultURL
	}
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, invalid("parse server URL: %v", err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, invalid("server URL %q: it must look like http://host:port or https://host", baseURL)
	}
	if u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, invalid("server URL of %s: no query, fragment or password; give a token by WithToken", u.Host)
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), retry: DefaultRetry}
	for _, o := range opts {
		o(c)
	}
	if err := c.retry.check(); err != nil {
		return nil, err
	}
	if c.bulk == nil {
		c.bulk = c.newHTTP(false)
		c.streams = c.newHTTP(true)
	}
	copts := []connect.ClientOption{
		connect.WithInterceptors(c.interceptor()),
		connect.WithAcceptCompression("gzip", nil, nil), // on by default, and slow for Arrow
	}
	c.catalog = firnv1connect.NewCatalogServiceClient(c.bulk, c.base, copts...)
	c.cluster = firnv1connect.NewClusterServiceClient(c.bulk, c.base, copts...)
	c.data = firnv1connect.NewDataServiceClient(c.bulk, c.base, copts...)
	c.ordered = firnv1connect.NewDataServiceClient(c.streams, c.base, copts...)
	return c, nil
}

func (c *Client) newHTTP(http2 bool) *http.Client {
	p := new(http.Protocols)
	if http2 {
		p.SetHTTP2(true)
		p.SetUnencryptedHTTP2(true)
	} else {
		p.SetHTTP1(true)
	}
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext,
		MaxIdleConns:          maxConnsPerHost,
		MaxIdleConnsPerHost:   maxConnsPerHost,
		IdleConnTimeout:       90 * time.Second,
		TLSHandshakeTimeout:   dialTimeout,
		DisableCompression:    true, // rows are Arrow; gzip makes them several times slower
		WriteBufferSize:       64 << 10,
		ReadBufferSize:        64 << 10,
		Protocols:             p,
		ExpectContinueTimeout: time.Second,
	}
	c.owned = append(c.owned, t)
	return &http.Client{Transport: t}
}

// Close drops idle connections. Writers and readers must be closed before it.
func (c *Client) Close() error {
	for _, t := range c.owned {
		t.CloseIdleConnections()
	}
	return nil
}

// URL returns the base URL.
func (c *Client) URL() string { return c.base }

// Table returns a handle on database.table; it sends nothing.
func (c *Client) Table(database, table string) *Table {
	return &Table{c: c, database: database, name: table}
}

// ParseTable splits "database.table".
func ParseTable(s string) (database, table string, err error) {
	database, table, ok := strings.Cut(s, ".")
	if !ok || database == "" || table == "" || strings.ContainsAny(table, "./") || strings.Contains(database, "/") {
		return "", "", invalid("table name %q: it must look like database.table", s)
	}
	return database, table, nil
}

// authorize adds what every request carries.
func (c *Client) authorize(h http.Header) {
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
	h.Set("User-Agent", "firn-go")
}

// newKey returns an idempotency key, or another id that nobody else has.
func newKey() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	return fmt.Sprintf("%x", b)
}

func invalid(format string, args ...any) *Error {
	return &Error{Class: Invalid, Code: "invalid_argument", Message: fmt.Sprintf(format, args...)}
}

// errClosed is what a closed writer or reader answers.
var errClosed = &Error{Class: Closed, Code: "canceled", Message: "it is closed", cause: errors.New("closed")}
