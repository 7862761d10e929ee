package crash

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/loadtest"
)

const (
	flightRows  = 3_000_000
	flightTable = "demo.flights"
	flightsID   = "flights-file"
	olderFlight = 250_000 // rows that the restarted source goes back
	memoryLimit = 1 << 30
	flightLimit = 15 * time.Minute
)

// flightConfig is an agent as users run it, but for folds that come sooner.
const flightConfig = "flush_age: 20ms\n"

// Three million flights come in by command line under a producer id. The agent is
// killed in the middle, and so is the source, which comes back at an older position
// with another batch size. Count, stream and lake must all say three million.
func TestThreeMillionFlightsSurviveKillsExactly(t *testing.T) {
	path := os.Getenv("FIRN_FLIGHTS")
	if path == "" {
		t.Skip("FIRN_FLIGHTS is not set to the path of flights-3m.parquet")
	}
	dir := folder(t)
	p := newProcess(t, dir, "file://"+filepath.Join(dir, "store"), flightConfig)
	ctx, cancel := context.WithTimeout(t.Context(), flightLimit)
	defer cancel()
	p.start()
	c, err := client.New(p.url(), client.WithRetry(patient))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	must(ctx, t, p, "db", "create", "demo")
	must(ctx, t, p, "table", "create", flightTable, "--property", "fold_interval=5s", "-c", "date timestamp", "-c", "delay long",
		"-c", "distance long", "-c", "origin string", "-c", "destination string")
	table := c.Table("demo", "flights")

	var peak int64
	source := p.begin(ctx, "append", flightTable, path, "--producer-id", flightsID, "--batch-rows", "20000")
	awaitRows(ctx, t, table, 700_000)
	peak = max(peak, peakOf(t, p))
	p.kill() // the source goes on trying
	p.start()
	awaitRows(ctx, t, table, 1_200_000)
	_ = source.Process.Kill()
	_ = source.Wait()
	peak = max(peak, peakOf(t, p))
	p.kill()
	p.start()
	replay(ctx, t, table, path)
	must(ctx, t, p, "append", flightTable, path, "--producer-id", flightsID, "--batch-rows", "7777")
	peak = max(peak, peakOf(t, p))

	checkFlights(ctx, t, p, table, path)
	peak = max(peak, peakOf(t, p))
	t.Logf("peak resident memory of the agent: %d MiB", peak>>20)
	if peak >= memoryLimit {
		t.Errorf("the agent had %d MiB resident, the limit is %d", peak>>20, memoryLimit>>20)
	}
}

// checkFlights counts in every way there is, and compares the stream with the file.
func checkFlights(ctx context.Context, t *testing.T, p *process, table *client.Table, path string) {
	t.Helper()
	is := func(what string, got int64) {
		t.Helper()
		if got != flightRows {
			t.Errorf("%s: %d rows, want %d", what, got, flightRows)
		}
	}
	is("count", countOf(ctx, t, table, client.Union))
	is("stream", streamEqualsFile(ctx, t, table, path))
	must(ctx, t, p, "lake", "fold", flightTable)
	is("lake count", countOf(ctx, t, table, client.Lake))
	is("count after the fold", countOf(ctx, t, table, client.Union))
	is("stream after the fold", streamEqualsFile(ctx, t, table, path))
	out, err := p.lines(ctx, "tail", flightTable, "--columns", "delay")
	if err != nil {
		t.Error(err)
	}
	is("firn tail", out)
}

func countOf(ctx context.Context, t *testing.T, table *client.Table, layer client.Layer) int64 {
	t.Helper()
	n, err := table.Count(ctx, client.CountOptions{Layer: layer})
	if err != nil {
		t.Fatalf("count %s: %v", layer, err)
	}
	return n
}

func awaitRows(ctx context.Context, t *testing.T, table *client.Table, rows int64) {
	t.Helper()
	for countOf(ctx, t, table, client.Union) < rows {
		time.Sleep(20 * time.Millisecond)
	}
}

func peakOf(t *testing.T, p *process) int64 {
	t.Helper()
	n, err := loadtest.ProcessPeakRSS(p.pid())
	if err != nil {
		t.Logf("memory of the agent: %v", err)
	}
	return n
}

// replay is a source that comes back at an older position than the agent asks for,
// with other batches, for half a million rows.
func replay(ctx context.Context, t *testing.T, table *client.Table, path string) {
	t.Helper()
	state, err := table.Producer(ctx, flightsID)
	if err != nil {
		t.Fatal(err)
	}
	at := max(0, state.Watermark-olderFlight)
	t.Logf("the agent asks for row %d, the source starts at %d", state.Watermark, at)
	w, err := table.NewWriter(client.WriterOptions{ProducerID: flightsID, FirstSequence: at, BatchRows: 3333, Unordered: true})
	if err != nil {
		t.Fatal(err)
	}
	end := at + 2*olderFlight
	err = eachFlight(ctx, path, func(first int64, rec arrow.RecordBatch) error {
		from, to := max(0, at-first), min(rec.NumRows(), end-first)
		if from >= to {
			return nil
		}
		part := rec.NewSlice(from, to)
		defer part.Release()
		return w.Write(ctx, part)
	})
	if err := errors.Join(err, w.Close(ctx)); err != nil {
		t.Fatalf("replay: %v", err)
	}
}

