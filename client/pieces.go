package client

import (
	"bytes"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
)

// pieces decodes an Arrow IPC stream that arrives in pieces of whole messages. A
// piece that begins with a schema starts a new stream.
type pieces struct {
	feed  *bytes.Reader
	arrow *ipc.Reader
}

// decode returns the record batches of a piece, leaving out empty ones; the
// caller releases them.
func (p *pieces) decode(piece []byte) ([]arrow.RecordBatch, error) {
	if len(piece) == 0 {
		return nil, nil
	}
	if p.arrow == nil || startsStream(piece) {
		p.feed = bytes.NewReader(piece)
		rd, err := ipc.NewReader(p.feed)
		if err != nil {
			return nil, badArrow(err)
		}
		p.arrow = rd
	} else {
		p.feed.Reset(piece)
	}
	var out []arrow.RecordBatch
	for p.feed.Len() > 0 && p.arrow.Next() { // never reads past a piece: messages are whole
		rec := p.arrow.RecordBatch()
		if rec.NumRows() == 0 {
			continue
		}
		rec.Retain()
		out = append(out, rec)
	}
	if err := p.arrow.Err(); err != nil && !errors.Is(err, io.EOF) {
		for _, rec := range out {
			rec.Release()
		}
		return nil, badArrow(err)
	}
	return out, nil
}

func startsStream(piece []byte) bool {
	rd := ipc.NewMessageReader(bytes.NewReader(piece))
	defer rd.Release()
	m, err := rd.Message()
	return err == nil && m.Type() == ipc.MessageSchema
}

func badArrow(err error) *Error {
	return &Error{Class: Internal, Code: "internal", Message: "decode Arrow from the agent: " + err.Error(), cause: err}
}
