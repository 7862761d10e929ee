package agent

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/objstore"
)

// A uuid and a fixed(16) have one Arrow type; every face must tell them apart.
func TestAFixedOf16BytesIsNeverTakenForAUUID(t *testing.T) {
	h := start(t, objstore.NewMem())
	h.do("POST", "/v1/databases", `{"name":"shop"}`)
	const columns = `"columns":[{"name":"u","type":"uuid"},{"name":"f","type":"fixed(16)"},{"name":"l","type":"list<fixed(16)>"},
		{"name":"m","type":"map<string,fixed(16)>"},{"name":"s","type":"struct<u:uuid,f:fixed(16)>"}]`
	h.must("POST", "/v1/databases/shop/tables", `{"name":"t","properties":{"fold_interval":"0"},`+columns+`}`)
	const row = `{"u":"01020304-0506-0708-090a-0b0c0d0e0f10","f":"AQIDBAUGBwgJCgsMDQ4PEA==","l":["AQIDBAUGBwgJCgsMDQ4PEA=="],` +
		`"m":{"k":"AQIDBAUGBwgJCgsMDQ4PEA=="},"s":{"u":"01020304-0506-0708-090a-0b0c0d0e0f10","f":"AQIDBAUGBwgJCgsMDQ4PEA=="}}`
	const csv = `01020304-0506-0708-090a-0b0c0d0e0f10,AQIDBAUGBwgJCgsMDQ4PEA==,"[""AQIDBAUGBwgJCgsMDQ4PEA==""]",` +
		`"{""k"":""AQIDBAUGBwgJCgsMDQ4PEA==""}","{""u"":""01020304-0506-0708-090a-0b0c0d0e0f10"",""f"":""AQIDBAUGBwgJCgsMDQ4PEA==""}"`
	h.must("POST", tableURL+"t/rows", row)
	for _, where := range []string{"live", "lake", "renamed"} {
		switch where {
		case "lake":
			h.must("POST", tableURL+"t/fold", "")
		case "renamed":
			h.must("PATCH", tableURL+"t", `{"changes":[{"rename_column":{"from":"f","to":"g"}}]}`)
		}
		want, head, one := row, "u,f,l,m,s\n", "f"
		if where == "renamed" {
			want, head, one = strings.Replace(row, `"f"`, `"g"`, 1), "u,g,l,m,s\n", "g"
		}
		for _, c := range []struct{ path, accept, want string }{
			{"rows", "application/x-ndjson", want + "\n"},
			{"rows", "application/json", "[" + want + "]\n"},
			{"rows", "text/csv", head + csv + "\n"},
			{"rows?columns=" + one, "", `{"` + one + `":"AQIDBAUGBwgJCgsMDQ4PEA=="}` + "\n"},
			{"rows?columns=s&where=" + url.QueryEscape(one+" IS NOT NULL"), "", `{"s":{"u":"01020304-0506-0708-090a-0b0c0d0e0f10","f":"AQIDBAUGBwgJCgsMDQ4PEA=="}}` + "\n"},
			{"changes", "application/x-ndjson", `"INSERT",` + want[1:] + "\n"},
			{"changes", "text/csv", "INSERT," + csv + "\n"},
			{"changes", "text/event-stream", `"INSERT",` + want[1:] + "\n\n"},
		} {
			status, got := h.do("GET", tableURL+"t/"+c.path, "", "Accept", c.accept)
			exact := strings.HasPrefix(c.path, "rows")
			if status != http.StatusOK || exact && got != c.want || !strings.HasSuffix(got, c.want) {
				t.Errorf("%s: %s as %s: %d\n%s\nwant\n%s", where, c.path, c.accept, status, got, c.want)
			}
		}
	}
}
