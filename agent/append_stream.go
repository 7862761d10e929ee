package agent

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/firn-data/firn/api/appendwire"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
)

// streamWindow is how many messages of an append stream wait for durability at once.
const streamWindow = 32

// appendStream is an ordered stream of appends, over HTTP/2 or a connection of its own.
type appendStream interface {
	Receive() (*firnv1.AppendStreamRequest, error)
	Send(*firnv1.AppendStreamResponse) error
}

// streamed is one message of an append stream on its way.
type streamed struct {
	id  int64
	p   *pendingAppend
	err error
}

// AppendStream implements the service.
func (s dataService) AppendStream(ctx context.Context, stream *connect.BidiStream[firnv1.AppendStreamRequest, firnv1.AppendStreamResponse]) error {
	n, err := s.a.owner()
	if err != nil {
		return connectError(err)
	}
	_ = s.a.serveStream(ctx, stream, n) // its last Receive ends with the call
	return nil
}

// serveStream applies the messages of a stream in order by one incarnation and
// answers them in order; the first failure ends the stream. An agent that leaves
// ends it too, after the answers to what is begun; the client resends the rest
// elsewhere. The returned channel is closed when nobody reads the stream any more.
func (a *Agent) serveStream(ctx context.Context, stream appendStream, n *incarnation) (ended <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	flights := make(chan streamed, streamWindow)
	received := make(chan struct{})
	go func() {
		defer close(received)
		a.receive(ctx, stream, n, flights)
	}()
	for {
		var f streamed
		var more bool
		select {
		case f, more = <-flights:
		case <-n.streamsEnd:
			select {
			case f, more = <-flights:
			default: // what is begun was answered; receive sees the end of the context
			}
		}
		if !more {
			return received
		}
		if !answerStreamed(ctx, stream, f) {
			cancel()
			go drain(ctx, flights)
			return received
		}
	}
}

// answerStreamed waits for one message and answers it; false ends the stream.
func answerStreamed(ctx context.Context, stream appendStream, f streamed) bool {
	var res AppendResult
	err := f.err
	if err == nil {
		res, err = f.p.await(ctx)
	}
	answer := &firnv1.AppendStreamResponse{RequestId: f.id}
	if err != nil {
		answer.Outcome = &firnv1.AppendStreamResponse_Error{Error: streamError(err)}
	} else {
		answer.Outcome = &firnv1.AppendStreamResponse_Result{Result: appendResponse(res)}
	}
	return stream.Send(answer) == nil && err == nil
}

// drain waits for what was begun behind a failure; nobody hears of it.
func drain(ctx context.Context, flights <-chan streamed) {
	for f := range flights {
		if f.p != nil {
			_, _ = f.p.await(ctx)
		}
	}
}

// receive begins messages in order until the stream ends or one fails.
func (a *Agent) receive(ctx context.Context, stream appendStream, n *incarnation, flights chan<- streamed) {
	defer close(flights)
	var to messageTarget
	var producerID string
	for ctx.Err() == nil {
		m, rerr := stream.Receive()
		if m == nil {
			return
		}
		if m.Table != "" {
			to = messageTarget{m.Database, m.Table, m.Op, m.Columns, m.SkipBadRows}
		}
		if m.ProducerId != "" {
			producerID = m.ProducerId
		}
		f := streamed{id: m.RequestId, err: rerr}
		var p *Producer
		if f.err == nil {
			p, f.err = producerOf(producerID, m.FirstSequence, m.AckedBelow, m.IdempotencyKey)
		}
		if f.err == nil {
			f.p, f.err = a.beginMessage(ctx, to, m.ArrowIpc, p, n)
		}
		select {
		case flights <- f:
		case <-ctx.Done():
			if f.p != nil {
				_, _ = f.p.await(ctx)
			}
			return
		}
		if f.err != nil {
			return
		}
	}
}

func streamError(err error) *firnv1.StreamError {
	return &firnv1.StreamError{Code: faceOf(err).code.String(), Message: err.Error(), Info: errorInfo(err)}
}

