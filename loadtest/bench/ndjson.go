package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/loadtest"
	"github.com/firn-data/firn/segments/rows"
)

// ndjsonSenders post at once: few would measure how long one waits for its answer.
const ndjsonSenders = 16

// ndjsonAppend posts NDJSON bodies and, as ceilings, decodes them on all
// processors: by the JSON readers of libraries and by Firn's own.
func ndjsonAppend(ctx context.Context, o Options) ([]sample, error) {
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
	r, err := newRig(ctx, newRecentStore(), func(c *agent.Config) { c.MaxUnfoldedBytes = unboundedBytes })
	if err != nil {
		return nil, err
	}
	defer r.close()
	if _, err := unfoldedTable(ctx, r.client, loadtest.Flights, 0); err != nil {
		return nil, err
	}
	url := r.url() + "/v1/databases/" + rigDatabase + "/tables/rows/rows"
	value, err := o.steady(ctx, func(ctx context.Context) (int64, error) { return postAll(ctx, url, bodies, perBody) })
	if err != nil {
		return nil, err
	}
	var out []sample
	for _, d := range append(slices.Clone(libraryDecoders), decoder{"Firn's own decoder", ownJSON}) {
		ceiling, err := o.steady(ctx, func(ctx context.Context) (int64, error) { return decodeAll(ctx, bodies, perBody, d.decode) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		out = append(out, beside("beside "+d.name, "decode alone", value, ceiling, 0.6))
	}
	return out, nil
}

// decoder makes Arrow batches of NDJSON lines of flights and returns their rows.
type decoder struct {
	name   string
	decode func(body []byte) (int64, error)
}

// libraryDecoders are those of other Go libraries. The tests add the ones that are
// no part of the program.
var libraryDecoders = []decoder{{"arrow-go's JSON reader", arrowJSON}}

// postAll posts bodies over and over until ctx ends, and returns how many rows were
// acknowledged.
func postAll(ctx context.Context, url string, bodies [][]byte, perBody int64) (int64, error) {
	pool := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: ndjsonSenders}}
	defer pool.CloseIdleConnections()
	var rows atomic.Int64
	var g errgroup.Group
	for sender := range ndjsonSenders {
		g.Go(func() error {
			for i := sender; ctx.Err() == nil; i += ndjsonSenders {
				if err := post(context.WithoutCancel(ctx), pool, url, bodies[i%len(bodies)]); err != nil {
					return err
				}
				rows.Add(perBody)
			}
			return nil
		})
	}
	err := g.Wait()
	return rows.Load(), err
}

func post(ctx context.Context, pool *http.Client, url string, body []byte) error {
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
}

// decodeAll decodes bodies over and over on all processors until ctx ends.
func decodeAll(ctx context.Context, bodies [][]byte, perBody int64, decode func([]byte) (int64, error)) (int64, error) {
	var rows atomic.Int64
	var g errgroup.Group
	workers := runtime.GOMAXPROCS(0)
	for worker := range workers {
		g.Go(func() error {
			for i := worker; ctx.Err() == nil; i += workers {
				n, err := decode(bodies[i%len(bodies)])
				if err == nil && n != perBody {
					err = wrong("decode", n, perBody)
				}
				if err != nil {
					return err
				}
				rows.Add(n)
			}
			return nil
		})
	}
	err := g.Wait()
	return rows.Load(), err
}

func arrowJSON(body []byte) (n int64, err error) {
	r := array.NewJSONReader(bytes.NewReader(body), loadtest.Flights.Schema(), array.WithChunk(5000))
	defer r.Release()
	for r.Next() {
		n += r.RecordBatch().NumRows()
	}
	return n, r.Err()
}

// flightsTable is the schema that an agent would have of the table.
var flightsTable = sync.OnceValues(loadtest.Flights.TableSchema)

func ownJSON(body []byte) (n int64, err error) {
	schema, err := flightsTable()
	if err != nil {
		return 0, err
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
