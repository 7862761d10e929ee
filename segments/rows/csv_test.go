package rows_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

func TestCSVFieldsBecomeValues(t *testing.T) {
	s := segtest.Schema("a int", "s string", "l list<int>", "b boolean", "d decimal(10,2)", "t timestamptz")
	body := "\xef\xbb\xbfs,a,l,b,d,t\r\n" +
		"\"x \"\"y\"\", z\r\nnext\",1,\"[1,2]\",true,1.5,2001-01-01T00:00:00Z\r\n" +
		"\"\",,\"\",FALSE,-0.01,978307200000000\n" +
		"\r\n\n" +
		",-5,,,,"
	chunks, _, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: rows.CSV})
	require.NoError(t, err)
	require.Equal(t, `{"a":1,"s":"x \"y\", z\r\nnext","l":[1,2],"b":true,"d":"1.50","t":"2001-01-01T00:00:00Z"}
{"a":null,"s":"","l":null,"b":false,"d":"-0.01","t":"2001-01-01T00:00:00Z"}
{"a":-5,"s":null,"l":null,"b":null,"d":null,"t":null}
`, string(encode(t, s, rows.EncodeOptions{}, chunks[0].Rows)))
}

func TestCSVOfOneColumnTakesBlankLinesAsNull(t *testing.T) {
	s := segtest.Schema("a int")
	_, d, err := decode(t, []byte("a\n1\n\n3\n"), rows.DecodeOptions{Schema: s, Format: rows.CSV})
	require.NoError(t, err)
	require.Equal(t, int64(3), d.Rows())
}

func TestBadCSVRecordsAreRowErrors(t *testing.T) {
	s := segtest.Schema("a int required", "s string")
	body := "a,s\n1,x\n2\n3,x,y\nz,x\n,x\n4,a\"b\n5,\"a\"b\n1.5,x\n6,\"\xff\"\n7,ok\n"
	chunks, d, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: rows.CSV, SkipBadRows: true})
	require.NoError(t, err)
	require.Equal(t, []int64{0, 9}, chunks[0].Ordinals)
	_, bad := d.Rejected()
	var got []string
	for _, e := range bad {
		got = append(got, e.String())
	}
	require.Equal(t, []string{
		"row 1: the record has 1 fields, the header 2",
		"row 2: the record has 3 fields, the header 2",
		`row 3, column "a": not an integer`,
		`row 4, column "a": the column is required: null is not a value`,
		"row 5: a quote inside a CSV field that does not start with one",
		"row 6: text after the closing quote of a CSV field",
		`row 7, column "a": not an integer: the fraction would be lost`,
		`row 8, column "s": not valid UTF-8`,
	}, got)
}

func TestCSVHeaderMustFitTheTable(t *testing.T) {
	s := segtest.Schema("a int required", "s string")
	for body, want := range map[string]string{
		"a,x\n1,2\n": `column "x", which the table does not have`, "s\nx\n": `lacks the required column "a"`, "a,a\n": "twice",
		"a,\"s\n1,2": "closing quote", "a\"b,s\n": "header is broken", "a,\xff\n": "UTF-8", "A,s\n": `column "A"`,
	} {
		_, _, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: rows.CSV})
		require.True(t, errs.Is(err, errs.Invalid), body)
		require.ErrorContains(t, err, want, body)
	}
	chunks, _, err := decode(t, []byte("x,a,y\n1,2,3\n"), rows.DecodeOptions{Schema: s, Format: rows.CSV, IgnoreUnknown: true})
	require.NoError(t, err)
	require.Equal(t, "2", segtest.Format(chunks[0].Rows.Column(0), 0))
	for _, empty := range []string{"", "a,s", "a,s\n", "\n\n"} {
		chunks, _, err := decode(t, []byte(empty), rows.DecodeOptions{Schema: s, Format: rows.CSV})
		require.NoError(t, err)
		require.Empty(t, chunks)
	}
}

func TestQuotedFieldOpenAtTheEndIsInvalid(t *testing.T) {
	s := segtest.Schema("a int", "s string")
	_, _, err := decode(t, []byte("a,s\n1,x\n2,\"open\n"+strings.Repeat("3,y\n", 10)), rows.DecodeOptions{Schema: s, Format: rows.CSV, SkipBadRows: true})
	require.True(t, errs.Is(err, errs.Invalid))
	require.ErrorContains(t, err, "closing quote")
}
