package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/firn-data/firn/agent"
	"github.com/firn-data/firn/internal/objstore/probe"
)

const doctorHelp = `Examine a store: does it keep what Firn's safety rests on? Races of conditional
puts, reads and lists after writes, ranges, clock skew and latencies. It writes
below probe/ and removes what it wrote. Exit code 1 means that the store must not
be used, and the findings say why.`

func (a *app) doctorCommand() *cobra.Command {
	store := agent.DefaultConfig().Store
	c := &cobra.Command{
		Use: "doctor", Short: "Examine whether a store is fit for Firn", Long: doctorHelp, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := openStore(cmd.Context(), store)
			if err != nil {
				return err
			}
			defer func() { _ = s.Close() }() // nothing is left to lose
			return a.printFindings(s.URL(), probe.Doctor(cmd.Context(), s))
		},
	}
	c.Flags().StringVar(&store, "store", store, "URL of the store: file://, s3://, gs://, azblob://")
	return c
}

func (a *app) printFindings(store string, findings []probe.Finding) error {
	failed := 0
	var rows [][]string
	for _, f := range findings {
		if f.Level == probe.Fail {
			failed++
		}
		rows = append(rows, []string{strings.ToUpper(string(f.Level)), f.Check, f.Text})
	}
	if a.json {
		if err := a.printJSON(map[string]any{"store": store, "fit": failed == 0, "findings": findings}); err != nil {
			return err
		}
	} else {
		if err := a.table([]string{"RESULT", "CHECK", "WHAT WAS FOUND"}, rows); err != nil {
			return err
		}
		verdict := "this store is fit for Firn"
		if failed > 0 {
			verdict = fmt.Sprintf("this store must not be used: %d of %d checks failed", failed, len(findings))
		}
		fmt.Fprintf(a.out, "\n%s: %s\n", store, verdict)
	}
	if failed > 0 {
		return errSilent
	}
	return nil
}
