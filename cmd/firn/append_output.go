package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/schollz/progressbar/v3"
	"google.golang.org/protobuf/encoding/protojson"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// printAppend shows what was applied: the fields of the REST answer, summed over
// all requests.
func (a *app) printAppend(y *appendTally, done string) error {
	res := &firnv1.AppendResponse{Rows: y.rows, Skipped: y.skipped, Rejected: y.rejected, Errors: y.errors}
	for _, b := range y.buckets {
		res.Buckets = append(res.Buckets, b)
	}
	slices.SortFunc(res.Buckets, func(x, y *firnv1.BucketAppend) int { return int(x.Bucket - y.Bucket) })
	if a.json {
		return a.printMessage(res)
	}
	fmt.Fprintf(a.out, "%s %s in %s (%s)\n", pluralRows(y.rows), done, y.took.Round(time.Millisecond), rateText(y.rows, y.took))
	if y.skipped > 0 {
		fmt.Fprintf(a.out, "%s had been applied before\n", pluralRows(y.skipped))
	}
	if y.rejected > 0 {
		fmt.Fprintf(a.out, "%s rejected\n", pluralRows(y.rejected))
		for i, e := range y.errors {
			if i == maxDetailsShown {
				a.say("  … (--json lists up to %d)", maxListed)
				break
			}
			a.say("  %s", detailLine(map[string]any{"row": e.Row, "column": e.Column, "reason": e.Reason}))
		}
	}
	return nil
}

// progress is a bar on a terminal, or nothing.
type progress struct{ bar *progressbar.ProgressBar }

// progressBar makes a bar over the bytes of all inputs; none unless a person
// watches.
func (a *app) progressBar(inputs []*input) progress {
	if a.json || !isTerminal(a.errOut) {
		return progress{}
	}
	total := int64(0)
	for _, in := range inputs {
		if in.size < 0 {
			total = -1
			break
		}
		total += in.size
	}
	return progress{progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(a.errOut), progressbar.OptionShowBytes(true), progressbar.OptionThrottle(100*time.Millisecond),
		progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish(), progressbar.OptionSetDescription("append"))}
}

func (p progress) add(n int) {
	if p.bar != nil {
		_ = p.bar.Add(n) // a bar that cannot be drawn stops nothing
	}
}

func (p progress) describe(rows int64) {
	if p.bar != nil {
		p.bar.Describe(fmt.Sprintf("%d rows", rows))
	}
}

func (p progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish() // as above
	}
}

// schemaOf returns a table's columns as the decoder takes them. Ids of nested
// fields are not known outside of the agent and matter to nobody here, so they are
// numbered after the columns'.
func schemaOf(t *firnv1.Table) (*segments.Schema, error) {
	s := &segments.Schema{ID: t.SchemaId}
	next := int32(0)
	for _, c := range t.Columns {
		next = max(next, c.Id)
	}
	for _, c := range t.Columns {
		typ, err := segments.ParseType(c.Type)
		if err != nil {
			return nil, errs.In("read table definition", err)
		}
		numberChildren(&typ, &next)
		f := segments.Field{ID: c.Id, Name: c.Name, Type: typ, Required: c.Required, Doc: c.Doc}
		if c.Default != nil {
			if f.Default, err = protojson.Marshal(c.Default); err != nil {
				return nil, errs.Wrap(errs.Invalid, "read default of column "+c.Name, err)
			}
		}
		s.Fields = append(s.Fields, f)
	}
	return s, nil
}

func numberChildren(t *segments.Type, next *int32) {
	for i := range t.Children {
		*next++
		t.Children[i].ID = *next
		numberChildren(&t.Children[i].Type, next)
	}
}
