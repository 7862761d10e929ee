package rows_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

// column decodes one JSON value into a column of a type and writes it out again.
func column(t testing.TB, typ, value string) (string, error) {
	t.Helper()
	s := segtest.Schema("c " + typ)
	chunks, _, err := decode(t, []byte(`{"c":`+value+"}\n"), rows.DecodeOptions{Schema: s})
	if err != nil {
		return "", err
	}
	require.Len(t, chunks, 1)
	out := string(encode(t, s, rows.EncodeOptions{}, chunks[0].Rows))
	return strings.TrimSuffix(strings.TrimPrefix(out, `{"c":`), "}\n"), nil
}

// The row that breaks the body leaves nothing of itself in the columns of those before it.
func TestRowsBeforeABrokenOneAreWhole(t *testing.T) {
	s := segtest.Schema("a long", "s string", "li list<string>", "st struct<x:int,y:string>")
	body := `[{"a":1,"s":"x","li":["p"],"st":{"x":1,"y":"q"}},{"a":2,"s":null,"li":["r",null],"st":{"x":2,"y":"z"} "a"}]`
	for _, skip := range []bool{false, true} {
		chunks, _, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: rows.JSON, SkipBadRows: skip})
		require.True(t, errs.Is(err, errs.Invalid), "%v", err)
		require.Len(t, chunks, 1)
		for i, col := range chunks[0].Rows.Columns() {
			require.Equal(t, 1, col.Len(), "column %d", i)
		}
		_, err = segments.Encode(chunks[0].Rows, s, segments.CodecNone)
		require.NoError(t, err)
	}
}