// upgradable serves append streams over connections of their own beside those of Connect.
func (a *Agent) upgradable(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !appendwire.Asked(r) {
			next.ServeHTTP(w, r)
			return
		}
		if err := a.upgrade(w); err != nil {
			writeError(w, err)
		}
	})
}

// upgrade takes a connection over and serves it until it ends. An error was not
// answered yet.
func (a *Agent) upgrade(w http.ResponseWriter) error {
	n, err := a.owner()
	if err != nil {
		return err
	}
	done, ok := a.streams.enter()
	if !ok {
		return errs.New(errs.Unavailable, "this agent is shutting down; retry elsewhere")
	}
	defer done()
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return errs.Wrap(errs.Unsupported, "take over the connection", err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Time{}) // what the server set for a request's headers
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+appendwire.Protocol+"\r\n\r\n"); err != nil {
		return nil
	}
	s := &wireStream{agent: a, conn: conn, in: buffered.Reader}
	s.end(a.serveStream(context.Background(), s, n))
	return nil
}

// answerTimeout is how long a client may leave an answer unread.
const answerTimeout = time.Minute

// wireStream is an append stream over a connection of its own.
type wireStream struct {
	agent *Agent
	conn  net.Conn
	in    *bufio.Reader
	held  int64 // of the budget of all bodies, for the message handed out last

	mu     sync.Mutex
	ending bool // reading is over
}

// readUntil sets the time until which the client has to send; zero is for ever.
func (s *wireStream) readUntil(t time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ending {
		_ = s.conn.SetReadDeadline(t)
	}
}

// Receive returns the next message. When there is no room for its rows, it returns
// the message without them, and the error.
func (s *wireStream) Receive() (*firnv1.AppendStreamRequest, error) {
	s.agent.bodies.Release(s.held)
	s.held = 0
	s.readUntil(time.Time{})
	m, err := appendwire.ReadRequest(s.in, s.room)
	if err != nil {
		s.agent.bodies.Release(s.held)
		s.held = 0
	}
	return m, err
}

// room makes room for the rows of a message, which then have to arrive in time.
func (s *wireStream) room(bytes int64) error {
	if limit := s.agent.cfg.MaxRequestBytes; bytes > limit {
		e := errs.New(errs.TooLarge, "the request has %d bytes of rows, max_request_bytes is %d: send smaller requests", bytes, limit)
		e.Details = []any{map[string]any{"limit": limit}}
		return e
	}
	b := budgetReader{agent: s.agent, ctx: context.Background()}
	if err := b.acquire(bytes); err != nil {
		return err
	}
	s.held = b.held
	s.readUntil(time.Now().Add(bodyTimeout))
	return nil
}

// end closes the connection once the receiver has ended. What the client still
// sends is thrown away for a while: a connection that is closed over it is reset,
// and the client would not see the last answer.
func (s *wireStream) end(received <-chan struct{}) {
	s.mu.Lock()
	s.ending = true
	_ = s.conn.SetReadDeadline(time.Now())
	s.mu.Unlock()
	<-received
	s.agent.bodies.Release(s.held)
	if half, ok := s.conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = s.conn.SetReadDeadline(time.Now().Add(lingerTime))
		_, _ = io.Copy(io.Discard, s.conn)
	}
}

// Send answers a message.
func (s *wireStream) Send(m *firnv1.AppendStreamResponse) error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(answerTimeout))
	return appendwire.WriteResponse(s.conn, m)
}

// turnstile counts what is under way and lets nothing in once it is closed.
type turnstile struct {
	mu     sync.Mutex
	closed bool
	inside sync.WaitGroup
}

// enter counts the caller in; done counts it out. It reports false once it is closed.
func (g *turnstile) enter() (done func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil, false
	}
	g.inside.Add(1)
	return g.inside.Done, true
}

// close lets nobody in any more and waits, until ctx ends, for those inside.
func (g *turnstile) close(ctx context.Context) error {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	left := make(chan struct{})
	go func() {
		g.inside.Wait()
		close(left)
	}()
	select {
	case <-left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
