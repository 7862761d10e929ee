package agent

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/firn-data/firn/internal/objstore"
)

// everyType is a table with a column of every type, and rows at their limits in
// the form in which NDJSON gives them back.
const everyTypeColumns = `[
 {"name":"n","type":"int","required":true},
 {"name":"b","type":"boolean"},{"name":"i","type":"int"},{"name":"l","type":"long"},{"name":"f","type":"float"},{"name":"d","type":"double"},
 {"name":"dec","type":"decimal(38,10)"},{"name":"small","type":"decimal(5,2)"},{"name":"day","type":"date"},{"name":"t","type":"time"},
 {"name":"ts","type":"timestamp"},{"name":"tz","type":"timestamptz"},{"name":"s","type":"string"},{"name":"u","type":"uuid"},
 {"name":"fx","type":"fixed(4)"},{"name":"bin","type":"binary"},{"name":"li","type":"list<long>"},{"name":"m","type":"map<string,int>"},
 {"name":"st","type":"struct<x:int,y:list<string>>"}]`

var everyTypeRows = []string{
	`{"n":0,"b":true,"i":-2147483648,"l":-9223372036854775808,"f":-3.4028235e+38,"d":-1.7976931348623157e+308,"dec":"-9999999999999999999999999999.9999999999","small":"-999.99","day":"0001-01-01","t":"00:00:00","ts":"0001-01-01T00:00:00","tz":"0001-01-01T00:00:00Z","s":"","u":"00000000-0000-0000-0000-000000000000","fx":"AAAAAA==","bin":"","li":[],"m":{},"st":{"x":-2147483648,"y":[]}}`,
	`{"n":1,"b":false,"i":2147483647,"l":9223372036854775807,"f":1e-45,"d":5e-324,"dec":"9999999999999999999999999999.9999999999","small":"0.01","day":"9999-12-31","t":"23:59:59.999999","ts":"9999-12-31T23:59:59.999999","tz":"9999-12-31T23:59:59.999999Z","s":"é\u0000\"\\\n,🙂","u":"ffffffff-ffff-ffff-ffff-ffffffffffff","fx":"/////w==","bin":"AP8=","li":[9223372036854775807,null,-1],"m":{"a":1,"b":null},"st":{"x":null,"y":["",null,"x"]}}`,
	`{"n":2,"b":null,"i":null,"l":null,"f":"NaN","d":"NaN","dec":"0.0000000001","small":"0.00","day":"1970-01-01","t":"12:00:00.000001","ts":"1969-12-31T23:59:59.999999","tz":"1969-12-31T23:59:59.999999Z","s":"null","u":null,"fx":null,"bin":null,"li":null,"m":null,"st":null}`,
	`{"n":3,"b":null,"i":0,"l":9007199254740993,"f":"Infinity","d":"-Infinity","dec":null,"small":null,"day":null,"t":null,"ts":null,"tz":null,"s":null,"u":"123e4567-e89b-12d3-a456-426614174000","fx":"AQIDBA==","bin":"YQ==","li":[1],"m":{"":0},"st":{"x":0,"y":null}}`,
}

func TestEveryTypeComesBackAsItWasInEveryFormatLiveAndFolded(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	create := func(name string) {
		h.must("POST", "/v1/databases/shop/tables", `{"name":"`+name+`","columns":`+everyTypeColumns+`,"properties":{"fold_interval":"0"}}`)
	}
	create("src")
	want := strings.Join(everyTypeRows, "\n") + "\n"
	if n := h.must("POST", tableURL+"src/rows", want)["rows"]; n != 4.0 {
		t.Fatalf("%v rows", n)
	}
	for _, layer := range []string{"union", "lake"} {
		if layer == "lake" {
			h.must("POST", tableURL+"src/fold", "")
		}
		if _, got := h.do("GET", tableURL+"src/rows?layer="+layer, ""); got != want {
			t.Fatalf("%s:\n%s\nwant\n%s", layer, got, want)
		}
		for _, media := range []string{"application/x-ndjson", "application/json", "text/csv", "application/vnd.apache.arrow.stream", "application/vnd.apache.parquet"} {
			status, body := h.do("GET", tableURL+"src/rows?layer="+layer, "", "Accept", media)
			if status != http.StatusOK {
				t.Fatalf("%s: %d %s", media, status, body)
			}
			name := "copy-" + layer + "-" + strings.NewReplacer("/", "-", ".", "-").Replace(media)
			create(name)
			if n := h.must("POST", tableURL+name+"/rows", body, "Content-Type", media)["rows"]; n != 4.0 {
				t.Fatalf("%s: %v rows", media, n)
			}
			if _, got := h.do("GET", tableURL+name+"/rows", ""); got != want {
				t.Errorf("%s from %s:\n%s\nwant\n%s", media, layer, got, want)
			}
		}
	}
}