func TestJSONValuesAreTakenExactly(t *testing.T) {
	for _, c := range []struct{ typ, in, out string }{
		{"boolean", "true", "true"}, {"boolean", "false", "false"}, {"boolean", "null", "null"},
		{"int", "2147483647", "2147483647"}, {"int", "-2147483648", "-2147483648"}, {"int", "1.0", "1"}, {"int", "1e3", "1000"}, {"int", "-0", "0"},
		{"long", "9223372036854775807", "9223372036854775807"}, {"long", `"-9223372036854775808"`, "-9223372036854775808"},
		{"long", "9007199254740993", "9007199254740993"},
		{"float", "0.1", "0.1"}, {"float", "3.4028235e38", "3.4028235e+38"}, {"float", `"NaN"`, `"NaN"`},
		{"double", "0.1", "0.1"}, {"double", "1e400", "error"}, {"double", "5e-324", "5e-324"}, {"double", "-0.0", "-0"}, {"double", "1e21", "1e+21"},
		{"double", "123456789.123456789", "123456789.12345679"}, {"double", `"-Infinity"`, `"-Infinity"`}, {"double", "9007199254740993", "9007199254740992"},
		{"decimal(10,2)", "1.5", `"1.50"`}, {"decimal(10,2)", `"-0.01"`, `"-0.01"`}, {"decimal(10,2)", "99999999.99", `"99999999.99"`},
		{"decimal(10,2)", "1.500", `"1.50"`}, {"decimal(10,2)", "1e2", `"100.00"`}, {"decimal(10,2)", "12e-1", `"1.20"`},
		{"decimal(38,0)", "99999999999999999999999999999999999999", `"99999999999999999999999999999999999999"`},
		{"decimal(38,38)", "-0.00000000000000000000000000000000000001", `"-0.00000000000000000000000000000000000001"`},
		{"date", `"2024-02-29"`, `"2024-02-29"`}, {"date", `"1582-10-10"`, `"1582-10-10"`}, {"date", `"+12345-01-01"`, `"+12345-01-01"`}, {"date", `"-0001-12-31"`, `"-0001-12-31"`},
		{"time", `"23:59:59.999999"`, `"23:59:59.999999"`}, {"time", `"00:00:00"`, `"00:00:00"`}, {"time", `"01:02:03.5"`, `"01:02:03.500000"`},
		{"timestamp", `"2001-01-01T00:47:00"`, `"2001-01-01T00:47:00"`}, {"timestamp", `"2001-01-01 00:47:00.1"`, `"2001-01-01T00:47:00.100000"`},
		{"timestamp", "978310020000001", `"2001-01-01T00:47:00.000001"`}, {"timestamp", "-1", `"1969-12-31T23:59:59.999999"`},
		{"timestamp", `"0000-01-01T00:00:00"`, `"0000-01-01T00:00:00"`}, {"timestamp", "9223372036854775807", "9223372036854775807"},
		{"timestamp", `"2001-01-01T00:00:00.123456000"`, `"2001-01-01T00:00:00.123456"`},
		{"timestamptz", `"2001-01-01T00:47:00+02:00"`, `"2000-12-31T22:47:00Z"`}, {"timestamptz", `"2001-01-01t00:47:00z"`, `"2001-01-01T00:47:00Z"`},
		{"timestamptz", `"2001-01-01T00:47:00-00:30"`, `"2001-01-01T01:17:00Z"`},
		{"string", `"a\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00"`, `"a\"\\/\u0008\u000c\n\r\té😀"`}, {"string", `""`, `""`}, {"string", `"öäü and more than eight"`, `"öäü and more than eight"`},
		{"uuid", `"F81D4FAE-7DEC-11D0-A765-00A0C91E6BF6"`, `"f81d4fae-7dec-11d0-a765-00a0c91e6bf6"`},
		{"fixed(3)", `"AAEC"`, `"AAEC"`}, {"binary", `""`, `""`}, {"binary", `"AA=="`, `"AA=="`}, {"binary", `"AA"`, `"AA=="`}, {"binary", `"+/+/"`, `"+/+/"`},
		{"list<int>", "[1,null,3]", "[1,null,3]"}, {"list<int>", "[ ]", "[]"}, {"list<list<string>>", `[["a"],[],null]`, `[["a"],[],null]`},
		{"map<string,int>", `{"a":1,"b":null}`, `{"a":1,"b":null}`}, {"map<string,int>", `[{"key":"a","value":1},{"key":"b"}]`, `{"a":1,"b":null}`},
		{"map<int,string>", `[{"value":"x","key":1}]`, `[{"key":1,"value":"x"}]`}, {"map<string,int>", "{}", "{}"},
		{"struct<a:int,b:struct<c:string>>", ` { "b" : { "c" : "x" } } `, `{"a":null,"b":{"c":"x"}}`},
	} {
		out, err := column(t, c.typ, c.in)
		if c.out == "error" {
			require.Error(t, err, "%s %s", c.typ, c.in)
			continue
		}
		require.NoError(t, err, "%s %s", c.typ, c.in)
		require.Equal(t, c.out, out, "%s %s", c.typ, c.in)
	}
}

