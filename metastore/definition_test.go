package metastore

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
)

func newTable(spec *TableSpec) (*Table, error) {
	return NewTable("shop", spec, TableIDs{ID: 1, UUID: "u"}, epoch)
}

func TestNewTableAssignsIDsAndPartition(t *testing.T) {
	table, err := newTable(ordersSpec())
	require.NoError(t, err)
	require.Equal(t, []int32{1, 2, 3, 4, 5, 6}, table.Current().IDs())
	require.Equal(t, int32(9), table.LastFieldID) // element, zip, city
	require.Equal(t, []int32{1}, table.BucketKey)
	require.Equal(t, []string{"day(ts)"}, table.PartitionBy())
	require.Len(t, table.Partition, 2)
	require.Equal(t, "bucket[4]", table.Partition[1].Transform)
	require.Equal(t, int32(1001), table.Partition[1].FieldID)
	require.Equal(t, []int32{1, 2}, table.PartitionedBy)
	require.Equal(t, "lake/shop/orders-1", table.LakePrefix())
	require.Equal(t, 10*time.Second, table.FoldInterval())
	require.Equal(t, 2, table.FormatVersion())
}

func TestNewTableReadsTheCreateTableBody(t *testing.T) {
	var spec TableSpec
	require.NoError(t, json.Unmarshal([]byte(`{"name": "orders",
	 "columns": [{"name": "order_id", "type": "long", "required": true},
	             {"name": "ts", "type": "timestamptz"}, {"name": "amount", "type": "decimal(10,2)", "default": "1.50"}],
	 "buckets": 4, "bucket_key": ["order_id"], "partition_by": ["day(ts)"],
	 "properties": {"fold_interval": "60s"}}`), &spec))
	table, err := newTable(&spec)
	require.NoError(t, err)
	require.Equal(t, int32(4), table.Buckets)
	f, _ := table.Current().Field("amount")
	require.JSONEq(t, `"1.50"`, string(f.Default))
}

func TestDefaultsOfATable(t *testing.T) {
	table, err := newTable(&TableSpec{Name: "t", Columns: []ColumnSpec{{Name: "a", Type: "long"}}})
	require.NoError(t, err)
	require.Equal(t, int32(DefaultBuckets), table.Buckets)
	require.Empty(t, table.BucketKey)
	require.Empty(t, table.Partition)
	require.Equal(t, time.Minute, table.FoldInterval())
	require.Equal(t, int64(64<<20), table.FoldBytes())
	require.Equal(t, 2*time.Second, table.MinFoldInterval())
	require.Zero(t, table.Retention())
	require.Zero(t, table.ProducerExpiry())
	require.Equal(t, int64(128<<20), table.TargetFileBytes())
	require.Equal(t, "zstd", table.Compression())
	require.Equal(t, "plain", table.Encoding())
	require.Equal(t, 100, table.SnapshotsKept())
	require.Equal(t, 7*24*time.Hour, table.ChangelogRetention())
}

