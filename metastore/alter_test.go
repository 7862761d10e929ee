package metastore

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
)

func changes(t testing.TB, text string) []Change {
	t.Helper()
	var list []Change
	require.NoError(t, json.Unmarshal([]byte(text), &list))
	return list
}

func mustAlter(t testing.TB, table *Table, text string) *Table {
	t.Helper()
	next, err := table.Alter(changes(t, text))
	require.NoError(t, err)
	return next
}

func TestAlterAppliesAListInOneStep(t *testing.T) {
	table, err := newTable(ordersSpec())
	require.NoError(t, err)
	next := mustAlter(t, table, `[{"add_column": {"name": "note", "type": "string", "default": "", "after": "ts"}},
		{"rename_column": {"from": "amount", "to": "total"}}, {"drop_column": {"name": "tags"}},
		{"widen_column": {"name": "qty", "type": "long"}}, {"make_optional": {"name": "order_id"}},
		{"set_properties": {"fold_interval": "20s"}}, {"unset_properties": ["retention"]},
		{"set_partition_by": ["month(ts)", "identity(note)"]}, {"set_comment": "all orders"},
		{"add_column": {"name": "address.country", "type": "string"}}, {"move_column": {"name": "qty", "first": true}}]`)
	require.Equal(t, []string{"qty", "order_id", "ts", "note", "total", "address"}, next.Current().Names())
	require.Equal(t, int32(1), next.CurrentSchema, "one step is one schema")
	require.Len(t, next.Schemas, 2)
	require.Equal(t, uint64(2), next.Version)
	require.Equal(t, int32(11), next.LastFieldID)
	require.Equal(t, []string{"month(ts)", "identity(note)"}, next.PartitionBy())
	require.Equal(t, int32(1003), next.LastPartitionID)
	require.Equal(t, int32(1001), next.Partition[2].FieldID, "the bucket field keeps its id")
	require.Equal(t, []int32{1, 2, 10}, next.PartitionedBy)
	require.Equal(t, "all orders", next.Comment)
	require.Equal(t, []string{"order_id", "ts", "amount", "qty", "tags", "address"}, table.Current().Names(), "the old table stays")
	require.Equal(t, "10s", table.Properties["fold_interval"])
}

func TestFieldIDsAreNotReusedAfterDrop(t *testing.T) {
	table, err := newTable(ordersSpec())
	require.NoError(t, err)
	next := mustAlter(t, table, `[{"drop_column": {"name": "address"}}]`)
	next = mustAlter(t, next, `[{"add_column": {"name": "address", "type": "string"}}]`)
	f, _ := next.Current().Field("address")
	require.Equal(t, int32(10), f.ID)
}

func TestAlterThatChangesNothingReturnsTheTable(t *testing.T) {
	table, err := newTable(ordersSpec())
	require.NoError(t, err)
	for _, text := range []string{
		`[{"set_properties": {"fold_interval": "10s"}}]`, `[{"unset_properties": ["retention"]}]`,
		`[{"add_column": {"name": "x", "type": "int"}}, {"drop_column": {"name": "x"}}]`,
		`[{"set_partition_by": ["day(ts)"]}]`, `[{"widen_column": {"name": "qty", "type": "int"}}]`,
	} {
		require.Same(t, table, mustAlter(t, table, text), text)
	}
}

func TestAlterRefusesWhatCouldNotWorkLater(t *testing.T) {
	table, err := newTable(ordersSpec())
	require.NoError(t, err)
	unpartitioned := mustAlter(t, table, `[{"set_partition_by": []}]`)
	require.Equal(t, []string{}, unpartitioned.PartitionBy())
	v3 := mustAlter(t, table, `[{"set_properties": {"iceberg.format_version": "3"}}]`)
	for name, c := range map[string]struct {
		table *Table
		text  string
		want  []string
	}{
		"nothing":             {table, `[]`, []string{"0 changes"}},
		"empty change":        {table, `[{}]`, []string{"exactly one"}},
		"two in one":          {table, `[{"drop_column": {"name": "qty"}, "set_comment": "x"}]`, []string{"exactly one"}},
		"unknown column":      {table, `[{"drop_column": {"name": "qtyy"}}]`, []string{"qtyy", "did you mean", "qty"}},
		"bucket key":          {table, `[{"drop_column": {"name": "order_id"}}]`, []string{"order_id", "bucket key"}},
		"partition source":    {table, `[{"drop_column": {"name": "ts"}}]`, []string{"ts", "partition_by"}},
		"former source":       {unpartitioned, `[{"drop_column": {"name": "ts"}}]`, []string{"ts", "partitioned the table before"}},
		"narrow":              {table, `[{"widen_column": {"name": "order_id", "type": "int"}}]`, []string{"order_id", "cannot become int"}},
		"required on v2":      {table, `[{"add_column": {"name": "n", "type": "int", "required": true, "default": 0}}]`, []string{`"n"`, "format version 2"}},
		"required no default": {v3, `[{"add_column": {"name": "n", "type": "int", "required": true}}]`, []string{`"n"`, "default"}},
		"taken name":          {table, `[{"rename_column": {"from": "qty", "to": "ts"}}]`, []string{`"ts"`}},
		"reserved name":       {table, `[{"rename_column": {"from": "qty", "to": "__x"}}]`, []string{"__"}},
		"partition name":      {table, `[{"add_column": {"name": "order_id_bucket", "type": "int"}}]`, []string{"order_id_bucket", "bucket(4,order_id)"}},
		"format goes down":    {v3, `[{"set_properties": {"iceberg.format_version": "2"}}]`, []string{"cannot go down"}},
		"unset unknown":       {table, `[{"unset_properties": ["retentoin"]}]`, []string{"did you mean", "retention"}},
		"first and after":     {table, `[{"add_column": {"name": "n", "type": "int", "first": true, "after": "ts"}}]`, []string{"both first and after"}},
		"all or nothing":      {table, `[{"add_column": {"name": "n", "type": "int"}}, {"drop_column": {"name": "nope"}}]`, []string{"nope"}},
		"bad default":         {table, `[{"add_column": {"name": "n", "type": "int", "default": "many"}}]`, []string{`"n"`}},
	} {
		t.Run(name, func(t *testing.T) {
			next, err := c.table.Alter(changes(t, c.text))
			requireClass(t, err, errs.Invalid, c.want...)
			require.Nil(t, next)
		})
	}
}

func TestVersionColumnFollowsARename(t *testing.T) {
	spec := ordersSpec()
	spec.PrimaryKey = []string{"order_id"}
	spec.Properties = map[string]string{"merge_engine": "versioned", "version_column": "qty"}
	table := &Table{ID: 1, UUID: "u", Database: "shop", Name: "orders", Version: 1, Properties: spec.Properties, LastPartitionID: 999}
	require.NoError(t, table.build(spec))
	next := mustAlter(t, table, `[{"rename_column": {"from": "qty", "to": "revision"}}]`)
	require.Equal(t, "revision", next.VersionColumn())
	_, err := next.Alter(changes(t, `[{"drop_column": {"name": "revision"}}]`))
	requireClass(t, err, errs.Invalid, "version_column")
	_, err = next.Alter(changes(t, `[{"set_properties": {"merge_engine": "last_row"}}]`))
	requireClass(t, err, errs.Invalid)
	_, err = next.Alter(changes(t, `[{"set_properties": {"version_column": "order_id"}}]`))
	requireClass(t, err, errs.Invalid, "version_column", "cannot change")
	require.Equal(t, "ignore", next.DeleteBehavior())
}