func TestValuesThatDoNotFitAreErrorsNotCuts(t *testing.T) {
	for _, c := range []struct{ typ, in, reason string }{
		{"boolean", "1", "expected true or false, got a number"}, {"boolean", `"true"`, "got a string"}, {"boolean", "tru", "unexpected"},
		{"int", "2147483648", "32-bit"}, {"int", "1.5", "fraction"}, {"int", `"1"`, "expected an integer, got a string"}, {"int", "01", "leading zero"},
		{"int", "1a", "','"}, {"int", "-", "JSON"}, {"int", "1e99999999999", "range"}, {"int", "1.", "malformed"}, {"int", "1e", "malformed"}, {"int", "+1", "unexpected"},
		{"long", "9223372036854775808", "64-bit"}, {"long", `"9223372036854775808"`, "64-bit"}, {"long", `"x"`, "not an integer"}, {"long", `""`, "not an integer"}, {"long", "1e-1", "fraction"},
		{"float", "3.5e38", "range"}, {"double", "1e309", "range"}, {"double", `"1.5"`, "a number"}, {"double", "NaN", "unexpected"}, {"double", ".5", "unexpected"},
		{"decimal(10,2)", "1.005", "fraction digits"}, {"decimal(10,2)", "100000000", "precision"}, {"decimal(10,2)", `"1,5"`, "not a number"}, {"decimal(10,2)", "1e500000", "exponent"}, {"decimal(10,2)", "true", "decimal"},
		{"date", `"2023-02-29"`, "calendar"}, {"date", `"2023-2-9"`, "YYYY-MM-DD"}, {"date", "19000", "expected a date"}, {"date", `"2023-01-01T00:00:00"`, "YYYY-MM-DD"},
		{"time", `"24:00:00"`, "time of day"}, {"time", `"23:59:60"`, "time of day"}, {"time", `"1:2:3"`, "HH:MM:SS"}, {"time", `"00:00:00.0000001"`, "microseconds"},
		{"timestamp", `"2001-01-01T00:47:00Z"`, "no zone"}, {"timestamp", `"2001/01/01 00:47"`, "YYYY-MM-DDTHH:MM:SS"}, {"timestamp", `"2001-01-01T00:00:00.1234567"`, "microseconds"},
		{"timestamp", `"2001-01-01"`, "YYYY-MM-DDTHH:MM:SS"}, {"timestamp", "1.5", "fraction"}, {"timestamp", "1e30", "64-bit"}, {"timestamp", "true", "timestamp"},
		{"timestamptz", `"2001-01-01T00:47:00"`, "needs a zone"}, {"timestamptz", `"2001-01-01T00:47:00+2"`, "zone offset"}, {"timestamptz", `"2001-13-01T00:47:00Z"`, "calendar"},
		{"string", "5", "expected a string, got a number"}, {"string", "\"\xff\"", "UTF-8"}, {"string", "\"long enough for words \xc3\x28\"", "UTF-8"},
		{"string", `"\ud800"`, "surrogate"}, {"string", `"\ud800\u0041"`, "surrogate"}, {"string", `"\x"`, "escape"}, {"string", `"\u12g4"`, "escape"}, {"string", "\"a\tb\"", "control"}, {"string", `"abc`, "ends early"},
		{"uuid", `"f81d4fae7dec11d0a76500a0c91e6bf6"`, "uuid"}, {"fixed(3)", `"AA=="`, "another length"}, {"binary", `"*"`, "base64"}, {"binary", `"AB=="`, "base64"}, {"binary", `"AA\n=="`, "base64"},
		{"list<int>", `["x"]`, "integer"}, {"list<int>", "{}", "array"}, {"list<int>", "[1", "expected ','"}, {"list<int>", "[1,]", "unexpected"}, {"list<int required>", "[null]", "required"},
		{"map<string,int>", `{"a":1,"a":2}`, "twice in the map"}, {"map<string,int>", `[{"value":1}]`, "required"}, {"map<string,int>", `[{"key":null}]`, "required"}, {"map<int,int>", `{"1":1}`, "array of"},
		{"struct<a:int required>", "{}", "required"}, {"struct<a:int>", `{"b":1}`, "no such column"}, {"struct<a:int>", `{"a":1,"a":1}`, "twice"},
	} {
		_, err := column(t, c.typ, c.in)
		require.True(t, errs.Is(err, errs.Invalid), "%s %s: %v", c.typ, c.in, err)
		require.ErrorContains(t, err, c.reason, "%s %s", c.typ, c.in)
	}
}

