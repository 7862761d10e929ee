package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

const appendHelp = `Send rows of files (or stdin, as -) to a log table. The format follows the file's
extension or --format: ndjson, json, csv, arrow, parquet, also with .gz or .zst.
Files of any size are cut into requests below the agent's limit, several of which
are in flight; order is kept.

With --producer-id every row is applied exactly once, also when the command is
run again after a crash: it asks the agent how far it came and continues there.
The same id must always be used with the same files in the same order.`

// appendFlags are what the command line says.
type appendFlags struct {
	format        string
	skipBad       bool
	ignoreUnknown bool
	producerID    string
	writer        client.WriterOptions
}

func (a *app) appendCommand() *cobra.Command {
	var o appendFlags
	c := &cobra.Command{
		Use: "append DB.TABLE [FILE…]", Short: "Send rows to a log table", Long: appendHelp, Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.completeTable,
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
	wo := o.writer
	wo.ProducerID, wo.FirstSequence, wo.OnResult = o.producerID, resume, tally.add
	w, err := t.NewWriter(wo)
	if err != nil {
		return err
	}
	f := &feeder{w: w, schema: schema, o: o, resume: resume, tally: tally}
	err = f.feed(ctx, inputs)
	if cerr := w.Close(closing(ctx, err)); err == nil {
		err = cerr
	}
	tally.finish()
	if perr := a.printAppend(tally); err == nil {
		err = perr
	}
	if err != nil && o.producerID != "" {
		a.say("rows below %d are applied; run the same command again to go on there", w.Acked())
	}
	return err
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
	y.mu.Lock()
	defer y.mu.Unlock()
	if r.Answer == nil {
		return
	}
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
