package agent

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/objstore"
)

// Every face answers the same whether rows are live, in the lake, or changed after a fold.
func TestFacesOfAKeyedTableAreTheSameAcrossAFold(t *testing.T) {
	store := objstore.NewMem()
	h := start(t, store)
	h.oneOrg("")
	h.must("POST", usersURL+"/rows", `{"org":1,"id":"c","name":"C","age":2}`+"\n"+`{"org":2,"id":"d","name":"D","age":3}`)
	h.must("POST", usersURL+"/fold", "")
	h.must("POST", usersURL+"/rows?columns=age", `{"org":1,"id":"c","age":9}`)
	h.must("POST", usersURL+"/rows?op=delete", `{"org":2,"id":"d"}`)
	check := func() {
		t.Helper()
		_, text := h.do("POST", usersURL+"/lookup", `{"keys":[{"org":1,"id":"a"},{"org":1,"id":"b"},{"org":1,"id":"c"},{"org":2,"id":"d"}],"columns":["name","age"]}`)
		require.Equal(t, `{"rows":[{"name":"A","age":7},null,{"name":"C","age":9},null]}`+"\n", text)
		res := h.must("POST", usersURL+"/lookup", `{"keys":[{"org":2},{"org":1}],"columns":["id"],"prefix":true}`)
		require.Empty(t, res["rows"].([]any)[0])
		require.ElementsMatch(t, []any{map[string]any{"id": "a"}, map[string]any{"id": "c"}}, res["rows"].([]any)[1])
		require.Equal(t, `{"name":"A","org":1,"id":"a","age":7,"plan":"free"}`+"\n"+`{"name":"C","org":1,"id":"c","age":9,"plan":"free"}`, h.scanned("users"))
		require.Equal(t, 2, h.count("users", "union"))
		require.ElementsMatch(t, []string{"INSERT a 7", "INSERT c 9"}, h.changesOf("start=snapshot"))
	}
	check()
	require.Equal(t, 3, h.count("users", "lake"))
	h.stop()
	h = start(t, store)
	check()
	h.must("POST", usersURL+"/fold", "")
	check()
	require.Equal(t, 2, h.count("users", "lake"))
	// The lake holds rows, not the changes that made them: a stream never shows them as such.
	require.Empty(t, h.changesOf("start=earliest"))
	_, answer := h.errorOf(410, "GET", usersURL+"/changes?start=offsets:"+h.bucketOf(), "")
	require.Equal(t, "out_of_range", answer["code"])
	h.must("POST", usersURL+"/rows?op=delete", `{"org":1,"id":"a"}`)
	require.Equal(t, []string{"DELETE a 7"}, h.changesOf("start=earliest"))
}

// bucketOf is the offset 0 of a bucket whose log has begun.
func (h *harness) bucketOf() string {
	h.t.Helper()
	for _, b := range h.must("GET", usersURL+"/offsets", "")["buckets"].([]any) {
		at := b.(map[string]any)
		require.Equal(h.t, at["lake"], at["earliest"])
		if at["end"].(float64) > 0 {
			return fmt.Sprintf("%v=0", at["bucket"])
		}
	}
	h.t.Fatal("no bucket has changes")
	return ""
}
