package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/jsonwire"
	"github.com/firn-data/firn/client"
)

func (a *app) tableDescribeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "describe DB.TABLE", Short: "Show a table's columns, settings and offsets", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				def, err := t.Describe(cmd.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(def)
				}
				offsets, err := t.Offsets(cmd.Context())
				if err != nil {
					return err
				}
				return a.describe(def, offsets)
			})
		},
	}
}

func (a *app) describe(t *firnv1.Table, offsets []*firnv1.BucketOffsets) error {
	facts := [][2]string{
		{"table", t.Database + "." + t.Name},
		{"comment", t.Comment},
		{"id", fmt.Sprintf("%d (%s)", t.Id, t.Uuid)},
		{"created", t.CreatedAt.AsTime().Format("2006-01-02 15:04:05 MST")},
		{"location", t.Location},
		{"primary key", strings.Join(t.PrimaryKey, ", ")},
		{"buckets", strconv.Itoa(int(t.Buckets))},
		{"bucket key", strings.Join(t.BucketKey, ", ")},
		{"partitioned by", strings.Join(t.PartitionBy, ", ")},
	}
	for _, name := range slices.Sorted(maps.Keys(t.Properties)) {
		facts = append(facts, [2]string{name, t.Properties[name]})
	}
	for _, f := range facts {
		if f[1] != "" {
			fmt.Fprintf(a.out, "%-15s %s\n", f[0], f[1])
		}
	}
	var rows [][]string
	for _, c := range t.Columns {
		rows = append(rows, []string{c.Name, c.Type, requiredText(c.Required), defaultText(c), c.Doc})
	}
	fmt.Fprintln(a.out)
	if err := a.table([]string{"COLUMN", "TYPE", "NULL", "DEFAULT", "DOC"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, o := range offsets {
		rows = append(rows, []string{
			strconv.Itoa(int(o.Bucket)), strconv.FormatInt(o.Earliest, 10), strconv.FormatInt(o.Lake, 10), strconv.FormatInt(o.End, 10),
		})
	}
	fmt.Fprintln(a.out)
	return a.table([]string{"BUCKET", "EARLIEST", "LAKE", "END"}, rows)
}

func requiredText(required bool) string {
	if required {
		return "no"
	}
	return "yes"
}

func defaultText(c *firnv1.Column) string {
	if c.Default == nil {
		return ""
	}
	b, err := jsonwire.Append(nil, c.Default)
	if err != nil {
		return ""
	}
	return string(b)
}
