package main

import (
	"github.com/spf13/cobra"

	"github.com/firn-data/firn/client"
)

func (a *app) tableCommand() *cobra.Command {
	return group("table", "Create, list, describe, alter and drop tables",
		a.tableCreateCommand(), a.tableListCommand(), a.tableDescribeCommand(), a.tableAlterCommand(), a.tableDropCommand())
}

func (a *app) tableDropCommand() *cobra.Command {
	return &cobra.Command{
		Use: "drop DB.TABLE", Short: "Drop a table and its rows", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				if err := t.Drop(cmd.Context()); err != nil {
					return err
				}
				a.say("dropped table %s", t.Name())
				return nil
			})
		},
	}
}
