package segments

import (
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/firn-data/firn/internal/errs"
)

// FirstPartitionID is the first id of a partition field, as in Iceberg.
const FirstPartitionID = 1000

// maxTransformParam is the largest N of bucket and W of truncate.
const maxTransformParam = 1 << 30

// PartitionField is one field of a table's partition spec. Transform is one of
// "identity", "bucket[N]", "truncate[W]", "year", "month", "day", "hour".
type PartitionField struct {
	SourceID  int32  `json:"source-id"` // a top-level column
	FieldID   int32  `json:"field-id"`
	Name      string `json:"name"`
	Transform string `json:"transform"`
}

// transform is a parsed PartitionField.Transform.
type transform struct {
	name  string
	param int // bucket's N, truncate's W
}

func (t transform) String() string {
	if t.param > 0 {
		return t.name + "[" + strconv.Itoa(t.param) + "]"
	}
	return t.name
}

// transformSuffix names a partition field after its column, as Iceberg does.
var transformSuffix = map[string]string{
	"identity": "", "bucket": "_bucket", "truncate": "_trunc", "year": "_year", "month": "_month", "day": "_day", "hour": "_hour",
}

func parseTransform(s string) (transform, error) {
	name, rest, ok := strings.Cut(s, "[")
	t := transform{name: name}
	takesParam := name == "bucket" || name == "truncate"
	if _, known := transformSuffix[name]; !known || takesParam != ok {
		return t, errs.New(errs.Invalid, "unknown partition transform %q", s)
	}
	if ok {
		n, err := strconv.Atoi(strings.TrimSuffix(rest, "]"))
		if err != nil || n < 1 || n > maxTransformParam || !strings.HasSuffix(rest, "]") {
			return t, errs.New(errs.Invalid, "partition transform %q: its parameter is 1 to %d", s, maxTransformParam)
		}
		t.param = n
	}
	return t, nil
}

// ParsePartitionField reads "region", "identity(region)", "bucket(16,id)",
// "bucket(id,16)", "truncate(4,name)", "year(ts)", "month(ts)", "day(ts)",
// "hour(ts)" (years, months, days and hours too) for a top-level column of s,
// and checks that the transform takes its type. FieldID stays zero.
func ParsePartitionField(text string, s *Schema) (PartitionField, error) {
	bad := func(format string, args ...any) (PartitionField, error) {
		e := errs.New(errs.Invalid, format, args...)
		e.Op = "partition by " + strconv.Quote(text)
		return PartitionField{}, e
	}
	t, column, err := splitPartition(text)
	if err != nil {
		return bad("%v", err)
	}
	f, ok := s.Field(column)
	if !ok {
		return bad("unknown column %q; partition columns are top-level columns: %s", column, strings.Join(s.Names(), ", "))
	}
	if err := t.check(f.Type); err != nil {
		return bad("column %q: %v", column, err)
	}
	return PartitionField{SourceID: f.ID, Name: column + transformSuffix[t.name], Transform: t.String()}, nil
}

func splitPartition(text string) (t transform, column string, err error) {
	text = strings.TrimSpace(text)
	fn, args, call := strings.Cut(text, "(")
	if !call {
		return transform{name: "identity"}, text, nil
	}
	args, closed := strings.CutSuffix(args, ")")
	t.name = strings.ToLower(strings.TrimSpace(fn))
	if _, known := transformSuffix[strings.TrimSuffix(t.name, "s")]; known && t.name != "identity" {
		t.name = strings.TrimSuffix(t.name, "s")
	}
	if _, known := transformSuffix[t.name]; !known || !closed {
		return t, "", errs.New(errs.Invalid, "the transforms are identity(c), bucket(N,c), truncate(W,c), year(c), month(c), day(c) and hour(c)")
	}
	parts := strings.Split(args, ",")
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
	}
	if t.name != "bucket" && t.name != "truncate" {
		if len(parts) != 1 {
			return t, "", errs.New(errs.Invalid, "%s takes one column", t.name)
		}
		return t, parts[0], nil
	}
	if len(parts) != 2 {
		return t, "", errs.New(errs.Invalid, "%s takes a number and a column", t.name)
	}
	for i, p := range parts {
		if n, err := strconv.Atoi(p); err == nil {
			if n < 1 || n > maxTransformParam {
				return t, "", errs.New(errs.Invalid, "the number of %s is 1 to %d", t.name, maxTransformParam)
			}
			t.param = n
			return t, parts[1-i], nil
		}
	}
	return t, "", errs.New(errs.Invalid, "%s takes a number and a column", t.name)
}

// check says why the transform does not take values of src.
func (t transform) check(src Type) error {
	ok := true
	switch t.name {
	case "identity":
		ok = !src.Kind.Nested()
	case "bucket":
		ok = CheckBucketKey(src) == nil
	case "truncate":
		switch src.Kind {
		case Int, Long, Decimal, String, Binary:
		default:
			ok = false
		}
	case "hour":
		ok = src.Kind == Timestamp || src.Kind == TimestampTZ
	default:
		ok = src.Kind == Date || src.Kind == Timestamp || src.Kind == TimestampTZ
	}
	if !ok {
		return errs.New(errs.Invalid, "%s does not take values of type %s", t.name, src)
	}
	return nil
}

