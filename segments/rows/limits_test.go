package rows_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

func gzipped(t testing.TB, body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func zstded(t testing.TB, body []byte, opts ...zstd.EOption) []byte {
	var b bytes.Buffer
	w, err := zstd.NewWriter(&b, opts...)
	require.NoError(t, err)
	_, err = w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestCompressedBodiesAreDecoded(t *testing.T) {
	s := segtest.Schema("a int")
	body := []byte(strings.Repeat("{\"a\":1}\n", 1000))
	for compression, data := range map[string][]byte{
		"": body, "identity": body, "gzip": gzipped(t, body), "zstd": zstded(t, body),
	} {
		_, d, err := decode(t, data, rows.DecodeOptions{Schema: s, Compression: compression, MaxBytes: int64(len(body))})
		require.NoError(t, err, compression)
		require.Equal(t, int64(1000), d.Rows(), compression)
	}
	two := append(gzipped(t, body), gzipped(t, body)...)
	_, d, err := decode(t, two, rows.DecodeOptions{Schema: s, Compression: "gzip"})
	require.NoError(t, err)
	require.Equal(t, int64(2000), d.Rows())
	_, err = rows.NewDecoder(nil, rows.DecodeOptions{Schema: s, Compression: "br"})
	require.True(t, errs.Is(err, errs.Unsupported))
}

func TestTruncatedOrForeignCompressionIsInvalid(t *testing.T) {
	s := segtest.Schema("a int")
	body := []byte(strings.Repeat("{\"a\":1}\n", 1000))
	for _, compression := range []string{"gzip", "zstd"} {
		whole := gzipped(t, body)
		if compression == "zstd" {
			whole = zstded(t, body)
		}
		for _, data := range [][]byte{whole[:len(whole)-5], whole[:3], body, append(bytes.Clone(whole), "junk"...)} {
			_, _, err := decode(t, data, rows.DecodeOptions{Schema: s, Compression: compression})
			require.True(t, errs.Is(err, errs.Invalid), "%s: %v", compression, err)
		}
	}
	_, _, err := decode(t, nil, rows.DecodeOptions{Schema: s, Compression: "gzip"})
	require.True(t, errs.Is(err, errs.Invalid), "%v", err)
}

func TestBodyOverTheLimitIsTooLargeAndNamesIt(t *testing.T) {
	s := segtest.Schema("a int", "b string")
	body := []byte(strings.Repeat("{\"a\":1}\n", 1000))
	for _, f := range allFormats {
		_, _, err := decode(t, body, rows.DecodeOptions{Schema: s, Format: f, MaxBytes: 100, IgnoreUnknown: true})
		if f == rows.NDJSON {
			require.True(t, errs.Is(err, errs.TooLarge), "%s: %v", f, err)
			require.ErrorContains(t, err, "100 bytes")
			require.Equal(t, []any{map[string]any{"limit": int64(100)}}, errs.Details(err))
		} else {
			require.Error(t, err, f)
		}
	}
	_, _, err := decode(t, body, rows.DecodeOptions{Schema: s, MaxBytes: int64(len(body))})
	require.NoError(t, err)
	_, _, err = decode(t, body, rows.DecodeOptions{Schema: s, MaxBytes: int64(len(body)) - 1})
	require.True(t, errs.Is(err, errs.TooLarge))
}

// bomb is a body that never ends.
type bomb struct {
	line string
	at   int
}

func endless(line string) io.Reader { return &bomb{line: line} }

func (b *bomb) Read(p []byte) (int, error) {
	n := 0
	for n < len(p) {
		m := copy(p[n:], b.line[b.at:])
		n += m
		b.at = (b.at + m) % len(b.line)
	}
	return n, nil
}

func TestZipBombStopsAtTheLimitInBoundedMemory(t *testing.T) {
	s := segtest.Schema("a int", "b string")
	for name, compress := range map[string]func(testing.TB, []byte) []byte{
		"gzip": gzipped, "zstd": func(t testing.TB, b []byte) []byte { return zstded(t, b) },
	} {
		data := compress(t, make([]byte, 64<<20))
		require.Less(t, len(data), 1<<20)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := decode(t, data, rows.DecodeOptions{Schema: s, Compression: name, MaxBytes: 1 << 20})
		runtime.ReadMemStats(&after)
		require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20))
	}
	huge := zstded(t, make([]byte, 100<<20), zstd.WithWindowSize(64<<20), zstd.WithEncoderConcurrency(1), zstd.WithSingleSegment(true))
	_, _, err := decode(t, huge, rows.DecodeOptions{Schema: s, Compression: "zstd"})
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	require.ErrorContains(t, err, "window")
}

