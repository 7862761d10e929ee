// Package appendwire is the append stream of firn.v1.DataService without HTTP/2:
// the same messages over a connection that HTTP/1.1 was upgraded from, where
// rows travel in no frames but their own.
//
// A client asks with GET /firn.v1.DataService/AppendStream, Connection: Upgrade
// and Upgrade: firn-append/1. After the answer 101 it sends requests:
//
//	4 bytes  length of the head, little-endian, 1 to MaxHeadBytes
//	4 bytes  length of the rows, little-endian
//	         the head: an AppendStreamRequest without arrow_ipc
//	         the rows: what arrow_ipc would hold
//
// and the agent answers each, in order:
//
//	4 bytes  length of the answer, little-endian
//	         an AppendStreamResponse
//
// Either side ends the stream by closing the connection; what was not answered is
// in doubt, as on a broken HTTP/2 stream. Rows keep their alignment: they are read
// into a block of their own.
package appendwire

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"strings"

	"google.golang.org/protobuf/proto"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// Protocol is the name in the Upgrade header.
const Protocol = "firn-append/1"

const (
	// MaxHeadBytes bounds a request without its rows.
	MaxHeadBytes = 64 << 10
	// MaxAnswerBytes bounds an answer: some thousand buckets fit.
	MaxAnswerBytes = 8 << 20
	// joinBytes is the size of rows up to which they share a write with their head.
	joinBytes = 16 << 10
)

// Ask adds the headers of an upgrade to a request.
func Ask(h http.Header) {
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", Protocol)
}

// Asked reports whether a request asks for the upgrade.
func Asked(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), Protocol) {
		return false
	}
	for _, v := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") {
				return true
			}
		}
	}
	return false
}

// WriteRequest sends one request. The head's ArrowIpc stays empty; rows are written
// as they are, and not kept.
func WriteRequest(w io.Writer, head *firnv1.AppendStreamRequest, rows []byte) error {
	b := make([]byte, 8, 256)
	b, err := proto.MarshalOptions{}.MarshalAppend(b, head)
	if err != nil {
		return err
	}
	n := len(b) - 8
	if n > MaxHeadBytes {
		return fmt.Errorf("append stream: a request's head has %d bytes, the limit is %d", n, MaxHeadBytes)
	}
	if int64(len(rows)) > int64(^uint32(0)) {
		return fmt.Errorf("append stream: a request has %d bytes of rows", len(rows))
	}
	binary.LittleEndian.PutUint32(b, uint32(n))             //nolint:gosec // checked
	binary.LittleEndian.PutUint32(b[4:], uint32(len(rows))) //nolint:gosec // checked
	if len(rows) <= joinBytes {
		_, err = w.Write(append(b, rows...))
		return err
	}
	if _, err = w.Write(b); err == nil {
		_, err = w.Write(rows)
	}
	return err
}

// ReadRequest reads one request, with its rows in ArrowIpc. room is asked for the
// memory of the rows before it is taken, and may refuse. At the end of the stream
// the error is io.EOF.
func ReadRequest(r io.Reader, room func(bytes int64) error) (*firnv1.AppendStreamRequest, error) {
	var lengths [8]byte
	if _, err := io.ReadFull(r, lengths[:]); err != nil {
		return nil, err
	}
	headLen, rowsLen := binary.LittleEndian.Uint32(lengths[:]), binary.LittleEndian.Uint32(lengths[4:])
	if headLen > MaxHeadBytes {
		return nil, fmt.Errorf("append stream: a request's head has %d bytes, the limit is %d", headLen, MaxHeadBytes)
	}
	head := make([]byte, headLen)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, cut(err)
	}
	m := new(firnv1.AppendStreamRequest)
	if err := proto.Unmarshal(head, m); err != nil {
		return nil, fmt.Errorf("append stream: %w", err)
	}
	if err := room(int64(rowsLen)); err != nil {
		return m, err
	}
	m.ArrowIpc = make([]byte, rowsLen)
	if _, err := io.ReadFull(r, m.ArrowIpc); err != nil {
		return nil, cut(err)
	}
	return m, nil
}

// WriteResponse sends one answer.
func WriteResponse(w io.Writer, m *firnv1.AppendStreamResponse) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 256), m)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4)) //nolint:gosec // a list of buckets
	_, err = w.Write(b)
	return err
}

// ReadResponse reads one answer. At the end of the stream the error is io.EOF.
func ReadResponse(r io.Reader) (*firnv1.AppendStreamResponse, error) {
	var length [4]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(length[:])
	if n > MaxAnswerBytes {
		return nil, fmt.Errorf("append stream: an answer has %d bytes, the limit is %d", n, MaxAnswerBytes)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return nil, cut(err)
	}
	m := new(firnv1.AppendStreamResponse)
	return m, proto.Unmarshal(b, m)
}

// cut names the end of a stream in the middle of something.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
