package rows_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/minio/simdjson-go"
	"github.com/stretchr/testify/require"
	"github.com/valyala/fastjson"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/rows/literal"
	"github.com/firn-data/firn/segments/segtest"
)

func flightSchema() *segments.Schema {
	return segtest.Schema("date timestamp", "delay int", "distance int", "origin string", "destination string")
}

// flights returns NDJSON like the public flights data set.
func flights(n int) []byte {
	r := rand.New(rand.NewPCG(1, 2))
	airports := []string{"HOU", "SAT", "DAL", "PHX", "LAX", "ONT", "OAK", "SMF", "BWI", "MDW"}
	var b bytes.Buffer
	for i := range n {
		us := int64(978307200000000) + int64(i)*60_000_000
		fmt.Fprintf(&b, `{"date":"%s","delay":%d,"distance":%d,"origin":"%s","destination":"%s"}`+"\n",
			literal.AppendTimestamp(nil, us, false), r.IntN(120)-20, 100+r.IntN(2400), airports[r.IntN(10)], airports[r.IntN(10)])
	}
	return b.Bytes()
}

const benchRows = 200_000

// BenchmarkNDJSON decodes flight-like rows to Arrow. The other entries are the
// ways that other Go libraries offer to the same result, for comparison: the
// fastest of them is the ceiling that decoding is measured against.
func BenchmarkNDJSON(b *testing.B) {
	body := flights(benchRows)
	s := flightSchema()
	run := func(name string, decode func() (int64, error)) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for range b.N {
				n, err := decode()
				require.NoError(b, err)
				require.Equal(b, int64(benchRows), n)
			}
			b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
	firn := func(workers int) func() (int64, error) {
		return func() (int64, error) {
			d, err := rows.NewDecoder(bytes.NewReader(body), rows.DecodeOptions{Schema: s, Workers: workers})
			if err != nil {
				return 0, err
			}
			_, err = drain(d)
			return d.Rows(), err
		}
	}
	run("Firn/workers=1", firn(1))
	run("Firn/workers=2", firn(2))
	run("Ceiling/simdjson-go", func() (int64, error) { return simdDecode(body, s) })
	run("Ceiling/fastjson", func() (int64, error) { return fastDecode(body, s) })
	run("Ceiling/arrow-go", func() (int64, error) { return arrowDecode(body, s) })
}

func builders(s *segments.Schema) (*array.RecordBuilder, []array.Builder) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	b.Reserve(benchRows)
	return b, b.Fields()
}

// simdDecode walks simdjson's tape with the fields in the order of the schema.
func simdDecode(body []byte, s *segments.Schema) (int64, error) {
	if !simdjson.SupportedCPU() {
		return fastDecode(body, s)
	}
	parsed, err := simdjson.ParseND(body, nil, simdjson.WithCopyStrings(false))
	if err != nil {
		return 0, err
	}
	b, cols := builders(s)
	var n int64
	iter, root, value := parsed.Iter(), simdjson.Iter{}, simdjson.Iter{}
	var rootIter *simdjson.Iter
	var obj *simdjson.Object
	for iter.Advance() == simdjson.TypeRoot {
		var typ simdjson.Type
		if typ, rootIter, err = iter.Root(&root); err != nil || typ != simdjson.TypeObject {
			return 0, fmt.Errorf("row %d: %v %w", n, typ, err)
		}
		if obj, err = rootIter.Object(obj); err != nil {
			return 0, err
		}
		for i := 0; ; i++ {
			name, typ, err := obj.NextElementBytes(&value)
			if err != nil {
				return 0, err
			}
			if typ == simdjson.TypeNone {
				break
			}
			if string(name) != s.Fields[i].Name {
				return 0, fmt.Errorf("row %d: field %s", n, name)
			}
			switch c := cols[i].(type) {
			case *array.Int32Builder:
				v, err := value.Int()
				if err != nil {
					return 0, err
				}
				c.Append(int32(v))
			case *array.TimestampBuilder:
				v, err := value.StringBytes()
				if err != nil {
					return 0, err
				}
				us, err := literal.Timestamp(v, false)
				if err != nil {
					return 0, err
				}
				c.Append(arrow.Timestamp(us))
			case *array.StringBuilder:
				v, err := value.StringBytes()
				if err != nil {
					return 0, err
				}
				c.BinaryBuilder.Append(v)
			}
		}
		n++
	}
	return b.NewRecordBatch().NumRows(), nil
}

func fastDecode(body []byte, s *segments.Schema) (int64, error) {
	b, cols := builders(s)
	var p fastjson.Parser
	for len(body) > 0 {
		i := bytes.IndexByte(body, '\n')
		row, err := p.ParseBytes(body[:i])
		if err != nil {
			return 0, err
		}
		body = body[i+1:]
		for i, f := range s.Fields {
			v := row.Get(f.Name)
			switch c := cols[i].(type) {
			case *array.Int32Builder:
				c.Append(int32(v.GetInt64()))
			case *array.TimestampBuilder:
				us, err := literal.Timestamp(v.GetStringBytes(), false)
				if err != nil {
					return 0, err
				}
				c.Append(arrow.Timestamp(us))
			case *array.StringBuilder:
				c.BinaryBuilder.Append(v.GetStringBytes())
			}
		}
	}
	return b.NewRecordBatch().NumRows(), nil
}

func arrowDecode(body []byte, s *segments.Schema) (int64, error) {
	r := array.NewJSONReader(bytes.NewReader(body), s.Arrow(), array.WithChunk(64<<10))
	defer r.Release()
	var n int64
	for r.Next() {
		n += r.RecordBatch().NumRows()
	}
	return n, r.Err()
}

// BenchmarkEncode writes flight-like rows.
func BenchmarkEncode(b *testing.B) {
	s := flightSchema()
	d, err := rows.NewDecoder(bytes.NewReader(flights(benchRows)), rows.DecodeOptions{Schema: s})
	require.NoError(b, err)
	chunks, err := drain(d)
	require.NoError(b, err)
	for _, f := range allFormats {
		b.Run(f.String(), func(b *testing.B) {
			for range b.N {
				e, err := rows.NewEncoder(io.Discard, rows.EncodeOptions{Schema: s.Arrow(), Table: s, Format: f})
				require.NoError(b, err)
				for _, c := range chunks {
					require.NoError(b, e.Write(c.Rows))
				}
				require.NoError(b, e.Close())
			}
			b.ReportMetric(float64(benchRows)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}
