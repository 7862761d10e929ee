package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/loadtest"
)

const foldRows = 600_000

// filled starts an agent with one table of rows that are live, or folded.
func filled(ctx context.Context, all []arrow.RecordBatch, shape loadtest.Shape, folded bool) (*rig, *client.Table, error) {
	r, err := newRig(ctx, objstore.NewMem(), func(c *agent.Config) { c.MaxUnfoldedBytes = 4 << 30 })
	if err != nil {
		return nil, nil, err
	}
	t, err := r.table(ctx, "rows", shape)
	if err == nil {
		err = fill(ctx, t, all, false)
	}
	if err == nil && folded {
		_, err = t.Fold(ctx)
	}
	if err != nil {
		r.close()
		return nil, nil, err
	}
	return r, t, nil
}

// fold folds live rows and, as the ceiling, writes the same batches to one Parquet
// file with arrow-go. The first runs on one goroutine a file, as the second does.
func fold(ctx context.Context, _ Options) ([]sample, error) {
	all := batches(loadtest.Flights, foldRows/10_000, 10_000)
	ceiling, err := timed(totalRows(all), func() error { return writeParquet(all) })
	if err != nil {
		return nil, err
	}
	r, t, err := filled(ctx, all, loadtest.Flights, false)
	if err != nil {
		return nil, err
	}
	defer r.close()
	value, err := timed(totalRows(all), func() error {
		res, err := t.Fold(ctx)
		if err == nil && res.Rows != totalRows(all) {
			err = wrong("fold", res.Rows, totalRows(all))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return []sample{beside("flights rows", "arrow-go to Parquet, same codec", value, ceiling, 0.8)}, nil
}

// writeParquet writes one file with arrow-go: ZSTD at the level that folds use,
// and arrow-go's other defaults.
func writeParquet(all []arrow.RecordBatch) error {
	var buf bytes.Buffer
	props := parquet.NewWriterProperties(parquet.WithCompression(compress.Codecs.Zstd), parquet.WithCompressionLevel(1))
	w, err := pqarrow.NewFileWriter(all[0].Schema(), &buf, props, pqarrow.DefaultWriterProps())
	if err != nil {
		return err
	}
	for _, rec := range all {
		if err := w.WriteBuffered(rec); err != nil {
			return err
		}
	}
	return w.Close()
}

// scan reads a folded table through the SDK and, as the ceiling, decodes the same
// Parquet files with arrow-go.
func scan(ctx context.Context, _ Options) ([]sample, error) {
	all := batches(loadtest.Flights, foldRows/10_000, 10_000)
	r, t, err := filled(ctx, all, loadtest.Flights, true)
	if err != nil {
		return nil, err
	}
	defer r.close()
	bodies, err := dataFiles(ctx, r.store)
	if err != nil {
		return nil, err
	}
	ceiling, err := timed(totalRows(all), func() error { return readParquet(ctx, bodies, totalRows(all)) })
	if err != nil {
		return nil, err
	}
	value, err := timed(totalRows(all), func() error {
		_, n, err := scanAll(ctx, t, client.ScanOptions{})
		if err == nil && n != totalRows(all) {
			err = wrong("scan", n, totalRows(all))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return []sample{beside("flights rows, to a client", "arrow-go on the same files", value, ceiling, 0.8)}, nil
}

func scanAll(ctx context.Context, t *client.Table, o client.ScanOptions) (time.Duration, int64, error) {
	begun, n := time.Now(), int64(0)
	rows, err := t.Scan(ctx, o)
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for {
		rec, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return time.Since(begun), n, nil
		}
		if err != nil {
			return 0, 0, err
		}
		n += rec.NumRows()
		rec.Release()
	}
}

// dataFiles returns every Parquet file of a store.
func dataFiles(ctx context.Context, store objstore.Store) ([][]byte, error) {
	var bodies [][]byte
	for info, err := range store.List(ctx, "lake/", "") {
		if err != nil {
			return nil, err
		}
		if strings.HasSuffix(info.Key, ".parquet") {
			body, _, err := store.Get(ctx, info.Key)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, body)
		}
	}
	return bodies, nil
}

// readParquet decodes files with arrow-go, one goroutine a processor.
func readParquet(ctx context.Context, bodies [][]byte, want int64) error {
	var rows atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, body := range bodies {
		g.Go(func() error { return decodeParquet(ctx, body, &rows) })
	}
	err := g.Wait()
	if err == nil && rows.Load() != want {
		err = wrong("raw Parquet scan", rows.Load(), want)
	}
	return err
}

func decodeParquet(ctx context.Context, body []byte, rows *atomic.Int64) error {
	in, err := file.NewParquetReader(bytes.NewReader(body))
	if err != nil {
		return err
	}
	r, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{BatchSize: 64 << 10}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	batches, err := r.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer batches.Release()
	for batches.Next() {
		rows.Add(batches.RecordBatch().NumRows())
	}
	if err := batches.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// columns reads one of 20 columns of wide rows and all 20, live and folded, and
// compares bytes to the client and rows per second.
func columns(ctx context.Context, _ Options) ([]sample, error) {
	all := batches(loadtest.Wide, 120, 500)
	r, t, err := filled(ctx, all, loadtest.Wide, false)
	if err != nil {
		return nil, err
	}
	defer r.close()
	out, err := oneOfAll(ctx, t, "live", totalRows(all))
	if err != nil {
		return nil, err
	}
	if _, err := t.Fold(ctx); err != nil {
		return nil, err
	}
	folded, err := oneOfAll(ctx, t, "folded", totalRows(all))
	return append(out, folded...), err
}

func oneOfAll(ctx context.Context, t *client.Table, where string, want int64) ([]sample, error) {
	measure := func(o client.ScanOptions) (rows, moved float64, err error) {
		took, n, err := scanAll(ctx, t, o)
		if err == nil && n != want {
			err = wrong("scan", n, want)
		}
		if err != nil {
			return 0, 0, err
		}
		body, err := t.ScanRaw(ctx, o, client.Arrow)
		if err != nil {
			return 0, 0, err
		}
		defer body.Close()
		size, err := io.Copy(io.Discard, body)
		return perSecond(n, took), float64(size), err
	}
	one, few, err := measure(client.ScanOptions{Columns: []string{"n00"}})
	if err != nil {
		return nil, err
	}
	every, many, err := measure(client.ScanOptions{})
	if err != nil {
		return nil, err
	}
	return []sample{
		{name: where + ": speed of one column", unit: "rows/s", value: one, ceiling: every, beside: "all 20", goal: "≥ 15 ×", reached: atLeast(15)},
		{name: where + ": bytes of all columns", unit: "B", value: many, ceiling: few, beside: "one column", goal: "≥ 20 ×", reached: atLeast(20)},
	}, nil
}

const idleTime = 5 * time.Second

// idle counts the puts of an agent that has acknowledged and folded what it got
// and hears nothing more.
func idle(ctx context.Context, _ Options) ([]sample, error) {
	r, t, err := filled(ctx, batches(loadtest.Tiny, 10, 100), loadtest.Tiny, true)
	if err != nil {
		return nil, err
	}
	defer r.close()
	if _, err := t.Count(ctx, client.CountOptions{}); err != nil {
		return nil, err
	}
	time.Sleep(idleTime / 2) // checkpoints that the fold made due
	before, err := loadtest.ReadMetrics(ctx, r.url())
	if err != nil {
		return nil, err
	}
	time.Sleep(idleTime)
	after, err := loadtest.ReadMetrics(ctx, r.url())
	if err != nil {
		return nil, err
	}
	none := func(v, _, _ float64) bool { return v == 0 }
	count := func(class string) float64 {
		d := 0.0
		for _, op := range []string{`op="put"`, `op="put_if_absent"`} {
			d += after.Sum("firn_store_operations_total", op, class) - before.Sum("firn_store_operations_total", op, class)
		}
		return d
	}
	return []sample{
		{name: fmt.Sprintf("WAL puts in %v", idleTime), unit: "", value: count(`class="wal"`), goal: "0", reached: none},
		{name: fmt.Sprintf("lake puts in %v", idleTime), unit: "", value: count(`class="lake`), goal: "0", reached: none},
		{name: fmt.Sprintf("all puts in %v, heartbeats too", idleTime), unit: "", value: count("")},
	}, nil
}
