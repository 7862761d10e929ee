package main

import (
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

func (a *app) tableListCommand() *cobra.Command {
	return &cobra.Command{
		Use: "list [DB]", Aliases: []string{"ls"}, Short: "List the tables of a database, or of all", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withClient(func(c *client.Client) error {
				all := &firnv1.ListTablesResponse{}
				if len(args) == 0 {
					dbs, err := c.Databases(cmd.Context())
					if err != nil {
						return err
					}
					for _, db := range dbs {
						args = append(args, db.Name)
					}
				}
				for _, db := range args {
					tables, err := c.Tables(cmd.Context(), db)
					if err != nil {
						return err
					}
					all.Tables = append(all.Tables, tables...)
				}
				if a.json {
					return a.printMessage(all)
				}
				var rows [][]string
				for _, t := range all.Tables {
					rows = append(rows, []string{
						t.Database + "." + t.Name, strconv.Itoa(len(t.Columns)), strconv.Itoa(int(t.Buckets)),
						strings.Join(t.PrimaryKey, ","), strings.Join(t.PartitionBy, ","), t.Comment,
					})
				}
				return a.table([]string{"TABLE", "COLUMNS", "BUCKETS", "PRIMARY KEY", "PARTITIONED BY", "COMMENT"}, rows)
			})
		},
	}
}
