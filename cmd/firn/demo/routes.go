package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

const routesTable = "route_status"

// route is the key of the table of routes.
type route struct {
	Origin      string `json:"origin"`
	Destination string `json:"destination"`
}

// routes keeps a primary-key table: the newest flight of each route.
func (d *tour) routes(ctx context.Context) error {
	t := d.c.Table(database, routesTable)
	if err := d.createRoutes(ctx, t); err != nil {
		return err
	}
	res, err := t.Append(ctx, bytes.Join(d.lines, []byte("\n")), client.AppendOptions{Op: client.OpUpsert})
	if err != nil {
		return err
	}
	changes := int64(0)
	for _, b := range res.Buckets {
		changes += b.Count
	}
	newest, last, err := d.newestOfRoutes()
	if err != nil {
		return err
	}
	count, err := t.Count(ctx, client.CountOptions{})
	if err != nil {
		return err
	}
	if count != int64(len(newest)) {
		return fmt.Errorf("table %s has %d rows for %d routes", routesTable, count, len(newest))
	}
	d.say("   %d flights upserted: %d routes, and %d changes in the table's log.", res.Rows, count, changes)
	if err := d.lookUp(ctx, t, last, newest[last]); err != nil {
		return err
	}
	if err := d.historyOf(ctx, t, last); err != nil {
		return err
	}
	if _, err := t.Delete(ctx, last); err != nil {
		return err
	}
	if err := d.lookUp(ctx, t, last, nil); err != nil {
		return err
	}
	left, err := t.Count(ctx, client.CountOptions{})
	if err == nil {
		d.say("   Deleted: %d routes are left.", left)
	}
	return err
}

func (d *tour) createRoutes(ctx context.Context, t *client.Table) error {
	if err := t.Drop(ctx); err != nil && client.ClassOf(err) != client.NotFound {
		return err
	}
	_, err := d.c.CreateTable(ctx, &firnv1.CreateTableRequest{
		Database: database, Name: routesTable, Comment: "The newest flight of each route",
		Columns: []*firnv1.Column{
			{Name: "origin", Type: "string"}, {Name: "destination", Type: "string"},
			{Name: "date", Type: "timestamp"}, {Name: "delay", Type: "long"}, {Name: "distance", Type: "long"},
		},
		PrimaryKey: []string{"origin", "destination"}, Buckets: 4, BucketKey: []string{"origin"},
	})
	if err == nil {
		d.say("\n5. A primary-key table: %s.%s, the newest flight of each (origin, destination).", database, routesTable)
	}
	return err
}

// newestOfRoutes is what the table must hold: the last line of each route. last is
// the route of the last flight that is not its route's first.
func (d *tour) newestOfRoutes() (newest map[route][]byte, last route, err error) {
	newest = map[route][]byte{}
	for _, line := range d.lines {
		var r route
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, last, err
		}
		if newest[r] != nil {
			last = r
		}
		newest[r] = line
	}
	return newest, last, nil
}

// lookUp shows a route, and checks the distance and delay of its newest flight.
func (d *tour) lookUp(ctx context.Context, t *client.Table, r route, want []byte) error {
	rows, err := t.LookupRows(ctx, client.LookupOptions{}, r)
	if err != nil {
		return err
	}
	d.say("   Lookup %s -> %s: %s", r.Origin, r.Destination, rows[0])
	var found, flight struct{ Delay, Distance *int64 }
	if err := json.Unmarshal(rows[0], &found); err != nil {
		return err
	}
	if want == nil {
		if string(rows[0]) != "null" {
			return fmt.Errorf("the deleted route %v is still there: %s", r, rows[0])
		}
		return nil
	}
	if err := json.Unmarshal(want, &flight); err != nil {
		return err
	}
	if found.Delay == nil || flight.Delay == nil || *found.Delay != *flight.Delay {
		return fmt.Errorf("the route %v has %s, its newest flight is %s", r, rows[0], want)
	}
	return nil
}

// historyOf shows the newest changes of a route.
func (d *tour) historyOf(ctx context.Context, t *client.Table, r route) error {
	changes := t.Changes(ctx, client.ChangesOptions{Where: fmt.Sprintf("origin = '%s' AND destination = '%s'", r.Origin, r.Destination)})
	defer func() { _ = changes.Close() }()
	var lines []string
	for {
		rec, err := changes.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for i := range rec.NumRows() {
			one := rec.NewSlice(i, i+1)
			lines = append(lines, fmt.Sprintf("   offset %5s  %-13s  %s  delay %4s min", cell(one, "_offset"), cell(one, "_change_type"), cell(one, "date"), cell(one, "delay")))
			one.Release()
		}
		rec.Release()
	}
	d.say("   Its changes, the last of %d:", len(lines))
	for _, line := range lines[max(0, len(lines)-4):] {
		d.say("%s", line)
	}
	return nil
}
