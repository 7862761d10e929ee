package main

import (
	"strconv"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

func (a *app) lakeCommand() *cobra.Command {
	return group("lake", "Look at and tend a table's Iceberg side",
		a.lakeSnapshotsCommand(), a.lakeFoldCommand(), a.lakeCompactCommand(), a.lakeExpireCommand())
}

func (a *app) lakeSnapshotsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "snapshots DB.TABLE", Short: "List the Iceberg snapshots, oldest first", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				list, err := t.Snapshots(cmd.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(&firnv1.ListSnapshotsResponse{Snapshots: list})
				}
				var rows [][]string
				for _, s := range list {
					id := strconv.FormatInt(s.SnapshotId, 10)
					if s.Current {
						id += " *"
					}
					rows = append(rows, []string{
						id, s.CommittedAt.AsTime().Format("2006-01-02 15:04:05"), s.Operation, strconv.FormatInt(s.Rows, 10),
						strconv.FormatInt(s.Files, 10), bytesText(s.Bytes), client.FormatOffsets(s.Offsets),
					})
				}
				return a.table([]string{"SNAPSHOT", "COMMITTED", "OPERATION", "ROWS", "FILES", "SIZE", "OFFSETS"}, rows)
			})
		},
	}
}

func (a *app) lakeFoldCommand() *cobra.Command {
	return &cobra.Command{
		Use: "fold DB.TABLE", Short: "Move the durable live rows into the lake now", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				r, err := t.Fold(cmd.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(r)
				}
				a.say("folded %s into %s (%s); snapshot %d", pluralRows(r.Rows), plural(r.Files, "file"), bytesText(r.Bytes), r.SnapshotId)
				return nil
			})
		},
	}
}

func (a *app) lakeCompactCommand() *cobra.Command {
	var target int64
	c := &cobra.Command{
		Use: "compact DB.TABLE", Short: "Join small lake files", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				r, err := t.Compact(cmd.Context(), target)
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(r)
				}
				a.say("replaced %s by %d (%s, %s); snapshot %d", plural(r.ReplacedFiles, "file"), r.Files, pluralRows(r.Rows), bytesText(r.Bytes), r.SnapshotId)
				return nil
			})
		},
	}
	c.Flags().Int64Var(&target, "target-file-bytes", 0, "wanted size of a file (default: the table's)")
	return c
}

func (a *app) lakeExpireCommand() *cobra.Command {
	var keep int32
	var olderThan string
	c := &cobra.Command{
		Use: "expire DB.TABLE", Short: "Remove old snapshots and the files that only they hold", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				r, err := t.Expire(cmd.Context(), keep, olderThan)
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(r)
				}
				a.say("removed %s and %s", plural(r.Snapshots, "snapshot"), plural(r.Files, "file"))
				return nil
			})
		},
	}
	c.Flags().Int32Var(&keep, "keep-last", 0, "keep at least so many of the newest (default: the table's)")
	c.Flags().StringVar(&olderThan, "older-than", "", "expire only what is older: 24h (default: the table's)")
	return c
}
