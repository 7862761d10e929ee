package segments

import (
	"strconv"
	"strings"

	"github.com/firn-data/firn/internal/errs"
)

var kindNames = [...]string{
	Boolean: "boolean", Int: "int", Long: "long", Float: "float", Double: "double",
	Decimal: "decimal", Date: "date", Time: "time", Timestamp: "timestamp",
	TimestampTZ: "timestamptz", String: "string", UUID: "uuid", Fixed: "fixed",
	Binary: "binary", List: "list", Map: "map", Struct: "struct",
}

// String returns the kind's Iceberg name.
func (k Kind) String() string {
	if k > 0 && int(k) < len(kindNames) {
		return kindNames[k]
	}
	return "kind(" + strconv.Itoa(int(k)) + ")"
}

// Nested reports whether values of the kind are made of other columns' values.
func (k Kind) Nested() bool { return k == List || k == Map || k == Struct }

// String returns the type as ParseType reads it: "decimal(10,2)",
// "list<string>", "map<string,long required>", "struct<a:int,b:string>". A
// child that is required is followed by " required", except a map's key, which
// always is. Ids, docs and defaults of children are not part of the text.
func (t Type) String() string {
	var b strings.Builder
	t.write(&b)
	return b.String()
}

func (t Type) write(b *strings.Builder) {
	b.WriteString(t.Kind.String())
	switch t.Kind {
	case Decimal:
		b.WriteString("(" + strconv.Itoa(t.Precision) + "," + strconv.Itoa(t.Scale) + ")")
	case Fixed:
		b.WriteString("(" + strconv.Itoa(t.Length) + ")")
	case List, Map, Struct:
		b.WriteByte('<')
		for i, c := range t.Children {
			if i > 0 {
				b.WriteByte(',')
			}
			if t.Kind == Struct {
				b.WriteString(c.Name + ":")
			}
			c.Type.write(b)
			if c.Required && (t.Kind != Map || i > 0) {
				b.WriteString(" required")
			}
		}
		b.WriteByte('>')
	}
}

// MarshalText returns the text form.
func (t Type) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads the text form; ids of nested fields become zero.
func (t *Type) UnmarshalText(text []byte) error {
	p, err := ParseType(string(text))
	if err != nil {
		return err
	}
	*t = p
	return nil
}

// Same reports whether two types are the same type: kinds, parameters, and
// children by id, name, requiredness and type. Docs and defaults do not count.
func (t Type) Same(o Type) bool {
	if t.Kind != o.Kind || t.Precision != o.Precision || t.Scale != o.Scale ||
		t.Length != o.Length || len(t.Children) != len(o.Children) {
		return false
	}
	for i, c := range t.Children {
		d := o.Children[i]
		if c.ID != d.ID || c.Name != d.Name || c.Required != d.Required || !c.Type.Same(d.Type) {
			return false
		}
	}
	return true
}

// Limits of a type's text, so that a hostile definition costs nothing.
const (
	maxTypeText  = 64 << 10
	maxTypeDepth = 32
)

// ParseType reads a type: Iceberg's names (API.md section 1) in any letter
// case, and SQL's synonyms. Children of nested types get id zero; see
// AssignFieldIDs. Errors are of class Invalid and name the position.
func ParseType(s string) (Type, error) {
	if len(s) > maxTypeText {
		return Type{}, errs.New(errs.Invalid, "type is longer than %d bytes", maxTypeText)
	}
	p := typeParser{s: s}
	t, err := p.parse(0)
	if err != nil {
		return Type{}, err
	}
	if p.skip(); p.i < len(p.s) {
		return Type{}, p.fail("unexpected %q after the type", p.s[p.i:])
	}
	return t, nil
}

type typeParser struct {
	s string
	i int
}

func (p *typeParser) fail(format string, args ...any) error {
	e := errs.New(errs.Invalid, format, args...)
	e.Op = "parse type " + strconv.Quote(p.s) + " at position " + strconv.Itoa(p.i)
	return e
}

