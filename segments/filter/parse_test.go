package filter_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

// table decodes NDJSON rows of a schema.
func table(t testing.TB, s *segments.Schema, lines ...string) arrow.RecordBatch {
	t.Helper()
	d, err := rows.NewDecoder(strings.NewReader(strings.Join(lines, "\n")), rows.DecodeOptions{Schema: s})
	require.NoError(t, err)
	c, err := d.Next()
	require.NoError(t, err)
	return c.Rows
}

// matching returns the rows that a predicate keeps, as digits.
func matching(t testing.TB, s *segments.Schema, rec arrow.RecordBatch, where string) string {
	t.Helper()
	e, err := filter.Parse(where, s)
	require.NoError(t, err, where)
	kept, err := e.Rows(rec)
	require.NoError(t, err, where)
	var b strings.Builder
	for _, r := range kept {
		b.WriteByte(byte('0' + r))
	}
	return b.String()
}

func orders() *segments.Schema {
	return segtest.Schema("id long required", "amount decimal(10,2)", "status string", "x int", "paid boolean", "ts timestamptz",
		"at timestamp", "ratio double", "f float", "day date", "u uuid", "raw binary", "fx fixed(2)", "tags list<string>",
		"address struct<city:string,geo:struct<lat:double>>", "order int", "a-b int", "null string", "timestamp int")
}

func TestPredicatesMeanWhatSQLSays(t *testing.T) {
	s := orders()
	rec := table(t, s,
		`{"id":0,"amount":"10.50","status":"paid","x":1,"paid":true,"ts":"2001-01-01T00:00:00Z","ratio":1.5,"f":0.1,"day":"2001-01-01","order":1}`,
		`{"id":1,"amount":"10.00","status":"open","x":null,"paid":false,"at":"2001-01-01T12:00:00","ratio":"NaN","a-b":7}`,
		`{"id":2,"status":"a%b","x":3,"paid":null,"ratio":null,"address":{"city":"Oslo","geo":{"lat":59.9}},"timestamp":5}`,
		`{"id":3,"amount":"-1.00","status":"","x":4,"u":"00000000-0000-0000-0000-00000000000a","raw":"AAE=","fx":"q80=","null":"n","tags":[]}`,
		`{"id":4,"amount":"99999999.99","status":"it's","address":{"city":null},"ratio":"-Infinity"}`,
	)
	for where, want := range map[string]string{
		"amount > 10 AND status IN ('paid','open') AND status LIKE 'p%' AND x IS NOT NULL": "0",
		"amount = 10.5":                                 "0",
		"amount >= 10.001":                              "04",
		"amount < 10.001":                               "13",
		"amount = 10.001":                               "",
		"amount <> 10.001":                              "0134",
		"NOT amount = 10.001":                           "0134",
		"amount < 1e30":                                 "0134",
		"amount <= 99999999.99":                         "0134",
		"99999999.99 <= amount":                         "4",
		"x = NULL":                                      "",
		"NOT (x = NULL)":                                "",
		"x NOT IN (1, NULL)":                            "",
		"x IN (1, NULL, 4)":                             "03",
		"x NOT IN (1)":                                  "23",
		"x IN (1.5, 99999999999999999999)":              "",
		"x NOT IN (1.5)":                                "023",
		"x BETWEEN 2 AND 3 OR x = 1":                    "02",
		"x NOT BETWEEN 2 AND 3":                         "03",
		"paid":                                          "0",
		"NOT paid":                                      "1",
		"paid IS NOT TRUE":                              "1234",
		"paid IS FALSE":                                 "1",
		"paid = false or paid is null":                  "1234",
		"status LIKE 'a\\%b'":                           "2",
		"status LIKE 'a!%b' ESCAPE '!'":                 "2",
		"status NOT LIKE '%p%'":                         "234",
		"status = ''":                                   "3",
		"status = 'it''s'":                              "4",
		"status LIKE '_t''%'":                           "4",
		"ts = '2001-01-01'":                             "0",
		"ts < TIMESTAMP '2001-01-01T02:00:00+01:00'":    "0",
		"ts = 978307200000000":                          "0",
		"at = TIMESTAMP '2001-01-01 12:00:00'":          "1",
		"at >= DATE '2001-01-01' AND at < '2001-01-02'": "1",
		"day = DATE '2001-01-01'":                       "0",
		"ratio < 2":                                     "04",
		"NOT ratio < 2":                                 "1",
		"ratio <> 1.5":                                  "14",
		"ratio = 'NaN'":                                 "1",
		"ratio <> 'NaN'":                                "04",
		"ratio = '-Infinity'":                           "4",
		"f = 0.1":                                       "0",
		"u = '00000000-0000-0000-0000-00000000000A'":    "3",
		"raw = x'0001' and fx = X'ABCD'":                "3",
		"tags IS NOT NULL":                              "3",
		"address.city = 'Oslo'":                         "2",
		"address.geo.lat > 59":                          "2",
		"address.city IS NULL":                          "0134",
		"address IS NOT NULL":                           "24",
		"order = 1":                                     "0",
		`"order" = 1`:                                   "0",
		"`a-b` = 7":                                     "1",
		`"null" = 'n'`:                                  "3",
		"timestamp = 5":                                 "2",
		"id = amount":                                   "",
		"id < amount":                                   "014",
		"x > id":                                        "023",
		"TRUE":                                          "01234",
		"NULL or id = 1":                                "1",
		"1 = 1.0 AND 'a' < 'b'":                         "01234",
		"id = -0":                                       "0",
		"id > - 1 and id < +2":                          "01",
		"((((id=1))))":                                  "1",
		"NOT NOT NOT id >= 1":                           "0",
	} {
		require.Equal(t, want, matching(t, s, rec, where), where)
	}
}

