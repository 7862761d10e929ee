package segments_test

import (
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/segtest"
)

func TestPartitionFieldsAreNamedAsIcebergDoes(t *testing.T) {
	s := segtest.Schema("id long", "ts timestamptz", "region string", "d date", "a-b decimal(5,2)")
	for text, want := range map[string]string{
		"region": "3 region identity", "identity(region)": "3 region identity", "bucket(16,id)": "1 id_bucket bucket[16]",
		"bucket( id , 16 )": "1 id_bucket bucket[16]", "truncate(4, region)": "3 region_trunc truncate[4]",
		"TRUNCATE(a-b,10)": "5 a-b_trunc truncate[10]", "day(ts)": "2 ts_day day", "days(ts)": "2 ts_day day",
		"year(d)": "4 d_year year", "month(d)": "4 d_month month", "hour(ts)": "2 ts_hour hour",
	} {
		p, err := segments.ParsePartitionField(text, s)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := strings.Join([]string{string('0' + byte(p.SourceID)), p.Name, p.Transform}, " "); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
		again, err := segments.ParsePartitionField(p.Format(s), s)
		if err != nil || again != p {
			t.Errorf("%s formats as %s: %v", text, p.Format(s), err)
		}
	}
}

func TestBadPartitionFieldsAreRefused(t *testing.T) {
	s := segtest.Schema("id long", "ts timestamp", "x double", "l list<int>", "d date", "ts_day int")
	for text, want := range map[string]string{
		"nope": "unknown column", "day(id)": "does not take", "hour(d)": "does not take", "bucket(4,x)": "does not take",
		"truncate(4,x)": "does not take", "l": "does not take", "bucket(id)": "a number and a column", "bucket(0,id)": "1 to",
		"bucket(x,id)": "a number and a column", "day(ts": "the transforms are", "void(id)": "the transforms are",
		"day(ts,3)": "one column", "": "unknown column",
	} {
		if _, err := segments.ParsePartitionField(text, s); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", text, err, want)
		}
	}
	for _, c := range []struct{ spec, want string }{
		{"id;id", "already"}, {"bucket(4,id);bucket(8,id)", "already"}, {"year(d);day(d)", "by time already"}, {"day(ts)", "like a column"},
	} {
		if _, _, err := segments.ParsePartitionSpec(strings.Split(c.spec, ";"), s, 0); !errs.Is(err, errs.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.spec, err, c.want)
		}
	}
	spec, last, err := segments.ParsePartitionSpec([]string{"id", "month(d)"}, s, 0)
	if err != nil || spec[0].FieldID != 1000 || spec[1].FieldID != 1001 || last != 1001 {
		t.Errorf("%v %d %v", spec, last, err)
	}
	spec, last, err = segments.ParsePartitionSpec([]string{"day(d)"}, s, last)
	if err != nil || spec[0].FieldID != 1002 || last != 1002 {
		t.Errorf("%v %d %v", spec, last, err)
	}
}

func micros(s string) any {
	v, err := time.Parse("2006-01-02 15:04:05", s)
	if err != nil {
		panic(err)
	}
	return v.UnixMicro()
}