func (p *typeParser) skip() {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
}

// eat consumes c, with space before it.
func (p *typeParser) eat(c byte) bool {
	p.skip()
	if p.i < len(p.s) && p.s[p.i] == c {
		p.i++
		return true
	}
	return false
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-'
}

// word reads a run of name bytes, which may be empty.
func (p *typeParser) word() string {
	p.skip()
	start := p.i
	for p.i < len(p.s) && nameByte(p.s[p.i]) {
		p.i++
	}
	return p.s[start:p.i]
}

// phrase consumes the words if they follow, in any letter case.
func (p *typeParser) phrase(words ...string) bool {
	start := p.i
	for _, w := range words {
		if !strings.EqualFold(p.word(), w) {
			p.i = start
			return false
		}
	}
	return true
}

// numbers reads "(n)" or "(n,m)" (or Iceberg's "[n]"), up to most numbers, if one stands here.
func (p *typeParser) numbers(most int) ([]int, error) {
	closing := byte(')')
	if !p.eat('(') {
		if !p.eat('[') {
			return nil, nil
		}
		closing = ']'
	}
	var out []int
	for {
		n, err := strconv.Atoi(p.word())
		if err != nil || n < 0 {
			return nil, p.fail("a number is expected here")
		}
		out = append(out, n)
		if p.eat(closing) {
			break
		}
		if !p.eat(',') {
			return nil, p.fail("%q is expected here", string(closing))
		}
	}
	if len(out) > most {
		return nil, p.fail("too many parameters")
	}
	return out, nil
}

// simpleTypes are the names without parameters; SQL's several-word names are in parse.
var simpleTypes = map[string]Kind{
	"boolean": Boolean, "bool": Boolean,
	"int": Int, "integer": Int, "int4": Int, "int32": Int, "smallint": Int, "tinyint": Int, "mediumint": Int,
	"long": Long, "bigint": Long, "int64": Long,
	"float": Float, "real": Float, "float4": Float, "float32": Float,
	"double": Double, "float8": Double, "float64": Double,
	"date": Date,
	"uuid": UUID,
	"text": String,
	"blob": Binary, "bytea": Binary, "bytes": Binary,
	"timestamp_ntz": Timestamp, "datetime": Timestamp, "timestamp_ltz": TimestampTZ,
}

func (p *typeParser) parse(depth int) (Type, error) {
	if depth > maxTypeDepth {
		return Type{}, p.fail("types are nested more than %d deep", maxTypeDepth)
	}
	p.skip()
	start := p.i
	name := strings.ToLower(p.word())
	if k, ok := simpleTypes[name]; ok {
		if k == Double {
			p.phrase("precision")
		}
		return Type{Kind: k}, nil
	}
	switch name {
	case "decimal", "numeric", "dec":
		return p.decimal()
	case "fixed":
		n, err := p.numbers(1)
		if err == nil && len(n) != 1 {
			err = p.fail("fixed needs its length in bytes: fixed(16)")
		}
		if err != nil {
			return Type{}, err
		}
		return Type{Kind: Fixed, Length: n[0]}, nil
	case "string", "varchar", "char", "character":
		p.phrase("varying")
		_, err := p.numbers(1) // a length is a promise of the writer, not enforced
		return Type{Kind: String}, err
	case "binary", "varbinary":
		if n, err := p.numbers(1); err != nil || (n != nil && name == "binary") {
			return Type{}, p.fail("binary has no length; use fixed(N) for values of N bytes")
		}
		return Type{Kind: Binary}, nil
	case "time", "timestamp", "timestamptz", "timetz", "timestamp_ns", "timestamptz_ns":
		return p.temporal(name)
	case "list", "array":
		return p.list(depth)
	case "map":
		return p.mapType(depth)
	case "struct", "row":
		return p.structType(depth)
	case "":
		return Type{}, p.fail("a type is expected here")
	case "int8":
		p.i = start
		return Type{}, p.fail("int8 means 64 bits to some and 8 bits to others; use long or int")
	}
	p.i = start
	return Type{}, p.fail("unknown type %q; the types are boolean, int, long, float, double, decimal(P,S), date, time, "+
		"timestamp, timestamptz, string, uuid, fixed(N), binary, list<T>, map<K,V>, struct<name:T,…>", name)
}