func TestWrongPredicatesAreRefusedWithWhatIsWrong(t *testing.T) {
	s := orders()
	for where, want := range map[string]string{
		"":                                   "empty",
		"   ":                                "empty",
		"amuont > 10":                        `did you mean "amount"`,
		"Amount > 10":                        `did you mean "amount"`,
		"zzzzzzzz = 1":                       "the columns are id, amount",
		`status = "open"`:                    `unknown column "open"`,
		"amount > 'abc'":                     "'abc' is not a number",
		"amount > TRUE":                      "compare it with a number",
		"status = 5":                         "a text in single quotes",
		"ts = 'yesterday'":                   "not an RFC 3339 timestamp",
		"at = '2001-01-01T00:00:00Z'":        "no zone",
		"ts = '2001-01-01 00:00:00.0000001'": "microseconds",
		"day = '2001-02-30'":                 "not a day of the calendar",
		"u = 'x'":                            "not a uuid",
		"raw = 'x'":                          "x'…'",
		"fx = x'00'":                         "x'…'",
		"raw = x'0'":                         "odd number",
		"raw = x'zz'":                        "hexadecimal",
		"status LIKE 5":                      "LIKE takes a pattern",
		"x LIKE '1%'":                        "LIKE is for string columns",
		`status LIKE 'a\'`:                   "ends with its escape",
		"status LIKE 'a' ESCAPE 'ab'":        "one character",
		"x + 1 > 2":                          "supported",
		"x > 1 + 1":                          "arithmetic",
		"lower(status) = 'a'":                "functions are not supported",
		"status":                             "not boolean",
		"x AND id = 1":                       "not boolean",
		"tags = 'a'":                         "only IS [NOT] NULL",
		"status.x = 1":                       "has no field",
		"address.town = 'x'":                 `unknown column "town"`,
		"id = 1 --":                          "comments",
		"id = 1; drop table t":               "unexpected ';'",
		"id = 1) OR (id = 2":                 "closing parenthesis",
		"(id = 1":                            "missing",
		"id = 1, id = 2":                     "syntax error",
		"id = 1 id = 2":                      "syntax error",
		"id = 1 GROUP BY id":                 "syntax error",
		"id = 1 LIMIT 5":                     "syntax error",
		"id =":                               "ends early",
		"id = 'a' 'b'":                       "supported",
		"id IN (SELECT id)":                  "syntax error",
		"id IN ()":                           "syntax error",
		"(id, x) IN ((1, 2))":                "supported",
		"id <=> 1":                           "<=>",
		"id == 1":                            "written =",
		"status || 'a' = 'b'":                "unexpected '|'",
		"id = 0x10":                          "malformed",
		"id = ?":                             "unexpected '?'",
		"id = @x":                            "unexpected '@'",
		"id = :x":                            "unexpected ':'",
		"'a":                                 "closing '",
		"ratio < 'NaN'":                      "neither less nor greater",
		"ratio < 1e999":                      "outside its range",
		"status = day":                       "cannot be compared",
		"paid > FALSE":                       "by = or <>",
		"1":                                  "literal alone",
		"id = 1 OR":                          "ends early",
		"\xff = 1":                           "UTF-8",
		strings.Repeat("(", 5000):            "nested deeper",
		strings.Repeat("x", 1<<17):           "the limit is",
		"id IN (1" + strings.Repeat(",1", 20000) + ")": "limit",
	} {
		_, err := filter.Parse(where, s)
		require.Error(t, err, where)
		require.True(t, errs.Is(err, errs.Invalid), where)
		require.Contains(t, err.Error(), want, where)
	}
}

