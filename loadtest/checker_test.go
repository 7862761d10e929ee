package loadtest

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

func TestCheckerTakesEachRowOfEachShapeOnceInAnyPieces(t *testing.T) {
	for _, shape := range Shapes {
		g := NewGenerator(shape, 7)
		c := NewChecker(g)
		whole := g.Batch(3, 100, 500)
		for _, part := range [][2]int64{{200, 500}, {0, 1}, {1, 200}} {
			if err := c.Table(whole.NewSlice(part[0], part[1])); err != nil {
				t.Fatalf("%s: %v", shape, err)
			}
		}
		if err := c.Table(g.Batch(3, 0, 100)); err != nil {
			t.Fatalf("%s: %v", shape, err)
		}
		if err := c.Complete(map[int32]int64{3: 600}); err != nil {
			t.Fatalf("%s: %v", shape, err)
		}
	}
}

func TestCheckerFindsRowsThatAreDoubledMissingOrChanged(t *testing.T) {
	g := NewGenerator(Flights, 1)
	twice := NewChecker(g)
	_ = twice.Table(g.Batch(0, 0, 10))
	if twice.Table(g.Batch(0, 9, 2)) == nil {
		t.Error("a doubled row passed")
	}
	missing := NewChecker(g)
	_ = missing.Table(g.Batch(0, 0, 5))
	_ = missing.Table(g.Batch(0, 6, 5))
	if missing.Complete(map[int32]int64{0: 11}) == nil || missing.Covers(map[int32]int64{0: 6}) == nil {
		t.Error("a missing row passed")
	}
	if err := missing.Covers(map[int32]int64{0: 5}); err != nil {
		t.Error(err)
	}
	extra := NewChecker(g)
	_ = extra.Table(g.Batch(0, 0, 12))
	if extra.Complete(map[int32]int64{0: 11}) == nil {
		t.Error("a row that nobody acknowledged passed")
	}
	other := NewGenerator(Flights, 2).Batch(0, 0, 10)
	if NewChecker(g).Table(other) == nil {
		t.Error("foreign values passed")
	}
}

func TestCheckerFindsHolesInOffsets(t *testing.T) {
	g := NewGenerator(Tiny, 1)
	c := NewChecker(g)
	if err := c.Stream(inStream(g.Batch(0, 0, 4), 2, 50)); err != nil {
		t.Fatal(err)
	}
	if err := c.Stream(inStream(g.Batch(0, 4, 4), 2, 54)); err != nil {
		t.Fatal(err)
	}
	if c.Stream(inStream(g.Batch(0, 8, 4), 2, 59)) == nil {
		t.Error("a hole passed")
	}
}

// inStream puts rows at consecutive offsets of a bucket.
func inStream(rec arrow.RecordBatch, bucket int32, base int64) arrow.RecordBatch {
	b, o := array.NewInt32Builder(memory.DefaultAllocator), array.NewInt64Builder(memory.DefaultAllocator)
	for i := range rec.NumRows() {
		b.Append(bucket)
		o.Append(base + i)
	}
	fields := append([]arrow.Field{{Name: "_bucket", Type: arrow.PrimitiveTypes.Int32}, {Name: "_offset", Type: arrow.PrimitiveTypes.Int64}}, rec.Schema().Fields()...)
	return array.NewRecordBatch(arrow.NewSchema(fields, nil), append([]arrow.Array{b.NewArray(), o.NewArray()}, rec.Columns()...), rec.NumRows())
}