func TestLongRowIsTooLarge(t *testing.T) {
	s := segtest.Schema("b string")
	for _, f := range []rows.Format{rows.NDJSON, rows.JSON, rows.CSV} {
		for _, unit := range []string{`{"b":"` + strings.Repeat("x", 200), strings.Repeat("x", 100)} {
			r := io.MultiReader(strings.NewReader("b\n{\"b\":\""), endless(unit))
			if f == rows.JSON {
				r = io.MultiReader(strings.NewReader("[{\"b\":\""), endless("x"))
			}
			d, err := rows.NewDecoder(r, rows.DecodeOptions{Schema: s, Format: f, MaxRowBytes: 1 << 20, SkipBadRows: true})
			require.NoError(t, err)
			_, err = drain(d)
			require.True(t, errs.Is(err, errs.TooLarge), "%s: %v", f, err)
			require.ErrorContains(t, err, "1048576")
		}
	}
}

func TestEndlessBodyIsDecodedInBoundedMemory(t *testing.T) {
	s := segtest.Schema("a int", "b string")
	for _, f := range []rows.Format{rows.NDJSON, rows.JSON, rows.CSV} {
		r := endless(`{"a":1,"b":"some text"}` + "\n")
		switch f {
		case rows.JSON:
			r = io.MultiReader(strings.NewReader("["), endless(`{"a":1,"b":"some text"},`))
		case rows.CSV:
			r = io.MultiReader(strings.NewReader("a,b\n"), endless("1,some text\n"))
		}
		d, err := rows.NewDecoder(r, rows.DecodeOptions{Schema: s, Format: f, ChunkRows: 1000, ChunkBytes: 64 << 10})
		require.NoError(t, err)
		for range 300 {
			c, err := d.Next()
			require.NoError(t, err)
			require.LessOrEqual(t, c.Rows.NumRows(), int64(1000))
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		require.Less(t, m.HeapAlloc, uint64(256<<20))
		require.NoError(t, d.Close())
		_, err = d.Next()
		require.True(t, errs.Is(err, errs.Closed))
	}
}

func TestRowsThatUnfoldInMemoryAreTooLarge(t *testing.T) {
	s := segtest.Schema("a string")
	s.Fields[0].Default = []byte(`"` + strings.Repeat("x", 10_000) + `"`)
	_, _, err := decode(t, []byte(strings.Repeat("{}\n", 10_000)), rows.DecodeOptions{Schema: s, MaxBytes: 1 << 20})
	require.True(t, errs.Is(err, errs.TooLarge), "%v", err)
	require.ErrorContains(t, err, "memory")
	require.Equal(t, []any{map[string]any{"limit": int64(8 << 20)}}, errs.Details(err))
}

func TestEndlessBodyStopsAtItsFirstBadRow(t *testing.T) {
	s := segtest.Schema("a int")
	r := io.MultiReader(strings.NewReader(strings.Repeat("{\"a\":1}\n", 50_000)+"{\"a\":true}\n"), endless("{\"a\":2}\n"))
	d, err := rows.NewDecoder(r, rows.DecodeOptions{Schema: s, Workers: 2})
	require.NoError(t, err)
	chunks, err := drain(d)
	require.True(t, errs.Is(err, errs.Invalid))
	require.ErrorContains(t, err, "row 50000")
	var n int64
	for _, c := range chunks {
		n += c.Rows.NumRows()
	}
	require.Equal(t, int64(50_000), n)
	_, again := d.Next()
	require.Equal(t, err, again)
}

func TestReaderErrorsKeepTheirClass(t *testing.T) {
	s := segtest.Schema("a int")
	for _, c := range []struct {
		err   error
		class errs.Class
	}{
		{errs.New(errs.Unavailable, "gone"), errs.Unavailable},
		{io.ErrUnexpectedEOF, errs.Invalid},
		{errors.New("connection reset"), errs.Invalid},
	} {
		for _, f := range allFormats {
			r := io.MultiReader(strings.NewReader(""), iotest.ErrReader(c.err))
			d, err := rows.NewDecoder(r, rows.DecodeOptions{Schema: s, Format: f})
			require.NoError(t, err)
			_, err = drain(d)
			require.True(t, errs.Is(err, c.class), "%s: %v", f, err)
		}
	}
}

// TestOneByteReadsGiveTheSameRows guards the seams between reads and blocks.
func TestOneByteReadsGiveTheSameRows(t *testing.T) {
	r := segtest.NewRand(7)
	s := segtest.AllTypes()
	batch := segtest.Batch(r, s, 40, segtest.Options{NullPercent: 20})
	for _, f := range allFormats {
		body := encode(t, s, rows.EncodeOptions{Format: f}, batch)
		whole, _, err := decode(t, body, rows.DecodeOptions{Schema: s, Format: f, SkipBadRows: true})
		require.NoError(t, err, f)
		d, err := rows.NewDecoder(iotest.OneByteReader(bytes.NewReader(body)), rows.DecodeOptions{Schema: s, Format: f, SkipBadRows: true})
		require.NoError(t, err)
		chunks, err := drain(d)
		require.NoError(t, err, f)
		require.Equal(t, len(whole), len(chunks))
		for i := range chunks {
			require.Empty(t, segtest.Equal(whole[i].Rows, chunks[i].Rows), f)
		}
	}
}

func TestSlowSenderIsNotHeldBackLongerThanMaxDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := segtest.Schema("a int")
		pr, pw := io.Pipe()
		go func() {
			for i := range 3 {
				_, _ = fmt.Fprintf(pw, "{\"a\":%d}\n{\"a\":", 2*i)
				time.Sleep(time.Minute)
				_, _ = fmt.Fprintf(pw, "%d}\n", 2*i+1)
			}
			_ = pw.Close()
		}()
		d, err := rows.NewDecoder(pr, rows.DecodeOptions{Schema: s, MaxDelay: 50 * time.Millisecond})
		require.NoError(t, err)
		start := time.Now()
		c, err := d.Next()
		require.NoError(t, err)
		require.Equal(t, int64(1), c.Rows.NumRows())
		require.Equal(t, 50*time.Millisecond, time.Since(start))
		chunks, err := drain(d)
		require.NoError(t, err)
		require.Equal(t, int64(6), d.Rows())
		require.Len(t, chunks, 3)
		require.NoError(t, d.Close())
	})
}

func TestTheDigestOfABodyIsOfAllItsBytesHoweverTheyArrive(t *testing.T) {
	s := segtest.Schema("a int")
	batch := segtest.Batch(segtest.NewRand(9), s, 500, segtest.Options{})
	for _, f := range allFormats {
		body := encode(t, s, rows.EncodeOptions{Format: f}, batch)
		if f == rows.NDJSON || f == rows.JSON {
			body = append(body, "\n"...) // behind the last row
		}
		want := sha256.Sum256(body)
		for _, o := range []rows.DecodeOptions{{Schema: s, Format: f}, {Schema: s, Format: f, Compression: "gzip"}} {
			sent := body
			if o.Compression != "" {
				sent = gzipped(t, body)
			}
			for _, r := range []io.Reader{bytes.NewReader(sent), iotest.OneByteReader(bytes.NewReader(sent)), iotest.HalfReader(bytes.NewReader(sent))} {
				o.Digest = sha256.New()
				d, err := rows.NewDecoder(r, o)
				require.NoError(t, err)
				_, err = drain(d)
				require.NoError(t, err, f)
				require.Equal(t, want[:], o.Digest.Sum(nil), "%s %s", f, o.Compression)
			}
		}
	}
}
