package rows_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/segments/segtest"
)

// event decodes one change event of a table with columns id and c; it returns the
// value of c, or why the row is refused.
func event(t testing.TB, typ, body string) (string, error) {
	t.Helper()
	s := segtest.Schema("id long", "c "+typ)
	chunks, d, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Debezium: true, Key: []string{"id"}, SkipBadRows: true})
	if err != nil {
		return "", err
	}
	if total, bad := d.Rejected(); total > 0 {
		return "", fmt.Errorf("%s", bad[0].String())
	}
	require.Len(t, chunks, 1)
	out := string(encode(t, s, rows.EncodeOptions{}, chunks[0].Rows))
	return strings.TrimSuffix(strings.TrimPrefix(out, `{"id":1,"c":`), "}\n"), nil
}

// wrapped is a create event in the wrapper {schema, payload}.
func wrapped(name, parameters, value string) string {
	field := fmt.Sprintf(`{"type":"int64","optional":true,"name":%q,"version":1,"parameters":%s,"field":"c"}`, name, parameters)
	schema := `{"type":"struct","fields":[{"type":"struct","fields":[{"type":"int64","field":"id"},` + field + `],"optional":true,"field":"after"}],"name":"envelope"}`
	return `{"schema":` + schema + `,"payload":{"op":"c","before":null,"after":{"id":1,"c":` + value + `},"source":{"op":"x"},"ts_ms":5}}`
}

func TestChangeEventsBecomeUpsertsAndDeletesInOrder(t *testing.T) {
	s := segtest.Schema("id long required", "name string required", "note string")
	body := strings.Join([]string{
		`{"op":"r","before":null,"after":{"id":1,"name":"a","note":null},"source":{"db":"x"},"transaction":null}`,
		`{"schema":null,"payload":{"op":"u","before":{"id":1,"name":"a"},"after":{"id":1,"name":"b","note":"n"}}}`,
		`null`,
		`{"op":"d","before":{"id":1},"after":null}`,
		`{"payload":null}`,
		`{"op":"t","before":null,"after":null}`,
		`{"op":"m","message":{}}`,
		`{"id":5,"name":"flat"}`,
		`{"op":"d","before":null,"after":null}`,
		`{"op":"c","before":null}`,
		`{"op":"c","after":{"id":7}}`,
		`[1]`,
		`{"op":"d","before":{"id":2,"name":"__debezium_unavailable_value","other":{"x":[1]}},"after":null}`,
		`{"op":"c","after":{"id":3,"name":"c","note":"__debezium_unavailable_value"}}`,
		`{"op":"c","op":"d","after":{"id":3,"name":"c"}}`,
		`{"op":"c","after":{"id":4,"name":"d"}}`,
	}, "\n")
	for _, f := range []rows.Format{rows.NDJSON, rows.JSON} {
		text := body
		if f == rows.JSON {
			text = "[" + strings.ReplaceAll(body, "\n", ",") + "]"
		}
		chunks, d, err := decode(t, []byte(text), rows.DecodeOptions{Schema: s, Format: f, Debezium: true, Key: []string{"id"}, SkipBadRows: true})
		require.NoError(t, err)
		require.Len(t, chunks, 1)
		require.Equal(t, []int64{0, 1, 3, 12, 15}, chunks[0].Ordinals)
		require.Equal(t, []bool{false, false, true, true, false}, chunks[0].Deletes)
		require.Equal(t, int64(16), d.Rows())
		total, bad := d.Rejected()
		require.Equal(t, int64(9), total)
		for i, want := range []string{"truncates", `"op" must be`, `no "op"`, `needs "before"`, `no "after"`, `"name": the column is required`, "JSON object", "REPLICA IDENTITY FULL", "twice"} {
			require.Contains(t, bad[i].String(), want)
		}
		_, _, err = decode(t, []byte(text), rows.DecodeOptions{Schema: s, Format: f, Debezium: true, Key: []string{"id"}})
		require.True(t, errs.Is(err, errs.Invalid), "%v", err)
	}
	_, err := rows.NewDecoder(strings.NewReader(""), rows.DecodeOptions{Schema: s, Format: rows.CSV, Debezium: true})
	require.True(t, errs.Is(err, errs.Unsupported), "%v", err)
}

