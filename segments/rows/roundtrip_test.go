package rows_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

var allFormats = []rows.Format{rows.NDJSON, rows.JSON, rows.CSV, rows.ArrowStream, rows.Parquet}

// encode writes batches of a schema in a format.
func encode(t testing.TB, s *segments.Schema, o rows.EncodeOptions, recs ...arrow.RecordBatch) []byte {
	t.Helper()
	var buf bytes.Buffer
	o.Schema, o.Table = s.Arrow(), s
	e, err := rows.NewEncoder(&buf, o)
	require.NoError(t, err)
	for _, rec := range recs {
		require.NoError(t, e.Write(rec))
	}
	require.NoError(t, e.Close())
	return buf.Bytes()
}

// drain reads a decoder to its end.
func drain(d rows.Decoder) (chunks []rows.Chunk, err error) {
	for {
		c, err := d.Next()
		if errors.Is(err, io.EOF) {
			return chunks, nil
		}
		if err != nil {
			return chunks, err
		}
		chunks = append(chunks, c)
	}
}

// decode reads a body.
func decode(t testing.TB, body []byte, o rows.DecodeOptions) ([]rows.Chunk, rows.Decoder, error) {
	t.Helper()
	d, err := rows.NewDecoder(bytes.NewReader(body), o)
	require.NoError(t, err)
	chunks, err := drain(d)
	require.NoError(t, d.Close())
	if o.Format == rows.ArrowStream && o.Compression == "" && o.Digest == nil {
		sameInMemory(t, body, o, chunks, err)
	}
	return chunks, d, err
}

// sameInMemory requires that a body that has arrived decodes as one that comes in
// pieces does, also where its numbers cannot be read in place.
func sameInMemory(t testing.TB, body []byte, o rows.DecodeOptions, want []rows.Chunk, wantErr error) {
	t.Helper()
	for shift := range 2 {
		b := make([]byte, len(body)+8)[shift:]
		before := bytes.Clone(b[:copy(b, body)])
		d, err := rows.NewBodyDecoder(b[:len(body)], o)
		var got []rows.Chunk
		if err == nil {
			got, err = drain(d)
		}
		require.Equal(t, fmt.Sprint(wantErr), fmt.Sprint(err))
		require.Len(t, got, len(want))
		for i, c := range got {
			require.Empty(t, segtest.Equal(want[i].Rows, c.Rows))
			require.Equal(t, want[i].Ordinals, c.Ordinals)
			require.Equal(t, want[i].First, c.First)
		}
		require.Equal(t, before, b[:len(body)], "the body was changed")
	}
}

// TestEncodedRowsDecodeEqual holds for every type, format, chunk size and order
// of nesting. Maps with a key twice have no JSON; those rows, and no others,
// are rejected.
func TestEncodedRowsDecodeEqual(t *testing.T) {
	seeds := 60
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		r := segtest.NewRand(uint64(seed))
		s := segtest.RandomSchema(r)
		if seed == 0 {
			s = segtest.AllTypes()
		}
		batch := segtest.Batch(r, s, 1+r.IntN(60), segtest.Options{NullPercent: 20, Extreme: seed%3 == 0})
		for _, f := range allFormats {
			body := encode(t, s, rows.EncodeOptions{Format: f, LongAsString: seed%2 == 0}, batch)
			chunks, d, err := decode(t, body, rows.DecodeOptions{
				Schema: s, Format: f, SkipBadRows: true, ChunkRows: 1 + r.IntN(40), MaxBytes: 1 << 30,
			})
			require.NoError(t, err, "seed %d, %s:\n%s", seed, f, s)
			rejected, bad := d.Rejected()
			for _, e := range bad {
				require.Contains(t, e.Reason, "a key occurs twice in the map", "seed %d, %s", seed, f)
			}
			total := rejected
			for _, c := range chunks {
				total += c.Rows.NumRows()
				requireRows(t, batch, c, fmt.Sprintf("seed %d, %s", seed, f))
			}
			require.Equal(t, batch.NumRows(), total, "seed %d, %s", seed, f)
		}
	}
}

// requireRows compares a chunk with the rows of a batch that it says it holds.
func requireRows(t testing.TB, batch arrow.RecordBatch, c rows.Chunk, what string) {
	t.Helper()
	require.True(t, c.Rows.Schema().Equal(batch.Schema()), what)
	ords := make([]int32, c.Rows.NumRows())
	for i := range ords {
		ords[i] = int32(c.Ordinal(i))
	}
	want, err := segments.Take(batch, ords)
	require.NoError(t, err)
	require.Empty(t, segtest.Equal(want, c.Rows), what)
}

func TestResultWithoutRowsIsValidInEveryFormat(t *testing.T) {
	s := segtest.AllTypes()
	for _, f := range allFormats {
		body := encode(t, s, rows.EncodeOptions{Format: f})
		chunks, d, err := decode(t, body, rows.DecodeOptions{Schema: s, Format: f, MaxBytes: 1 << 20})
		require.NoError(t, err, f)
		require.Empty(t, chunks, f)
		require.True(t, d.Schema().Equal(s.Arrow()))
		if f == rows.JSON {
			require.Equal(t, "[]\n", string(body))
		}
		if f == rows.NDJSON {
			require.Empty(t, body)
		}
	}
}

// TestAnArrowStreamTellsLaterReadersWhatSixteenBytesAre: what was encoded with
// its table prints the same without it.
func TestAnArrowStreamTellsLaterReadersWhatSixteenBytesAre(t *testing.T) {
	s := segtest.Schema("u uuid", "f fixed(16)", "l list<fixed(16)>", "m map<string,fixed(16)>", "n struct<u:uuid,f:fixed(16)>")
	batch := segtest.Batch(segtest.NewRand(3), s, 20, segtest.Options{NullPercent: 10})
	want := encode(t, s, rows.EncodeOptions{Format: rows.NDJSON}, batch)
	r, err := ipc.NewReader(bytes.NewReader(encode(t, s, rows.EncodeOptions{Format: rows.ArrowStream}, batch)))
	require.NoError(t, err)
	defer r.Release()
	var got bytes.Buffer
	e, err := rows.NewEncoder(&got, rows.EncodeOptions{Schema: r.Schema(), Format: rows.NDJSON})
	require.NoError(t, err)
	for r.Next() {
		require.NoError(t, e.Write(r.RecordBatch()))
	}
	require.NoError(t, r.Err())
	require.NoError(t, e.Close())
	require.Equal(t, string(want), got.String())
}
