package lakehouse

import (
	"log/slog"
	"net/http"
)

// WriteCatalogError answers a request to the catalog that was refused before it
// reached the handler, such as one without a valid token, in Iceberg's form.
func WriteCatalogError(w http.ResponseWriter, r *http.Request, err error) {
	(&catalogHandler{logger: slog.New(slog.DiscardHandler)}).fail(w, r, err)
}

// Warehouse returns the URI under which all tables of the lake lie.
func (l *Lake) Warehouse() string { return l.uri("lake") }
