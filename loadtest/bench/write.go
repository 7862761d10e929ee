package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/loadtest"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
)

// flushAge is the default on object stores, whatever the case's store is.
const flushAge = 100 * time.Millisecond

// ackLatency sends a small request every 20 ms and compares the acknowledgement
// with the put that it cannot do without.
func ackLatency(ctx context.Context, o Options) ([]sample, error) {
	slow := &slowStore{objstore.NewMem(), o.PutDelay}
	raw, err := rawPut(ctx, slow)
	if err != nil {
		return nil, err
	}
	r, err := newRig(ctx, slow, func(c *agent.Config) { c.FlushAge = flushAge })
	if err != nil {
		return nil, err
	}
	defer r.close()
	rep, err := loadtest.Run(ctx, loadtest.Options{
		Server: r.url(), Shape: loadtest.Tiny, BatchRows: 10, Rate: 500, Duration: 4 * time.Second, Writers: 1, InFlight: 32, Producers: -1, SkipCeiling: true,
	})
	if err != nil {
		return nil, err
	}
	limit := float64(flushAge.Milliseconds())/2 + 1.2*raw
	return []sample{
		{name: "p50", unit: "ms", value: rep.Append.Ack.P50, ceiling: raw, beside: "raw put p50",
			goal: fmt.Sprintf("≤ age/2 + 1.2 × put = %.0f ms", limit), reached: func(v, c, _ float64) bool { return v <= float64(flushAge.Milliseconds())/2+1.2*c }},
		{name: "p99", unit: "ms", value: rep.Append.Ack.P99, ceiling: raw, beside: "raw put p50"},
		{name: "puts a flush", unit: "", value: rep.Agent.PutsPerFlush, goal: "1", reached: func(v, _, _ float64) bool { return v == 1 }},
		{name: "puts an acknowledged request", unit: "", value: rep.Agent.PutsPerAck, goal: "≤ 1", reached: func(v, _, _ float64) bool { return v <= 1 }},
	}, nil
}

// rawPut returns the median put, in milliseconds.
func rawPut(ctx context.Context, s objstore.Store) (float64, error) {
	var took []float64
	for i := range 50 {
		begun := time.Now()
		if _, err := s.PutIfAbsent(ctx, fmt.Sprintf("raw/%d", i), make([]byte, 2000)); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(begun).Microseconds())/1000)
	}
	return median(took), nil
}

// arrowAppend writes ready-made batches through the SDK and, as the ceiling,
// hashes, encodes and puts the same batches on all processors.
func arrowAppend(ctx context.Context, _ Options) ([]sample, error) {
	var out []sample
	for _, c := range []struct {
		shape   loadtest.Shape
		n, rows int
	}{{loadtest.Flights, 150, 10_000}, {loadtest.Wide, 100, 500}} {
		all := batches(c.shape, c.n, c.rows)
		ceiling, err := timed(totalRows(all), func() error { return putAll(ctx, all) })
		if err != nil {
			return nil, err
		}
		for _, unordered := range []bool{false, true} {
			value, err := fillFresh(ctx, c.shape, all, unordered)
			if err != nil {
				return nil, err
			}
			name := map[bool]string{false: " rows, one ordered stream", true: " rows, unordered"}[unordered]
			out = append(out, beside(string(c.shape)+name, "hash + ZSTD + put", value, ceiling, 0.7))
		}
	}
	return out, nil
}

// fillFresh writes batches to a new agent.
func fillFresh(ctx context.Context, shape loadtest.Shape, all []arrow.RecordBatch, unordered bool) (speed, error) {
	r, err := newRig(ctx, objstore.NewMem())
	if err != nil {
		return speed{}, err
	}
	defer r.close()
	t, err := r.table(ctx, "rows", shape)
	if err != nil {
		return speed{}, err
	}
	return timed(totalRows(all), func() error { return fill(ctx, t, all, unordered) })
}

const objectBytes = 4 << 20 // as flush_bytes

// putAll is the ceiling of appends.
func putAll(ctx context.Context, all []arrow.RecordBatch) error {
	store := objstore.NewMem()
	per := max(1, int(objectBytes/segments.SizeOf(all[0])))
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	encoders := make(chan *zstd.Encoder, runtime.GOMAXPROCS(0))
	for range cap(encoders) {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
		if err != nil {
			return err
		}
		encoders <- e
	}
	n := 0
	for group := range slices.Chunk(all, per) {
		n++
		key := fmt.Sprintf("ceiling/%d", n)
		g.Go(func() error {
			e := <-encoders
			defer func() { encoders <- e }()
			return loadtest.PutCeiling(ctx, store, key, e, group)
		})
	}
	return g.Wait()
}