// ParsePartitionSpec reads a whole spec, gives each field an id above lastID
// (the first is FirstPartitionID), and returns the last id given. Refused are
// a repeated field, two fields of one name, two time transforms of one column,
// and a name that a column has (identity alone is named like its column).
func ParsePartitionSpec(texts []string, s *Schema, lastID int32) ([]PartitionField, int32, error) {
	lastID = max(lastID, FirstPartitionID-1)
	var out []PartitionField
	timed := map[int32]bool{}
	for _, text := range texts {
		p, err := ParsePartitionField(text, s)
		if err != nil {
			return nil, 0, err
		}
		refuse := func(why string) ([]PartitionField, int32, error) {
			return nil, 0, errs.New(errs.Invalid, "partition by %q: %s", text, why)
		}
		for _, q := range out {
			if strings.EqualFold(q.Name, p.Name) {
				return refuse("there is a partition field " + q.Name + " already")
			}
		}
		for _, c := range s.Fields {
			if strings.EqualFold(c.Name, p.Name) && (p.Transform != "identity" || c.ID != p.SourceID) {
				return refuse("the partition field would be named " + p.Name + ", like a column")
			}
		}
		switch p.Transform {
		case "year", "month", "day", "hour":
			if timed[p.SourceID] {
				return refuse("the column is partitioned by time already; the finer transform is enough")
			}
			timed[p.SourceID] = true
		}
		lastID++
		p.FieldID = lastID
		out = append(out, p)
	}
	return out, lastID, nil
}

// Format returns the field as ParsePartitionField reads it: "bucket(16,id)".
func (p PartitionField) Format(s *Schema) string {
	name := strconv.Itoa(int(p.SourceID))
	if f, ok := s.FieldByID(p.SourceID); ok {
		name = f.Name
	}
	t, err := parseTransform(p.Transform)
	switch {
	case err != nil || t.name == "identity":
		return name
	case t.param > 0:
		return t.name + "(" + strconv.Itoa(t.param) + "," + name + ")"
	}
	return t.name + "(" + name + ")"
}

// ResultType returns the type of the field's values: the source's for identity
// and truncate, date for day, int for the rest. It fails with Invalid when the
// schema has no such column, or one that the transform does not take.
func (p PartitionField) ResultType(s *Schema) (Type, error) {
	f, t, err := p.resolve(s)
	if err != nil {
		return Type{}, err
	}
	return t.result(f.Type), nil
}

func (p PartitionField) resolve(s *Schema) (Field, transform, error) {
	t, err := parseTransform(p.Transform)
	if err != nil {
		return Field{}, t, err
	}
	i := s.IndexOfID(p.SourceID)
	if i < 0 {
		return Field{}, t, errs.New(errs.Invalid, "partition field %s: schema %d has no column with field id %d", p.Name, s.ID, p.SourceID)
	}
	return s.Fields[i], t, t.check(s.Fields[i].Type)
}

func (t transform) result(src Type) Type {
	switch t.name {
	case "identity", "truncate":
		return src
	case "day":
		return Type{Kind: Date}
	}
	return Type{Kind: Int}
}

// Apply returns the partition value of each row, in the Arrow type of the
// ResultType. NULL stays NULL, and values before 1970 round down.
func (p PartitionField) Apply(rec arrow.RecordBatch, s *Schema) (arrow.Array, error) {
	f, t, err := p.resolve(s)
	if err != nil {
		return nil, err
	}
	at := s.IndexOfID(p.SourceID)
	if int64(at) >= rec.NumCols() {
		return nil, errs.New(errs.Invalid, "partition field %s: the batch has %d columns", p.Name, rec.NumCols())
	}
	col := rec.Column(at)
	if err := checkArrowType(f.Type, col.DataType()); err != nil {
		return nil, errs.In("partition field "+p.Name, err)
	}
	switch t.name {
	case "identity":
		col.Retain()
		return col, nil
	case "truncate":
		return truncateArray(col, f.Type, t.param), nil
	case "bucket":
		return bucketArray(col, f.Type, int32(t.param)), nil
	}
	return timeArray(col, f.Type, t), nil
}

// int32Array wraps values and the validity of d, whose rows they belong to.
func int32Array(dt arrow.DataType, values []int32, d arrow.ArrayData) arrow.Array {
	validity, nulls := copyValidity(d)
	return array.MakeFromData(array.NewData(dt, len(values), []*memory.Buffer{validity, memory.NewBufferBytes(bytesOf(values))}, nil, nulls, 0))
}

func copyValidity(d arrow.ArrayData) (*memory.Buffer, int) {
	b := buf(d.Buffers(), 0)
	if len(b) == 0 || d.NullN() == 0 || d.Len() == 0 {
		return nil, 0
	}
	bits := make([]byte, bytesForBits(d.Len()))
	bitutil.CopyBitmap(b, d.Offset(), d.Len(), bits, 0)
	return memory.NewBufferBytes(bits), d.Len() - bitutil.CountSetBits(bits, 0, d.Len())
}

func bucketArray(col arrow.Array, t Type, n int32) arrow.Array {
	out := make([]int32, col.Len())
	k := newKeyColumn(t, col.Data())
	k.buckets(out, n)
	return int32Array(arrow.PrimitiveTypes.Int32, out, col.Data())
}
