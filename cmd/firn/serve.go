package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/agent"
)

const serveHelp = `Run an agent: it serves the API, the Iceberg catalog, metrics and health at one
address, and keeps nothing but in the store. SIGTERM makes it hand over and
leave; it may also die at any moment without losing what it acknowledged.

Settings come from --config (YAML), then from flags.`

func (a *app) serveCommand() *cobra.Command {
	def := agent.DefaultConfig()
	var file, logLevel, logFormat string
	flags := def
	c := &cobra.Command{
		Use: "serve", Short: "Run an agent", Long: serveHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			logger, err := a.logger(logLevel, logFormat)
			if err != nil {
				return err
			}
			cfg := def
			if file != "" {
				if cfg, err = agent.LoadConfig(file); err != nil {
					return err
				}
			}
			changed := cmd.Flags().Changed
			override(changed("store"), &cfg.Store, flags.Store)
			override(changed("listen"), &cfg.Listen, flags.Listen)
			override(changed("advertise"), &cfg.Advertise, flags.Advertise)
			override(changed("agent-id"), &cfg.AgentID, flags.AgentID)
			override(changed("zone"), &cfg.Zone, flags.Zone)
			override(changed("lease"), &cfg.Lease, flags.Lease)
			override(changed("flush-bytes"), &cfg.FlushBytes, flags.FlushBytes)
			override(changed("flush-age"), &cfg.FlushAge, flags.FlushAge)
			if token := a.token; token != "" {
				cfg.Token = token
			} else if token := envOr("FIRN_TOKEN", ""); token != "" && cfg.Token == "" {
				cfg.Token = token
			}
			return agent.Run(cmd.Context(), cfg, logger)
		},
	}
	f := c.Flags()
	f.StringVar(&flags.Store, "store", def.Store, "URL of the store: file://, s3://, gs://, azblob://, mem://")
	f.StringVar(&flags.Listen, "listen", def.Listen, "host:port to serve at")
	f.StringVar(&flags.Advertise, "advertise", "", "host:port that others reach it by (default: that of --listen)")
	f.StringVar(&flags.AgentID, "agent-id", "", "stable name of the agent (default: host name and port)")
	f.StringVar(&flags.Zone, "zone", "", "availability zone")
	f.DurationVar(&flags.Lease, "lease", def.Lease, "silence after which others take an agent's slots over")
	f.Int64Var(&flags.FlushBytes, "flush-bytes", def.FlushBytes, "size at which a flush is cut")
	f.DurationVar(&flags.FlushAge, "flush-age", 0, "age at which a flush is cut (default 100ms; 5ms on file:// and mem://)")
	f.StringVar(&file, "config", "", "configuration file (YAML)")
	f.StringVar(&logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&logFormat, "log-format", "text", "text or json")
	return c
}

func override[T any](given bool, dst *T, v T) {
	if given {
		*dst = v
	}
}

func (a *app) logger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
		return nil, usagef("log level %q is none of debug, info, warn, error", level)
	}
	o := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(a.errOut, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.errOut, o)), nil
	}
	return nil, usagef("log format %q is none of text, json", format)
}