const ndjsonSenders = 4

// ndjsonAppend posts NDJSON bodies and, as ceilings, decodes them on all
// processors: by arrow-go's JSON reader and by Firn's own decoder, which is the
// fastest known (BenchmarkNDJSON in segments/rows).
func ndjsonAppend(ctx context.Context, _ Options) ([]sample, error) {
	const perBody = 5_000
	all := batches(loadtest.Flights, 60, perBody)
	schema := loadtest.Flights.Schema()
	bodies := make([][]byte, len(all))
	for i, rec := range all {
		var b bytes.Buffer
		enc, err := rows.NewEncoder(&b, rows.EncodeOptions{Schema: schema, Format: rows.NDJSON})
		if err == nil {
			err = enc.Write(rec)
		}
		if err == nil {
			err = enc.Close()
		}
		if err != nil {
			return nil, err
		}
		bodies[i] = b.Bytes()
	}
	r, err := newRig(ctx, objstore.NewMem())
	if err != nil {
		return nil, err
	}
	defer r.close()
	if _, err := r.table(ctx, "rows", loadtest.Flights); err != nil {
		return nil, err
	}
	url := r.url() + "/v1/databases/" + rigDatabase + "/tables/rows/rows"
	value, err := timed(totalRows(all), func() error { return postAll(ctx, url, bodies) })
	if err != nil {
		return nil, err
	}
	library, err := timed(totalRows(all), func() error {
		return decodeAll(bodies, perBody, func(b []byte) (int64, error) { return arrowJSON(b, schema) })
	})
	if err != nil {
		return nil, err
	}
	own, err := timed(totalRows(all), func() error { return decodeAll(bodies, perBody, ownJSON) })
	if err != nil {
		return nil, err
	}
	return []sample{
		beside("beside arrow-go's decoder", "array.NewJSONReader alone", value, library, 0.6),
		beside("beside Firn's own decoder", "decode alone", value, own, 0.6),
	}, nil
}

func postAll(ctx context.Context, url string, bodies [][]byte) error {
	pool := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: ndjsonSenders}}
	defer pool.CloseIdleConnections()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(ndjsonSenders)
	for _, body := range bodies {
		g.Go(func() error {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
			if err != nil {
				return err
			}
			res, err := pool.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			text, err := io.ReadAll(res.Body)
			if err == nil && res.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s: %s", res.Status, text)
			}
			return err
		})
	}
	return g.Wait()
}

// decodeAll decodes all bodies on all processors.
func decodeAll(bodies [][]byte, perBody int64, decode func([]byte) (int64, error)) error {
	var g errgroup.Group
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, b := range bodies {
		g.Go(func() error {
			n, err := decode(b)
			if err == nil && n != perBody {
				err = wrong("decode", n, perBody)
			}
			return err
		})
	}
	return g.Wait()
}

func arrowJSON(body []byte, schema *arrow.Schema) (n int64, err error) {
	r := array.NewJSONReader(bytes.NewReader(body), schema, array.WithChunk(5000))
	defer r.Release()
	for r.Next() {
		n += r.RecordBatch().NumRows()
	}
	return n, r.Err()
}

func ownJSON(body []byte) (n int64, err error) {
	schema := &segments.Schema{}
	for i, c := range loadtest.Flights.Columns() {
		t, err := segments.ParseType(c.Type)
		if err != nil {
			return 0, err
		}
		schema.Fields = append(schema.Fields, segments.Field{ID: int32(i + 1), Name: c.Name, Type: t, Required: c.Required}) //nolint:gosec // few columns
	}
	d, err := rows.NewDecoder(bytes.NewReader(body), rows.DecodeOptions{Schema: schema, Format: rows.NDJSON, ChunkRows: 64 << 10, ChunkBytes: 4 << 20})
	if err != nil {
		return 0, err
	}
	defer func() { _ = d.Close() }()
	for {
		c, err := d.Next()
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += c.Rows.NumRows()
	}
}