func TestValuesThatDoNotFitAreRefusedWithRowColumnAndReason(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	h.must("POST", "/v1/databases/shop/tables", `{"name":"t","columns":`+everyTypeColumns+`}`)
	for _, bad := range []string{
		`"b":1`, `"b":"yes"`, `"i":2147483648`, `"i":-2147483649`, `"i":1.5`, `"i":"x"`, `"i":true`, `"l":9223372036854775808`, `"l":1e19`, `"f":1e39`, `"f":"x"`,
		`"d":1e309`, `"dec":"10000000000000000000000000000"`, `"dec":"0.00000000001"`, `"small":1000`, `"small":"0.001"`, `"small":"NaN"`,
		`"day":"2026-02-30"`, `"day":"2026-1-1"`, `"t":"24:00:00"`, `"ts":"2026-01-01T00:00:00Z"`, `"tz":"2026-01-01T00:00:00"`,
		`"tz":"2026-01-01T00:00:00.0000001Z"`, `"ts":"2026-01-01T00:00:00.1234567"`, `"s":1`, `"s":{}`, `"u":"x"`, `"fx":"AAAA"`, `"fx":"!"`, `"bin":"a"`, `"bin":"a b="`,
		`"li":1`, `"li":["x"]`, `"m":{"a":"x"}`, `"st":{"z":1}`, `"st":[]`, `"n":null`, `"nope":1`,
	} {
		column, _, _ := strings.Cut(strings.TrimPrefix(bad, `"`), `"`)
		status, body := h.do("POST", tableURL+"t/rows", `{"n":1}`+"\n"+`{"n":2,`+bad+"}\n")
		if column == "n" {
			status, body = h.do("POST", tableURL+"t/rows", `{"n":1}`+"\n{"+bad+"}\n")
		}
		if status != http.StatusBadRequest || !strings.Contains(body, `"row":1`) || !strings.Contains(body, `"column":"`+column) || !strings.Contains(body, `"reason":"`) {
			t.Errorf("%s: %d %s", bad, status, body)
		}
	}
	if n := h.count("t", ""); n != 0 {
		t.Fatalf("%d rows of refused requests were applied", n)
	}
}

func TestCompressedBodiesAreTakenAndBombsRefused(t *testing.T) {
	h := start(t, objstore.NewMem(), func(c *Config) { c.MaxRequestBytes = 1 << 20 })
	h.createTable("orders", 1)
	zw, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	compress := map[string]func(string) string{
		"gzip": func(s string) string {
			var b bytes.Buffer
			w := gzip.NewWriter(&b)
			_, _ = w.Write([]byte(s))
			_ = w.Close()
			return b.String()
		},
		"zstd": func(s string) string { return string(zw.EncodeAll([]byte(s), nil)) },
	}
	for name, f := range compress {
		if n := h.must("POST", tableURL+"orders/rows", f(rowsBody(0, 100)), "Content-Encoding", name)["rows"]; n != 100.0 {
			t.Errorf("%s: %v rows", name, n)
		}
		bomb := f(strings.Repeat(`{"id":1,"name":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}`+"\n", 200_000))
		status, body := h.do("POST", tableURL+"orders/rows", bomb, "Content-Encoding", name)
		if status != http.StatusRequestEntityTooLarge || !strings.Contains(body, "1048576") {
			t.Errorf("%s bomb of %d bytes: %d %s", name, len(bomb), status, body)
		}
		status, body = h.do("POST", tableURL+"orders/rows", f(rowsBody(0, 1000))[:200], "Content-Encoding", name)
		if status != http.StatusBadRequest {
			t.Errorf("%s cut: %d %s", name, status, body)
		}
	}
	if n := h.count("orders", ""); n != 200 {
		t.Errorf("%d rows", n)
	}
}
