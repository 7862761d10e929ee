package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/agent"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	agent.Version = version
	a := &app{in: in, out: out, errOut: errOut}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err != nil {
		a.report(err)
	}
	return exitCode(ctx, err)
}

// app is what all commands share: the global flags and the three streams.
type app struct {
	server string
	token  string
	json   bool

	in          io.Reader
	out, errOut io.Writer
}

const rootHelp = `Firn is a stream store with no disks: rows are durable after one put into an
object store, readable at once as a stream, and folded into an Iceberg table
that any engine reads.

Start an agent with "firn serve", or see it work with "firn demo".

Exit codes:
  0    done
  1    the operation failed, or a check found a fault
  2    wrong usage: a flag, an argument, or a request that must be fixed
  3    the agent or the store cannot be reached, or is overloaded: try again
  4    the token is missing, wrong, or lacks the right
  130  interrupted`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use: "firn", Short: "A stream store with no disks", Long: rootHelp, Version: version,
		SilenceErrors: true, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; firn --help lists the commands", args[0])
			}
			return cmd.Help()
		},
		Args: cobra.ArbitraryArgs,
	}
	f := root.PersistentFlags()
	f.StringVar(&a.server, "server", envOr("FIRN_SERVER", "http://127.0.0.1:7070"), "URL of an agent (env FIRN_SERVER)")
	f.StringVar(&a.token, "token", "", "bearer token (env FIRN_TOKEN)")
	f.BoolVar(&a.json, "json", false, "print results as JSON, for programs")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usagef("%v", err) })
	root.AddCommand(
		a.serveCommand(), a.demoCommand(),
		a.dbCommand(), a.tableCommand(),
		a.writeCommand(&appendVerb), a.writeCommand(&upsertVerb), a.writeCommand(&deleteVerb), a.scanCommand(), a.getCommand(), a.countCommand(), a.tailCommand(),
		a.lakeCommand(), a.agentsCommand(), a.fsckCommand(), a.doctorCommand(), a.walCommand(), a.loadtestCommand(),
	)
	for _, c := range root.Commands() {
		usageErrors(c)
	}
	return root
}

// usageErrors makes wrong arguments of a command and of those below it usage
// errors, which have an exit code of their own.
func usageErrors(c *cobra.Command) {
	if check := c.Args; check != nil {
		c.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return usagef("%v; usage: %s", err, cmd.UseLine())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		usageErrors(sub)
	}
}

// group makes a command that only holds others.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("unknown command %q; %s --help lists the commands", args[0], cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	c.AddCommand(subs...)
	return c
}

func envOr(name, def string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return def
}

// say tells a person something that is no result.
func (a *app) say(format string, args ...any) { fmt.Fprintf(a.errOut, format+"\n", args...) }
