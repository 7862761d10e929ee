package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
)

// feeder moves rows of files into a writer. Row i of all files together is
// sequence i, bad rows included, so that a replay numbers them the same.
type feeder struct {
	w      *client.Writer
	schema *segments.Schema
	read   []string // columns that rows hold; nil: all
	o      *appendFlags
	resume int64 // rows below it are applied already
	next   int64 // sequence that the writer gets next
	base   int64 // sequence of the first row of the file in hand
	tally  *appendTally
}

func (f *feeder) feed(ctx context.Context, inputs []*input) error {
	f.next = f.resume
	for _, in := range inputs {
		read := f.decode
		if in.seekable() {
			read = f.parquet
		}
		n, err := read(ctx, in)
		if err != nil {
			if len(inputs) > 1 {
				return fmt.Errorf("%s: %w", in.name, err)
			}
			return err
		}
		f.base += n
	}
	return nil
}

// decode reads any format row by row into the table's schema; it returns how many
// rows the file has.
func (f *feeder) decode(ctx context.Context, in *input) (int64, error) {
	file, err := in.open()
	if err != nil {
		return 0, err
	}
	defer file.Close()
	d, err := rows.NewDecoder(&counted{file, f.tally.bar}, rows.DecodeOptions{
		Schema: f.schema, Format: in.format, Compression: in.compression,
		SkipBadRows: f.o.skipBad, IgnoreUnknown: f.o.ignoreUnknown, Columns: f.read, PassOthers: f.read != nil,
	})
	if err != nil {
		return 0, err
	}
	defer func() { _ = d.Close() }() // it was only read
	for {
		c, err := d.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			f.rejected(d)
			return d.Rows(), err
		}
		if err := f.chunk(ctx, c); err != nil {
			return d.Rows(), err
		}
	}
	f.rejected(d)
	return d.Rows(), nil
}

func (f *feeder) rejected(d rows.Decoder) {
	total, first := d.Rejected()
	list := make([]*firnv1.RowError, 0, len(first))
	for _, e := range first {
		list = append(list, &firnv1.RowError{Row: f.base + e.Row, Column: e.Column, Reason: e.Reason})
	}
	f.tally.reject(total, list)
}

// chunk writes the runs of contiguous rows of a chunk.
func (f *feeder) chunk(ctx context.Context, c rows.Chunk) error {
	n := int(c.Rows.NumRows())
	if c.Ordinals == nil {
		return f.write(ctx, c.Rows, f.base+c.First)
	}
	for at := 0; at < n; {
		end := at + 1
		for end < n && c.Ordinals[end] == c.Ordinals[end-1]+1 {
			end++
		}
		run := c.Rows.NewSlice(int64(at), int64(end))
		err := f.write(ctx, run, f.base+c.Ordinals[at])
		run.Release()
		if err != nil {
			return err
		}
		at = end
	}
	return nil
}

// write sends a batch whose first row has a sequence, leaving out what is applied.
func (f *feeder) write(ctx context.Context, rec arrow.RecordBatch, first int64) error {
	end := first + rec.NumRows()
	if end <= f.resume {
		return nil
	}
	if first < f.resume {
		rec = rec.NewSlice(f.resume-first, rec.NumRows())
		defer rec.Release()
		first = f.resume
	}
	if (f.o.producerID != "" || f.o.skipBad) && first > f.next { // else the agent would number its bad rows differently
		if err := f.w.Skip(ctx, first-f.next); err != nil {
			return err
		}
	}
	f.next = end
	return f.w.Write(ctx, rec)
}

// parquetRows is how many rows of a Parquet file are decoded at once.
const parquetRows = 16 << 10

// parquet reads a file group by group; the agent fits its columns to the table.
func (f *feeder) parquet(ctx context.Context, in *input) (int64, error) {
	src, err := os.Open(in.name)
	if err != nil {
		return 0, usagef("%v", err)
	}
	defer src.Close()
	pf, err := file.NewParquetReader(src)
	if err != nil {
		return 0, errs.Wrap(errs.Invalid, "read Parquet "+in.name, err)
	}
	defer func() { _ = pf.Close() }() // it was only read
	rd, err := pqarrow.NewFileReader(pf, pqarrow.ArrowReadProperties{BatchSize: parquetRows}, memory.DefaultAllocator)
	if err != nil {
		return 0, errs.Wrap(errs.Invalid, "read Parquet "+in.name, err)
	}
	at := f.base
	for g := range pf.NumRowGroups() {
		group := pf.MetaData().RowGroup(g)
		if at+group.NumRows() <= f.resume {
			at += group.NumRows()
			f.tally.bar.add(int(group.TotalByteSize()))
			continue
		}
		rec, err := rd.GetRecordReader(ctx, nil, []int{g})
		if err != nil {
			return at - f.base, errs.Wrap(errs.Invalid, "read Parquet "+in.name, err)
		}
		for rec.Next() {
			batch := rec.RecordBatch()
			if err = f.write(ctx, batch, at); err != nil {
				break
			}
			at += batch.NumRows()
		}
		if err == nil && rec.Err() != nil && !errors.Is(rec.Err(), io.EOF) {
			err = errs.Wrap(errs.Invalid, "read Parquet "+in.name, rec.Err())
		}
		rec.Release()
		if err != nil {
			return at - f.base, err
		}
		f.tally.bar.add(int(group.TotalByteSize()))
	}
	return at - f.base, nil
}

// counted moves the progress bar with what is read.
type counted struct {
	io.Reader
	bar progress
}

// Read implements io.Reader.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.bar.add(n)
	return n, err
}