// eachFlight reads the file, telling each batch's first row number.
func eachFlight(ctx context.Context, path string, f func(int64, arrow.RecordBatch) error) error {
	in, err := file.OpenParquetFile(path, false)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	r, err := pqarrow.NewFileReader(in, pqarrow.ArrowReadProperties{BatchSize: 10_000}, memory.DefaultAllocator)
	if err != nil {
		return err
	}
	batches, err := r.GetRecordReader(ctx, nil, nil)
	if err != nil {
		return err
	}
	defer batches.Release()
	for at := int64(0); batches.Next(); {
		rec := batches.RecordBatch()
		if err := f(at, rec); err != nil {
			return err
		}
		at += rec.NumRows()
	}
	if err := batches.Err(); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// streamEqualsFile reads the log from its start and compares a sum over each column
// with the file's; the replay ran unordered, so rows may have changed places.
func streamEqualsFile(ctx context.Context, t *testing.T, table *client.Table, path string) int64 {
	t.Helper()
	var want, got digest
	if err := eachFlight(ctx, path, func(_ int64, rec arrow.RecordBatch) error { return want.add(rec) }); err != nil {
		t.Fatal(err)
	}
	changes := table.Changes(ctx, client.ChangesOptions{})
	defer changes.Close()
	next := int64(0)
	for {
		rec, err := changes.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("stream: %v", err)
		}
		offsets := rec.Column(rec.Schema().FieldIndices("_offset")[0]).(*array.Int64)
		for i := range offsets.Len() {
			if offsets.Value(i) != next {
				t.Fatalf("offset %d where %d is next", offsets.Value(i), next)
			}
			next++
		}
		if err := got.add(rec); err != nil {
			t.Fatal(err)
		}
		rec.Release()
	}
	if want != got {
		t.Errorf("the stream's rows are not the file's: %+v, want %+v", got, want)
	}
	return next
}

// digest sums a hash over whole rows, in any order.
type digest struct {
	rows int64
	sum  uint64
}

func (d *digest) add(rec arrow.RecordBatch) error {
	col := func(name string) arrow.Array {
		at := rec.Schema().FieldIndices(name)
		if len(at) != 1 {
			return nil
		}
		return rec.Column(at[0])
	}
	date, ok1 := col("date").(*array.Timestamp)
	delay, ok2 := col("delay").(*array.Int64)
	distance, ok3 := col("distance").(*array.Int64)
	origin, ok4 := col("origin").(array.StringLike)
	destination, ok5 := col("destination").(array.StringLike)
	if !(ok1 && ok2 && ok3 && ok4 && ok5) {
		return fmt.Errorf("not flights: %v", rec.Schema())
	}
	for i := range int(rec.NumRows()) {
		h := uint64(14695981039346656037)
		for _, v := range []int64{int64(date.Value(i)), delay.Value(i), distance.Value(i)} {
			h = (h ^ uint64(v)) * 1099511628211 //nolint:gosec // a hash
			h ^= h >> 29
		}
		for _, s := range []string{origin.Value(i), "|", destination.Value(i)} {
			for k := range len(s) {
				h = (h ^ uint64(s[k])) * 1099511628211
			}
		}
		d.sum += h
		d.rows++
	}
	return nil
}

// must runs a firn command that has to succeed.
func must(ctx context.Context, t *testing.T, p *process, args ...string) {
	t.Helper()
	if _, err := p.run(ctx, args...); err != nil {
		t.Fatal(err)
	}
}

// begin starts a firn command and does not wait for it.
func (p *process) begin(ctx context.Context, args ...string) *exec.Cmd {
	p.t.Helper()
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Env = append(append(os.Environ(), p.env...), "FIRN_SERVER="+p.url())
	cmd.Stdout, cmd.Stderr = p.log, p.log
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return cmd
}

// lines runs a firn command and counts the lines of its output.
func (p *process) lines(ctx context.Context, args ...string) (int64, error) {
	cmd := exec.CommandContext(ctx, p.bin, args...)
	cmd.Env = append(append(os.Environ(), p.env...), "FIRN_SERVER="+p.url())
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	n, in := int64(0), bufio.NewReaderSize(out, 1<<20)
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			break
		}
		if len(line) > 1 {
			n++
		}
	}
	if err := cmd.Wait(); err != nil {
		return n, fmt.Errorf("firn %s: %w\n%s", strings.Join(args, " "), err, errOut.String())
	}
	return n, nil
}
