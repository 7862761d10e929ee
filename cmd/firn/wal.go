package main

import (
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/wal"
)

func (a *app) walCommand() *cobra.Command {
	return group("wal", "Look into WAL objects", a.walDumpCommand())
}

// maxDumpBytes bounds an object that is read whole; flushes are some MiB.
const maxDumpBytes = 1 << 30

func (a *app) walDumpCommand() *cobra.Command {
	var store string
	c := &cobra.Command{
		Use: "dump FILE", Short: "Show what a WAL object, fence or checkpoint holds",
		Long: "Show what a WAL object, fence or checkpoint holds. FILE is a local file, - is stdin;\nwith --store it is a key in that store (wal/<incarnation>/<sequence>).",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			object, err := a.readObject(cmd, store, args[0])
			if err != nil {
				return err
			}
			if a.json {
				return wal.DumpJSON(a.out, object)
			}
			return wal.Dump(a.out, object)
		},
	}
	c.Flags().StringVar(&store, "store", "", "URL of the store that FILE is a key of")
	return c
}

func (a *app) readObject(cmd *cobra.Command, store, name string) ([]byte, error) {
	if store != "" {
		s, err := openExisting(cmd.Context(), store)
		if err != nil {
			return nil, err
		}
		defer func() { _ = s.Close() }() // nothing was written
		object, _, err := s.Get(cmd.Context(), name)
		return object, err
	}
	in := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, usagef("%v", err)
		}
		defer f.Close()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, maxDumpBytes))
}
