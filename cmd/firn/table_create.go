package main

import (
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/jsonwire"
	"github.com/firn-data/firn/client"
)

const tableCreateHelp = `Make a table. Columns are written as in SQL:

  firn table create shop.orders \
    --column 'order_id long required' --column 'ts timestamptz' --column 'amount decimal(10,2)' \
    --buckets 4 --bucket-key order_id --partition-by 'day(ts)' --property fold_interval=30s

After the type may stand: required, default VALUE, doc 'TEXT'.
With --file the definition is JSON, as the REST route takes it; flags are added to it.`

func (a *app) tableCreateCommand() *cobra.Command {
	def := &firnv1.CreateTableRequest{}
	var columns, primaryKey, bucketKey, partitionBy, properties []string
	var file string
	c := &cobra.Command{
		Use: "create DB.TABLE", Short: "Make a table", Long: tableCreateHelp, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.readDefinition(file, def); err != nil {
				return err
			}
			var err error
			if def.Database, def.Name, err = client.ParseTable(args[0]); err != nil {
				return err
			}
			for _, text := range columns {
				col, err := parseColumn(text)
				if err != nil {
					return err
				}
				def.Columns = append(def.Columns, col)
			}
			def.PrimaryKey = append(def.PrimaryKey, primaryKey...)
			def.BucketKey = append(def.BucketKey, bucketKey...)
			def.PartitionBy = append(def.PartitionBy, partitionBy...)
			if err := addProperties(&def.Properties, properties); err != nil {
				return err
			}
			return a.createTable(cmd, def)
		},
	}
	f := c.Flags()
	f.StringArrayVarP(&columns, "column", "c", nil, "a column: 'NAME TYPE [required] [default VALUE] [doc TEXT]'; repeat it")
	f.StringSliceVar(&primaryKey, "primary-key", nil, "columns of the primary key")
	f.Int32Var(&def.Buckets, "buckets", 0, "number of buckets, the units of order (default 1)")
	f.StringSliceVar(&bucketKey, "bucket-key", nil, "columns that choose a row's bucket")
	f.StringArrayVar(&partitionBy, "partition-by", nil, "an Iceberg partition field: day(ts), bucket(16,id), region; repeat it")
	f.StringArrayVar(&properties, "property", nil, "a property: NAME=VALUE; repeat it")
	f.StringVar(&def.Comment, "comment", "", "what the table is for")
	f.BoolVar(&def.IfNotExists, "if-not-exists", false, "succeed when it exists already")
	f.StringVarP(&file, "file", "f", "", "read the definition from a JSON file (- is stdin)")
	return c
}

func (a *app) createTable(cmd *cobra.Command, def *firnv1.CreateTableRequest) error {
	return a.withClient(func(c *client.Client) error {
		t, err := c.CreateTable(cmd.Context(), def)
		if err != nil {
			return err
		}
		if a.json {
			return a.printMessage(t)
		}
		a.say("created table %s.%s at %s", t.Database, t.Name, t.Location)
		return nil
	})
}

// readDefinition fills def from a JSON file; what flags set already stays.
func (a *app) readDefinition(file string, def *firnv1.CreateTableRequest) error {
	if file == "" {
		return nil
	}
	var raw []byte
	var err error
	if file == "-" {
		raw, err = io.ReadAll(a.in)
	} else {
		raw, err = os.ReadFile(file)
	}
	if err != nil {
		return usagef("read definition: %v", err)
	}
	read := new(firnv1.CreateTableRequest)
	if err := jsonwire.Unmarshal(raw, read); err != nil {
		return usagef("read definition %s: %v", file, err)
	}
	if def.Buckets != 0 {
		read.Buckets = def.Buckets
	}
	if def.Comment != "" {
		read.Comment = def.Comment
	}
	def.Columns, def.PrimaryKey, def.BucketKey, def.PartitionBy = read.Columns, read.PrimaryKey, read.BucketKey, read.PartitionBy
	def.Properties, def.Buckets, def.Comment = read.Properties, read.Buckets, read.Comment
	def.IfNotExists = def.IfNotExists || read.IfNotExists
	return nil
}

func addProperties(m *map[string]string, list []string) error {
	for _, p := range list {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return usagef("property %q: it must look like NAME=VALUE", p)
		}
		if *m == nil {
			*m = map[string]string{}
		}
		(*m)[name] = value
	}
	return nil
}
