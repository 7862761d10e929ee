package agent

import (
	"fmt"
	"iter"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// A reader keeps the columns that it began with over changes of the table, from
// the live rows and from the lake; it ends, and says why, only when newer rows do
// not fit them.
func TestAFollowerGoesOnOverAChangeOfTheTable(t *testing.T) {
	for _, layer := range []string{"live", "lake"} {
		t.Run(layer, func(t *testing.T) {
			h := start(t, objstore.NewMem())
			h.do("POST", "/v1/databases", `{"name":"shop"}`)
			h.must("POST", "/v1/databases/shop/tables", `{"name":"a","properties":{"fold_interval":"0"},"columns":[
				{"name":"id","type":"int"},{"name":"note","type":"string"},{"name":"gone","type":"string"}]}`)
			h.must("POST", tableURL+"a/rows", `{"id":0,"note":"n","gone":"g"}`)
			next := follow(t, h, "a")
			if got, err := next(); err != nil || got != `{"gone":"g","id":0,"note":"n"}` {
				t.Fatalf("before a change: %s %v", got, err)
			}
			change := func(change, row string) (string, error) {
				h.must("PATCH", tableURL+"a", `{"changes":[`+change+`]}`)
				h.must("POST", tableURL+"a/rows", row)
				if layer == "lake" {
					h.must("POST", tableURL+"a/fold", "")
				}
				return next()
			}
			for i, c := range []struct{ change, row, want string }{
				{`{"rename_column":{"from":"note","to":"text"}}`, `"text":"n","gone":"g"`, `{"gone":"g","id":%d,"note":"n"}`},
				{`{"add_column":{"name":"extra","type":"long","default":7}}`, `"text":"n","extra":1`, `{"gone":null,"id":%d,"note":"n"}`},
				{`{"drop_column":{"name":"gone"}}`, `"text":"n"`, `{"gone":null,"id":%d,"note":"n"}`},
			} {
				got, err := change(c.change, fmt.Sprintf(`{"id":%d,%s}`, i+1, c.row))
				if want := fmt.Sprintf(c.want, i+1); err != nil || got != want {
					t.Fatalf("after %s: %s %v, want %s", c.change, got, err, want)
				}
			}
			got, err := change(`{"widen_column":{"name":"id","type":"long"}}`, `{"id":5000000000}`)
			if !errs.Is(err, errs.Conflict) || !strings.Contains(err.Error(), "was altered since this stream began") {
				t.Fatalf("after a column was widened: %s %v", got, err)
			}
		})
	}
}

// follow opens a stream inside the agent; each call returns the next row.
func follow(t *testing.T, h *harness, table string) func() (string, error) {
	t.Helper()
	n, err := h.agent.owner()
	if err != nil {
		t.Fatal(err)
	}
	def, err := h.agent.meta.State().TableByName("shop", table)
	if err != nil {
		t.Fatal(err)
	}
	s, err := n.Changes(t.Context(), def, ChangesRequest{Follow: true})
	if err != nil {
		t.Fatal(err)
	}
	pull, stop := iter.Pull2(s.Batches)
	t.Cleanup(stop)
	return func() (string, error) {
		for {
			b, err, ok := pull()
			if err != nil || !ok {
				return "", err
			}
			if b.Rows != nil {
				text, err := array.RecordToStructArray(b.Rows).MarshalJSON()
				return strings.Trim(string(text), "[]\n"), err
			}
		}
	}
}
