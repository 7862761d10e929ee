package loadtest

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/segments"
)

// Shape is a kind of row.
type Shape string

// The shapes. Every row begins with its writer and its sequence.
const (
	Flights Shape = "flights" // time, delay, distance, two airports: about 50 bytes
	Wide    Shape = "wide"    // 20 columns, about 2 KB
	Tiny    Shape = "tiny"    // one number: 20 bytes
)

// Shapes lists all shapes.
var Shapes = []Shape{Flights, Wide, Tiny}

const (
	wideTextColumns = 14 // of 20; with writer, sequence and four numbers
	wideTextBytes   = 144
	airportCount    = 300
)

// Columns returns the shape's columns as a table definition has them.
func (s Shape) Columns() []*firnv1.Column {
	cols := []*firnv1.Column{{Name: "writer", Type: "int", Required: true}, {Name: "seq", Type: "long", Required: true}}
	add := func(name, kind string) { cols = append(cols, &firnv1.Column{Name: name, Type: kind}) }
	switch s {
	case Flights:
		add("date", "timestamp")
		add("delay", "long")
		add("distance", "long")
		add("origin", "string")
		add("destination", "string")
	case Wide:
		for i := range 4 {
			add(fmt.Sprintf("n%02d", i), "long")
		}
		for i := range wideTextColumns {
			add(fmt.Sprintf("s%02d", i), "string")
		}
	case Tiny:
		add("value", "long")
	}
	return cols
}

// Schema returns the Arrow schema of the shape's rows.
func (s Shape) Schema() *arrow.Schema {
	types := map[string]arrow.DataType{
		"int": arrow.PrimitiveTypes.Int32, "long": arrow.PrimitiveTypes.Int64, "string": arrow.BinaryTypes.String,
		"timestamp": &arrow.TimestampType{Unit: arrow.Microsecond},
	}
	var fields []arrow.Field
	for _, c := range s.Columns() {
		fields = append(fields, arrow.Field{Name: c.Name, Type: types[c.Type], Nullable: !c.Required})
	}
	return arrow.NewSchema(fields, nil)
}

// sequenceID is the field id of the sequence in TableSchema.
const sequenceID = 2

// TableSchema returns the schema of a table of the shape's rows, ids in order from 1.
func (s Shape) TableSchema() (*segments.Schema, error) {
	out := &segments.Schema{}
	for i, c := range s.Columns() {
		t, err := segments.ParseType(c.Type)
		if err != nil {
			return nil, err
		}
		out.Fields = append(out.Fields, segments.Field{ID: int32(i + 1), Name: c.Name, Type: t, Required: c.Required}) //nolint:gosec // few columns
	}
	return out, nil
}

func (s Shape) known() bool {
	for _, k := range Shapes {
		if s == k {
			return true
		}
	}
	return false
}

// Generator makes the rows of one seed and shape.
type Generator struct {
	shape    Shape
	seed     uint64
	schema   *arrow.Schema
	airports []string
}

// NewGenerator returns a generator; the same seed makes the same rows.
func NewGenerator(shape Shape, seed uint64) *Generator {
	g := &Generator{shape: shape, seed: seed, schema: shape.Schema()}
	for i := range airportCount {
		h := mix(seed + uint64(i))
		g.airports = append(g.airports, string([]byte{'A' + byte(h%26), 'A' + byte(h>>8%26), 'A' + byte(h>>16%26)}))
	}
	return g
}

// Schema returns the Arrow schema of the rows.
func (g *Generator) Schema() *arrow.Schema { return g.schema }

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// row returns the number that everything in a row follows from.
func (g *Generator) row(writer int32, seq int64) uint64 {
	return mix(g.seed ^ mix(uint64(uint32(writer))<<40^uint64(seq))) //nolint:gosec // only mixes bits
}

// Batch returns rows [first, first+n) of a writer.
func (g *Generator) Batch(writer int32, first int64, n int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, g.schema)
	defer b.Release()
	b.Reserve(n)
	w, s := b.Field(0).(*array.Int32Builder), b.Field(1).(*array.Int64Builder)
	for i := range n {
		w.UnsafeAppend(writer)
		s.UnsafeAppend(first + int64(i))
	}
	switch g.shape {
	case Flights:
		g.flights(b, writer, first, n)
	case Wide:
		g.wide(b, writer, first, n)
	case Tiny:
		v := b.Field(2).(*array.Int64Builder)
		for i := range n {
			v.UnsafeAppend(int64(g.row(writer, first+int64(i)) >> 1)) //nolint:gosec // fits 63 bits
		}
	}
	return b.NewRecordBatch()
}

// flightsStart is 2001-01-01 in µs.
const flightsStart = 978_307_200_000_000

func (g *Generator) flights(b *array.RecordBuilder, writer int32, first int64, n int) {
	date, delay, distance := b.Field(2).(*array.TimestampBuilder), b.Field(3).(*array.Int64Builder), b.Field(4).(*array.Int64Builder)
	origin, destination := b.Field(5).(*array.StringBuilder), b.Field(6).(*array.StringBuilder)
	origin.ReserveData(3 * n)
	destination.ReserveData(3 * n)
	for i := range n {
		seq := first + int64(i)
		h := g.row(writer, seq)
		date.UnsafeAppend(arrow.Timestamp(flightsStart + seq/12*60_000_000))
		delay.UnsafeAppend(int64(h%64) - 12)
		distance.UnsafeAppend(int64(h>>8%2500) + 60) //nolint:gosec // below 2,560
		origin.Append(g.airports[h>>24%airportCount])
		destination.Append(g.airports[h>>40%airportCount])
	}
}

const (
	wordBytes = 8 // with the space behind it
	wordCount = 1024
)

// words are what the text of wide rows consists of: as varied as a large vocabulary,
// and as compressible.
var words = func() (w [wordCount]string) {
	for i := range w {
		h := mix(uint64(i)) //nolint:gosec // small
		var b [wordBytes]byte
		for k := range b {
			if b[k] = "bcdfghklmnprstvz"[h>>(4*k)&15]; k%2 == 1 {
				b[k] = "aeiouaei"[h>>(4*k)&7]
			}
		}
		b[wordBytes-1] = ' '
		w[i] = string(b[:])
	}
	return w
}()

func (g *Generator) wide(b *array.RecordBuilder, writer int32, first int64, n int) {
	text := make([]byte, wideTextBytes)
	for i := range n {
		h := g.row(writer, first+int64(i))
		for c := range 4 {
			b.Field(2 + c).(*array.Int64Builder).UnsafeAppend(int64(mix(h+uint64(c)) >> 20)) //nolint:gosec // fits 44 bits
		}
		for c := range wideTextColumns {
			x := h + uint64(c)<<32 //nolint:gosec // a column number
			for at := 0; at < wideTextBytes; at += wordBytes {
				if at%(4*wordBytes) == 0 {
					x = mix(x)
				}
				copy(text[at:], words[x>>(16*(at/wordBytes%4))%wordCount])
			}
			b.Field(6 + c).(*array.StringBuilder).BinaryBuilder.Append(text)
		}
	}
}
