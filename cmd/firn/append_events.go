package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments/rows"
)

// Bounds of a request with change events.
const (
	eventBatchRows  = 64 << 10
	eventBatchBytes = 4 << 20
)

// eventFeeder sends change events, a request at a time: inserts, updates and deletes
// of one file keep their order. Event i of all files together is sequence i.
type eventFeeder struct {
	t      *client.Table
	o      *appendFlags
	resume int64
	acked  int64
	tally  *appendTally

	next  int64 // sequence of the event that is read next
	first int64 // of the request in hand
	rows  int64
	body  bytes.Buffer
}

func (f *eventFeeder) feed(ctx context.Context, inputs []*input) error {
	f.acked = f.resume
	for _, in := range inputs {
		if in.format != rows.NDJSON && in.format != rows.JSON {
			return usagef("%s: change events are ndjson or json", in.name)
		}
		if err := f.file(ctx, in); err != nil {
			if len(inputs) > 1 {
				return fmt.Errorf("%s: %w", in.name, err)
			}
			return err
		}
	}
	return f.send(ctx)
}

func (f *eventFeeder) file(ctx context.Context, in *input) error {
	file, err := in.open()
	if err != nil {
		return err
	}
	defer file.Close()
	body, err := decompressed(&counted{file, f.tally.bar}, in.compression)
	if err != nil {
		return err
	}
	defer body.Close()
	if in.format == rows.JSON {
		return f.values(ctx, body)
	}
	lines := bufio.NewReaderSize(body, 1<<20)
	for {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if aerr := f.add(ctx, line); aerr != nil {
				return aerr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return errs.Wrap(errs.Invalid, "read events", err)
		}
	}
}

// values reads a list of events, or one.
func (f *eventFeeder) values(ctx context.Context, body io.Reader) error {
	in := bufio.NewReader(body)
	list := false
	for {
		c, err := in.ReadByte()
		if err != nil {
			return errs.New(errs.Invalid, "the file is empty: expected a list of events or one event")
		}
		if c == ' ' || c == '\n' || c == '\r' || c == '\t' {
			continue
		}
		list = c == '['
		if err := in.UnreadByte(); err != nil {
			return err
		}
		break
	}
	dec := json.NewDecoder(in)
	if list {
		if _, err := dec.Token(); err != nil {
			return errs.Wrap(errs.Invalid, "read events", err)
		}
	}
	for more := true; more && (!list || dec.More()); more = list {
		var event json.RawMessage
		if err := dec.Decode(&event); err != nil {
			return errs.Wrap(errs.Invalid, "read events", err)
		}
		var line bytes.Buffer
		if err := json.Compact(&line, event); err != nil {
			return errs.Wrap(errs.Invalid, "read events", err)
		}
		if err := f.add(ctx, line.Bytes()); err != nil {
			return err
		}
	}
	if list {
		if _, err := dec.Token(); err != nil {
			return errs.Wrap(errs.Invalid, "read events", err)
		}
	}
	if _, err := dec.Token(); err != io.EOF {
		return errs.New(errs.Invalid, "the file goes on after its events")
	}
	return nil
}

// add takes one event; those that are applied already are left out.
func (f *eventFeeder) add(ctx context.Context, event []byte) error {
	if f.next++; f.next <= f.resume {
		return nil
	}
	if f.rows == 0 {
		f.first = f.next - 1
	}
	f.body.Write(event)
	f.body.WriteByte('\n')
	f.rows++
	if f.rows < eventBatchRows && f.body.Len() < eventBatchBytes {
		return nil
	}
	return f.send(ctx)
}

// send sends the events in hand.
func (f *eventFeeder) send(ctx context.Context) error {
	if f.rows == 0 {
		return nil
	}
	o := client.AppendOptions{Debezium: true, SkipBadRows: f.o.skipBad, IgnoreUnknown: f.o.ignoreUnknown}
	if f.o.producerID != "" {
		o.Producer = &client.Sequence{ID: f.o.producerID, First: f.first, AckedBelow: f.acked}
	}
	answer, err := f.t.Append(ctx, f.body.Bytes(), o)
	if err != nil {
		if f.first > 0 && client.ClassOf(err) == client.Invalid {
			return fmt.Errorf("events from %d on: %w", f.first, err)
		}
		return err
	}
	f.tally.add(client.BatchResult{First: f.first, Rows: f.rows, Answer: answer})
	f.acked, f.rows = f.first+f.rows, 0
	f.body.Reset()
	return nil
}

// decompressed reads what a file holds.
func decompressed(r io.Reader, compression string) (io.ReadCloser, error) {
	switch compression {
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, errs.Wrap(errs.Invalid, "read gzip", err)
		}
		return z, nil
	case "zstd":
		z, err := zstd.NewReader(r)
		if err != nil {
			return nil, errs.Wrap(errs.Invalid, "read zstd", err)
		}
		return z.IOReadCloser(), nil
	}
	return io.NopCloser(r), nil
}
