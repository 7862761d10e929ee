package appendwire_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/firn-data/firn/api/appendwire"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

func anyRoom(int64) error { return nil }

func TestRequestsAndAnswersComeBackAsTheyWere(t *testing.T) {
	var wire bytes.Buffer
	first := int64(7)
	head := &firnv1.AppendStreamRequest{Database: "d", Table: "t", ProducerId: "p", RequestId: 3, FirstSequence: &first}
	bodies := [][]byte{nil, []byte("rows"), bytes.Repeat([]byte("large "), 20_000)}
	for _, rows := range bodies {
		if err := appendwire.WriteRequest(&wire, head, rows); err != nil {
			t.Fatal(err)
		}
	}
	for _, rows := range bodies {
		got, err := appendwire.ReadRequest(&wire, anyRoom)
		if err != nil || !bytes.Equal(got.ArrowIpc, rows) {
			t.Fatalf("%d bytes of rows came back as %d: %v", len(rows), len(got.GetArrowIpc()), err)
		}
		got.ArrowIpc = nil
		if !proto.Equal(got, head) {
			t.Fatalf("head %v", got)
		}
	}
	if _, err := appendwire.ReadRequest(&wire, anyRoom); err != io.EOF {
		t.Fatalf("at the end: %v", err)
	}
	answer := &firnv1.AppendStreamResponse{RequestId: 3, Outcome: &firnv1.AppendStreamResponse_Result{Result: &firnv1.AppendResponse{Rows: 4}}}
	if err := appendwire.WriteResponse(&wire, answer); err != nil {
		t.Fatal(err)
	}
	if got, err := appendwire.ReadResponse(&wire); err != nil || !proto.Equal(got, answer) {
		t.Fatalf("answer %v %v", got, err)
	}
}

func TestNoRoomIsToldWithTheMessageAndTakesNoMemory(t *testing.T) {
	var wire bytes.Buffer
	if err := appendwire.WriteRequest(&wire, &firnv1.AppendStreamRequest{RequestId: 9}, make([]byte, 1000)); err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	got, err := appendwire.ReadRequest(&wire, func(n int64) error {
		if n != 1000 {
			t.Errorf("room for %d bytes was asked for", n)
		}
		return full
	})
	if err != full || got.RequestId != 9 || got.ArrowIpc != nil {
		t.Fatalf("%v %v", got, err)
	}
}

func FuzzReadRequest(f *testing.F) {
	var wire bytes.Buffer
	if err := appendwire.WriteRequest(&wire, &firnv1.AppendStreamRequest{Database: "d", Table: "t"}, []byte("rows")); err != nil {
		f.Fatal(err)
	}
	f.Add(wire.Bytes())
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			_, err := appendwire.ReadRequest(r, func(n int64) error {
				if n > int64(r.Len()) {
					return io.ErrUnexpectedEOF
				}
				return nil
			})
			if err != nil {
				return
			}
		}
	})
}