func TestErrorsNameRowColumnPathAndReason(t *testing.T) {
	s := segtest.Schema("a int required", "s struct<l:list<int>,m:map<string,int>>")
	body := "{\"a\":1}\n\n  \n" + `{"a":2,"s":{"l":[1,"x"]}}` + "\n" + `{"a":3,"s":{"m":{"k":true}}}` + "\n" + `{"b":1}` + "\n" + `[1]` + "\n" + `{"a":1}}` + "\n" + `{"s":null}` + "\n" + `{"a":9}`
	chunks, d, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, MaxBytes: 1 << 20})
	require.True(t, errs.Is(err, errs.Invalid))
	require.Len(t, chunks, 1)
	require.Equal(t, int64(1), chunks[0].Rows.NumRows())
	want := []rows.RowError{
		{Row: 1, Column: "s.l[1]", Reason: "expected an integer, got a string"},
		{Row: 2, Column: "s.m.k", Reason: "expected an integer, got a boolean"},
		{Row: 3, Column: "b", Reason: "the table has no such column"},
		{Row: 4, Column: "", Reason: "a row must be a JSON object"},
		{Row: 5, Column: "", Reason: "unexpected text after the row (byte 7 of the row)"},
		{Row: 6, Column: "a", Reason: "the column is required and missing"},
	}
	total, first := d.Rejected()
	require.Equal(t, int64(6), total)
	require.Equal(t, want, first)
	require.Len(t, errs.Details(err), 6)
	require.Equal(t, want[0], errs.Details(err)[0])
	require.ErrorContains(t, err, "6 bad rows")
	require.Equal(t, int64(8), d.Rows())
}

func TestSkippedRowsKeepTheNumbersOfTheOthers(t *testing.T) {
	s := segtest.Schema("a int")
	for _, f := range []rows.Format{rows.NDJSON, rows.JSON, rows.CSV} {
		var lines []string
		var want []int64
		for i := range 500 {
			switch {
			case i%7 != 3:
				want = append(want, int64(i))
				lines = append(lines, fmt.Sprint(i))
			case f == rows.CSV:
				lines = append(lines, "x")
			default:
				lines = append(lines, `"x"`)
			}
		}
		body := "a\n" + strings.Join(lines, "\n")
		if f != rows.CSV {
			for i := range lines {
				lines[i] = `{"a":` + lines[i] + `}`
			}
			body = strings.Join(lines, "\n")
		}
		if f == rows.JSON {
			body = "[" + strings.Join(lines, ", ") + "]"
		}
		chunks, d, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: f, SkipBadRows: true, ChunkRows: 100, MaxBytes: 1 << 20})
		require.NoError(t, err, f)
		var got []int64
		for _, c := range chunks {
			require.LessOrEqual(t, c.Rows.NumRows(), int64(100))
			for i := range int(c.Rows.NumRows()) {
				got = append(got, c.Ordinal(i))
				require.Equal(t, fmt.Sprint(c.Ordinal(i)), segtest.Format(c.Rows.Column(0), i))
			}
		}
		require.Equal(t, want, got, f)
		total, first := d.Rejected()
		require.Equal(t, int64(500-len(want)), total)
		require.Equal(t, int64(3), first[0].Row)
		require.Equal(t, int64(10), first[1].Row)
	}
}

func TestAtMostHundredBadRowsAreListedAndAllAreCounted(t *testing.T) {
	s := segtest.Schema("a int")
	body := strings.Repeat("{\"a\":\"x\"}\n", 150_000) // several blocks
	_, d, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, MaxBytes: 1 << 30})
	require.True(t, errs.Is(err, errs.Invalid))
	require.Len(t, errs.Details(err), 100)
	total, first := d.Rejected()
	require.Equal(t, int64(150_000), total)
	require.Len(t, first, 100)
	require.Equal(t, int64(99), first[99].Row)
}

func TestParallelBlocksKeepOrderAndNumbers(t *testing.T) {
	s := segtest.Schema("a long", "pad string")
	var b bytes.Buffer
	const n = 120_000
	for i := range n {
		fmt.Fprintf(&b, "{\"a\":%d,\"pad\":\"%s\"}\n", i, strings.Repeat("x", i%90))
	}
	for _, workers := range []int{1, 3} {
		d, err := rows.NewDecoder(bytes.NewReader(b.Bytes()), rows.DecodeOptions{Schema: s, Workers: workers, ChunkBytes: 256 << 10})
		require.NoError(t, err)
		next := int64(0)
		chunks, err := drain(d)
		require.NoError(t, err)
		for _, c := range chunks {
			require.Equal(t, next, c.First)
			require.LessOrEqual(t, segments.SizeOf(c.Rows), int64(512<<10))
			for i := range int(c.Rows.NumRows()) {
				require.Equal(t, fmt.Sprint(next), segtest.Format(c.Rows.Column(0), i))
				next++
			}
		}
		require.Equal(t, int64(n), next)
	}
}

