package loadtest

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/open"
	"github.com/firn-data/firn/segments"
)

const (
	ceilingTime        = 3 * time.Second
	ceilingObjectBytes = 4 << 20 // as the agent's flush_bytes
)

// ceilings runs the programs that do only what cannot be left out, and puts their
// speed beside the agent's.
func (r *run) ceilings(ctx context.Context) error {
	fmt.Fprintln(r.o.Progress, "measuring ceilings")
	if a := r.report.Append; a != nil {
		v, err := r.appendCeiling(ctx)
		if err != nil {
			return fmt.Errorf("append ceiling: %w", err)
		}
		a.CeilingRowsPerSecond, a.OfCeiling = v, a.RowsPerSecond/v
	}
	for _, f := range []*ReadFigures{r.report.Tail, r.report.Scan} {
		if f == nil {
			continue
		}
		v, err := r.readCeiling(ctx)
		if err != nil {
			return fmt.Errorf("read ceiling: %w", err)
		}
		f.CeilingRowsPerSecond, f.OfCeiling = v, f.RowsPerSecond/v
	}
	return nil
}

// appendCeiling makes, hashes, encodes and puts the run's rows, and returns rows
// per second.
func (r *run) appendCeiling(ctx context.Context) (float64, error) {
	url := r.o.CeilingStore
	if url == "" {
		dir, err := os.MkdirTemp("", "firn-ceiling-")
		if err != nil {
			return 0, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		url = "file://" + dir
	}
	store, err := open.Open(ctx, url, open.Options{})
	if err != nil {
		return 0, err
	}
	defer func() { _ = store.Close() }()
	perObject := max(1, int(ceilingObjectBytes/(r.o.Shape.rowBytes()*int64(r.o.BatchRows))))
	var rows atomic.Int64
	begun := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for worker := range runtime.GOMAXPROCS(0) {
		g.Go(func() error {
			c, err := NewCeiling(r.o.Shape)
			if err != nil {
				return err
			}
			for n := 0; time.Since(begun) < ceilingTime; n++ {
				var group []arrow.RecordBatch
				for i := range perObject {
					group = append(group, r.gen.Batch(int32(worker), int64((n*perObject+i)*r.o.BatchRows), r.o.BatchRows)) //nolint:gosec // a worker number
				}
				if err := c.Put(ctx, store, fmt.Sprintf("ceiling/%d-%d", worker, n), group); err != nil {
					return err
				}
				rows.Add(int64(perObject * r.o.BatchRows))
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(rows.Load()) / time.Since(begun).Seconds(), err
}

// Ceiling is the least that makes rows durable: hash every row, compress every
// buffer, put the object. It belongs to one goroutine.
type Ceiling struct {
	schema *segments.Schema
	enc    *zstd.Encoder
	object []byte // of the last put: stores do not keep it
}

// ceilingBuckets is how many buckets the ceiling program hashes rows into.
const ceilingBuckets = 16

// NewCeiling returns a ceiling program for rows of a shape.
func NewCeiling(shape Shape) (*Ceiling, error) {
	schema, err := shape.TableSchema()
	if err != nil {
		return nil, err
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
	return &Ceiling{schema: schema, enc: enc}, err
}

// Put makes the rows of a group durable in one object.
func (c *Ceiling) Put(ctx context.Context, store objstore.Store, key string, group []arrow.RecordBatch) error {
	c.object = c.object[:0]
	for _, rec := range group {
		if _, err := segments.BucketRows(rec, []int32{sequenceID}, c.schema, ceilingBuckets); err != nil {
			return err
		}
		for _, col := range rec.Columns() {
			for _, buf := range col.Data().Buffers() {
				if buf != nil {
					c.object = c.enc.EncodeAll(buf.Bytes(), c.object)
				}
			}
		}
	}
	_, err := store.PutIfAbsent(ctx, key, c.object)
	return err
}

// readCeiling makes and checks rows without an agent: what this program could
// verify at most.
func (r *run) readCeiling(ctx context.Context) (float64, error) {
	var rows int64
	begun := time.Now()
	check := NewChecker(r.gen)
	for first := int64(0); time.Since(begun) < ceilingTime/3 && ctx.Err() == nil; first += int64(r.o.BatchRows) {
		rec := r.gen.Batch(0, first, r.o.BatchRows)
		err := check.Table(rec)
		rec.Release()
		if err != nil {
			return 0, err
		}
		rows += int64(r.o.BatchRows)
	}
	return float64(rows) / time.Since(begun).Seconds(), ctx.Err()
}
