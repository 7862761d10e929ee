package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/client"
)

const getHelp = `Look rows of a primary-key table up by key. KEY is the key's value, or
column=value,column=value when the key has several columns (or the value an =), or
a JSON object. With --prefix keys hold the columns of the bucket key, and each has
any number of rows.

A table on a terminal, where keys without a row are told on stderr; else, and with
--json, one line for each key in order: its row, null, or with --prefix a list.`

func (a *app) getCommand() *cobra.Command {
	var o client.LookupOptions
	c := &cobra.Command{
		Use: "get DB.TABLE KEY…", Short: "Look rows up by key", Long: getHelp, Args: cobra.MinimumNArgs(2), ValidArgsFunction: a.completeTable,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withTable(args[0], func(t *client.Table) error {
				def, err := t.Describe(cmd.Context())
				if err != nil {
					return err
				}
				keys, err := lookupKeys(def, args[1:], o.Prefix)
				if err != nil {
					return err
				}
				rows, err := t.LookupRows(cmd.Context(), o, keys...)
				if err != nil {
					return err
				}
				if a.json || !isTerminal(a.out) {
					return a.printEntries(rows)
				}
				return a.drawFound(columnsOf(def, o.Columns), args[1:], rows, o.Prefix)
			})
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.Columns, "columns", nil, "columns to read (default all)")
	f.BoolVar(&o.Prefix, "prefix", false, "keys hold the columns of the bucket key")
	return c
}

// columnsOf returns the columns of an answer.
func columnsOf(def *firnv1.Table, asked []string) []string {
	if len(asked) > 0 {
		return asked
	}
	var out []string
	for _, c := range def.Columns {
		out = append(out, c.Name)
	}
	return out
}

// lookupKeys reads keys as people write them.
func lookupKeys(def *firnv1.Table, texts []string, prefix bool) ([]any, error) {
	if len(def.PrimaryKey) == 0 {
		return nil, usagef("table %s.%s has no primary key: use firn scan --where", def.Database, def.Name)
	}
	columns := def.PrimaryKey
	if prefix {
		columns = def.BucketKey
	}
	types := map[string]string{}
	for _, c := range def.Columns {
		types[c.Name] = c.Type
	}
	var out []any
	for _, text := range texts {
		key, err := lookupKey(columns, types, text)
		if err != nil {
			return nil, err
		}
		out = append(out, key)
	}
	return out, nil
}

func lookupKey(columns []string, types map[string]string, text string) (any, error) {
	if strings.HasPrefix(text, "{") && json.Valid([]byte(text)) {
		return json.RawMessage(text), nil
	}
	key := map[string]any{}
	if len(columns) == 1 && !strings.HasPrefix(text, columns[0]+"=") {
		key[columns[0]] = keyValue(types[columns[0]], text)
		return key, nil
	}
	last := ""
	for _, part := range strings.Split(text, ",") {
		name, value, ok := strings.Cut(part, "=")
		if ok && slices.Contains(columns, name) && key[name] == nil {
			last = name
			key[name] = value
			continue
		}
		if last == "" {
			break
		}
		key[last] = key[last].(string) + "," + part // a comma of the value
	}
	for _, name := range columns {
		value, ok := key[name].(string)
		if !ok {
			return nil, usagef("key %q: give every key column, as in %s", text, keyExample(columns))
		}
		key[name] = keyValue(types[name], value)
	}
	return key, nil
}

func keyExample(columns []string) string {
	parts := make([]string, len(columns))
	for i, c := range columns {
		parts[i] = c + "=…"
	}
	return strings.Join(parts, ",")
}

// keyValue is a value in the form of the rows API: numbers and booleans as they
// are, all else as text.
func keyValue(typ, text string) any {
	switch typ {
	case "string", "uuid", "binary", "date", "time":
		return text
	}
	if strings.HasPrefix(typ, "fixed") || !json.Valid([]byte(text)) {
		return text
	}
	return json.RawMessage(text)
}

func (a *app) printEntries(entries []json.RawMessage) error {
	for _, e := range entries {
		if _, err := fmt.Fprintf(a.out, "%s\n", e); err != nil {
			return err
		}
	}
	return nil
}

// drawFound draws rows as a table.
func (a *app) drawFound(columns, keys []string, entries []json.RawMessage, prefix bool) error {
	var rows [][]string
	for i, e := range entries {
		list := []json.RawMessage{e}
		if prefix {
			if err := json.Unmarshal(e, &list); err != nil {
				return err
			}
		}
		if len(list) == 0 || string(list[0]) == "null" {
			a.say("no row for %s", keys[i])
			continue
		}
		for _, row := range list {
			line, err := cellsOf(columns, row)
			if err != nil {
				return err
			}
			rows = append(rows, line)
		}
	}
	return a.table(columns, rows)
}

// cellsOf returns the values of a row in the order of columns.
func cellsOf(columns []string, row json.RawMessage) ([]string, error) {
	var values map[string]json.RawMessage
	if err := json.Unmarshal(row, &values); err != nil {
		return nil, err
	}
	out := make([]string, len(columns))
	for i, c := range columns {
		v := values[c]
		var text string
		switch {
		case bytes.Equal(v, []byte("null")):
		case json.Unmarshal(v, &text) == nil:
			out[i] = cell(text)
		default:
			out[i] = cell(string(v))
		}
	}
	return out, nil
}
