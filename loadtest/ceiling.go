package loadtest

import (
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sync/errgroup"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/open"
)

const (
	ceilingTime        = 3 * time.Second
	ceilingObjectBytes = 4 << 20 // as the agent's flush_bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

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
			enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
			if err != nil {
				return err
			}
			defer func() { _ = enc.Close() }()
			for n := 0; time.Since(begun) < ceilingTime; n++ {
				var group []arrow.RecordBatch
				for i := range perObject {
					group = append(group, r.gen.Batch(int32(worker), int64((n*perObject+i)*r.o.BatchRows), r.o.BatchRows)) //nolint:gosec // a worker number
				}
				if err := PutCeiling(ctx, store, fmt.Sprintf("ceiling/%d-%d", worker, n), enc, group); err != nil {
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

// PutCeiling is the least that makes rows durable: compress every buffer, checksum
// it, put the object.
func PutCeiling(ctx context.Context, store objstore.Store, key string, enc *zstd.Encoder, group []arrow.RecordBatch) error {
	var object []byte
	for _, rec := range group {
		for _, col := range rec.Columns() {
			for _, buf := range col.Data().Buffers() {
				if buf != nil {
					at := len(object)
					object = enc.EncodeAll(buf.Bytes(), object)
					_ = crc32.Checksum(object[at:], castagnoli)
				}
			}
		}
	}
	_, err := store.PutIfAbsent(ctx, key, object)
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
