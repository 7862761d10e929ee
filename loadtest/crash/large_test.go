package crash

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"golang.org/x/sync/errgroup"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/loadtest"
)

const (
	largeTable   = "demo.large"
	largeBatch   = 500  // rows of a request: 1 MB
	largeRow     = 2056 // bytes in Arrow's layout, without offsets
	largeScans   = 4    // at a time
	largeStall   = 3 * time.Second
	largeLimit   = 40 * time.Minute
	ndjsonShare  = 20 // one row of so many is read as NDJSON
	defaultLarge = 192
)

// A table is written, folded and scanned out, once and by several readers at a time
// beside one that stops reading: the agent must stay within its memory, whatever the
// table's size, and let go of the reader that takes nothing. FIRN_LARGE_MB sets the
// size of the rows, 10240 for the real thing.
func TestLargeTableIsScannedInBoundedMemory(t *testing.T) {
	rows := number(t, "FIRN_LARGE_MB", defaultLarge) << 20 / largeRow / largeBatch * largeBatch
	dir := folder(t)
	p := newProcess(t, dir, "file://"+filepath.Join(dir, "store"), fmt.Sprintf("stall_timeout: %v\n", largeStall))
	ctx, cancel := context.WithTimeout(t.Context(), largeLimit)
	defer cancel()
	p.start()
	c, err := client.New(p.url(), client.WithRetry(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	must(ctx, t, p, "db", "create", "demo")
	if _, err := c.CreateTable(ctx, &firnv1.CreateTableRequest{Database: "demo", Name: "large", Columns: loadtest.Wide.Columns()}); err != nil {
		t.Fatal(err)
	}
	table := c.Table("demo", "large")
	note := func(what string, begun time.Time, n int64) {
		took := time.Since(begun)
		t.Logf("%s: %d rows in %v, %.0f rows/s; peak of the agent %d MiB", what, n, took.Round(time.Millisecond), float64(n)/took.Seconds(), peakOf(t, p)>>20)
	}
	begun := time.Now()
	fillLarge(ctx, t, table, rows)
	note("append", begun, rows)
	begun = time.Now()
	must(ctx, t, p, "lake", "fold", largeTable)
	note("rest of the fold", begun, rows)

	stalled, err := table.ScanRaw(ctx, client.ScanOptions{}, client.Arrow)
	if err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	note("scan, verified", begun, scanLarge(ctx, t, table, rows))
	begun = time.Now()
	scanAtOnce(ctx, t, table)
	note(fmt.Sprintf("%d scans at a time", largeScans), begun, largeScans*rows)
	begun = time.Now()
	note("NDJSON", begun, linesLarge(ctx, t, table, rows/ndjsonShare))

	if n, err := io.Copy(io.Discard, stalled); err == nil {
		t.Errorf("a reader that slept for longer than stall_timeout read %d bytes to the end", n)
	}
	_ = stalled.Close()
	if log := p.tail(64<<20, 1<<20); !strings.Contains(log, "took nothing of its answer") {
		t.Error("the log does not tell of the reader that was ended")
	}
	if peak := peakOf(t, p); peak >= memoryLimit {
		t.Errorf("the agent had %d MiB resident, the limit is %d", peak>>20, memoryLimit>>20)
	}
}

func fillLarge(ctx context.Context, t *testing.T, table *client.Table, rows int64) {
	t.Helper()
	w, err := table.NewWriter(client.WriterOptions{ProducerID: "large", BatchRows: largeBatch, BatchBytes: 4 << 20, Unordered: true})
	if err != nil {
		t.Fatal(err)
	}
	gen := loadtest.NewGenerator(loadtest.Wide, 9)
	for at := int64(0); at < rows; at += largeBatch {
		rec := gen.Batch(0, at, largeBatch)
		err := w.Write(ctx, rec)
		rec.Release()
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(ctx); err != nil {
		t.Fatal(err)
	}
}

// scanLarge reads every row once, in any order, and compares the sum of their numbers.
func scanLarge(ctx context.Context, t *testing.T, table *client.Table, want int64) int64 {
	t.Helper()
	rows, err := table.Scan(ctx, client.ScanOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var n, sum int64
	for {
		rec, err := rows.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("scan after %d rows: %v", n, err)
		}
		n += rec.NumRows()
		sum += sequences(rec)
		rec.Release()
	}
	if n != want || sum != want*(want-1)/2 {
		t.Errorf("scan: %d rows with sum %d, want %d with %d", n, sum, want, want*(want-1)/2)
	}
	return n
}

func sequences(rec arrow.RecordBatch) (sum int64) {
	for _, v := range rec.Column(1).(*array.Int64).Int64Values() {
		sum += v
	}
	return sum
}

func scanAtOnce(ctx context.Context, t *testing.T, table *client.Table) {
	t.Helper()
	g, ctx := errgroup.WithContext(ctx)
	for range largeScans {
		g.Go(func() error {
			body, err := table.ScanRaw(ctx, client.ScanOptions{}, client.Arrow)
			if err != nil {
				return err
			}
			defer body.Close()
			_, err = io.Copy(io.Discard, body)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}

// linesLarge reads some rows as NDJSON and counts them.
func linesLarge(ctx context.Context, t *testing.T, table *client.Table, want int64) int64 {
	t.Helper()
	body, err := table.ScanRaw(ctx, client.ScanOptions{Limit: want}, client.NDJSON)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	var n int64
	for buf := make([]byte, 256<<10); ; {
		k, err := body.Read(buf)
		n += int64(bytes.Count(buf[:k], []byte("\n")))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if n != want {
		t.Errorf("NDJSON: %d rows, want %d", n, want)
	}
	return n
}
