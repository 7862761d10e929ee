package demo

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	_ "embed" // the flights
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/firn-data/firn/agent"
	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/internal/objstore/open"
)

//go:embed flights.ndjson.gz
var flights []byte

// Options are what the command line may change.
type Options struct {
	Store  string        // default file://./firn-data
	Listen string        // default 127.0.0.1:7070
	Exit   bool          // end after the tour instead of staying up
	Pace   time.Duration // time that the stream takes; default 6 s
	Out    io.Writer
	Logger *slog.Logger
}

const (
	database = "demo"
	table    = "flights"
	steps    = 60 // batches that the stream is cut into
)

// tour is one run.
type tour struct {
	o     Options
	agent *agent.Agent
	c     *client.Client
	t     *client.Table
	lines [][]byte
}

// Run gives the tour, and then serves until ctx ends unless Exit is set.
func Run(ctx context.Context, o Options) error {
	if o.Pace == 0 {
		o.Pace = 6 * time.Second
	}
	d := &tour{o: o}
	if err := d.load(); err != nil {
		return err
	}
	cfg := agent.DefaultConfig()
	cfg.Store, cfg.Listen = orDefault(o.Store, cfg.Store), orDefault(o.Listen, cfg.Listen)
	store, err := open.Open(ctx, cfg.Store, open.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	d.say("Firn demo: one agent, store %s", store.URL())
	if d.agent, err = agent.New(cfg, store, o.Logger); err != nil {
		return err
	}
	if err := d.agent.Open(ctx); err != nil {
		return err
	}
	tourErr := d.run(ctx)
	if tourErr == nil && !o.Exit {
		d.say("\nThe agent stays up at http://%s. Press Ctrl-C to end it; the data stay in the store.", d.agent.Addr())
		select {
		case <-ctx.Done():
		case <-d.agent.Failed():
			tourErr = d.agent.Err()
		}
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = d.agent.Close(closing)
	if ctx.Err() != nil && errors.Is(tourErr, ctx.Err()) {
		tourErr = nil
	}
	return errors.Join(tourErr, err)
}

func (d *tour) load() error {
	zr, err := gzip.NewReader(bytes.NewReader(flights))
	if err != nil {
		return err
	}
	sc := bufio.NewScanner(zr)
	for sc.Scan() {
		d.lines = append(d.lines, bytes.Clone(sc.Bytes()))
	}
	return sc.Err()
}

func (d *tour) run(ctx context.Context) error {
	var err error
	if d.c, err = client.New("http://" + d.agent.Addr()); err != nil {
		return err
	}
	defer func() { _ = d.c.Close() }()
	d.t = d.c.Table(database, table)
	for _, step := range []func(context.Context) error{d.create, d.stream, d.query, d.fold, d.routes, d.show} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// create makes the table anew, so that the numbers below are those of this run.
func (d *tour) create(ctx context.Context) error {
	if _, err := d.c.EnsureDatabase(ctx, database); err != nil {
		return err
	}
	if err := d.t.Drop(ctx); err != nil && client.ClassOf(err) != client.NotFound {
		return err
	}
	_, err := d.c.CreateTable(ctx, &firnv1.CreateTableRequest{
		Database: database, Name: table, Comment: "US domestic flights, January to March 2001",
		Columns: []*firnv1.Column{
			{Name: "date", Type: "timestamp", Doc: "scheduled departure, local time"},
			{Name: "delay", Type: "long", Doc: "minutes; negative is early"},
			{Name: "distance", Type: "long", Doc: "miles"},
			{Name: "origin", Type: "string"},
			{Name: "destination", Type: "string"},
		},
		PartitionBy: []string{"month(date)"},
	})
	if err != nil {
		return err
	}
	d.say("\n1. A table: %s.%s (date timestamp, delay long, distance long, origin string, destination string), partitioned by month(date).", database, table)
	return nil
}

// stream sends the flights at visible speed while a follower shows what arrives.
func (d *tour) stream(ctx context.Context) error {
	d.say("\n2. %d real flights stream in; each line below was durable in the store before the follower saw it.", len(d.lines))
	follow, stop := context.WithCancel(ctx)
	defer stop()
	followed := make(chan int, 1)
	go func() { followed <- d.follow(follow) }()
	begun := time.Now()
	size := (len(d.lines) + steps - 1) / steps
	for at := 0; at < len(d.lines); at += size {
		body := bytes.Join(d.lines[at:min(at+size, len(d.lines))], []byte("\n"))
		if _, err := d.t.Append(ctx, body, client.AppendOptions{IdempotencyKey: fmt.Sprintf("demo-%d-%d", begun.UnixNano(), at)}); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d.o.Pace / steps):
		}
	}
	if seen := <-followed; seen != len(d.lines) {
		return fmt.Errorf("the follower saw %d of %d flights", seen, len(d.lines))
	}
	d.say("   %d flights acknowledged and followed in %.1f s.", len(d.lines), time.Since(begun).Seconds())
	return nil
}

// follow prints one flight of each batch and returns how many it saw.
func (d *tour) follow(ctx context.Context) int {
	changes := d.t.Changes(ctx, client.ChangesOptions{Start: client.Earliest, Follow: true})
	defer func() { _ = changes.Close() }()
	seen, shown := 0, 0
	for seen < len(d.lines) {
		rec, err := changes.Next()
		if err != nil {
			return seen
		}
		seen += int(rec.NumRows())
		if seen*12/len(d.lines) > shown { // a dozen lines over the whole stream
			shown = seen * 12 / len(d.lines)
			d.say("   offset %5s  %s  %s -> %s  delay %4s min", cell(rec, "_offset"), cell(rec, "date"), cell(rec, "origin"), cell(rec, "destination"), cell(rec, "delay"))
		}
		rec.Release()
	}
	return seen
}

// cell returns the last value of a column as text.
func cell(rec arrow.RecordBatch, name string) string {
	for i, f := range rec.Schema().Fields() {
		if f.Name == name {
			return rec.Column(i).ValueStr(int(rec.NumRows()) - 1)
		}
	}
	return "?"
}

func (d *tour) query(ctx context.Context) error {
	const where = "delay > 300 AND origin IN ('ORD','DFW','ATL')"
	rows, err := d.t.Scan(ctx, client.ScanOptions{Columns: []string{"date", "origin", "destination", "delay"}, Where: where, Limit: 5})
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	d.say("\n3. A predicate, pushed down to the segments' statistics: %s", where)
	for {
		rec, err := rows.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for i := range int(rec.NumRows()) {
			one := rec.NewSlice(int64(i), int64(i)+1)
			d.say("   %s  %s -> %s  delay %s min", cell(one, "date"), cell(one, "origin"), cell(one, "destination"), cell(one, "delay"))
			one.Release()
		}
		rec.Release()
	}
	n, err := d.t.Count(ctx, client.CountOptions{Where: where})
	if err == nil {
		d.say("   %d such flights in all.", n)
	}
	return err
}

// fold moves the rows into Iceberg and counts them in all three places.
func (d *tour) fold(ctx context.Context) error {
	res, err := d.t.Fold(ctx)
	if err != nil {
		return err
	}
	d.say("\n4. Folded %d rows into %d Parquet files of an Iceberg table (snapshot %d, %d bytes).", res.Rows, res.Files, res.SnapshotId, res.Bytes)
	live, err := d.t.Count(ctx, client.CountOptions{})
	if err != nil {
		return err
	}
	lake, err := d.t.Count(ctx, client.CountOptions{Layer: client.Lake})
	if err != nil {
		return err
	}
	streamed := 0
	changes := d.t.Changes(ctx, client.ChangesOptions{Start: client.Earliest})
	defer func() { _ = changes.Close() }()
	for {
		rec, err := changes.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		streamed += int(rec.NumRows())
		rec.Release()
	}
	d.say("   The same count three ways: union read %d, stream from earliest %d, lake alone %d.", live, streamed, lake)
	if live != int64(len(d.lines)) || lake != live || int64(streamed) != live {
		return fmt.Errorf("the counts differ: union %d, stream %d, lake %d, sent %d", live, streamed, lake, len(d.lines))
	}
	return nil
}

// show prints what a user pastes into other engines.
func (d *tour) show(ctx context.Context) error {
	def, err := d.t.Describe(ctx)
	if err != nil {
		return err
	}
	base := d.agent.Store().URL()
	path := strings.TrimSuffix(base, "/") + "/" + def.Location
	if u, err := url.Parse(base); err == nil && u.Scheme == "file" {
		path = filepath.Join(u.Path, filepath.FromSlash(def.Location))
	}
	at := "http://" + d.agent.Addr()
	d.say(`
6. Any Iceberg engine reads the same table, seconds fresh. Paste one of these:

   Iceberg table   %[1]s

   DuckDB          INSTALL iceberg; LOAD iceberg;
                   SELECT origin, count(*), avg(delay) FROM iceberg_scan('%[1]s') GROUP BY origin ORDER BY 2 DESC LIMIT 5;

   DuckDB, live    ATTACH '' AS firn (TYPE iceberg, ENDPOINT '%[2]s/iceberg', AUTHORIZATION_TYPE 'none');
                   SELECT count(*) FROM firn.demo.flights;

   PyIceberg       from pyiceberg.catalog.rest import RestCatalog
                   RestCatalog("firn", uri="%[2]s/iceberg").load_table("demo.flights").scan().to_arrow()

   Spark           --conf spark.sql.catalog.firn=org.apache.iceberg.spark.SparkCatalog
                   --conf spark.sql.catalog.firn.type=rest --conf spark.sql.catalog.firn.uri=%[2]s/iceberg
                   SELECT count(*) FROM firn.demo.flights

   curl            curl -s '%[2]s/v1/databases/demo/tables/flights/rows?where=delay>500&limit=3'
                   curl -sN '%[2]s/v1/databases/demo/tables/flights/changes?follow=true&start=latest'
                   curl -s '%[2]s/v1/databases/demo/tables/route_status/lookup' -d '{"keys":[{"origin":"ORD"}],"prefix":true}'`, path, at)
	return nil
}

func (d *tour) say(format string, args ...any) { _, _ = fmt.Fprintf(d.o.Out, format+"\n", args...) }

func orDefault(v, def string) string {
	if v == "" {
		return def
	}
	return v
}
