package lakehouse

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// partitionBy sets the partition spec from texts such as "day(ts)".
func partitionBy(t testing.TB, texts ...string) func(*TableDef) {
	return func(d *TableDef) {
		fields, _, err := segments.ParsePartitionSpec(texts, d.Schemas[len(d.Schemas)-1], 0)
		if err != nil {
			t.Fatal(err)
		}
		d.Partition = fields
	}
}

func TestEveryTypeAndTransformRoundTrips(t *testing.T) {
	types := []string{"boolean", "int", "long", "float", "double", "decimal(5,2)", "decimal(17,3)", "decimal(38,10)", "date", "time",
		"timestamp", "timestamptz", "string", "uuid", "fixed(7)", "binary"}
	transforms := []string{"identity(%s)", "bucket(3,%s)", "truncate(4,%s)", "year(%s)", "month(%s)", "day(%s)", "hour(%s)"}
	for i, typ := range types {
		for j, transform := range transforms {
			text := fmt.Sprintf(transform, "c")
			schema := segtest.Schema("c "+typ, "n int")
			if _, err := segments.ParsePartitionField(text, schema); err != nil {
				continue // the transform does not take this type
			}
			t.Run(typ+" "+text, func(t *testing.T) {
				x := newFoldTable(t, objstore.NewMem(), quickOptions(), schema, partitionBy(t, text))
				x.fold(0, batchOf(schema, testScale(8, 40), uint64(i*100+j)), batchOf(schema, testScale(8, 40), uint64(i*100+j+50)))
				x.fold(0, batchOf(schema, testScale(3, 20), uint64(i*100+j+70)))
				x.check()
				x.checkPartitions()
			})
		}
	}
}

// checkPartitions reads each file's rows by a filter that iceberg-go prunes
// partitions with, and checks that each file holds one partition tuple only.
func (x *foldTable) checkPartitions() {
	x.t.Helper()
	s := x.load()
	files, err := s.Files(context.Background())
	if err != nil {
		x.t.Fatal(err)
	}
	spec := s.Metadata.PartitionSpec()
	for _, f := range files {
		if len(f.Partition) != spec.NumFields() {
			x.t.Fatalf("file %s has partition %v", f.Key, f.Partition)
		}
		if strings.Count(f.Key, "/") != 4 {
			x.t.Fatalf("file %s is not in a flat folder", f.Key)
		}
	}
	// A value of each row must be found when it is asked for: this fails when a
	// partition value or its bound is wrong, because the file is pruned then.
	column := s.Metadata.CurrentSchema().Field(0)
	for _, rec := range x.rows {
		for i := 0; i < int(rec.NumRows()); i += 4 {
			expr := equalTo(rec.Column(0), i, column)
			if expr == nil {
				continue
			}
			if x.planned(s, table.WithRowFilter(expr)) == 0 {
				x.t.Fatalf("row with %s = %s was pruned away", column.Name, valueKey(rec.Column(0), i))
			}
		}
	}
}

func countRecords(recs []arrow.RecordBatch) (n int64) {
	for _, r := range recs {
		n += r.NumRows()
	}
	return n
}

func equalTo(a arrow.Array, i int, f iceberg.NestedField) iceberg.BooleanExpression {
	ref := iceberg.Reference(f.Name)
	if a.IsNull(i) {
		return iceberg.IsNull(ref)
	}
	switch a := a.(type) {
	case *array.Int32:
		return iceberg.EqualTo(ref, a.Value(i))
	case *array.Int64:
		return iceberg.EqualTo(ref, a.Value(i))
	case *array.Date32:
		return iceberg.EqualTo(ref, iceberg.Date(a.Value(i)))
	case *array.Timestamp:
		return iceberg.EqualTo(ref, iceberg.Timestamp(a.Value(i)))
	case *array.String:
		return iceberg.EqualTo(ref, a.Value(i))
	case *array.Decimal128:
		return iceberg.EqualTo(ref, iceberg.Decimal{Val: a.Value(i), Scale: f.Type.(iceberg.DecimalType).Scale()})
	case *array.Float64:
		if v := a.Value(i); !math.IsNaN(v) {
			return iceberg.EqualTo(ref, v)
		}
		return iceberg.IsNaN(ref)
	}
	return nil
}

func TestNullNaNEmptyAndTheStringNullAreTheirOwnPartitions(t *testing.T) {
	s := segtest.Schema("k string", "f double")
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	k, f := b.Field(0).(*array.StringBuilder), b.Field(1).(*array.Float64Builder)
	long := strings.Repeat("x", 3000)
	for _, v := range []string{"", "null", "a/b=c", "__HIVE_DEFAULT_PARTITION__", long} {
		k.Append(v)
		f.Append(math.NaN())
		k.AppendNull()
		f.AppendNull()
		k.Append(v)
		f.Append(0)
	}
	rec := b.NewRecordBatch()
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, partitionBy(t, "identity(k)", "identity(f)"))
	if r := x.fold(0, rec); r.Files != 11 {
		t.Fatalf("%d files for 11 partition tuples", r.Files)
	}
	x.check()
}

func TestPartitionColumnsWithAwkwardNames(t *testing.T) {
	s := segtest.Schema("a-b string", "1x long", "a_x2Db int")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, partitionBy(t, "identity(a-b)", "bucket(4,1x)"))
	x.fold(0, batchOf(s, 50, 1))
	x.check()
	spec := x.load().Metadata.PartitionSpec()
	if got := []string{spec.Field(0).Name, spec.Field(1).Name}; !slices.Equal(got, []string{"a_x2Db_2", "_1x_bucket"}) {
		t.Fatalf("partition names %q", got)
	}
}

func TestBucketKeyAddsABucketPartition(t *testing.T) {
	s := segtest.Schema("id long", "name string")
	x := newFoldTable(t, objstore.NewMem(), quickOptions(), s, func(d *TableDef) { d.Buckets, d.BucketKey = 4, []int32{1} })
	rec := batchOf(s, 400, 9)
	parts, err := segments.SplitByBucket(rec, x.def.BucketKey, s, x.def.Buckets)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		x.fold(p.Bucket, p.Batch)
	}
	x.check()
	files, err := x.load().Files(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	id := x.load().Metadata.PartitionSpec()
	for _, f := range files {
		v := f.Partition[id.Field(0).FieldID]
		if v != nil && v.(int32) != f.Bucket {
			t.Fatalf("file of bucket %d is in partition %v", f.Bucket, v)
		}
	}
	x.checkPartitions()
	wrong := x.input((parts[0].Bucket+1)%4, 1, parts[0].Batch)
	if _, err := x.lake.Fold(context.Background(), x.def, wrong); err == nil {
		t.Fatal("rows of another bucket were folded")
	}
}
