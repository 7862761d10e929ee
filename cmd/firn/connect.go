package main

import (
	"context"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/client"
)

// connect returns a client of the agent that the flags name. Few retries: a
// person waits, and a script sees exit code 3.
func (a *app) connect() (*client.Client, error) {
	return a.connectWith(client.RetryPolicy{Attempts: 5, MinPause: 100 * time.Millisecond, MaxPause: 2 * time.Second})
}

func (a *app) connectWith(retry client.RetryPolicy) (*client.Client, error) {
	opts := []client.Option{client.WithRetry(retry)}
	token := a.token
	if token == "" { // read here, not as the flag's default: the help would show it
		token = os.Getenv("FIRN_TOKEN")
	}
	if token != "" {
		opts = append(opts, client.WithToken(token))
	}
	return client.New(a.server, opts...)
}

// withClient runs f with a client.
func (a *app) withClient(f func(*client.Client) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// withTable runs f with a handle on the table that arg names.
func (a *app) withTable(arg string, f func(*client.Table) error) error {
	database, table, err := client.ParseTable(arg)
	if err != nil {
		return err
	}
	return a.withClient(func(c *client.Client) error { return f(c.Table(database, table)) })
}

// completionTimeout bounds what a Tab may wait for.
const completionTimeout = 2 * time.Second

// completeTable offers DB.TABLE names of the agent for the first argument.
func (a *app) completeTable(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	c, err := a.connectWith(client.NoRetry)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	defer c.Close()
	dbs, err := c.Databases(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var out []string
	for _, db := range dbs {
		if !strings.HasPrefix(db.Name+".", toComplete) && !strings.HasPrefix(toComplete, db.Name+".") {
			continue
		}
		tables, err := c.Tables(ctx, db.Name)
		if err != nil {
			continue
		}
		for _, t := range tables {
			out = append(out, db.Name+"."+t.Name)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
