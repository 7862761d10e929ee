package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/segments"
)

const appendHelp = `Send rows of files (or stdin, as -) to a log table. The format follows the file's
extension or --format: ndjson, json, csv, arrow, parquet, also with .gz or .zst.
Files of any size are cut into requests below the agent's limit, several of which
are in flight; order is kept.

With --producer-id every row is applied exactly once, also when the command is
run again after a crash: it asks the agent how far it came and continues there.
The same id must always be used with the same files in the same order.`

const upsertHelp = `Send rows of files (or stdin, as -) to a primary-key table: a row replaces the one
with its key, as the table's merge engine says. With --columns only these columns
(and the key) are read and written; the others keep what they hold.
With --envelope debezium the rows are change events of Debezium: NDJSON, or JSON
with a list of events; they insert, update and delete in their order.

Formats, order and --producer-id are as with "firn append".`

const deleteHelp = `Delete the rows of a primary-key table whose keys stand in files (or stdin, as -);
columns of the table beside the key are passed over. A key that has no row is no
error. With --columns only these columns are set to NULL, and a row of which
nothing is left beside its key goes.

Formats, order and --producer-id are as with "firn append".`

// writeVerb is a command that sends rows.
type writeVerb struct {
	op                client.Op
	use, short, long  string
	done              string // what it did with rows
	columns, envelope bool
}

var (
	appendVerb = writeVerb{use: "append", short: "Send rows to a log table", long: appendHelp, done: "appended"}
	upsertVerb = writeVerb{op: client.OpUpsert, use: "upsert", short: "Insert or update rows of a primary-key table", long: upsertHelp, done: "upserted", columns: true, envelope: true}
	deleteVerb = writeVerb{op: client.OpDelete, use: "delete", short: "Delete rows of a primary-key table by key", long: deleteHelp, done: "deleted", columns: true}
)

// appendFlags are what the command line says.
type appendFlags struct {
	verb          *writeVerb
	columns       []string
	debezium      bool
	format        string
	skipBad       bool
	ignoreUnknown bool
	producerID    string
	writer        client.WriterOptions
}