func TestErrorsPointAtTheCallersText(t *testing.T) {
	s := orders()
	for where, at := range map[string]string{
		"id = 1 AND nope = 2":                               "(at character 12: nope)",
		`"id" = 1 AND "nope" = 2`:                           `(at character 14: "nope")`,
		"status = 'äöü' AND ? = 1":                          "(at character 20: ? = 1)", // characters, not bytes; what is no token runs on
		"id = 1 AND id LIKE LIKE 'a'":                       "(at character 20: LIKE)",
		"id = 1 AND amount > 'abc'":                         "(at character 21: 'abc')",
		"id = 1 AND amount > -TRUE":                         "(at character 22: TRUE)",
		"paid = TRUE AND x = FALSE":                         "(at character 21: FALSE)",
		"5 = status":                                        "(at character 1: 5)",
		"x IN (1, 2, 'drei')":                               "(at character 13: 'drei')",
		"x BETWEEN 1 AND x'00'":                             "(at character 17: x'00')",
		"day = DATE '2001-02-30'":                           "(at character 12: '2001-02-30')",
		"ratio > 1e999":                                     "(at character 9: 1e999)",
		"status LIKE 7":                                     "(at character 13: 7)",
		"status LIKE 'a' ESCAPE 'ab'":                       "(at character 24: 'ab')",
		"x LIKE 'a'":                                        "(at character 1: x)",
		"id = 1 OR tags = 'a'":                              "(at character 11: tags)",
		"id = 1 OR id = status":                             "(at character 16: status)",
		"id = 1 OR status":                                  "(at character 11: status)",
		"id = 1 OR NOT (x + 1 > 2)":                         "(at character 16: x)",
		"id = 1 OR address.town = ''":                       "(at character 19: town)",
		"id = 1 OR 5":                                       "(at character 11: 5)",
		"id = 5 6":                                          "(at character 8: 6)",
		"id = 1 OR id = '" + strings.Repeat("x", 100) + "'": "(at character 16: '" + strings.Repeat("x", 39) + "…)",
		"(id = 1":                                           "(at character 8)",
		"id =":                                              "(at character 5)",
	} {
		_, err := filter.Parse(where, s)
		require.ErrorContains(t, err, at, where)
		details, _ := errs.Details(err)[0].(map[string]any)
		require.Contains(t, at, fmt.Sprint("character ", details["position"]), where)
	}
}

