package jsonwire

import (
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// Codec is a connect.Codec named "json" that takes the place of Connect's own.
type Codec struct{}

// Name returns "json".
func (Codec) Name() string { return "json" }

// IsBinary returns false: the output may stand in a URL as it is.
func (Codec) IsBinary() bool { return false }

// Marshal returns the JSON form of a protobuf message.
func (Codec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("encode JSON: %T is not a protobuf message", v)
	}
	return Append(nil, m)
}

// MarshalStable is Marshal: its output is deterministic.
func (c Codec) MarshalStable(v any) ([]byte, error) { return c.Marshal(v) }

// Unmarshal fills a protobuf message from its JSON form.
func (Codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return fmt.Errorf("decode JSON: %T is not a protobuf message", v)
	}
	return Unmarshal(data, m)
}

// Unmarshal resets m and fills it from its JSON form; an unknown field is an
// error. No bytes at all mean an empty message.
func Unmarshal(data []byte, m proto.Message) error {
	if len(data) == 0 {
		proto.Reset(m)
		return nil
	}
	if err := protojson.Unmarshal(quoteInexact(data), m); err != nil {
		// protojson varies the space after its prefix at random.
		return errors.New("decode JSON: " + strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0"))
	}
	return nil
}