func (p *typeParser) decimal() (Type, error) {
	n, err := p.numbers(2)
	if err != nil {
		return Type{}, err
	}
	if len(n) == 0 {
		return Type{}, p.fail("decimal needs its precision and scale: decimal(10,2)")
	}
	t := Type{Kind: Decimal, Precision: n[0]}
	if len(n) == 2 {
		t.Scale = n[1]
	}
	return t, nil
}

func (p *typeParser) temporal(name string) (Type, error) {
	n, err := p.numbers(1)
	if err != nil {
		return Type{}, err
	}
	if strings.HasSuffix(name, "_ns") || len(n) == 1 && n[0] > 6 {
		return Type{}, p.fail("times are kept in microseconds; nanoseconds are not supported")
	}
	without := p.phrase("without", "time", "zone")
	with := !without && (p.phrase("with", "time", "zone") || p.phrase("with", "local", "time", "zone"))
	switch {
	case name == "timetz" || name == "time" && with:
		return Type{}, p.fail("time with a zone is not supported")
	case name == "time":
		return Type{Kind: Time}, nil
	case name == "timestamptz" && without:
		return Type{}, p.fail("timestamptz has a time zone; use timestamp")
	case name == "timestamptz" || with:
		return Type{Kind: TimestampTZ}, nil
	}
	return Type{Kind: Timestamp}, nil
}

// child reads a child's type and its optional requiredness.
func (p *typeParser) child(name string, depth int) (Field, error) {
	t, err := p.parse(depth + 1)
	if err != nil {
		return Field{}, err
	}
	f := Field{Name: name, Type: t}
	f.Required = p.phrase("required") || p.phrase("not", "null")
	return f, nil
}

func (p *typeParser) open() (byte, error) {
	switch {
	case p.eat('<'):
		return '>', nil
	case p.eat('('):
		return ')', nil
	}
	return 0, p.fail("%q is expected here", "<")
}

func (p *typeParser) want(c byte) error {
	if !p.eat(c) {
		return p.fail("%q is expected here", string(c))
	}
	return nil
}

func (p *typeParser) list(depth int) (Type, error) {
	end, err := p.open()
	if err != nil {
		return Type{}, err
	}
	f, err := p.child("element", depth)
	if err != nil {
		return Type{}, err
	}
	return Type{Kind: List, Children: []Field{f}}, p.want(end)
}

func (p *typeParser) mapType(depth int) (Type, error) {
	end, err := p.open()
	if err != nil {
		return Type{}, err
	}
	k, err := p.child("key", depth)
	if err != nil {
		return Type{}, err
	}
	if err := p.want(','); err != nil {
		return Type{}, err
	}
	v, err := p.child("value", depth)
	if err != nil {
		return Type{}, err
	}
	k.Required = true
	return Type{Kind: Map, Children: []Field{k, v}}, p.want(end)
}

func (p *typeParser) structType(depth int) (Type, error) {
	end, err := p.open()
	if err != nil {
		return Type{}, err
	}
	t := Type{Kind: Struct}
	for {
		name := p.word()
		if name == "" {
			return Type{}, p.fail("the name of a struct's field is expected here")
		}
		p.eat(':') // SQL writes "name type", Iceberg "name: type"
		f, err := p.child(name, depth)
		if err != nil {
			return Type{}, err
		}
		t.Children = append(t.Children, f)
		if p.eat(end) {
			return t, nil
		}
		if err := p.want(','); err != nil {
			return Type{}, err
		}
	}
}
