package lakehouse

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/firn-data/firn/internal/errs"
)

// CatalogPath is where agents mount the Iceberg REST catalog.
const CatalogPath = "/iceberg"

// namespaceSeparator joins the levels of a namespace in the REST protocol.
const namespaceSeparator = "\x1f"

// maxMetricsBytes bounds what is read of a client's metrics report before it is dropped.
const maxMetricsBytes = 1 << 20

// maxListPage bounds one page of names when the client asks for pages.
const maxListPage = 10000

// catalogEndpoints are the routes that clients may use. Views are listed as
// empty so that engines that ask get an answer; loading one is left out, which
// saves engines a request for each table name that they resolve.
var catalogEndpoints = []string{
	"GET /v1/{prefix}/namespaces",
	"GET /v1/{prefix}/namespaces/{namespace}",
	"HEAD /v1/{prefix}/namespaces/{namespace}",
	"GET /v1/{prefix}/namespaces/{namespace}/tables",
	"GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}",
	"POST /v1/{prefix}/namespaces/{namespace}/tables/{table}/metrics",
	"GET /v1/{prefix}/namespaces/{namespace}/views",
}

type catalogHandler struct {
	backend     CatalogBackend
	properties  map[string]string
	tableConfig map[string]string
	warehouse   string
	logger      *slog.Logger
}

// NewCatalogHandler returns the read-only Iceberg REST catalog. It serves
// v1/… below CatalogPath, whether or not the caller strips that prefix, and is
// safe for concurrent use.
func NewCatalogHandler(backend CatalogBackend, opts CatalogOptions) http.Handler {
	h := &catalogHandler{
		backend:    backend,
		properties: opts.properties(),
		warehouse:  opts.Warehouse,
		logger:     opts.Logger,
	}
	if h.logger == nil {
		h.logger = slog.New(slog.DiscardHandler)
	}
	h.tableConfig = maps.Clone(h.properties)
	maps.Copy(h.tableConfig, opts.Credentials)
	return h
}

// ServeHTTP answers one request of the Iceberg REST protocol.
func (h *catalogHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, err := splitCatalogPath(r.URL.EscapedPath())
	if err != nil {
		h.fail(w, r, restError{http.StatusBadRequest, "BadRequestException", err.Error(), 0})
		return
	}
	switch {
	case len(path) == 0 || path[0] != "v1":
		h.fail(w, r, noRoute(r))
	case len(path) == 2 && path[1] == "config":
		h.read(w, r, h.config)
	case len(path) >= 3 && path[1] == "oauth":
		h.oauth(w)
	case len(path) >= 2 && path[1] == "namespaces":
		h.namespaces(w, r, path[2:])
	case len(path) >= 2 && r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.fail(w, r, readOnly(r)) // transactions, renames, table registration
	default:
		h.fail(w, r, noRoute(r))
	}
}

func (h *catalogHandler) namespaces(w http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case len(path) == 0:
		h.read(w, r, h.listNamespaces)
	case len(path) == 1:
		h.read(w, r, func(r *http.Request) (any, error) { return h.namespace(r.Context(), path[0]) })
	case path[1] == "tables" && len(path) == 2:
		h.read(w, r, func(r *http.Request) (any, error) { return h.listTables(r, path[0]) })
	case path[1] == "tables" && len(path) == 3:
		h.table(w, r, path[0], path[2])
	case path[1] == "tables" && len(path) == 4 && path[3] == "metrics" && r.Method == http.MethodPost:
		_, _ = io.Copy(io.Discard, http.MaxBytesReader(w, r.Body, maxMetricsBytes))
		w.WriteHeader(http.StatusNoContent)
	case path[1] == "views" && len(path) == 2:
		h.read(w, r, func(r *http.Request) (any, error) { return h.listViews(r.Context(), path[0]) })
	case path[1] == "views" && len(path) == 3:
		h.read(w, r, func(*http.Request) (any, error) {
			return nil, restError{http.StatusNotFound, "NoSuchViewException", "View does not exist: " + display(path[0]) + "." + path[2], 0}
		})
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.fail(w, r, readOnly(r))
	default:
		h.fail(w, r, noRoute(r))
	}
}