func TestFieldsInAnyOrderAndMissingOnesAreFound(t *testing.T) {
	s := segtest.Schema("a int", "b int", "c int")
	body := `{"a":1,"b":2,"c":3}
{"c":3,"b":2,"a":1}
{"b":2}
{}
{"c":3,"a":1}
{"\u0061":1}`
	chunks, _, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s})
	require.NoError(t, err)
	require.Equal(t, `{"a":1,"b":2,"c":3}
{"a":1,"b":2,"c":3}
{"a":null,"b":2,"c":null}
{"a":null,"b":null,"c":null}
{"a":1,"b":null,"c":3}
{"a":1,"b":null,"c":null}
`, string(encode(t, s, rows.EncodeOptions{}, chunks[0].Rows)))
}

func TestMissingFieldsTakeTheirDefaultAndNullStaysNull(t *testing.T) {
	s := segtest.Schema("a int", "b string required", "l list<int>")
	s.Fields[0].Default = []byte("7")
	s.Fields[1].Default = []byte(`"x"`)
	s.Fields[2].Default = []byte(`[1,2]`)
	chunks, _, err := decode(t, []byte("{}\n{\"a\":null,\"b\":\"y\",\"l\":null}"), rows.DecodeOptions{Schema: s})
	require.NoError(t, err)
	require.Equal(t, "{\"a\":7,\"b\":\"x\",\"l\":[1,2]}\n{\"a\":null,\"b\":\"y\",\"l\":null}\n", string(encode(t, s, rows.EncodeOptions{}, chunks[0].Rows)))
	_, _, err = decode(t, []byte(`{"b":null}`), rows.DecodeOptions{Schema: s})
	require.ErrorContains(t, err, "null is not a value")
}

func TestUnknownFieldsAreIgnoredOnRequestButMustBeJSON(t *testing.T) {
	s := segtest.Schema("a int", "b int")
	o := rows.DecodeOptions{Schema: s, IgnoreUnknown: true}
	chunks, _, err := decode(t, []byte(`{"x":[1,{"y":"\n"}],"a":1,"z":-1.5e3,"b":2,"w":null,"v":{}}`), o)
	require.NoError(t, err)
	require.Equal(t, int64(1), chunks[0].Rows.NumRows())
	for _, bad := range []string{`{"x":[1,}`, `{"x":tru}`, `{"x":"` + "\xff" + `"}`, `{"x":01}`, `{"x":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}`, `{"A":1} x`} {
		_, _, err := decode(t, []byte(bad), o)
		require.True(t, errs.Is(err, errs.Invalid), bad)
	}
}

func TestSelectedColumnsAreTakenInTheirOrder(t *testing.T) {
	s := segtest.Schema("a int", "b int required", "c int")
	chunks, d, err := decode(t, []byte(`{"a":1,"c":3}`), rows.DecodeOptions{Schema: s, Columns: []string{"c", "a"}})
	require.NoError(t, err)
	require.Equal(t, "c", d.Schema().Field(0).Name)
	require.Equal(t, "3", segtest.Format(chunks[0].Rows.Column(0), 0))
	_, _, err = decode(t, []byte(`{"a":1,"b":3}`), rows.DecodeOptions{Schema: s, Columns: []string{"c", "a"}})
	require.ErrorContains(t, err, "not among the columns asked for")
	_, err = rows.NewDecoder(strings.NewReader(""), rows.DecodeOptions{Schema: s, Columns: []string{"nope"}})
	require.True(t, errs.Is(err, errs.Invalid))
}

