package lakehouse

import (
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/uuid"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/merge"
)

// changelogIDs is below the field ids of a changelog's own columns: above all that a
// table can come to have, and below those that Iceberg reserves.
const changelogIDs int32 = 2_000_000_000

// changelogColumns are the columns of a changelog beside the table's.
var changelogColumns = []segments.Field{
	{ID: changelogIDs + 1, Name: merge.ChangeTypeColumn, Type: segments.Type{Kind: segments.String}, Required: true},
	{ID: changelogIDs + 2, Name: "_bucket", Type: segments.Type{Kind: segments.Int}, Required: true},
	{ID: changelogIDs + 3, Name: "_offset", Type: segments.Type{Kind: segments.Long}, Required: true},
	{ID: changelogIDs + 4, Name: "_timestamp", Type: segments.Type{Kind: segments.TimestampTZ}, Required: true},
}

// changeTypes are the texts of _change_type, by its number in the log.
var changeTypes = []string{
	merge.Insert: "INSERT", merge.UpdateBefore: "UPDATE_BEFORE", merge.UpdateAfter: "UPDATE_AFTER", merge.Delete: "DELETE",
}

// ChangelogDef returns the definition of the lake table that holds the folded changes
// of a primary-key table, in a directory of its own, with lake offsets of its own. It
// is a log table: Fold, Compact, Retain and the rest are those of log tables. Every
// column of the table is optional in it, because a DELETE may hold the key alone.
func ChangelogDef(def TableDef, retention time.Duration) (TableDef, error) {
	id, err := uuid.Parse(def.UUID)
	if err != nil {
		return TableDef{}, errs.Wrap(errs.Internal, "uuid of table "+def.String(), err)
	}
	out := def
	out.UUID = uuid.NewSHA1(id, []byte(SuffixChangelog)).String()
	out.Name += SuffixChangelog
	out.Prefix = ChangelogPrefix(def.Prefix)
	out.Schemas = make([]*segments.Schema, len(def.Schemas))
	for i, s := range def.Schemas {
		out.Schemas[i] = ChangelogSchema(s)
	}
	out.LastFieldID = changelogIDs + int32(len(changelogColumns)) //nolint:gosec // four
	out.Partition, out.BucketKey = nil, nil
	out.Properties = map[string]string{}
	for _, name := range []string{PropFormatVersion, PropTargetFileBytes, PropEncoding, PropCompression, PropKeepSnapshots} {
		if v, ok := def.Properties[name]; ok {
			out.Properties[name] = v
		}
	}
	if retention > 0 {
		out.Properties[PropRetention] = retention.String()
	}
	return out, nil
}

// ChangelogPrefix returns the directory of a table's changelog from that of the table,
// "lake/<database>/<table>-<id>".
func ChangelogPrefix(prefix string) string {
	at := max(strings.LastIndexByte(prefix, '-'), 0)
	return prefix[:at] + SuffixChangelog + prefix[at:]
}

// TablePrefix returns the directory of the table that a directory below lake/ belongs
// to: itself, or that of the table whose changelog it holds.
func TablePrefix(dir string) string {
	at := max(strings.LastIndexByte(dir, '-'), 0)
	return strings.TrimSuffix(dir[:at], SuffixChangelog) + dir[at:]
}

// ChangelogSchema returns a schema version of a changelog from that of the table.
func ChangelogSchema(s *segments.Schema) *segments.Schema {
	out := &segments.Schema{ID: s.ID, Fields: slices.Clone(s.Fields)}
	for i := range out.Fields {
		f := &out.Fields[i]
		f.Required, f.AutoIncrement, f.Aggregate = false, false, ""
	}
	out.Fields = append(out.Fields, changelogColumns...)
	return out
}

// ChangelogRows makes rows of a changelog from rows of the table's log: the table's
// columns in the given schema, then the change type's number. Their offsets follow
// each other from base. The caller releases the result.
func ChangelogRows(s *segments.Schema, log arrow.RecordBatch, bucket int32, base, timestamp int64) (arrow.RecordBatch, error) {
	at := len(s.Fields)
	if int(log.NumCols()) != at+1 {
		return nil, errs.New(errs.Internal, "rows of a changelog have %d columns and not %d", log.NumCols(), at+1)
	}
	types, ok := log.Column(at).(*array.Int32)
	if !ok || types.NullN() > 0 {
		return nil, errs.New(errs.Internal, "the change type of a changelog is %s with %d NULLs", log.Column(at).DataType(), log.Column(at).NullN())
	}
	out := ChangelogSchema(s).Arrow()
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(out.Fields()[at:], nil))
	defer b.Release()
	n := types.Len()
	b.Reserve(n)
	for i := range n {
		t := types.Value(i)
		if t < 0 || int(t) >= len(changeTypes) {
			return nil, errs.New(errs.Corrupt, "change type %d at offset %d of bucket %d", t, base+int64(i), bucket)
		}
		b.Field(0).(*array.StringBuilder).Append(changeTypes[t])
		b.Field(1).(*array.Int32Builder).Append(bucket)
		b.Field(2).(*array.Int64Builder).Append(base + int64(i))
		b.Field(3).(*array.TimestampBuilder).Append(arrow.Timestamp(timestamp))
	}
	own := b.NewRecordBatch()
	defer own.Release()
	columns := append(slices.Clone(log.Columns()[:at]), own.Columns()...)
	return array.NewRecordBatch(out, columns, int64(n)), nil
}