func TestValuesOfChangeEventsAreReadByTheirSchema(t *testing.T) {
	for _, c := range []struct{ typ, name, parameters, in, out string }{
		{"date", "io.debezium.time.Date", "{}", "19782", `"2024-02-29"`},
		{"date", "org.apache.kafka.connect.data.Date", "{}", "-1", `"1969-12-31"`},
		{"date", "io.debezium.time.Timestamp", "{}", "1709164800000", `"2024-02-29"`},
		{"date", "io.debezium.time.Timestamp", "{}", "1709164800001", "not the start of a day"},
		{"date", "io.debezium.time.IsoDate", "{}", `"2024-02-29Z"`, `"2024-02-29"`},
		{"time", "io.debezium.time.Time", "{}", "3600001", `"01:00:00.001000"`},
		{"time", "io.debezium.time.MicroTime", "{}", "3600000001", `"01:00:00.000001"`},
		{"time", "io.debezium.time.NanoTime", "{}", "3600000001000", `"01:00:00.000001"`},
		{"time", "io.debezium.time.NanoTime", "{}", "3600000001001", "finer than a microsecond"},
		{"time", "io.debezium.time.MicroTime", "{}", "86400000000", "outside of a day"},
		{"time", "io.debezium.time.Timestamp", "{}", "1", "does not fit"},
		{"time", "io.debezium.time.ZonedTime", "{}", `"10:15:30Z"`, `"10:15:30"`},
		{"timestamp", "io.debezium.time.Timestamp", "{}", "1709210096789", `"2024-02-29T12:34:56.789000"`},
		{"timestamp", "org.apache.kafka.connect.data.Timestamp", "{}", "-1", `"1969-12-31T23:59:59.999000"`},
		{"timestamp", "io.debezium.time.MicroTimestamp", "{}", "1709210096789012", `"2024-02-29T12:34:56.789012"`},
		{"timestamp", "io.debezium.time.NanoTimestamp", "{}", "1709210096789012000", `"2024-02-29T12:34:56.789012"`},
		{"timestamp", "io.debezium.time.Timestamp", "{}", "9223372036854775807", "outside the range"},
		{"timestamp", "io.debezium.time.IsoTimestamp", "{}", `"2024-02-29T12:34:56Z"`, `"2024-02-29T12:34:56"`},
		{"timestamp", "io.debezium.time.MicroTimestamp", "{}", `"x"`, "timestamp"},
		{"timestamptz", "io.debezium.time.ZonedTimestamp", "{}", `"2024-02-29T13:34:56+01:00"`, `"2024-02-29T12:34:56Z"`},
		{"decimal(10,2)", "org.apache.kafka.connect.data.Decimal", `{"scale":"2","connect.decimal.precision":"10"}`, `"1234"`, `"-26588.24"`},
		{"decimal(10,2)", "org.apache.kafka.connect.data.Decimal", `{"scale":"2"}`, `"MDk="`, `"123.45"`},
		{"decimal(10,4)", "org.apache.kafka.connect.data.Decimal", `{"scale":"2"}`, `"MDk="`, `"123.4500"`},
		{"decimal(10,2)", "org.apache.kafka.connect.data.Decimal", `{"scale":"2"}`, `"/w=="`, `"-0.01"`},
		{"decimal(10,2)", "org.apache.kafka.connect.data.Decimal", `{"scale":"2"}`, `"AA=="`, `"0.00"`},
		{"decimal(10,2)", "org.apache.kafka.connect.data.Decimal", `{"scale":"2"}`, `"?"`, "not a decimal"},
		{"decimal(10,2)", "io.debezium.data.VariableScaleDecimal", "{}", `{"scale":1,"value":"MDk="}`, `"1234.50"`},
		{"string", "org.apache.kafka.connect.data.Decimal", `{"scale":"2"}`, `"MDk="`, `"123.45"`},
		{"double", "org.apache.kafka.connect.data.Decimal", `{"scale":"2"}`, `"MDk="`, `123.45`},
		{"binary", "", "{}", `"AQI="`, `"AQI="`},
		{"uuid", "io.debezium.data.Uuid", "{}", `"00000000-0000-0000-0000-000000000001"`, `"00000000-0000-0000-0000-000000000001"`},
		{"string", "io.debezium.data.Json", "{}", `"{\"a\":1}"`, `"{\"a\":1}"`},
	} {
		got, err := event(t, c.typ, wrapped(c.name, c.parameters, c.in))
		if err != nil {
			got = err.Error()
		}
		require.Contains(t, got, c.out, "%s of %s from %s", c.in, c.name, c.typ)
	}
}