func TestJSONBodyIsAnArrayOrOneObject(t *testing.T) {
	s := segtest.Schema("a int", "s string")
	for body, n := range map[string]int64{
		`{"a":1}`: 1, " [ ] \n": 0, `[{"a":1},{"a":2}]`: 2, "\xef\xbb\xbf[{\"a\":1}]": 1, `[{"s":"]}\"\\"},{"a":2}` + "\n]\n": 2,
	} {
		chunks, d, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: rows.JSON})
		require.NoError(t, err, body)
		require.Equal(t, n, d.Rows(), body)
		if n > 0 {
			require.Equal(t, n, chunks[0].Rows.NumRows(), body)
		}
	}
	for body, want := range map[string]string{
		"": "ends early", "[": "ends early", `[{"a":1}`: "ends early", `[{"a":1},]`: "expected a row", `[{"a":1}{"a":2}]`: "expected ','", `[{"a":1}]x`: "after the end",
		`{"a":1}{"a":2}`: "x-ndjson", `5`: "expected an array", `[{"a":[}]`: "brackets", `[{"a":tru}]`: "row 0", `[{"a":1},{"a":"\q"}]`: "row 1", `[{"a":1`: "ends early",
		`[{"s":"abc]`: "ends early", `[` + strings.Repeat("[", 300): "nested",
	} {
		_, d, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: rows.JSON, SkipBadRows: true})
		require.True(t, errs.Is(err, errs.Invalid), "%q: %v", body, err)
		require.ErrorContains(t, err, want, body)
		_ = d
	}
	_, d, err := decode(t, []byte(`[{"a":1},5,"x",[],{"a":2},null]`), rows.DecodeOptions{Schema: s, Format: rows.JSON, SkipBadRows: true})
	require.NoError(t, err)
	total, _ := d.Rejected()
	require.Equal(t, int64(4), total)
	require.Equal(t, int64(6), d.Rows())
}

func TestLongsAreNumbersOrStringsOnRequest(t *testing.T) {
	s := segtest.Schema("a long", "l list<long>", "i int")
	chunks, _, err := decode(t, []byte(`{"a":1,"l":[2],"i":3}`), rows.DecodeOptions{Schema: s})
	require.NoError(t, err)
	require.Equal(t, `{"a":1,"l":[2],"i":3}`+"\n", string(encode(t, s, rows.EncodeOptions{}, chunks[0].Rows)))
	require.Equal(t, `{"a":"1","l":["2"],"i":3}`+"\n", string(encode(t, s, rows.EncodeOptions{LongAsString: true}, chunks[0].Rows)))
	require.Equal(t, "[{\"a\":1,\"l\":[2],\"i\":3}]\n", string(encode(t, s, rows.EncodeOptions{Format: rows.JSON}, chunks[0].Rows)))
}

// TestDecodersThatFollowEachOtherShareNoRows: their columns do share memory.
func TestDecodersThatFollowEachOtherShareNoRows(t *testing.T) {
	s := segtest.Schema("id int required", "v string", "n long")
	line := func(id int, v string) string { return fmt.Sprintf(`{"id":%d,"v":%q,"n":%d}`+"\n", id, v, id*2) }
	var kept []rows.Chunk
	var want []string
	for round := range 40 {
		var body, good strings.Builder
		for i := range 1 + round*50%400 {
			body.WriteString(line(i, fmt.Sprint("round ", round)))
			good.WriteString(line(i, fmt.Sprint("round ", round)))
			if round%3 == 1 && i%7 == 3 { // ends in the middle of a row
				body.WriteString(`{"id":7,"v":"half","n":"x"}` + "\n" + `{"id":8,"v":` + "\n")
			}
		}
		o := rows.DecodeOptions{Schema: s, Format: rows.NDJSON, SkipBadRows: true, IgnoreUnknown: round%2 == 1}
		chunks, _, err := decode(t, []byte(body.String()), o)
		require.NoError(t, err)
		kept = append(kept, chunks...)
		want = append(want, good.String())
		if round%5 == 0 { // given up half way
			d, err := rows.NewDecoder(strings.NewReader(strings.Repeat(line(1, "given up"), 5000)), o)
			require.NoError(t, err)
			_, err = d.Next()
			require.NoError(t, err)
			require.NoError(t, d.Close())
		}
	}
	require.Equal(t, strings.Join(want, ""), ndjson(t, s, kept))
}