func TestTransformsGiveIcebergsValues(t *testing.T) {
	dec := func(n int64) any { return decimal128.FromI64(n) }
	for _, c := range []struct {
		typ, transform string
		in             []any
		want           string
	}{
		{"date", "year", []any{int32(0), int32(-1), int32(17501), nil, int32(-719162)}, "0 -1 47 NULL -1969"},
		{"date", "month", []any{int32(0), int32(-1), int32(17501), nil}, "0 -1 575 NULL"},
		{"date", "day", []any{int32(0), int32(-1), nil}, "0 -1 NULL"},
		{"timestamp", "year", []any{micros("2017-12-01 10:12:55"), micros("1969-12-31 23:59:59"), int64(-1)}, "47 -1 -1"},
		{"timestamp", "month", []any{micros("2017-12-01 10:12:55"), int64(-1), micros("1969-01-01 00:00:00")}, "575 -1 -12"},
		{"timestamptz", "day", []any{micros("2017-12-01 10:12:55"), int64(-1), int64(-86400000000), int64(-86400000001)}, "17501 -1 -1 -2"},
		{"timestamp", "hour", []any{micros("2017-12-01 10:12:55"), int64(-1), int64(-3600000001), nil}, "420034 -1 -2 NULL"},
		{"int", "truncate[10]", []any{int32(1), int32(-1), int32(-10), int32(-11), nil}, "0 -10 -10 -20 NULL"},
		{"long", "truncate[10]", []any{int64(19), int64(-1)}, "10 -10"},
		{"decimal(9,2)", "truncate[50]", []any{dec(1065), dec(-5), nil}, "1050 -50 NULL"},
		{"string", "truncate[3]", []any{"iceberg", "ice", "ic", "", "é世𝄞x", nil}, `"ice" "ice" "ic" "" "é世𝄞" NULL`},
		{"binary", "truncate[2]", []any{[]byte{1, 2, 3}, []byte{}, nil}, "0102  NULL"},
		{"long", "bucket[16]", []any{int64(34), nil, int64(35)}, "3 NULL 5"},
		{"boolean", "identity", []any{true, nil}, "true NULL"},
	} {
		s, rec := column(t, c.typ, c.in...)
		p := segments.PartitionField{SourceID: 1, Name: "p", Transform: c.transform}
		for _, from := range []int64{0, 1} {
			got, err := p.Apply(rec.NewSlice(from, rec.NumRows()), s)
			if err != nil {
				t.Fatal(err)
			}
			var text []string
			for i := range got.Len() {
				text = append(text, segtest.Format(got, i))
			}
			if g, want := strings.Join(text, " "), strings.Join(strings.Split(c.want, " ")[from:], " "); g != want {
				t.Errorf("%s of %s from %d: got %s, want %s", c.transform, c.typ, from, g, want)
			}
			rt, err := p.ResultType(s)
			if err != nil || rt.Arrow().ID() != got.DataType().ID() {
				t.Errorf("%s of %s: %s is no %s", c.transform, c.typ, got.DataType(), rt)
			}
		}
	}
}

func TestYearAndMonthAgreeWithTheCalendar(t *testing.T) {
	r := segtest.NewRand(7)
	s := segtest.Schema("d date")
	rec := segtest.Batch(r, s, 5000, segtest.Options{})
	year, _ := segments.PartitionField{SourceID: 1, Transform: "year"}.Apply(rec, s)
	month, _ := segments.PartitionField{SourceID: 1, Transform: "month"}.Apply(rec, s)
	for i := range 5000 {
		d := time.Unix(int64(rec.Column(0).(*array.Date32).Value(i))*86400, 0).UTC()
		y, m := year.(*array.Int32).Value(i), month.(*array.Int32).Value(i)
		if int(y) != d.Year()-1970 || int(m) != (d.Year()-1970)*12+int(d.Month())-1 {
			t.Fatalf("%s: year %d, month %d", d, y, m)
		}
	}
}

func TestEveryTransformTakesExtremeValues(t *testing.T) {
	s := segtest.AllTypes()
	rec := segtest.Batch(segtest.NewRand(3), s, 200, segtest.Options{NullPercent: 20, Extreme: true})
	for _, f := range s.Fields {
		for _, tr := range []string{"identity", "bucket[7]", "truncate[13]", "truncate[1073741824]", "year", "month", "day", "hour"} {
			p := segments.PartitionField{SourceID: f.ID, Name: "p", Transform: tr}
			got, err := p.Apply(rec, s)
			if err != nil {
				if !errs.Is(err, errs.Invalid) {
					t.Fatal(err)
				}
				continue
			}
			if got.Len() != 200 || got.NullN() != rec.Column(s.IndexOfID(f.ID)).NullN() {
				t.Errorf("%s of %s: %d values, %d NULL", tr, f.Type, got.Len(), got.NullN())
			}
		}
	}
}
