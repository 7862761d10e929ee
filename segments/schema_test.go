package segments

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/errs"
)

func TestTypesParseAndPrint(t *testing.T) {
	for in, want := range map[string]string{
		"BOOLEAN": "boolean", "bool": "boolean", "integer": "int", "BigInt": "long", "real": "float",
		"double precision": "double", "Double": "double", "decimal(10, 2)": "decimal(10,2)", "numeric(5)": "decimal(5,0)",
		"varchar": "string", "VARCHAR(255)": "string", "character varying(10)": "string", "text": "string",
		"bytes": "binary", "bytea": "binary", "varbinary": "binary", "fixed[16]": "fixed(16)", "uuid": "uuid",
		"timestamp": "timestamp", "timestamp(6)": "timestamp", "timestamp without time zone": "timestamp",
		"timestamp(3) with time zone": "timestamptz", "timestamp with local time zone": "timestamptz",
		"timestamptz": "timestamptz", "time": "time", "time without time zone": "time", "date": "date",
		"array<int>": "list<int>", "list<list<string required>>": "list<list<string required>>",
		"map<string, decimal(38,38) not null>":            "map<string,decimal(38,38) required>",
		"struct<a: int, B-1: struct<x: uuid> required>":   "struct<a:int,B-1:struct<x:uuid> required>",
		"struct<a int not null, b map<long,list<date>>> ": "struct<a:int required,b:map<long,list<date>>>",
	} {
		got, err := ParseType(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got.String() != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
		again, err := ParseType(got.String())
		if err != nil || !again.Same(got) {
			t.Errorf("%q does not read back: %v", got, err)
		}
	}
	for _, in := range []string{
		"", "strin", "decimal", "decimal(x)", "decimal(1,2,3)", "fixed", "fixed()", "timestamp(9)", "timestamp_ns", "timetz",
		"time with time zone", "list", "list<", "list<int", "map<int>", "struct<>", "struct<a>", "int int", "int8",
		"binary(16)", strings.Repeat("list<", 40) + "int" + strings.Repeat(">", 40),
	} {
		if _, err := ParseType(in); !errs.Is(err, errs.Invalid) {
			t.Errorf("%q: got %v, want an Invalid error", in, err)
		}
	}
}

// mustType parses a type that the test knows to be good.
func mustType(s string) Type {
	t, err := ParseType(s)
	if err != nil {
		panic(err)
	}
	return t
}

func mustSchema(columns ...string) *Schema {
	s := &Schema{ID: 1}
	for _, c := range columns {
		name, typ, _ := strings.Cut(c, " ")
		f := Field{Name: name}
		if strings.HasSuffix(typ, " required") {
			f.Required = true
			typ = strings.TrimSuffix(typ, " required")
		}
		f.Type = mustType(typ)
		s.Fields = append(s.Fields, f)
	}
	s, _ = AssignFieldIDs(s, 0)
	return s
}

const goldenSchema = `{"schema_id":1,"fields":[{"id":1,"name":"id","type":"long","required":true,"auto_increment":true},` +
	`{"id":2,"name":"note","type":"string","doc":"free text","default":"none"},` +
	`{"id":3,"name":"tags","type":"map\u003cstring,list\u003cint required\u003e\u003e","children":[` +
	`{"id":5,"name":"key","type":"string","required":true},` +
	`{"id":6,"name":"value","type":"list\u003cint required\u003e","children":[{"id":7,"name":"element","type":"int","required":true}]}]},` +
	`{"id":4,"name":"place","type":"struct\u003clat:double,lon:double\u003e","children":[` +
	`{"id":8,"name":"lat","type":"double","doc":"degrees"},{"id":9,"name":"lon","type":"double"}]}]}`

func TestSchemaJSONIsStableAndKeepsNestedIDs(t *testing.T) {
	s := mustSchema("id long required", "note string", "tags map<string,list<int required>>", "place struct<lat:double,lon:double>")
	s.Fields[0].AutoIncrement = true
	s.Fields[1].Doc, s.Fields[1].Default = "free text", json.RawMessage(`"none"`)
	s.Fields[3].Type.Children[0].Doc = "degrees"
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if string(b) != goldenSchema {
		t.Fatalf("got\n%s\nwant\n%s", b, goldenSchema)
	}
	var back Schema
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&back, s) {
		t.Fatalf("got %+v, want %+v", back, s)
	}
	bad := strings.Replace(goldenSchema, `"name":"lon","type":"double"`, `"name":"lon","type":"float"`, 1)
	if err := json.Unmarshal([]byte(bad), &back); !errs.Is(err, errs.Invalid) {
		t.Fatalf("children that contradict the type: got %v", err)
	}
}