func (a *app) writeCommand(verb *writeVerb) *cobra.Command {
	o := appendFlags{verb: verb}
	c := &cobra.Command{
		Use: verb.use + " DB.TABLE [FILE…]", Short: verb.short, Long: verb.long, Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			files := args[1:]
			if len(files) == 0 {
				files = []string{"-"}
			}
			database, table, err := client.ParseTable(args[0])
			if err != nil {
				return err
			}
			inputs, err := a.inputs(files, o.format)
			if err != nil {
				return err
			}
			c, err := a.connectWith(client.DefaultRetry)
			if err != nil {
				return err
			}
			defer c.Close()
			return a.append(cmd.Context(), c.Table(database, table), inputs, &o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.format, "format", "", "ndjson, json, csv, arrow or parquet, with .gz or .zst (default: by extension; stdin: ndjson)")
	onError := choiceFlag{choices: []string{"reject", "skip"}, set: func(v string) { o.skipBad = v == "skip" }}
	unknown := choiceFlag{choices: []string{"reject", "ignore"}, set: func(v string) { o.ignoreUnknown = v == "ignore" }}
	f.Var(&onError, "on-error", "bad rows: reject (stop) or skip (report them and go on)")
	f.Var(&unknown, "unknown", "fields that the table does not have: reject or ignore")
	f.StringVar(&o.producerID, "producer-id", "", "apply each row exactly once, and resume after a crash")
	f.Int64Var(&o.writer.BatchRows, "batch-rows", 0, "rows of a request at most (default 65536)")
	f.Int64Var(&o.writer.BatchBytes, "batch-bytes", 0, "bytes of a request at most, about (default 4 MiB)")
	f.IntVar(&o.writer.InFlight, "in-flight", 0, "requests in flight (default 32)")
	f.BoolVar(&o.writer.Unordered, "unordered", false, "let requests overtake each other")
	if verb.columns {
		f.StringSliceVar(&o.columns, "columns", nil, "columns to write; the key columns are implied (default all)")
	}
	if verb.envelope {
		envelope := choiceFlag{choices: []string{"none", "debezium"}, set: func(v string) { o.debezium = v == "debezium" }}
		f.Var(&envelope, "envelope", "what rows are wrapped in: none, or debezium (change events)")
	}
	return c
}

// append streams inputs into the table and prints what was applied.
func (a *app) append(ctx context.Context, t *client.Table, inputs []*input, o *appendFlags) error {
	def, err := t.Describe(ctx)
	if err != nil {
		return err
	}
	schema, err := schemaOf(def)
	if err != nil {
		return err
	}
	tally := &appendTally{begun: time.Now(), buckets: map[int32]*firnv1.BucketAppend{}, bar: a.progressBar(inputs)}
	resume := int64(0)
	if o.producerID != "" {
		p, err := t.Producer(ctx, o.producerID)
		if err != nil {
			return err
		}
		if resume = p.Watermark; resume > 0 {
			a.say("producer %s: the first %s are applied already", o.producerID, pluralRows(resume))
		}
	}
	read, err := o.read(def, schema)
	if err != nil {
		return err
	}
	if o.debezium {
		if len(o.columns) > 0 {
			return usagef("--envelope debezium: each event says itself what it writes; leave out --columns")
		}
		e := &eventFeeder{t: t, o: o, resume: resume, tally: tally}
		err := e.feed(ctx, inputs)
		return a.told(o, tally, e.acked, err)
	}
	wo := o.writer
	wo.Op, wo.Columns, wo.SkipBadRows = o.verb.op, o.columns, o.skipBad
	wo.ProducerID, wo.FirstSequence, wo.OnResult = o.producerID, resume, tally.add
	w, err := t.NewWriter(wo)
	if err != nil {
		return err
	}
	f := &feeder{w: w, schema: schema, read: read, o: o, resume: resume, tally: tally}
	err = f.feed(ctx, inputs)
	if cerr := w.Close(closing(ctx, err)); err == nil {
		err = cerr
	}
	return a.told(o, tally, w.Acked(), err)
}

// told prints what was applied, and where a command that failed goes on.
func (a *app) told(o *appendFlags, tally *appendTally, acked int64, err error) error {
	tally.finish()
	if perr := a.printAppend(tally, o.verb.done); err == nil {
		err = perr
	}
	if err != nil && o.producerID != "" {
		a.say("rows below %d are applied; run the same command again to go on there", acked)
	}
	return err
}

// read returns the columns that rows hold; nil for all.
func (o *appendFlags) read(def *firnv1.Table, schema *segments.Schema) ([]string, error) {
	if o.verb.op != "" && len(def.PrimaryKey) == 0 {
		return nil, usagef("firn %s needs a primary key: table %s.%s is a log table, which takes firn append", o.verb.use, def.Database, def.Name)
	}
	if o.verb.op == "" || o.verb.op == client.OpUpsert && o.columns == nil {
		return nil, nil
	}
	if _, err := schema.Select(o.columns); err != nil {
		return nil, usagef("--columns: %v", err)
	}
	var out []string
	for _, f := range schema.Fields {
		if slices.Contains(def.PrimaryKey, f.Name) || o.verb.op == client.OpUpsert && slices.Contains(o.columns, f.Name) {
			out = append(out, f.Name)
		}
	}
	return out, nil
}

// closing is the context of Close: what was read good is still sent after a bad
// row, but nothing after an interrupt.
func closing(ctx context.Context, err error) context.Context {
	var final *client.Error
	if err != nil && errors.As(err, &final) {
		ended, cancel := context.WithCancel(ctx)
		cancel() // the writer has failed already
		return ended
	}
	return ctx
}

// appendTally adds up what the agent answered.
type appendTally struct {
	mu       sync.Mutex
	begun    time.Time
	took     time.Duration
	rows     int64
	skipped  int64
	rejected int64
	errors   []*firnv1.RowError
	buckets  map[int32]*firnv1.BucketAppend
	bar      progress
}

func (y *appendTally) add(r client.BatchResult) {
	if r.Answer == nil {
		return
	}
	if r.Answer.Rejected > 0 { // their numbers are those of the batch
		list := make([]*firnv1.RowError, 0, len(r.Answer.Errors))
		for _, e := range r.Answer.Errors {
			list = append(list, &firnv1.RowError{Row: r.First + e.Row, Column: e.Column, Reason: e.Reason})
		}
		y.reject(r.Answer.Rejected, list)
	}
	y.mu.Lock()
	defer y.mu.Unlock()
	y.rows += r.Answer.Rows
	y.skipped += r.Answer.Skipped
	for _, b := range r.Answer.Buckets {
		sum := y.buckets[b.Bucket]
		if sum == nil {
			sum = &firnv1.BucketAppend{Bucket: b.Bucket, BaseOffset: b.BaseOffset}
			y.buckets[b.Bucket] = sum
		}
		sum.BaseOffset = min(sum.BaseOffset, b.BaseOffset)
		sum.Count += b.Count
		sum.EndOffset = max(sum.EndOffset, b.EndOffset)
	}
	y.bar.describe(y.rows)
}

// maxListed is how many bad rows are listed; all are counted.
const maxListed = 100

func (y *appendTally) reject(total int64, list []*firnv1.RowError) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.rejected += total
	y.errors = append(y.errors, list[:min(len(list), maxListed-len(y.errors))]...)
}

func (y *appendTally) finish() {
	y.took = time.Since(y.begun)
	y.bar.finish()
}

// choiceFlag is a flag with a fixed list of values, the first of them the default.
type choiceFlag struct {
	choices []string
	set     func(string)
	value   string
}

// Set implements pflag.Value.
func (f *choiceFlag) Set(s string) error {
	for _, c := range f.choices {
		if c == s {
			f.value = s
			f.set(s)
			return nil
		}
	}
	return fmt.Errorf("%q is none of %q", s, f.choices)
}

// String implements pflag.Value.
func (f *choiceFlag) String() string {
	if f.value == "" && len(f.choices) > 0 {
		return f.choices[0]
	}
	return f.value
}

// Type implements pflag.Value.
func (f *choiceFlag) Type() string { return "choice" }