// read answers GET with what fn returns, HEAD with its status alone (204), and
// every other method with the refusal of a read-only catalog.
func (h *catalogHandler) read(w http.ResponseWriter, r *http.Request, fn func(*http.Request) (any, error)) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.fail(w, r, readOnly(r))
		return
	}
	body, err := fn(r)
	switch {
	case err != nil:
		h.fail(w, r, err)
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusNoContent)
	default:
		writeJSON(w, http.StatusOK, body)
	}
}

func (h *catalogHandler) config(*http.Request) (any, error) {
	overrides := map[string]string{}
	if h.warehouse != "" {
		overrides["warehouse"] = h.warehouse
	}
	return map[string]any{"defaults": h.properties, "overrides": overrides, "endpoints": catalogEndpoints}, nil
}

func (h *catalogHandler) listNamespaces(r *http.Request) (any, error) {
	if parent := r.URL.Query().Get("parent"); parent != "" {
		if err := h.checkNamespace(r.Context(), parent); err != nil {
			return nil, err
		}
		return map[string]any{"namespaces": [][]string{}, "next-page-token": nil}, nil
	}
	names, err := h.backend.ListNamespaces(r.Context())
	if err != nil {
		return nil, err
	}
	names, next, err := page(r, names)
	if err != nil {
		return nil, err
	}
	namespaces := make([][]string, 0, len(names))
	for _, name := range names {
		namespaces = append(namespaces, []string{name})
	}
	return map[string]any{"namespaces": namespaces, "next-page-token": next}, nil
}

func (h *catalogHandler) namespace(ctx context.Context, namespace string) (any, error) {
	if err := h.checkNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	return map[string]any{"namespace": []string{namespace}, "properties": map[string]string{}}, nil
}

func (h *catalogHandler) checkNamespace(ctx context.Context, namespace string) error {
	_, err := h.tableNames(ctx, namespace)
	return err
}

func (h *catalogHandler) tableNames(ctx context.Context, namespace string) ([]string, error) {
	if namespace == "" || strings.Contains(namespace, namespaceSeparator) {
		return nil, noNamespace(namespace)
	}
	names, err := h.backend.ListTables(ctx, namespace)
	if errs.Is(err, errs.NotFound) {
		return nil, noNamespace(namespace)
	}
	return names, err
}

func (h *catalogHandler) listTables(r *http.Request, namespace string) (any, error) {
	names, err := h.tableNames(r.Context(), namespace)
	if err != nil {
		return nil, err
	}
	names, next, err := page(r, names)
	if err != nil {
		return nil, err
	}
	type identifier struct {
		Namespace []string `json:"namespace"`
		Name      string   `json:"name"`
	}
	identifiers := make([]identifier, 0, len(names))
	for _, name := range names {
		identifiers = append(identifiers, identifier{[]string{namespace}, name})
	}
	return map[string]any{"identifiers": identifiers, "next-page-token": next}, nil
}

func (h *catalogHandler) listViews(ctx context.Context, namespace string) (any, error) {
	if err := h.checkNamespace(ctx, namespace); err != nil {
		return nil, err
	}
	return map[string]any{"identifiers": []string{}, "next-page-token": nil}, nil
}

// table answers for one table. HEAD never folds: it asks only for existence.
func (h *catalogHandler) table(w http.ResponseWriter, r *http.Request, namespace, name string) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.fail(w, r, readOnly(r))
		return
	}
	refsOnly := false
	switch mode := r.URL.Query().Get("snapshots"); mode {
	case "", "all":
	case "refs":
		refsOnly = true
	default:
		h.fail(w, r, restError{http.StatusBadRequest, "BadRequestException", "snapshots must be all or refs, not " + strconv.Quote(mode), 0})
		return
	}
	location, metadata, err := h.load(r, namespace, name)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	etag := `"` + strconv.FormatUint(xxh3.HashString(location), 16) + "-" + strconv.FormatBool(refsOnly) + `"`
	w.Header().Set("ETag", etag)
	if matchesETag(r.Header.Values("If-None-Match"), etag) {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if refsOnly {
		if metadata, err = referencedSnapshots(metadata); err != nil {
			h.fail(w, r, errs.Wrap(errs.Corrupt, "read iceberg metadata "+location, err))
			return
		}
	}
	w.Header().Set("Cache-Control", "no-store") // it may hold credentials, and a fold makes it new
	writeJSON(w, http.StatusOK, map[string]any{
		"metadata-location": location,
		"metadata":          json.RawMessage(metadata),
		"config":            h.tableConfig,
	})
}