func TestSchemaIsRefusedNamingColumnAndRule(t *testing.T) {
	for _, c := range []struct {
		columns []string
		want    string
	}{
		{nil, "at least one column"},
		{[]string{"a int", "a long"}, `column "a" is defined twice`},
		{[]string{"a int", "A long"}, "letter case"},
		{[]string{"__a int"}, "start with __"},
		{[]string{"a$b int"}, "$ is reserved"},
		{[]string{"a.b int"}, "only letters"},
		{[]string{"é int"}, "only letters"},
		{[]string{"_Offset int"}, "reserved for change streams"},
		{[]string{strings.Repeat("x", 129) + " int"}, "at most 128"},
		{[]string{"d decimal(39,1)"}, "precision is 1 to 38"},
		{[]string{"d decimal(0,0)"}, "precision is 1 to 38"},
		{[]string{"d decimal(3,4)"}, "scale is 0 to"},
		{[]string{"f fixed(0)"}, "length of fixed"},
		{[]string{"s struct<a:int,A:int>"}, `column "s.A"`},
		{[]string{"m map<list<int>,int>"}, "primitive type"},
	} {
		err := mustSchema(c.columns...).Validate()
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: got %v, want %q", c.columns, err, c.want)
		}
	}
	s := mustSchema("m map<string,int>", "b string", "a-b long", "1x int")
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	s.Fields[0].Type.Children[0].Required = false
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "key is required") {
		t.Errorf("optional map key: %v", err)
	}
	s = mustSchema("a int", "b int")
	s.Fields[1].ID = 1
	if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "field id 1") {
		t.Errorf("repeated id: %v", err)
	}
	s.Fields[1].ID = 0
	if err := s.Validate(); err == nil {
		t.Error("a missing id was accepted")
	}
	s.Fields[0].ID = 0
	if err := s.Validate(); err != nil {
		t.Errorf("no ids at all: %v", err)
	}
}

func TestDefaultsMustFitTheirColumn(t *testing.T) {
	for _, c := range []struct {
		typ, def string
		want     any // nil: refused
	}{
		{"int", "7", int32(7)}, {"int", `"7"`, int32(7)}, {"int", "2147483648", nil}, {"int", "1.5", nil},
		{"long", "-9223372036854775808", int64(-1 << 63)}, {"float", "1e39", nil}, {"double", `"-Infinity"`, nil},
		{"boolean", "true", true}, {"boolean", `"true"`, nil}, {"string", `""`, ""}, {"string", "1", nil},
		{"date", `"1969-12-31"`, int32(-1)}, {"date", `"1969-13-31"`, nil}, {"time", `"00:00:01.5"`, int64(1500000)},
		{"timestamp", `"1970-01-01T00:00:01"`, int64(1000000)}, {"timestamp", `"1970-01-01T00:00:01Z"`, nil},
		{"timestamptz", `"1970-01-01T01:00:01+01:00"`, int64(1000000)}, {"timestamptz", `"1970-01-01T01:00:01"`, nil},
		{"timestamptz", "5", int64(5)}, {"timestamptz", `"1970-01-01T00:00:01.1234567Z"`, nil},
		{"fixed(2)", `"AAA="`, []byte{0, 0}}, {"fixed(2)", `"AA=="`, nil}, {"list<int>", "[]", nil}, {"int", "{", nil},
	} {
		got, err := Field{Name: "c", Type: mustType(c.typ), Default: json.RawMessage(c.def)}.DefaultValue()
		switch {
		case c.typ == "double":
			if err != nil || got.(float64) > 0 {
				t.Errorf("%s %s: %v %v", c.typ, c.def, got, err)
			}
		case c.want == nil:
			if !errs.Is(err, errs.Invalid) {
				t.Errorf("%s %s: got %v, %v", c.typ, c.def, got, err)
			}
		case err != nil || !reflect.DeepEqual(got, c.want):
			t.Errorf("%s %s: got %v, %v", c.typ, c.def, got, err)
		}
	}
	d, err := Field{Name: "c", Type: mustType("decimal(5,2)"), Default: json.RawMessage(`"-12.30"`)}.DefaultValue()
	if err != nil || d == nil {
		t.Fatal(d, err)
	}
	for _, bad := range []string{"1.234", "1000", "1e3", `"x"`} {
		if v, err := (Field{Name: "c", Type: mustType("decimal(5,2)"), Default: json.RawMessage(bad)}).DefaultValue(); err == nil {
			t.Errorf("decimal %s: got %v", bad, v)
		}
	}
}

