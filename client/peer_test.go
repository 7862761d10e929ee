package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/api/appendwire"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
)

// fault is what a peer does to one request.
type fault uint8

const (
	none       fault = iota
	refuse           // 503 before anything is applied
	loseAnswer       // applied, and the connection breaks
	breakFirst       // the connection breaks, nothing is applied
	twice            // the answer is sent twice (streams)
	mute             // applied, never answered
)

// peer is an agent in memory: one bucket whose log is a list of values. It applies
// producer sequences and idempotency keys once, like the real one, and fails as
// its faults say.
type peer struct {
	firnv1connect.UnimplementedDataServiceHandler
	firnv1connect.UnimplementedCatalogServiceHandler

	mu      sync.Mutex
	rng     *rand.Rand
	faults  func(*rand.Rand) fault // under mu
	log     []int64
	bySeq   map[int64]int64
	byKey   map[string]bool
	calls   int
	ops     []string            // op and columns of each stream and post
	final   *firnv1.StreamError // refuses every append
	noBidi  bool
	upgrade bool // takes append streams over connections of their own
	tornAt  int  // Changes breaks after so many messages
	onReply func()
}

func newPeer(t *testing.T, seed uint64, faults func(*rand.Rand) fault) (*peer, *Client) {
	t.Helper()
	if faults == nil {
		faults = func(*rand.Rand) fault { return none }
	}
	p := &peer{rng: rand.New(rand.NewPCG(seed, 1)), faults: faults, bySeq: map[int64]int64{}, byKey: map[string]bool{}}
	mux := http.NewServeMux()
	path, h := firnv1connect.NewDataServiceHandler(p)
	mux.Handle(path, h)
	mux.HandleFunc("GET "+firnv1connect.DataServiceAppendStreamProcedure, p.upgraded)
	p.upgrade = seed%2 == 1
	mux.HandleFunc("POST /v1/databases/d/tables/t/rows", p.postRows)
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	c, err := New(srv.URL, WithRetry(RetryPolicy{Attempts: 60, MinPause: time.Millisecond, MaxPause: 4 * time.Millisecond}))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = c.Close()
		srv.CloseClientConnections()
		srv.Close()
	})
	return p, c
}

// apply takes one request; it reports how many rows were new.
func (p *peer) apply(body []byte, first *int64, key string) (applied, skipped int64, err error) {
	var d pieces
	recs, err := d.decode(body)
	if err != nil {
		return 0, 0, err
	}
	if key != "" {
		if p.byKey[key] {
			return 0, 0, nil
		}
		p.byKey[key] = true
	}
	i := int64(0)
	for _, rec := range recs {
		col := rec.Column(0).(*array.Int64)
		for r := range col.Len() {
			v := col.Value(r)
			if first != nil {
				seq := *first + i
				if old, ok := p.bySeq[seq]; ok {
					if old != v {
						return 0, 0, errors.New("one sequence, two rows")
					}
					skipped++
					i++
					continue
				}
				p.bySeq[seq] = v
			}
			p.log = append(p.log, v)
			applied++
			i++
		}
		rec.Release()
	}
	return applied, skipped, nil
}

func (p *peer) next() fault {
	p.calls++
	return p.faults(p.rng)
}

func (p *peer) postRows(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.final != nil {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{"code": p.final.Code, "message": p.final.Message, "details": []any{}})
		return
	}
	f := p.next()
	switch f {
	case refuse:
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = w.Write([]byte(`{"code":"unavailable","message":"later","details":[]}`))
		return
	case breakFirst:
		hangUp(w)
		return
	}
	p.ops = append(p.ops, r.URL.Query().Get("op")+" "+r.URL.Query().Get("columns"))
	var first *int64
	if s := r.URL.Query().Get("first_sequence"); s != "" {
		n, _ := strconv.ParseInt(s, 10, 64)
		first = &n
	}
	applied, skipped, err := p.apply(body, first, r.Header.Get("Idempotency-Key"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if f == loseAnswer || f == mute {
		hangUp(w)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"rows": applied, "skipped": skipped, "rejected": 0, "errors": []any{},
		"buckets": []any{map[string]any{"bucket": 0, "base_offset": len(p.log) - int(applied), "count": applied, "end_offset": len(p.log)}}})
}

func hangUp(w http.ResponseWriter) {
	if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
		_ = c.Close()
	}
}

func (p *peer) AppendStream(ctx context.Context, s *connect.BidiStream[firnv1.AppendStreamRequest, firnv1.AppendStreamResponse]) error {
	if p.noBidi {
		return connect.NewError(connect.CodeUnimplemented, errors.New("no streams"))
	}
	return p.serve(ctx, s)
}

// upgraded serves a stream over a connection of its own.
func (p *peer) upgraded(w http.ResponseWriter, r *http.Request) {
	if !p.upgrade || p.noBidi || !appendwire.Asked(r) {
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	defer func() { _ = recover() }() // http.ErrAbortHandler: the connection breaks
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+appendwire.Protocol+"\r\n\r\n")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := wirePeer{conn, rw}
	_ = p.serve(ctx, s)
	_ = conn.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, conn)
}

type wirePeer struct {
	conn net.Conn
	in   io.Reader
}

func (s wirePeer) Receive() (*firnv1.AppendStreamRequest, error) {
	return appendwire.ReadRequest(s.in, func(int64) error { return nil })
}

