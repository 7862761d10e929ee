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
	var ifExists bool
	c := &cobra.Command{
		Use: "drop DB.TABLE", Short: "Drop a table and its rows", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				return a.dropped(t.Drop(cmd.Context()), ifExists, "table", t.Name())
			})
		},
	}
	c.Flags().BoolVar(&ifExists, "if-exists", false, "do nothing when it does not exist")
	return c
}

// dropped tells what came of a drop.
func (a *app) dropped(err error, ifExists bool, kind, name string) error {
	switch {
	case err == nil:
		a.say("dropped %s %s", kind, name)
	case ifExists && client.ClassOf(err) == client.NotFound:
		a.say("there is no %s %s", kind, name)
	default:
		return err
	}
	return nil
}