// TestDefinitionsThatCouldNotWorkAreRefused names, for each rule, what the error must name.
func TestDefinitionsThatCouldNotWorkAreRefused(t *testing.T) {
	set := func(name, value string) func(*TableSpec) {
		return func(s *TableSpec) { s.Properties[name] = value }
	}
	for name, c := range map[string]struct {
		change func(*TableSpec)
		want   []string
		class  errs.Class
	}{
		"table name":          {func(s *TableSpec) { s.Name = "a b" }, []string{`"a b"`}, errs.Invalid},
		"reserved name":       {func(s *TableSpec) { s.Name = "__x" }, []string{"reserved"}, errs.Invalid},
		"dollar":              {func(s *TableSpec) { s.Name = "orders$lake" }, []string{"$"}, errs.Invalid},
		"no columns":          {func(s *TableSpec) { *s = TableSpec{Name: "t"} }, []string{"column"}, errs.Invalid},
		"type":                {func(s *TableSpec) { s.Columns[3].Type = "varint" }, []string{`"qty"`, "varint"}, errs.Invalid},
		"duplicate":           {func(s *TableSpec) { s.Columns[3].Name = "TS" }, []string{"TS", "letter case"}, errs.Invalid},
		"stream column":       {func(s *TableSpec) { s.Columns[3].Name = "_Offset" }, []string{"_Offset", "reserved"}, errs.Invalid},
		"default":             {func(s *TableSpec) { s.Columns[3].Default = json.RawMessage(`"x"`) }, []string{`"qty"`}, errs.Invalid},
		"buckets":             {func(s *TableSpec) { s.Buckets = 5000 }, []string{"5000", "4096"}, errs.Invalid},
		"negative buckets":    {func(s *TableSpec) { s.Buckets = -1 }, []string{"-1"}, errs.Invalid},
		"bucket key":          {func(s *TableSpec) { s.BucketKey = []string{"order_ID"} }, []string{"bucket_key", "did you mean", "order_id"}, errs.Invalid},
		"bucket key twice":    {func(s *TableSpec) { s.BucketKey = []string{"ts", "ts"} }, []string{"bucket_key", "twice"}, errs.Invalid},
		"bucket key type":     {func(s *TableSpec) { s.BucketKey = []string{"tags"} }, []string{"bucket_key", "tags", "list"}, errs.Invalid},
		"partition column":    {func(s *TableSpec) { s.PartitionBy = []string{"day(tz)"} }, []string{"tz"}, errs.Invalid},
		"partition type":      {func(s *TableSpec) { s.PartitionBy = []string{"day(qty)"} }, []string{"qty"}, errs.Invalid},
		"partition redundant": {func(s *TableSpec) { s.PartitionBy = []string{"day(ts)", "hour(ts)"} }, []string{"ts", "finer"}, errs.Invalid},
		"partition twice":     {func(s *TableSpec) { s.PartitionBy = []string{"qty", "identity(qty)"} }, []string{"qty"}, errs.Invalid},
		"partition name":      {func(s *TableSpec) { s.Columns[3].Name = "ts_day" }, []string{`"ts_day"`, "day(ts)"}, errs.Invalid},
		"unknown property":    {set("fold_intervall", "1s"), []string{"fold_intervall", "did you mean", "fold_interval"}, errs.Invalid},
		"strange property":    {set("colour", "red"), []string{"colour", "the properties are"}, errs.Invalid},
		"duration":            {set("fold_interval", "60"), []string{"fold_interval", `"60"`}, errs.Invalid},
		"duration range":      {set("retention", "1ms"), []string{"retention", "1s"}, errs.Invalid},
		"enum":                {set("compression", "lzo"), []string{"compression", "zstd"}, errs.Invalid},
		"format":              {set("iceberg.format_version", "1"), []string{"from 2 to 3"}, errs.Invalid},
		"keyed property":      {set("merge_engine", "last_row"), []string{"merge_engine", "primary key"}, errs.Invalid},
		"aggregate":           {func(s *TableSpec) { s.Columns[3].Aggregate = "sum" }, []string{`"qty"`, "primary key"}, errs.Invalid},
		"auto increment":      {func(s *TableSpec) { s.Columns[3].AutoIncrement = true }, []string{`"qty"`, "primary key"}, errs.Invalid},
		"ids of one's own":    {func(s *TableSpec) { s.PrimaryKey, s.Columns[3].AutoIncrement = []string{"order_id"}, true }, []string{`"qty"`, "auto_increment"}, errs.Unsupported},
		"aggregate engine":    {func(s *TableSpec) { s.PrimaryKey, s.Columns[3].Aggregate = []string{"order_id"}, "sum" }, []string{`"qty"`, "merge_engine aggregation"}, errs.Invalid},
		"aggregate name": {func(s *TableSpec) {
			s.PrimaryKey, s.Columns[3].Aggregate, s.Properties = []string{"order_id"}, "average", map[string]string{"merge_engine": "aggregation"}
		}, []string{`"qty"`, `"average"`, "sum, product"}, errs.Invalid},
		"aggregate type": {func(s *TableSpec) {
			s.PrimaryKey, s.Columns[1].Aggregate, s.Properties = []string{"order_id"}, "sum", map[string]string{"merge_engine": "aggregation"}
		}, []string{`"ts"`, "sum does not work on timestamptz"}, errs.Invalid},
		"aggregate argument": {func(s *TableSpec) {
			s.PrimaryKey, s.Columns[3].Aggregate, s.Properties = []string{"order_id"}, "string_agg('x')", map[string]string{"merge_engine": "aggregation"}
		}, []string{`"qty"`, "string_agg does not work on int"}, errs.Invalid},
		"primary key column": {func(s *TableSpec) { s.PrimaryKey = []string{"nope"} }, []string{"primary_key", "nope"}, errs.Invalid},
		"bucket key no prefix": {func(s *TableSpec) { s.PrimaryKey = []string{"qty", "order_id"} },
			[]string{"bucket_key (order_id)", "primary_key (qty, order_id)"}, errs.Invalid},
		"version column": {func(s *TableSpec) {
			s.PrimaryKey, s.Properties = []string{"order_id"}, map[string]string{"merge_engine": "versioned"}
		}, []string{"version_column"}, errs.Invalid},
		"version column type": {func(s *TableSpec) {
			s.PrimaryKey, s.Properties = []string{"order_id"}, map[string]string{"merge_engine": "versioned", "version_column": "tags"}
		}, []string{"version_column", "tags"}, errs.Invalid},
		"comment": {func(s *TableSpec) { s.Comment = strings.Repeat("x", 5000) }, []string{"comment"}, errs.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			spec := ordersSpec()
			c.change(spec)
			_, err := newTable(spec)
			requireClass(t, err, c.class, c.want...)
		})
	}
}

func TestDurationsAndSizes(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "250ms": 250 * time.Millisecond, "7d": 7 * day, "1d12h": 36 * time.Hour, "2w": 2 * week, "1w1d1s": week + day + time.Second, "1h30m": 90 * time.Minute,
	} {
		got, err := ParseDuration(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "7", "-1s", "d", "1.5d", "99999999999d", "1d-1h", "x", "9000000h1000000d"} {
		_, err := ParseDuration(text)
		require.Error(t, err, text)
	}
	for text, want := range map[string]int64{"0": 0, "17": 17, "64MiB": 64 << 20, "64 mb": 64e6, "1G": 1 << 30, "3kib": 3 << 10, "5B": 5} {
		got, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "-1", "1.5MiB", "MiB", "99999999999GiB", "1TBx"} {
		_, err := ParseSize(text)
		require.Error(t, err, text)
	}
}

func TestEveryPropertyIsDocumentedAndItsDefaultIsValid(t *testing.T) {
	table, err := newTable(&TableSpec{Name: "t", Columns: []ColumnSpec{{Name: "a", Type: "long"}}})
	require.NoError(t, err)
	for _, p := range Properties {
		require.NotEmpty(t, p.Doc, p.Name)
		if p.Default != "" {
			require.NoError(t, p.check(p.Default, table), p.Name)
		}
	}
}
