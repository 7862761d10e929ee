package main

import (
	"strconv"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

func (a *app) agentsCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "agents", Short: "List the agents of the store", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(func(c *client.Client) error {
				list, err := c.Agents(cmd.Context(), all)
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(&firnv1.ListAgentsResponse{Agents: list})
				}
				var rows [][]string
				for _, g := range list {
					rows = append(rows, []string{g.Id, g.State, g.Address, g.Zone, strconv.Itoa(int(g.Slots)), g.Incarnation, g.Version})
				}
				return a.table([]string{"AGENT", "STATE", "ADDRESS", "ZONE", "SLOTS", "INCARNATION", "VERSION"}, rows)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "show dead incarnations too")
	return c
}
