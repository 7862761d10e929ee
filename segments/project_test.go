package segments_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

// expect is the text of a value read as another type: the model that Project is compared with.
func expect(a arrow.Array, row int, from, to segments.Type) string {
	if a.IsNull(row) {
		return "NULL"
	}
	items := func(list arrow.Array, row int) (from, to int64) { return list.(array.ListLike).ValueOffsets(row) }
	var b strings.Builder
	switch {
	case from.Kind == segments.Float && to.Kind == segments.Double:
		v := float64(a.(*array.Float32).Value(row))
		return fmt.Sprintf("%v/%t", v, math.Signbit(v))
	case from.Kind == segments.List:
		for i, end := items(a, row); i < end; i++ {
			b.WriteString(expect(a.(*array.List).ListValues(), int(i), from.Children[0].Type, to.Children[0].Type) + ";")
		}
		return "[" + b.String() + "]"
	case from.Kind == segments.Map:
		m := a.(*array.Map)
		for i, end := items(a, row); i < end; i++ {
			b.WriteString(expect(m.Keys(), int(i), from.Children[0].Type, to.Children[0].Type) + "=" +
				expect(m.Items(), int(i), from.Children[1].Type, to.Children[1].Type) + ";")
		}
		return "{" + b.String() + "}"
	case from.Kind == segments.Struct:
		for _, f := range to.Children {
			text := "NULL"
			for i, g := range from.Children {
				if g.ID == f.ID {
					text = expect(a.(*array.Struct).Field(i), row, g.Type, f.Type)
				}
			}
			b.WriteString(text + ";")
		}
		return "(" + b.String() + ")"
	}
	return segtest.Format(a, row)
}

// randomPath returns the dotted path of some field.
func randomPath(r *rand.Rand, fields []segments.Field) (string, segments.Field) {
	f := fields[r.IntN(len(fields))]
	path := f.Name
	for len(f.Type.Children) > 0 && r.IntN(2) == 0 {
		f = f.Type.Children[r.IntN(len(f.Type.Children))]
		path += "." + f.Name
	}
	return path, f
}

// randomChange applies one change that may be refused.
func randomChange(r *rand.Rand, s *segments.Schema, last *int32, step int) (*segments.Schema, error) {
	path, f := randomPath(r, s.Fields)
	sibling := path[:len(path)-len(f.Name)]
	switch r.IntN(6) {
	case 0:
		next, l, err := segments.AddColumn(s, *last, segments.Field{
			Name: fmt.Sprintf("%snew%d", sibling, step), Type: segtest.RandomType(r, 1)}, "")
		if err == nil {
			*last = l
		}
		return next, err
	case 1:
		return segments.RenameColumn(s, path, fmt.Sprintf("renamed%d", step))
	case 2:
		return segments.DropColumn(s, path)
	case 3:
		return segments.MoveColumn(s, path, "")
	case 4:
		return segments.MakeOptional(s, path)
	}
	to := f.Type
	switch to.Kind {
	case segments.Int:
		to = segtest.MustType("long")
	case segments.Float:
		to = segtest.MustType("double")
	case segments.Decimal:
		to.Precision = min(38, to.Precision+1+r.IntN(5))
	}
	return segments.WidenColumn(s, path, to)
}

func TestOldRowsReadAsAnyLaterSchema(t *testing.T) {
	applied := 0
	for seed := range seeds(t, 150) {
		r := segtest.NewRand(uint64(seed))
		from, rec := randomCase(r)
		to, last := from, from.MaxFieldID()
		for step := range 8 {
			next, err := randomChange(r, to, &last, step)
			if err != nil {
				if !errs.Is(err, errs.Invalid) {
					t.Fatalf("seed %d: %v", seed, err)
				}
				continue
			}
			to = next
			applied++
		}
		got, err := segments.Project(rec, from, to)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !got.Schema().Equal(to.Arrow()) {
			t.Fatalf("seed %d: schema %s, want %s", seed, got.Schema(), to.Arrow())
		}
		for i, f := range to.Fields {
			at := from.IndexOfID(f.ID)
			for row := range int(rec.NumRows()) {
				want := "NULL"
				if at >= 0 {
					want = expect(rec.Column(at), row, from.Fields[at].Type, f.Type)
				}
				if text := segtest.Format(got.Column(i), row); text != want {
					t.Fatalf("seed %d: column %s row %d: %s, want %s", seed, f.Name, row, text, want)
				}
			}
		}
		// What was projected encodes and decodes under its schema, slices too.
		got = randomSlice(r, got)
		e, err := segments.Encode(got, to, segments.CodecLZ4)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back, err := segments.Decode(to, e.Columns, e.Rows, nil, (&body{b: e.Body}).read)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := segtest.Equal(got, back); diff != "" {
			t.Fatalf("seed %d: %s", seed, diff)
		}
	}
	if applied < 150 {
		t.Fatalf("only %d changes were possible", applied)
	}
}

func TestAbsentColumnsGetTheirDefault(t *testing.T) {
	from := segtest.Schema("id long")
	rec := segtest.Batch(segtest.NewRand(1), from, 3, segtest.Options{})
	to, last := from, int32(1)
	for _, c := range []struct{ name, typ, def string }{
		{"s", "string", `"x"`}, {"i", "int", "-5"}, {"l", "long", `"9007199254740993"`}, {"f", "float", "1.5"}, {"d", "double", `"Infinity"`},
		{"b", "boolean", "true"}, {"dec", "decimal(5,2)", `"1.20"`}, {"day", "date", `"2020-02-29"`}, {"t", "time", `"01:02:03.000004"`},
		{"ts", "timestamp", `"2020-02-29T00:00:00"`}, {"tz", "timestamptz", `"2020-02-29T00:00:00Z"`},
		{"u", "uuid", `"f79c3e09-677c-4bbd-a479-3f349cb785e7"`}, {"fx", "fixed(2)", `"AQI="`}, {"bin", "binary", `""`}, {"none", "list<int>", "null"},
	} {
		var err error
		to, last, err = segments.AddColumn(to, last, segments.Field{
			Name: c.name, Type: segtest.MustType(c.typ), Required: c.def != "null", Default: json.RawMessage(c.def)}, "")
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := segments.Project(rec, from, to)
	if err != nil {
		t.Fatal(err)
	}
	var row []string
	for i := range to.Fields[1:] {
		if a, b := segtest.Format(got.Column(i+1), 0), segtest.Format(got.Column(i+1), 2); a != b {
			t.Errorf("rows differ: %s, %s", a, b)
		}
		row = append(row, segtest.Format(got.Column(i+1), 2))
	}
	want := `"x" -5 9007199254740993 1.5/false +Inf/false true 120 18321 3723000004 1582934400000000 1582934400000000 ` +
		`f79c3e09677c4bbda4793f349cb785e7 0102  NULL`
	if s := strings.Join(row, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestImpossibleProjectionsAreRefused(t *testing.T) {
	from := segtest.Schema("a long", "b string")
	rec := segtest.RandomBatch(segtest.NewRand(1), from, 3)
	narrow := segtest.Schema("a int", "b string")
	required := segtest.Schema("a long", "b string", "c int required")
	for name, to := range map[string]*segments.Schema{"narrower": narrow, "required": required} {
		if _, err := segments.Project(rec, from, to); !errs.Is(err, errs.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := segments.Project(rec, segtest.Schema("a long"), from); !errs.Is(err, errs.Invalid) {
		t.Errorf("a batch of another schema: %v", err)
	}
}