func TestDeepAndLongPredicatesWork(t *testing.T) {
	s := orders()
	rec := table(t, s, `{"id":1}`)
	require.Equal(t, "0", matching(t, s, rec, "id = 0"+strings.Repeat(" OR id = 1", 3000)))
	require.Equal(t, "0", matching(t, s, rec, strings.Repeat("(", 90)+"id = 1"+strings.Repeat(")", 90)))
	require.Equal(t, "0", matching(t, s, rec, strings.Repeat("NOT ", 100)+"id = 1"))
	_, err := filter.Parse(strings.Repeat("NOT ", 5000)+"id = 1", s)
	require.ErrorContains(t, err, "nested deeper")
}

func TestColumnsNamesEachTopLevelColumnOnce(t *testing.T) {
	s := orders()
	e, err := filter.Parse("address.city = 'x' AND id = 1 OR address IS NULL AND id > 3", s)
	require.NoError(t, err)
	address, _ := s.Field("address")
	id, _ := s.Field("id")
	require.Equal(t, []int32{address.ID, id.ID}, e.Columns())
}

func TestBatchWithOtherColumnOrderIsFilteredByFieldID(t *testing.T) {
	s := segtest.Schema("a int", "b int")
	rec := table(t, s, `{"a":1,"b":2}`)
	swapped := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{rec.Schema().Field(1), rec.Schema().Field(0)}, nil),
		[]arrow.Array{rec.Column(1), rec.Column(0)}, 1)
	require.Equal(t, "0", matching(t, s, swapped, "a = 1 AND b = 2"))
	e, err := filter.Parse("a = 1", s)
	require.NoError(t, err)
	_, err = e.Mask(array.NewRecordBatch(arrow.NewSchema(swapped.Schema().Fields()[:1], nil), swapped.Columns()[:1], 1))
	require.ErrorContains(t, err, `lacks column "a"`)
}

func TestEmptyBatchIsFiltered(t *testing.T) {
	s := segtest.AllTypes()
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	e, err := filter.Parse("c0 AND c1 = 1 AND c13 LIKE 'a%' AND c3 = 'NaN' AND l IS NULL AND s.a = 1 AND c15 = x'00' AND c1 = c2", s)
	require.NoError(t, err)
	mask, err := e.Mask(b.NewRecordBatch())
	require.NoError(t, err)
	require.Empty(t, mask)
}

// The SQL parser belongs to a server: it must not show in ours.
func TestParserAddsNoCommandLineFlagsAndLogsNothing(t *testing.T) {
	pflag.CommandLine.VisitAll(func(f *pflag.Flag) { t.Errorf("flag --%s was registered", f.Name) })
	r, w, err := os.Pipe()
	require.NoError(t, err)
	stdout, stderr := os.Stdout, os.Stderr
	os.Stdout, os.Stderr = w, w
	for _, where := range []string{"id = 1", "id = ", "create table x", "); select 1"} {
		_, _ = filter.Parse(where, orders())
	}
	os.Stdout, os.Stderr = stdout, stderr
	require.NoError(t, w.Close())
	out, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Empty(t, string(bytes.TrimSpace(out)))
}

func FuzzParse(f *testing.F) {
	for _, where := range []string{
		"amount > 10 AND status IN ('paid','open') AND status LIKE 'p%' AND x IS NOT NULL", `"a-b" = -7 or not paid`,
		"ts between '2001-01-01' and TIMESTAMP '2001-01-02T00:00:00Z'", "raw = x'00' AND ratio <> 'NaN'", "address.geo.lat > 1e5",
	} {
		f.Add(where)
	}
	s := orders()
	rec := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow()).NewRecordBatch()
	f.Fuzz(func(t *testing.T, where string) {
		e, err := filter.Parse(where, s)
		if err != nil {
			require.True(t, errs.Is(err, errs.Invalid), "%v", err)
			return
		}
		_, err = e.Mask(rec)
		require.NoError(t, err)
		e.Prune(func(int32) (segments.ColumnStats, int64, bool) {
			return segments.ColumnStats{Valid: true, Nulls: 1}, 1, true
		})
	})
}
