package lakehouse

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/segments/merge"
)

func changes(ids []int64, types []int32) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, merge.WithChangeType(keyedSchema).Arrow())
	defer b.Release()
	for i, id := range ids {
		b.Field(0).(*array.Int64Builder).Append(id)
		b.Field(1).(*array.StringBuilder).AppendNull()
		b.Field(2).(*array.Int64Builder).Append(id * 10)
		b.Field(3).(*array.Int32Builder).Append(types[i])
	}
	return b.NewRecordBatch()
}

func TestChangelogIsALakeTableThatEveryEngineReads(t *testing.T) {
	bothFormats(t, func(t *testing.T, format string) {
		k := newKeyedTable(t, objstore.NewMem(), quickOptions(), format, byPlace)
		k.put(1)
		k.foldKeyed()
		def, err := ChangelogDef(k.def, 7*24*time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if def.Prefix != "lake/db/t$changelog-7" || def.Name != "t$changelog" || def.UUID == k.def.UUID {
			t.Fatalf("%+v", def)
		}
		if age, err := def.Retention(); err != nil || age != 7*24*time.Hour {
			t.Fatalf("retention %v, %v", age, err)
		}
		ctx := context.Background()
		if err := k.lake.CreateTable(ctx, def); err != nil {
			t.Fatal(err)
		}
		x := &foldTable{t: t, store: k.store, lake: k.lake, def: def, ends: map[int32]int64{}}
		for _, bucket := range []int32{0, 1} {
			rows, err := ChangelogRows(keyedSchema, changes([]int64{1, 1, 1, 1}, []int32{0, 1, 2, 3}), bucket, 0, 1000)
			if err != nil {
				t.Fatal(err)
			}
			x.fold(bucket, rows)
		}
		x.check()
		got := rowKeys(x.scan(x.load())...)
		want := "id=1; place=NULL; version=10; _change_type=UPDATE_BEFORE; _bucket=1; _offset=1; _timestamp=1000; "
		if !slices.Contains(got, want) {
			t.Fatalf("no row %s in %v", want, got)
		}
		k.check() // the table's own offsets and files are apart
		if n := x.load().Offset(1); n != 4 {
			t.Fatalf("lake offset %d", n)
		}
		r, err := k.lake.Retain(ctx, def, nil, time.UnixMicro(5000))
		if err != nil || r.Rows != 8 {
			t.Fatalf("%+v, %v", r, err)
		}
	})
}

func TestChangelogRowsRefuseAnUnknownChangeType(t *testing.T) {
	if _, err := ChangelogRows(keyedSchema, changes([]int64{1}, []int32{4}), 0, 0, 0); err == nil {
		t.Fatal("change type 4 was taken")
	}
	if _, err := ChangelogRows(keyedSchema, batchOf(keyedSchema, 1, 1), 0, 0, 0); err == nil {
		t.Fatal("rows without a change type were taken")
	}
}
