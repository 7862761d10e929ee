package main

import (
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/cmd/firn/demo"
)

func (a *app) demoCommand() *cobra.Command {
	o := demo.Options{}
	c := &cobra.Command{
		Use: "demo", Short: "See it work: an agent on an embedded store, real data, results explained", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = a.out
			o.Logger = slog.New(slog.NewTextHandler(a.errOut, &slog.HandlerOptions{Level: slog.LevelWarn}))
			return demo.Run(cmd.Context(), o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.Store, "store", "", "URL of the store (default file://./firn-data)")
	f.StringVar(&o.Listen, "listen", "", "host:port to serve at (default 127.0.0.1:7070)")
	f.BoolVar(&o.Exit, "exit", false, "end after the tour instead of staying up")
	f.DurationVar(&o.Pace, "pace", 6*time.Second, "how long the rows take to stream in")
	return c
}