func TestColumnsEvolveByID(t *testing.T) {
	s := mustSchema("id long required", "qty int", "place struct<lat:float,zip:string>", "tags list<int>")
	last := s.MaxFieldID()
	step := func(next *Schema, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if next.ID != s.ID+1 {
			t.Fatalf("schema id %d after %d", next.ID, s.ID)
		}
		s = next
	}
	before, _ := json.Marshal(s)
	orig := s
	next, l, err := AddColumn(s, last, Field{Name: "place.city", Type: mustType("struct<n:string>")}, "lat")
	step(next, err)
	if l != last+2 {
		t.Fatalf("last id %d", l)
	}
	next, l, err = AddColumn(s, l, Field{Name: "note", Type: mustType("string")}, "id")
	step(next, err)
	step(RenameColumn(s, "note", "Note"))
	step(WidenColumn(s, "qty", mustType("bigint")))
	step(WidenColumn(s, "place.lat", mustType("double")))
	step(WidenColumn(s, "tags.element", mustType("long")))
	step(MakeOptional(s, "id"))
	step(MoveColumn(s, "tags", ""))
	step(DropColumn(s, "place.zip"))
	want := `tags:list<long> id:long Note:string qty:long place:struct<lat:double,city:struct<n:string>>`
	var got []string
	for _, f := range s.Fields {
		got = append(got, f.Name+":"+f.Type.String())
	}
	if strings.Join(got, " ") != want || l != last+3 {
		t.Fatalf("got %v, last id %d", got, l)
	}
	if after, _ := json.Marshal(orig); string(after) != string(before) {
		t.Fatal("the first schema changed")
	}
}

func TestImpossibleChangesAreRefused(t *testing.T) {
	s := mustSchema("id long required", "D date", "m map<string,int>", "x decimal(10,2)", "s struct<a:int>")
	refuse := func(want string, _ *Schema, err error) {
		t.Helper()
		if !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	add := func(f Field, after string) (*Schema, error) {
		out, _, err := AddColumn(s, 100, f, after)
		return out, err
	}
	out, err := add(Field{Name: "n", Type: mustType("int"), Required: true}, "")
	refuse("only with a default", out, err)
	out, err = add(Field{Name: "d", Type: mustType("int")}, "")
	refuse("letter case", out, err)
	out, err = add(Field{Name: "D", Type: mustType("int")}, "")
	refuse("exists already", out, err)
	out, err = add(Field{Name: "n", Type: mustType("int")}, "nope")
	refuse("unknown column", out, err)
	out, err = add(Field{Name: "m.n", Type: mustType("int")}, "")
	refuse("only a struct's fields", out, err)
	for _, to := range []string{"int", "string", "long"} {
		out, err = WidenColumn(s, "x", mustType(to))
		refuse("cannot become", out, err)
	}
	out, err = WidenColumn(s, "x", mustType("decimal(12,3)"))
	refuse("cannot become", out, err)
	out, err = WidenColumn(s, "D", mustType("timestamp"))
	refuse("version 3", out, err)
	out, err = WidenColumn(s, "id", mustType("int"))
	refuse("cannot become", out, err)
	out, err = MakeOptional(s, "m.key")
	refuse("map's key", out, err)
	out, err = RenameColumn(s, "m.value", "v")
	refuse("only a struct's fields", out, err)
	out, err = RenameColumn(s, "id", "_offset")
	refuse("reserved", out, err)
	out, err = DropColumn(s, "s.a")
	refuse("only one left", out, err)
	out, err = DropColumn(s, "nope")
	refuse("unknown column", out, err)
}

func TestArrowSchemaCarriesFieldIDsOnEveryLevel(t *testing.T) {
	s := mustSchema("m map<string,list<timestamptz>>", "u uuid required")
	a := s.Arrow()
	if a != s.Arrow() {
		t.Error("the Arrow schema is not cached")
	}
	want := `fields: 2
  - m: type=map<utf8, list<element: timestamp[us, tz=UTC], nullable>, items_nullable>, nullable
  metadata: ["PARQUET:field_id": "1"]
  - u: type=fixed_size_binary[16]
  metadata: ["PARQUET:field_id": "2"]`
	if got := strings.ReplaceAll(a.String(), "    metadata", "  metadata"); !strings.Contains(got, "fixed_size_binary[16]") || !strings.Contains(got, "tz=UTC") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func FuzzParseType(f *testing.F) {
	for _, s := range []string{"int", "map<string,list<decimal(3,2) required>>", "struct<a:int>", "timestamp(3) with time zone"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		typ, err := ParseType(s)
		if err != nil {
			return
		}
		again, err := ParseType(typ.String())
		if err != nil || !again.Same(typ) {
			t.Fatalf("%q prints as %q: %v", s, typ, err)
		}
	})
}
