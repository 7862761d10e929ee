package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/firn-data/firn/api/appendwire"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
)

// upgrade opens an append stream over a connection of its own. Unsupported means
// that the agent, or a proxy before it, serves none.
func (c *Client) upgrade(ctx context.Context) (appendStream, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+firnv1connect.DataServiceAppendStreamProcedure, nil)
	if err != nil {
		return nil, invalid("make request: %v", err)
	}
	c.authorize(req.Header)
	appendwire.Ask(req.Header)
	resp, err := c.bulk.Do(req)
	if err != nil {
		return nil, transport(ctx, err)
	}
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode == http.StatusSwitchingProtocols && ok && resp.Header.Get("Upgrade") == appendwire.Protocol {
		s := &wireStream{ctx: ctx, conn: conn, in: bufio.NewReader(conn)}
		s.stop = context.AfterFunc(ctx, func() { _ = conn.Close() })
		return s, nil
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return nil, fromResponse(resp)
	}
	return nil, &Error{Class: Unsupported, Code: "unimplemented", Message: fmt.Sprintf("an append stream was answered %s", resp.Status)}
}

// wireStream is an append stream over a connection of its own.
type wireStream struct {
	ctx  context.Context //nolint:containedctx // the stream's life
	conn io.ReadWriteCloser
	in   *bufio.Reader
	stop func() bool
}

func (s *wireStream) send(head *firnv1.AppendStreamRequest, rows []byte) error {
	err := appendwire.WriteRequest(s.conn, head, rows)
	var network *net.OpError
	if err != nil && !errors.As(err, &network) { // else the answer that explains it may still be on its way
		_ = s.conn.Close()
	}
	return err
}

func (s *wireStream) receive() (*firnv1.AppendStreamResponse, error) {
	m, err := appendwire.ReadResponse(s.in)
	switch {
	case err == nil:
		return m, nil
	case s.ctx.Err() != nil:
		return nil, context.Cause(s.ctx)
	}
	return nil, &Error{Class: Unknown, Code: "unavailable", Message: "append stream: " + err.Error(), cause: err}
}

// closeSend leaves the answers to come.
func (s *wireStream) closeSend() {}

func (s *wireStream) close() {
	s.stop()
	_ = s.conn.Close()
}