func (s wirePeer) Send(m *firnv1.AppendStreamResponse) error {
	return appendwire.WriteResponse(s.conn, m)
}

type peerStream interface {
	Receive() (*firnv1.AppendStreamRequest, error)
	Send(*firnv1.AppendStreamResponse) error
}

func (p *peer) serve(ctx context.Context, s peerStream) error {
	for {
		req, err := s.Receive()
		if err != nil {
			return nil
		}
		p.mu.Lock()
		if p.final != nil {
			p.mu.Unlock()
			return s.Send(&firnv1.AppendStreamResponse{RequestId: req.RequestId, Outcome: &firnv1.AppendStreamResponse_Error{Error: p.final}})
		}
		if req.Table != "" {
			p.ops = append(p.ops, req.Op+" "+strings.Join(req.Columns, ","))
		}
		f := p.next()
		var res firnv1.AppendResponse
		if f != refuse && f != breakFirst {
			res.Rows, res.Skipped, err = p.apply(req.ArrowIpc, req.FirstSequence, req.IdempotencyKey)
		}
		p.mu.Unlock()
		switch {
		case err != nil:
			return connect.NewError(connect.CodeInvalidArgument, err)
		case f == refuse:
			return s.Send(&firnv1.AppendStreamResponse{RequestId: req.RequestId, Outcome: &firnv1.AppendStreamResponse_Error{
				Error: &firnv1.StreamError{Code: "unavailable", Message: "later", Info: &firnv1.ErrorInfo{Class: "fenced"}}}})
		case f == breakFirst || f == loseAnswer:
			panic(http.ErrAbortHandler)
		case f == mute:
			if w, ok := s.(wirePeer); ok {
				_, _ = io.Copy(io.Discard, w.conn)
			} else {
				<-ctx.Done()
			}
			return nil
		}
		if p.onReply != nil {
			p.onReply()
		}
		for range map[bool]int{false: 1, true: 2}[f == twice] {
			if err := s.Send(&firnv1.AppendStreamResponse{RequestId: req.RequestId, Outcome: &firnv1.AppendStreamResponse_Result{Result: &res}}); err != nil {
				return err
			}
		}
	}
}

// Lookup finds the even keys.
func (p *peer) Lookup(_ context.Context, r *connect.Request[firnv1.LookupRequest]) (*connect.Response[firnv1.LookupResponse], error) {
	var d pieces
	recs, err := d.decode(r.Msg.Keys)
	if err != nil {
		return nil, err
	}
	res := &firnv1.LookupResponse{}
	var found []int64
	for _, rec := range recs {
		for _, v := range rec.Column(0).(*array.Int64).Int64Values() {
			res.Counts = append(res.Counts, int32(1-v%2))
			if v%2 == 0 {
				found = append(found, v)
			}
		}
	}
	res.Rows, err = encodeArrow([]arrow.RecordBatch{values(found...)})
	return connect.NewResponse(res), err
}

// Changes sends the log three rows a message, only even values when there is a
// filter, and breaks off after tornAt messages.
func (p *peer) Changes(ctx context.Context, r *connect.Request[firnv1.ChangesRequest], out *connect.ServerStream[firnv1.ChangesResponse]) error {
	at := int64(0)
	if rest, ok := cutPrefix(r.Msg.Start, "offsets:"); ok {
		m, err := ParseOffsets(rest)
		if err != nil {
			return connect.NewError(connect.CodeInvalidArgument, err)
		}
		at = m[0]
	}
	if r.Msg.Start == "offsets:0=1000000" {
		e := connect.NewError(connect.CodeOutOfRange, errors.New("offset 1000000 is outside [0, 100)"))
		d, _ := connect.NewErrorDetail(&firnv1.ErrorInfo{Class: "out of range"})
		e.AddDetail(d)
		return e
	}
	if err := out.Send(&firnv1.ChangesResponse{Progress: map[int32]int64{0: at}}); err != nil {
		return err
	}
	for sent := 0; ; sent++ {
		p.mu.Lock()
		end := min(at+3, int64(len(p.log)))
		rows := append([]int64(nil), p.log[at:end]...)
		p.mu.Unlock()
		if len(rows) == 0 {
			if !r.Msg.Follow {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Millisecond):
				continue
			}
		}
		if p.tornAt > 0 && sent >= p.tornAt {
			panic(http.ErrAbortHandler)
		}
		at = end
		msg := &firnv1.ChangesResponse{Progress: map[int32]int64{0: at}}
		var keep []int64
		for _, v := range rows {
			if r.Msg.Where == "" || v%2 == 0 {
				keep = append(keep, v)
			}
		}
		if len(keep) > 0 {
			body, err := encodeArrow([]arrow.RecordBatch{values(keep...)})
			if err != nil {
				return err
			}
			msg.ArrowIpc = body
		}
		if err := out.Send(msg); err != nil {
			return err
		}
	}
}

func cutPrefix(s, prefix string) (string, bool) {
	if len(s) >= len(prefix) && s[:len(prefix)] == prefix {
		return s[len(prefix):], true
	}
	return s, false
}

var valueSchema = arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil)

func values(vs ...int64) arrow.RecordBatch {
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues(vs, nil)
	return array.NewRecordBatch(valueSchema, []arrow.Array{b.NewArray()}, int64(len(vs)))
}

func sequence(from, to int64) []int64 {
	out := make([]int64, 0, to-from)
	for v := from; v < to; v++ {
		out = append(out, v)
	}
	return out
}