func TestValuesOfChangeEventsWithoutASchemaAreReadByTheColumn(t *testing.T) {
	for _, c := range []struct{ typ, in, out string }{
		{"date", "19782", `"2024-02-29"`}, {"time", "3600000001", `"01:00:00.000001"`},
		{"timestamp", "1709210096789012", `"2024-02-29T12:34:56.789012"`},
		{"decimal(10,2)", `"123.45"`, `"123.45"`}, {"decimal(10,2)", `"MDk="`, `"123.45"`}, {"decimal(10,2)", "123.45", `"123.45"`},
		{"decimal(10,2)", `"NaN"`, "neither a decimal"}, {"decimal(10,2)", `"Infinity"`, "neither a decimal"},
	} {
		got, err := event(t, c.typ, `{"op":"c","after":{"id":1,"c":`+c.in+`}}`)
		if err != nil {
			got = err.Error()
		}
		require.Contains(t, got, c.out, "%s in %s", c.in, c.typ)
	}
}

func TestOtherColumnsOfTheTableArePassedOverOnRequest(t *testing.T) {
	s := segtest.Schema("id long", "a string required", "b string")
	for _, f := range []rows.Format{rows.NDJSON, rows.JSON, rows.CSV} {
		for _, unknown := range []bool{false, true} {
			body := `{"id":1,"a":7,"b":{}}`
			if unknown {
				body = `{"id":1,"zz":7}`
			}
			if f == rows.CSV {
				body = "id,b,a\n1,x,y\n"
				if unknown {
					body = "id,zz\n1,x\n"
				}
			}
			chunks, _, err := decode(t, []byte(body), rows.DecodeOptions{Schema: s, Format: f, Columns: []string{"id"}, PassOthers: true})
			if unknown {
				require.ErrorContains(t, err, "zz")
				continue
			}
			require.NoError(t, err)
			require.Equal(t, int64(1), chunks[0].Rows.NumCols())
		}
	}
	whole := encode(t, s, rows.EncodeOptions{Format: rows.ArrowStream}, chunkOf(t, s))
	for _, f := range []rows.Format{rows.ArrowStream, rows.Parquet} {
		body := whole
		if f == rows.Parquet {
			body = encode(t, s, rows.EncodeOptions{Format: rows.Parquet}, chunkOf(t, s))
		}
		chunks, _, err := decode(t, body, rows.DecodeOptions{Schema: s, Format: f, Columns: []string{"id"}, PassOthers: true})
		require.NoError(t, err)
		require.Equal(t, int64(1), chunks[0].Rows.NumCols())
		_, _, err = decode(t, body, rows.DecodeOptions{Schema: s, Format: f, Columns: []string{"id"}})
		require.ErrorContains(t, err, "not among the columns asked for")
	}
}

func chunkOf(t testing.TB, s *segments.Schema) arrow.RecordBatch {
	t.Helper()
	chunks, _, err := decode(t, []byte(`{"id":1,"a":"x"}`), rows.DecodeOptions{Schema: s})
	require.NoError(t, err)
	return chunks[0].Rows
}

// FuzzChangeEvents: no body makes the decoder panic, and every row that it gives
// has a key, and marks for all rows or none.
func FuzzChangeEvents(f *testing.F) {
	s := segtest.Schema("id long required", "c decimal(10,2)", "t timestamp", "d date", "n string required")
	f.Add([]byte(wrapped("io.debezium.time.Timestamp", `{"scale":"2"}`, "5")))
	f.Add([]byte(`{"op":"c","after":{"id":1,"c":"MDk=","t":5,"d":-3,"n":"x"}}` + "\nnull\n" + `{"payload":{"op":"d","before":{"id":1}}}`))
	f.Add([]byte(wrapped("io.debezium.data.VariableScaleDecimal", "{}", `{"scale":3,"value":"AA=="}`)))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, format := range []rows.Format{rows.NDJSON, rows.JSON} {
			chunks, _, _ := decode(t, body, rows.DecodeOptions{Schema: s, Format: format, Debezium: true, Key: []string{"id"}, SkipBadRows: true, MaxBytes: 1 << 20})
			for _, c := range chunks {
				require.Zero(t, c.Rows.Column(0).NullN())
				require.True(t, c.Deletes == nil || len(c.Deletes) == int(c.Rows.NumRows()))
			}
		}
	})
}
