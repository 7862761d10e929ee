package jsonwire_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/jsonwire"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

var _ connect.Codec = jsonwire.Codec{}

func encode(t *testing.T, m proto.Message) string {
	t.Helper()
	b, err := jsonwire.Codec{}.Marshal(m)
	require.NoError(t, err)
	require.True(t, json.Valid(b), "%s", b)
	return string(b)
}

func TestOffsetsReadAsInTheDocumentation(t *testing.T) {
	m := &firnv1.GetOffsetsResponse{Buckets: []*firnv1.BucketOffsets{{Lake: 120, End: 371}}}
	require.Equal(t, `{"buckets":[{"bucket":0,"earliest":0,"lake":120,"end":371}]}`, encode(t, m))
}

func TestLongsAreNumbersOverTheWholeRange(t *testing.T) {
	for _, n := range []int64{0, -1, 1 << 53, math.MaxInt64, math.MinInt64} {
		m := &firnv1.Producer{Watermark: n}
		text := encode(t, m)
		var back firnv1.Producer
		require.NoError(t, jsonwire.Unmarshal([]byte(text), &back))
		require.Equal(t, n, back.Watermark, text)
	}
	require.Contains(t, encode(t, &firnv1.Producer{Watermark: math.MaxInt64}), `"watermark":9223372036854775807`)
}

func TestUnsetFieldsWithPresenceAreLeftOutAndSetOnesStay(t *testing.T) {
	require.NotContains(t, encode(t, &firnv1.ScanRequest{}), "limit")
	require.Contains(t, encode(t, &firnv1.ScanRequest{Limit: proto.Int64(0)}), `"limit":0`)
	require.Equal(t, `{"tables":[]}`, encode(t, &firnv1.ListTablesResponse{}))
}

func TestMapKeysAreInNumericOrder(t *testing.T) {
	m := &firnv1.ChangesResponse{Progress: map[int32]int64{10: 1, 2: 5, 0: 3}}
	require.Contains(t, encode(t, m), `"progress":{"0":3,"2":5,"10":1}`)
}

func TestTextAndTimeKeepTheirForm(t *testing.T) {
	m := &firnv1.Table{Comment: `a<b> "q" ` + "\n", CreatedAt: timestamppb.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
	text := encode(t, m)
	require.Contains(t, text, `"comment":"a<b> \"q\" \n"`)
	require.Contains(t, text, `"created_at":"2026-01-02T03:04:05Z"`)
}

func TestOutputIsReadBackByProtojson(t *testing.T) {
	v, err := structpb.NewValue(map[string]any{"a": []any{1.5, "x", nil, true}})
	require.NoError(t, err)
	for _, m := range []proto.Message{
		&firnv1.Table{Columns: []*firnv1.Column{{Name: "c", Type: "long", Default: v}}, Properties: map[string]string{"k": "v", "": "é"}},
		&firnv1.AppendRequest{ArrowIpc: []byte{0, 1, 255}, FirstSequence: proto.Int64(7)},
		&firnv1.AppendStreamResponse{Outcome: &firnv1.AppendStreamResponse_Error{Error: &firnv1.StreamError{Code: "unavailable"}}},
		&firnv1.AlterTableRequest{Changes: []*firnv1.TableChange{{SetPartitionBy: &structpb.ListValue{}}}},
	} {
		text := encode(t, m)
		back := m.ProtoReflect().New().Interface()
		require.NoError(t, protojson.Unmarshal([]byte(text), back), text)
		require.True(t, proto.Equal(m, back), text)
	}
}

func TestBothSpellingsAndBothFormsOfLongsAreRead(t *testing.T) {
	for _, text := range []string{
		`{"snapshot_id":9007199254740993}`, `{"snapshotId":"9007199254740993"}`, ` { "snapshot_id" : 9007199254740993 } `,
	} {
		var m firnv1.FoldTableResponse
		require.NoError(t, jsonwire.Unmarshal([]byte(text), &m), text)
		require.Equal(t, int64(9007199254740993), m.SnapshotId)
	}
}

func TestDefaultsAreNeverRounded(t *testing.T) {
	for lit, want := range map[string]any{
		`9007199254740993`:      "9007199254740993",
		`-9223372036854775808`:  "-9223372036854775808",
		`0.1`:                   0.1,
		`12345678901234567.89`:  "12345678901234567.89",
		`9007199254740992`:      9007199254740992.0,
		`1234567890123456`:      1234567890123456.0,
		`"9007199254740993"`:    "9007199254740993",
		`3.141592653589793`:     3.141592653589793,
		`1.00000000000000000e3`: 1000.0,
	} {
		var m firnv1.Column
		require.NoError(t, jsonwire.Unmarshal([]byte(`{"name":"1\"2","default":`+lit+`}`), &m), lit)
		require.Equal(t, want, m.Default.AsInterface(), lit)
	}
}

func TestUnknownFieldsAndBrokenJSONAreErrors(t *testing.T) {
	for _, text := range []string{`{"bucket_kee":1}`, `{`, `[]`, `{"buckets":1.5}`, `{"name":"` + "\xff" + `"}`, `{"buckets":12345678901234567890}`} {
		require.Error(t, jsonwire.Unmarshal([]byte(text), &firnv1.CreateTableRequest{}), text)
	}
}

func FuzzUnmarshalNeverPanics(f *testing.F) {
	f.Add(`{"name":"a","columns":[{"name":"x","default":9007199254740993}]}`)
	f.Add(`{"a":"` + strings.Repeat(`\"`, 3) + `-1e99999999"}`)
	f.Fuzz(func(t *testing.T, text string) {
		var m, back firnv1.CreateTableRequest
		if jsonwire.Unmarshal([]byte(text), &m) != nil {
			return
		}
		b, err := jsonwire.Append(nil, &m)
		require.NoError(t, err)
		require.NoError(t, jsonwire.Unmarshal(b, &back), "%s", b)
		require.True(t, proto.Equal(&m, &back), "%s\n%s", text, b)
	})
}
