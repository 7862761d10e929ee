package lakehouse

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/filestore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// TestExportTablesForOtherEngines writes tables to the folder FIRN_LAKE_EXPORT,
// with the rows that other engines must find in rows.json beside them.
func TestExportTablesForOtherEngines(t *testing.T) {
	dir := os.Getenv("FIRN_LAKE_EXPORT")
	if dir == "" {
		t.Skip("set FIRN_LAKE_EXPORT to a folder to export tables that other engines can be run on")
	}
	store, err := filestore.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range exportCases() {
		t.Run(c.name, func(t *testing.T) { exportTable(t, dir, store, c) })
	}
	for _, format := range []string{"2", "3"} {
		for name, shape := range map[string]func(*TableDef){"keyed_v" + format: nil, "keyed_parts_v" + format: byPlace} {
			t.Run(name, func(t *testing.T) { exportKeyed(t, dir, store, name, format, shape) })
		}
	}
}

type exportCase struct {
	name   string
	schema *segments.Schema
	parts  []string
	format string
	delta  bool
}

func exportCases() []exportCase {
	all := segtest.AllTypes()
	cases := []exportCase{
		{name: "all_types", schema: all, format: "2"},
		{name: "all_types_v3", schema: all, format: "3"},
		{name: "all_types_delta", schema: all, format: "2", delta: true},
	}
	for _, typ := range []string{"boolean", "int", "long", "decimal(9,2)", "decimal(30,5)", "date", "timestamp", "timestamptz", "string", "binary", "uuid", "float", "double", "time", "fixed(5)"} {
		for i, tr := range []string{"identity(c)", "bucket(4,c)", "truncate(3,c)", "year(c)", "month(c)", "day(c)", "hour(c)"} {
			s := segtest.Schema("c "+typ, "n int")
			if _, err := segments.ParsePartitionField(tr, s); err == nil {
				name := "p" + string(rune('0'+i)) + "_" + sanitise(typ)
				cases = append(cases, exportCase{name: name, schema: s, parts: []string{tr}, format: "2"})
			}
		}
	}
	return cases
}

func sanitise(s string) string {
	out := []byte(s)
	for i, c := range out {
		if !(c >= 'a' && c <= 'z' || c >= '0' && c <= '9') {
			out[i] = '_'
		}
	}
	return string(out)
}

func exportTable(t *testing.T, dir string, store objstore.Store, c exportCase) {
	o := quickOptions()
	o.Location = ""
	x := newFoldTable(t, store, o, c.schema, func(d *TableDef) {
		d.Name, d.Prefix = c.name, "lake/db/"+c.name+"-7"
		d.Properties[PropFormatVersion] = c.format
		if c.delta {
			d.Properties[PropEncoding] = "delta"
		}
		if len(c.parts) > 0 {
			partitionBy(t, c.parts...)(d)
		}
	})
	x.fold(0, batchOf(c.schema, 60, 1), batchOf(c.schema, 60, 2))
	x.fold(0, batchOf(c.schema, 50, 3))
	x.fold(0, batchOf(c.schema, 40, 4))
	x.check()
	writeRows(t, dir, x.def, rowKeys(x.rows...))
	if _, err := x.lake.Load(context.Background(), x.def); err != nil {
		t.Fatal(err)
	}
}

func writeRows(t *testing.T, dir string, def TableDef, rows []string) {
	body, err := json.Marshal(rows)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, def.Prefix, "rows.json"), body, 0o644); err != nil {
		t.Fatal(err)
	}
}

// exportKeyed writes a primary-key table of a hundred rounds of updates, deletes and
// folds, and a compaction in every tenth.
func exportKeyed(t *testing.T, dir string, store objstore.Store, name, format string, shape func(*TableDef)) {
	o := quickOptions()
	o.Location = ""
	k := newKeyedTable(t, store, o, format, func(d *TableDef) {
		d.Name, d.Prefix = name, "lake/db/"+name+"-7"
		if shape != nil {
			shape(d)
		}
	})
	for round := range 100 {
		k.churn(50, 300)
		k.foldKeyed()
		if round%10 == 5 {
			if _, err := k.compactKeyed(CompactOptions{}, func() {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	k.check()
	writeRows(t, dir, k.def, k.want())
}
