package agent

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"

	"connectrpc.com/connect"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/segments/rows"
)

// dataService is the face of rows for SDKs: Arrow IPC bytes inside Connect messages.
type dataService struct{ a *Agent }

var _ firnv1connect.DataServiceHandler = dataService{}

// clusterService tells who serves the store.
type clusterService struct{ a *Agent }

var _ firnv1connect.ClusterServiceHandler = clusterService{}

// ListAgents implements the service.
func (s clusterService) ListAgents(ctx context.Context, req *connect.Request[firnv1.ListAgentsRequest]) (*connect.Response[firnv1.ListAgentsResponse], error) {
	return answer(ctx, req, within(s.a, reading, s.a.listAgents))
}

func (a *Agent) listAgents(ctx context.Context, req *firnv1.ListAgentsRequest) (*firnv1.ListAgentsResponse, error) {
	s, err := a.meta.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	slots := map[string]int32{}
	for _, slot := range s.Slots() {
		slots[slot.Owner]++
	}
	res := &firnv1.ListAgentsResponse{}
	var dead []*firnv1.Agent
	for _, g := range s.Agents() {
		m := &firnv1.Agent{
			Id: g.AgentID, Incarnation: g.Incarnation, Address: g.Address, Zone: g.Zone, Slots: slots[g.Incarnation],
			State: a.agentState(g), JoinedAt: timestamp(g.JoinedAt), Version: g.Version,
		}
		if g.State == metastore.Live {
			res.Agents = append(res.Agents, m)
		} else {
			dead = append(dead, m)
		}
	}
	if req.All {
		res.Agents = append(res.Agents, dead...)
	}
	return res, nil
}

// Append implements the service.
func (s dataService) Append(ctx context.Context, req *connect.Request[firnv1.AppendRequest]) (*connect.Response[firnv1.AppendResponse], error) {
	return answer(ctx, req, s.a.appendMessage)
}

func (a *Agent) appendMessage(ctx context.Context, m *firnv1.AppendRequest) (*firnv1.AppendResponse, error) {
	producer, err := producerOf(m.ProducerId, m.FirstSequence, m.AckedBelow, m.IdempotencyKey)
	if err != nil {
		return nil, err
	}
	p, err := a.beginMessage(ctx, messageTarget{m.Database, m.Table, m.Op, m.Columns, m.SkipBadRows}, m.ArrowIpc, producer, nil)
	if err != nil {
		return nil, err
	}
	res, err := p.await(ctx)
	return appendResponse(res), err
}

func producerOf(id string, first, acked *int64, key string) (*Producer, error) {
	switch {
	case id != "" && key != "":
		return nil, errs.New(errs.Invalid, "give producer_id or idempotency_key, not both")
	case key != "":
		return &Producer{ID: key, Idempotency: true}, nil
	case id == "" && (first != nil || acked != nil):
		return nil, errs.New(errs.Invalid, "first_sequence and acked_below need producer_id")
	case id == "":
		return nil, nil
	case first == nil || *first < 0:
		return nil, errs.New(errs.Invalid, "producer_id needs first_sequence, the sequence of the first row, from 0")
	}
	p := &Producer{ID: id, FirstSequence: *first, AckedBelow: *first}
	if acked != nil {
		p.AckedBelow = *acked
	}
	return p, nil
}

// messageTarget is where the rows of a message go, and how.
type messageTarget struct {
	database, table, op string
	columns             []string
	skipBad             bool
}

// beginMessage decodes the Arrow bytes of one message and hands them to the WAL.
func (a *Agent) beginMessage(ctx context.Context, to messageTarget, ipc []byte, p *Producer, n *incarnation) (*pendingAppend, error) {
	def, err := a.table(ctx, to.database, to.table)
	if err != nil {
		return nil, err
	}
	mode, err := modeOf(def, to.op, to.columns, "")
	if err != nil {
		return nil, err
	}
	decode := rows.DecodeOptions{
		Schema: def.Current(), Format: rows.ArrowStream, SkipBadRows: to.skipBad, MaxBytes: a.cfg.MaxRequestBytes, MaxDecodedBytes: 2 * a.cfg.MaxRequestBytes,
	}
	mode.prepare(&decode)
	if p != nil && p.Idempotency {
		whole := fingerprint(decode, &mode)
		_, _ = whole.Write(ipc) // a hash takes everything
		p.FirstSequence = sequenceOf(whole)
	}
	dec, err := rows.NewBodyDecoder(ipc, decode)
	if err != nil {
		return nil, err
	}
	defer func() { _ = dec.Close() }()
	var chunks []rows.Chunk
	for {
		c, err := dec.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, c)
	}
	if n == nil {
		if n, err = a.owner(); err != nil {
			return nil, err
		}
	}
	begun, bad, err := n.beginRows(ctx, &mode, to.skipBad, AppendRequest{Table: def, Schema: def.Current(), Chunks: chunks, BodyRows: dec.Rows(), Producer: p})
	if err != nil {
		return nil, err
	}
	answer := rowsAnswer{refused: bad}
	answer.reject(dec)
	begun.rejected, begun.errors = answer.Rejected, answer.Errors
	a.metrics.rowsRejected.Add(float64(answer.Rejected))
	return begun, nil
}

