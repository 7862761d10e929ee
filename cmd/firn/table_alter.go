package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/types/known/structpb"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

const tableAlterHelp = `Change a table in one step, or not at all. Changes are applied in the order in
which they are given:

  firn table alter shop.orders --add-column "note string default '' after ts" --rename-column amount=total \
    --widen-column 'qty long' --set fold_interval=10s`

func (a *app) tableAlterCommand() *cobra.Command {
	var changes []*firnv1.TableChange
	c := &cobra.Command{
		Use: "alter DB.TABLE", Short: "Change columns, partitioning and properties", Long: tableAlterHelp,
		Args: cobra.ExactArgs(1), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(changes) == 0 {
				return usagef("nothing to change: give at least one change; %s --help lists them", cmd.CommandPath())
			}
			return a.withTable(args[0], func(t *client.Table) error {
				def, err := t.Alter(cmd.Context(), changes...)
				if err != nil {
					return err
				}
				if a.json {
					return a.printMessage(def)
				}
				a.say("altered table %s: schema %d", t.Name(), def.SchemaId)
				return nil
			})
		},
	}
	alterFlags(c.Flags(), &changes)
	return c
}

func alterFlags(f *pflag.FlagSet, list *[]*firnv1.TableChange) {
	add := func(name, usage string, parse func(string) (*firnv1.TableChange, error)) {
		f.Var(&changeFlag{list, parse}, name, usage)
	}
	add("add-column", "'NAME TYPE [required] [default VALUE] [doc TEXT] [after COLUMN|first]'", parseAddColumn)
	add("drop-column", "COLUMN", func(s string) (*firnv1.TableChange, error) {
		return &firnv1.TableChange{DropColumn: &firnv1.DropColumn{Name: s}}, nil
	})
	add("rename-column", "FROM=TO", func(s string) (*firnv1.TableChange, error) {
		from, to, err := pair(s, "=")
		return &firnv1.TableChange{RenameColumn: &firnv1.RenameColumn{From: from, To: to}}, err
	})
	add("widen-column", "'COLUMN TYPE': int to long, float to double, decimal to more digits", func(s string) (*firnv1.TableChange, error) {
		name, typ, err := pair(s, " ")
		return &firnv1.TableChange{WidenColumn: &firnv1.WidenColumn{Name: name, Type: typ}}, err
	})
	add("make-optional", "COLUMN: let it hold NULL", func(s string) (*firnv1.TableChange, error) {
		return &firnv1.TableChange{MakeOptional: &firnv1.MakeOptional{Name: s}}, nil
	})
	add("move-column", "'COLUMN after OTHER' or 'COLUMN first'", parseMoveColumn)
	add("doc", "COLUMN=TEXT", func(s string) (*firnv1.TableChange, error) {
		name, doc, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usagef("%q must look like COLUMN=TEXT", s)
		}
		return &firnv1.TableChange{SetColumnDoc: &firnv1.SetColumnDoc{Name: name, Doc: doc}}, nil
	})
	add("set", "NAME=VALUE: set a property", func(s string) (*firnv1.TableChange, error) {
		name, value, ok := strings.Cut(s, "=")
		if !ok || name == "" {
			return nil, usagef("%q must look like NAME=VALUE", s)
		}
		return &firnv1.TableChange{SetProperties: map[string]string{name: value}}, nil
	})
	add("unset", "NAME: remove a property", func(s string) (*firnv1.TableChange, error) {
		return &firnv1.TableChange{UnsetProperties: []string{s}}, nil
	})
	add("partition-by", "'FIELD; FIELD': the new partition fields; empty ends partitioning", parsePartitionBy)
	add("comment", "TEXT: the table's comment", func(s string) (*firnv1.TableChange, error) {
		return &firnv1.TableChange{SetComment: &s}, nil
	})
}

// changeFlag adds to one list, so that changes of different flags keep their order.
type changeFlag struct {
	list  *[]*firnv1.TableChange
	parse func(string) (*firnv1.TableChange, error)
}

// Set implements pflag.Value.
func (f *changeFlag) Set(s string) error {
	c, err := f.parse(s)
	if err != nil {
		return err
	}
	*f.list = append(*f.list, c)
	return nil
}

// String implements pflag.Value.
func (f *changeFlag) String() string { return "" }

// Type implements pflag.Value.
func (f *changeFlag) Type() string { return "change" }

func pair(s, sep string) (first, second string, err error) {
	first, second, ok := strings.Cut(strings.TrimSpace(s), sep)
	first, second = strings.TrimSpace(first), strings.TrimSpace(second)
	if !ok || first == "" || second == "" {
		return "", "", usagef("%q: two parts with %q between them are needed", s, sep)
	}
	return first, second, nil
}

func parseAddColumn(s string) (*firnv1.TableChange, error) {
	words, err := splitWords(s)
	if err != nil {
		return nil, err
	}
	add := &firnv1.AddColumn{}
	if n := len(words); n >= 2 && strings.EqualFold(words[n-2], "after") {
		add.After = unquote(words[n-1])
		words = words[:n-2]
	} else if n > 2 && strings.EqualFold(words[n-1], "first") {
		add.First = true
		words = words[:n-1]
	}
	col, err := parseColumn(strings.Join(words, " "))
	if err != nil {
		return nil, err
	}
	add.Name, add.Type, add.Required, add.Default, add.Doc, add.Aggregate = col.Name, col.Type, col.Required, col.Default, col.Doc, col.Aggregate
	return &firnv1.TableChange{AddColumn: add}, nil
}

func parseMoveColumn(s string) (*firnv1.TableChange, error) {
	words := strings.Fields(s)
	switch {
	case len(words) == 3 && strings.EqualFold(words[1], "after"):
		return &firnv1.TableChange{MoveColumn: &firnv1.MoveColumn{Name: words[0], After: words[2]}}, nil
	case len(words) == 2 && strings.EqualFold(words[1], "first"):
		return &firnv1.TableChange{MoveColumn: &firnv1.MoveColumn{Name: words[0], First: true}}, nil
	}
	return nil, usagef("%q must look like 'COLUMN after OTHER' or 'COLUMN first'", s)
}

func parsePartitionBy(s string) (*firnv1.TableChange, error) {
	list := &structpb.ListValue{}
	for field := range strings.SplitSeq(s, ";") {
		if field = strings.TrimSpace(field); field != "" {
			list.Values = append(list.Values, structpb.NewStringValue(field))
		}
	}
	return &firnv1.TableChange{SetPartitionBy: list}, nil
}
