package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/client"
)

const scanHelp = `Read a table as of one point in time: the lake and the live rows as one exact
result, or the lake alone. The format is a table on a terminal and NDJSON else.`

func (a *app) scanCommand() *cobra.Command {
	var o client.ScanOptions
	var layer, format, output string
	c := &cobra.Command{
		Use: "scan DB.TABLE", Short: "Read a table's rows", Long: scanHelp, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Layer = client.Layer(layer)
			if o.Limit < 0 {
				return usagef("--limit %d: it must be a whole number from 0 (0: all rows)", o.Limit)
			}
			format, err := a.scanFormat(format, output == "" && isTerminal(a.out))
			if err != nil {
				return err
			}
			return a.withTable(args[0], func(t *client.Table) error {
				body, err := t.ScanRaw(cmd.Context(), o, wireFormats[format])
				if err != nil {
					return err
				}
				defer body.Close()
				if output == "" {
					return copyRows(a.out, body, format)
				}
				return writeFile(output, func(w io.Writer) error { return copyRows(w, body, format) })
			})
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.Columns, "columns", nil, "columns to read (default all)")
	f.StringVar(&o.Where, "where", "", "an SQL predicate: \"amount > 10 AND status IN ('paid','open')\"")
	f.Int64Var(&o.Limit, "limit", 0, "at most so many rows (default all)")
	f.StringVar(&layer, "layer", "", "union (default) or lake")
	f.Int64Var(&o.Snapshot, "snapshot", 0, "a lake snapshot id")
	f.StringVar(&o.AsOf, "as-of", "", "the lake as of a time (RFC 3339)")
	f.StringVar(&format, "format", "", "table, ndjson, json, csv, arrow or parquet")
	f.StringVarP(&output, "output", "o", "", "write to a file instead of stdout")
	return c
}

// wireFormats are the formats by the names of --format. A table is drawn from CSV.
var wireFormats = map[string]client.Format{
	"table": client.CSV, "ndjson": client.NDJSON, "json": client.JSON, "csv": client.CSV,
	"arrow": client.Arrow, "parquet": client.Parquet,
}

func copyRows(out io.Writer, rows io.Reader, format string) error {
	if format == "table" {
		return printCSV(rows, out)
	}
	_, err := io.Copy(out, rows)
	return err
}

// writeFile makes a file that is whole, or none: the name appears at the end.
func writeFile(name string, fill func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*")
	if err != nil {
		return usagef("%v", err)
	}
	err = errors.Join(fill(f), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

func (a *app) scanFormat(format string, screen bool) (string, error) {
	switch {
	case format == "" && (a.json || !screen):
		return "ndjson", nil
	case format == "":
		return "table", nil
	case wireFormats[format] == "":
		return "", usagef("format %q is none of table, ndjson, json, csv, arrow, parquet", format)
	case screen && (format == "arrow" || format == "parquet"):
		return "", usagef("%s is not for a terminal; redirect stdout, or use --output", format)
	}
	return format, nil
}