func (h *catalogHandler) load(r *http.Request, namespace, name string) (string, []byte, error) {
	missing := restError{http.StatusNotFound, "NoSuchTableException", "Table does not exist: " + display(namespace) + "." + name, 0}
	table, lakeOnly := strings.CutSuffix(name, SuffixLake)
	if namespace == "" || strings.Contains(namespace, namespaceSeparator) || table == "" || strings.Contains(table, namespaceSeparator) {
		return "", nil, missing
	}
	foldFirst := !lakeOnly && r.Method == http.MethodGet
	location, metadata, err := h.backend.Load(r.Context(), namespace, table, foldFirst)
	if errs.Is(err, errs.NotFound) {
		return "", nil, missing
	}
	return location, metadata, err
}

// oauth refuses the token endpoint that some clients call on their own: bearer
// tokens are configured, not minted.
func (h *catalogHandler) oauth(w http.ResponseWriter) {
	writeJSON(w, http.StatusBadRequest, map[string]string{
		"error":             "unsupported_grant_type",
		"error_description": "this catalog mints no tokens: give the client a static bearer token, or authentication type none",
	})
}

// splitCatalogPath returns the decoded elements of an escaped path, without the
// mount point. Decoding comes after the split, so that %2F stays in its element.
func splitCatalogPath(escaped string) ([]string, error) {
	escaped = strings.Trim(escaped, "/")
	mount := strings.Trim(CatalogPath, "/")
	if escaped == mount {
		escaped = ""
	} else {
		escaped = strings.TrimPrefix(escaped, mount+"/")
	}
	if escaped == "" {
		return nil, nil
	}
	parts := strings.Split(escaped, "/")
	for i, part := range parts {
		decoded, err := url.PathUnescape(part)
		if err != nil {
			return nil, err
		}
		parts[i] = decoded
	}
	return parts, nil
}

// page cuts one page of names, in order. A client that sends neither pageSize
// nor pageToken gets them all; the token is the last name of the page before.
func page(r *http.Request, names []string) ([]string, *string, error) {
	names = slices.Clone(names)
	slices.Sort(names)
	query := r.URL.Query()
	if token := query.Get("pageToken"); token != "" {
		i, found := slices.BinarySearch(names, token)
		if found {
			i++
		}
		names = names[i:]
	}
	text := query.Get("pageSize")
	if text == "" {
		return names, nil, nil
	}
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 {
		return nil, nil, restError{http.StatusBadRequest, "BadRequestException", "pageSize must be a positive number, not " + strconv.Quote(text), 0}
	}
	if size = min(size, maxListPage); len(names) <= size {
		return names, nil, nil
	}
	names = names[:size]
	return names, &names[size-1], nil
}

func matchesETag(headers []string, etag string) bool {
	for _, header := range headers {
		for candidate := range strings.SplitSeq(header, ",") {
			candidate = strings.TrimPrefix(strings.TrimSpace(candidate), "W/")
			if candidate == etag || candidate == "*" {
				return true
			}
		}
	}
	return false
}

// referencedSnapshots drops the snapshots that no branch or tag names, as the
// protocol's snapshots=refs asks. All other members keep their exact bytes.
func referencedSnapshots(metadata []byte) ([]byte, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(metadata, &members); err != nil {
		return nil, err
	}
	var head struct {
		Current   *int64 `json:"current-snapshot-id"`
		Snapshots []json.RawMessage
		Refs      map[string]struct {
			SnapshotID int64 `json:"snapshot-id"`
		}
	}
	if err := json.Unmarshal(metadata, &head); err != nil {
		return nil, err
	}
	referenced := map[int64]bool{}
	if head.Current != nil {
		referenced[*head.Current] = true
	}
	for _, ref := range head.Refs {
		referenced[ref.SnapshotID] = true
	}
	kept := []json.RawMessage{}
	for _, raw := range head.Snapshots {
		var snapshot struct {
			ID int64 `json:"snapshot-id"`
		}
		if err := json.Unmarshal(raw, &snapshot); err != nil {
			return nil, err
		}
		if referenced[snapshot.ID] {
			kept = append(kept, raw)
		}
	}
	if _, ok := members["snapshots"]; ok {
		list, err := json.Marshal(kept)
		if err != nil {
			return nil, err
		}
		members["snapshots"] = list
	}
	return json.Marshal(members)
}
