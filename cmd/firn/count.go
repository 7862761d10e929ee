package main

import (
	"fmt"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

func (a *app) countCommand() *cobra.Command {
	var o client.CountOptions
	var layer string
	c := &cobra.Command{
		Use: "count DB.TABLE", Short: "Count a table's rows, exactly", Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Layer = client.Layer(layer)
			return a.withTable(args[0], func(t *client.Table) error {
				n, err := t.Count(cmd.Context(), o)
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(&firnv1.CountResponse{Count: n})
				}
				_, err = fmt.Fprintln(a.out, n)
				return err
			})
		},
	}
	f := c.Flags()
	f.StringVar(&o.Where, "where", "", "an SQL predicate: \"amount > 10 AND status = 'paid'\"")
	f.StringVar(&layer, "layer", "", "union (default) or lake")
	f.Int64Var(&o.Snapshot, "snapshot", 0, "a lake snapshot id")
	f.StringVar(&o.AsOf, "as-of", "", "the lake as of a time (RFC 3339)")
	return c
}