func appendResponse(r AppendResult) *firnv1.AppendResponse {
	m := &firnv1.AppendResponse{Rows: r.Rows, Skipped: r.Skipped, Duplicate: r.Duplicate, Rejected: r.Rejected}
	for _, e := range r.RowErrors {
		m.Errors = append(m.Errors, &firnv1.RowError{Row: e.Row, Column: e.Column, Reason: e.Reason})
	}
	for _, b := range r.Buckets {
		m.Buckets = append(m.Buckets, &firnv1.BucketAppend{Bucket: b.Bucket, BaseOffset: b.BaseOffset, Count: b.Count, EndOffset: b.EndOffset})
	}
	return m
}

// Scan implements the service.
func (s dataService) Scan(ctx context.Context, req *connect.Request[firnv1.ScanRequest], out *connect.ServerStream[firnv1.ScanResponse]) error {
	return connectError(s.a.scanMessage(ctx, req.Msg, func(ipc []byte) error { return out.Send(&firnv1.ScanResponse{ArrowIpc: ipc}) }))
}

func (a *Agent) scanMessage(ctx context.Context, m *firnv1.ScanRequest, send func([]byte) error) error {
	req := ScanRequest{Columns: m.Columns, Where: m.Where, Layer: Layer(m.Layer), Snapshot: m.GetSnapshot(), Limit: m.GetLimit()}
	if m.AsOf != "" {
		var err error
		if req.AsOf, err = parseMoment(m.AsOf); err != nil {
			return errs.In("as_of", err)
		}
	}
	def, n, err := a.tableAndOwner(ctx, m.Database, m.Table)
	if err != nil {
		return err
	}
	stream, err := n.Scan(ctx, def, req)
	if err != nil {
		return err
	}
	defer stream.Close()
	var buf bytes.Buffer
	enc, err := rows.NewEncoder(&buf, rows.EncodeOptions{Schema: stream.Schema.Arrow(), Table: stream.Schema, Format: rows.ArrowStream})
	if err != nil {
		return err
	}
	for rec, err := range stream.Batches {
		if err != nil {
			return err
		}
		if err := enc.Write(rec); err != nil {
			return err
		}
		if err := sendBuffer(&buf, send); err != nil {
			return err
		}
		a.metrics.rowsOut.Add(float64(rec.NumRows()))
	}
	if err := enc.Close(); err != nil {
		return err
	}
	return sendBuffer(&buf, send)
}

// sendBuffer sends what an encoder wrote. The message keeps the bytes, so they are copied.
func sendBuffer(buf *bytes.Buffer, send func([]byte) error) error {
	if buf.Len() == 0 {
		return nil
	}
	err := send(bytes.Clone(buf.Bytes()))
	buf.Reset()
	return err
}

// Changes implements the service.
func (s dataService) Changes(ctx context.Context, req *connect.Request[firnv1.ChangesRequest], out *connect.ServerStream[firnv1.ChangesResponse]) error {
	return connectError(s.a.changesMessage(ctx, req.Msg, out))
}

func (a *Agent) changesMessage(ctx context.Context, m *firnv1.ChangesRequest, out *connect.ServerStream[firnv1.ChangesResponse]) error {
	start, err := parseStart(m.Start)
	if err != nil {
		return err
	}
	def, n, err := a.tableAndOwner(ctx, m.Database, m.Table)
	if err != nil {
		return err
	}
	stream, err := n.Changes(ctx, def, ChangesRequest{
		Start: start, Buckets: m.Buckets, Columns: m.Columns, Where: m.Where, Limit: m.GetLimit(), Follow: m.Follow, Idle: progressEvery,
	})
	if err != nil {
		return err
	}
	defer stream.Close()
	// Where the stream starts goes first, so that a client can resume before the first row.
	if err := out.Send(&firnv1.ChangesResponse{Progress: maps.Clone(stream.Progress)}); err != nil {
		return err
	}
	var buf bytes.Buffer
	schema := changeSchema(stream.Schema)
	enc, err := rows.NewEncoder(&buf, rows.EncodeOptions{Schema: schema, Table: stream.Schema, Format: rows.ArrowStream})
	if err != nil {
		return err
	}
	for b, err := range stream.Batches {
		if err != nil {
			return err
		}
		if b.Rows != nil {
			if err := enc.Write(changeRecord(schema, b)); err != nil {
				return err
			}
			a.metrics.rowsOut.Add(float64(b.Rows.NumRows()))
		}
		msg := &firnv1.ChangesResponse{ArrowIpc: bytes.Clone(buf.Bytes()), Progress: map[int32]int64{}}
		buf.Reset()
		for bucket, at := range stream.Progress {
			msg.Progress[bucket] = at
		}
		if err := out.Send(msg); err != nil {
			return err
		}
	}
	if err := enc.Close(); err != nil {
		return err
	}
	return sendBuffer(&buf, func(ipc []byte) error { return out.Send(&firnv1.ChangesResponse{ArrowIpc: ipc}) })
}

// Count implements the service.
func (s dataService) Count(ctx context.Context, req *connect.Request[firnv1.CountRequest]) (*connect.Response[firnv1.CountResponse], error) {
	return answer(ctx, req, s.a.countMessage)
}

func (a *Agent) countMessage(ctx context.Context, m *firnv1.CountRequest) (*firnv1.CountResponse, error) {
	req := ScanRequest{Where: m.Where, Layer: Layer(m.Layer), Snapshot: m.GetSnapshot()}
	if m.AsOf != "" {
		var err error
		if req.AsOf, err = parseMoment(m.AsOf); err != nil {
			return nil, errs.In("as_of", err)
		}
	}
	def, n, err := a.tableAndOwner(ctx, m.Database, m.Table)
	if err != nil {
		return nil, err
	}
	count, err := n.count(ctx, def, req)
	return &firnv1.CountResponse{Count: count}, err
}
