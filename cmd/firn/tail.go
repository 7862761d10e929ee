package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/segments/rows"
)

const tailHelp = `Stream a table's log. Rows carry _bucket, _offset, _timestamp and _change_type.

--start is earliest (default), latest, timestamp:2026-01-31T12:00:00Z,
offsets:0=12,1=40, or of a primary-key table snapshot: its rows, then the changes. A stream that breaks resumes at the exact row. At the end the
offsets to resume from are told on stderr.`

func (a *app) tailCommand() *cobra.Command {
	var o client.ChangesOptions
	var start, format string
	c := &cobra.Command{
		Use: "tail DB.TABLE", Short: "Stream a table's log", Long: tailHelp, Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Start = client.Start(start)
			if o.Limit < 0 {
				return usagef("--limit %d: it must be a whole number from 0 (0: all rows)", o.Limit)
			}
			f, ok := rows.ParseFormat(format)
			if !ok || f == rows.Parquet || f == rows.JSON {
				return usagef("format %q is none of ndjson, csv, arrow", format)
			}
			database, table, err := client.ParseTable(args[0])
			if err != nil {
				return err
			}
			c, err := a.connectWith(client.DefaultRetry)
			if err != nil {
				return err
			}
			defer c.Close()
			s := c.Table(database, table).Changes(cmd.Context(), o)
			defer s.Close()
			err = a.follow(s, f)
			if cursor := s.Cursor(); len(cursor) > 0 && (isTerminal(a.errOut) || err != nil) {
				a.say("resume with --start offsets:%s", client.FormatOffsets(cursor))
			}
			if cmd.Context().Err() != nil && o.Follow {
				return nil // a follower is ended by its user
			}
			return err
		},
	}
	f := c.Flags()
	f.StringVar(&start, "start", "earliest", "where to begin")
	f.BoolVarP(&o.Follow, "follow", "f", false, "wait for new rows")
	f.Int32SliceVar(&o.Buckets, "buckets", nil, "buckets to read (default all)")
	f.StringSliceVar(&o.Columns, "columns", nil, "columns to read (default all)")
	f.StringVar(&o.Where, "where", "", "an SQL predicate")
	f.Int64Var(&o.Limit, "limit", 0, "at most so many rows")
	f.StringVar(&format, "format", "ndjson", "ndjson, csv or arrow")
	return c
}

// follow prints rows as they come. A changed schema starts a new header.
func (a *app) follow(s *client.Changes, f rows.Format) error {
	var enc rows.Encoder
	var schema string
	for {
		rec, err := s.Next()
		if errors.Is(err, io.EOF) {
			if enc != nil {
				return enc.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		if now := rec.Schema().String(); enc == nil || now != schema {
			if enc != nil {
				if err := enc.Close(); err != nil {
					return err
				}
			}
			if enc, err = rows.NewEncoder(a.out, rows.EncodeOptions{Schema: rec.Schema(), Format: f}); err != nil {
				return err
			}
			schema = now
		}
		if err := enc.Write(rec); err != nil {
			return err
		}
		if err := enc.Flush(); err != nil {
			return err
		}
		rec.Release()
	}
}
