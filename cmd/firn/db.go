package main

import (
	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

func (a *app) dbCommand() *cobra.Command {
	return group("db", "Create, list and drop databases", a.dbCreateCommand(), a.dbListCommand(), a.dbDropCommand())
}

func (a *app) dbCreateCommand() *cobra.Command {
	var ifNotExists bool
	c := &cobra.Command{
		Use: "create NAME", Short: "Make an empty database", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				create := c.CreateDatabase
				if ifNotExists {
					create = c.EnsureDatabase
				}
				db, err := create(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(db)
				}
				a.say("created database %s", db.Name)
				return nil
			})
		},
	}
	c.Flags().BoolVar(&ifNotExists, "if-not-exists", false, "succeed when it exists already")
	return c
}

func (a *app) dbListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List databases", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error {
				dbs, err := c.Databases(cmd.Context())
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(&firnv1.ListDatabasesResponse{Databases: dbs})
				}
				var rows [][]string
				for _, db := range dbs {
					rows = append(rows, []string{db.Name})
				}
				return a.table([]string{"DATABASE"}, rows)
			})
		},
	}
}

func (a *app) dbDropCommand() *cobra.Command {
	var cascade, ifExists bool
	c := &cobra.Command{
		Use: "drop NAME", Short: "Drop a database; one that holds tables needs --cascade", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				return a.dropped(c.DropDatabase(cmd.Context(), args[0], cascade), ifExists, "database", args[0])
			})
		},
	}
	c.Flags().BoolVar(&cascade, "cascade", false, "drop its tables with it")
	c.Flags().BoolVar(&ifExists, "if-exists", false, "do nothing when it does not exist")
	return c
}
