package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/agent/fsck"
)

const fsckHelp = `Walk a whole store and compare what the durable state needs with what is there.
It only reads, and may run while agents serve the store.

Exit code 1 means that something needed is missing or corrupt. Garbage is no
fault: agents remove it when it is old enough; --verbose lists it.`

func (a *app) fsckCommand() *cobra.Command {
	store := agent.DefaultConfig().Store
	var o fsck.Options
	var verbose bool
	c := &cobra.Command{
		Use: "fsck", Short: "Check that a store is whole", Long: fsckHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := openExisting(cmd.Context(), store)
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }() // nothing was written
			r, err := fsck.Check(cmd.Context(), s, o)
			if err != nil {
				return err
			}
			return a.printCheck(r, verbose)
		},
	}
	f := c.Flags()
	f.StringVar(&store, "store", store, "URL of the store: file://, s3://, gs://, azblob://")
	f.BoolVar(&o.Deep, "deep", false, "decode every row too")
	f.DurationVar(&o.SafeAge, "safe-age", fsck.DefaultSafeAge, "garbage that is younger may be an upload in progress")
	f.BoolVarP(&verbose, "verbose", "V", false, "list garbage too")
	return c
}

func (a *app) printCheck(r *fsck.Report, verbose bool) error {
	if a.json {
		if err := a.printJSON(r); err != nil {
			return err
		}
	} else if err := a.drawCheck(r, verbose); err != nil {
		return err
	}
	if !r.OK() {
		return errSilent
	}
	return nil
}

func (a *app) drawCheck(r *fsck.Report, verbose bool) error {
	fmt.Fprintf(a.out, "%s at metadata sequence %d: %s, %s in the lake, %s live\n\n",
		r.Store, r.MetadataSeq, plural(int64(r.Tables), "table"), pluralRows(r.Rows), pluralRows(r.LiveRows))
	var rows [][]string
	for _, c := range r.Classes {
		rows = append(rows, []string{
			c.Name, strconv.FormatInt(c.Objects, 10), bytesText(c.Bytes), strconv.FormatInt(c.Garbage, 10), bytesText(c.GarbageBytes),
		})
	}
	if err := a.table([]string{"OBJECTS OF", "NUMBER", "SIZE", "GARBAGE", "SIZE"}, rows); err != nil {
		return err
	}
	fmt.Fprintln(a.out)
	for _, f := range r.Findings {
		if f.Level != fsck.Garbage || verbose {
			fmt.Fprintf(a.out, "%-8s %s: %s\n", f.Level, f.Key, f.Reason)
		}
	}
	if !r.OK() {
		_, err := fmt.Fprintf(a.out, "the store is damaged: %s\n", plural(int64(r.Damaged), "finding"))
		return err
	}
	_, err := fmt.Fprintf(a.out, "the store is whole; %d objects are garbage, %d of them old\n", r.Garbage, r.GarbageOld)
	return err
}
