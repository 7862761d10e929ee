package agent

import (
	"testing"

	"github.com/firn-data/firn/internal/objstore"
)

func TestAgentsThatLiveForOneFoldLeaveNoPileOfFiles(t *testing.T) {
	store := objstore.NewMem()
	const lives = 12
	for life := range lives {
		h := start(t, store)
		if life == 0 {
			h.do("POST", "/v1/databases", `{"name":"shop"}`)
			h.must("POST", "/v1/databases/shop/tables", `{"name":"orders","columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"properties":{"fold_interval":"100ms"}}`)
		}
		h.must("POST", tableURL+"orders/rows", rowsBody(life*10, life*10+10))
		waitUntil(t, func() bool { return h.count("orders", "lake") == (life+1)*10 })
		waitUntil(t, func() bool { return h.lakeFiles("orders") < 5 }) // four are joined
		h.stop()
	}
}

// lakeFiles is how many data files a table has.
func (h *harness) lakeFiles(table string) int64 {
	h.t.Helper()
	def, _, err := h.agent.tableAndOwner(h.t.Context(), "shop", table)
	if err != nil {
		h.t.Fatal(err)
	}
	snap, err := h.agent.loadLake(h.t.Context(), h.agent.lakeDef(def))
	if err != nil {
		h.t.Fatal(err)
	}
	return snap.FileCount
}
