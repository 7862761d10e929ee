package agent

import (
	"context"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/api/jsonwire"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/lakehouse"
)

// serve starts the listener's HTTP server: HTTP/1.1 and HTTP/2 without TLS, so
// that curl, Connect, gRPC and gRPC-Web all find it at one address.
func (a *Agent) serve() {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	a.server = &http.Server{
		Handler: a.handler(), Protocols: &protocols,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return context.Background() },
	}
	a.wg.Add(1)
	go func() {
		defer a.wg.Done()
		if err := a.server.Serve(a.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			a.giveUp(errs.Wrap(errs.Unavailable, "serve", err))
		}
	}()
}

const tablePath = "/v1/databases/{database}/tables/{table}"

// handler is every route of the agent.
func (a *Agent) handler() http.Handler {
	mux := http.NewServeMux()
	options := []connect.HandlerOption{
		connect.WithCodec(jsonwire.Codec{}), connect.WithReadMaxBytes(int(a.cfg.MaxRequestBytes) + 1<<20),
		// Arrow payloads are compressed inside, where it pays; gzip over them costs three times the work.
		connect.WithCompressMinBytes(1 << 30),
	}
	connects := func(path string, h http.Handler) { mux.Handle(path, spoken(h)) }
	connects(firnv1connect.NewCatalogServiceHandler(catalogService{a}, options...))
	connects(firnv1connect.NewClusterServiceHandler(clusterService{a}, options...))
	path, data := firnv1connect.NewDataServiceHandler(dataService{a}, options...)
	connects(path, data)
	mux.Handle(firnv1connect.DataServiceAppendStreamProcedure, a.upgradable(spoken(data)))
	registerREST(mux, firnv1.File_firn_v1_catalog_proto.Services().ByName("CatalogService"), a.catalogMethods())
	registerREST(mux, firnv1.File_firn_v1_cluster_proto.Services().ByName("ClusterService"), map[string]method{"ListAgents": unary(within(a, reading, a.listAgents))})

	mux.HandleFunc("POST "+tablePath+"/rows", a.handleRows)
	mux.HandleFunc("GET "+tablePath+"/rows", a.handleScan)
	mux.HandleFunc("GET "+tablePath+"/changes", a.handleChanges)
	mux.HandleFunc("GET "+tablePath+"/count", a.handleCount)
	mux.HandleFunc("POST "+tablePath+"/lookup", a.handleLookup)
	mux.Handle("/iceberg/", http.StripPrefix("/iceberg", lakehouse.NewCatalogHandler(icebergBackend{a}, a.catalogOptions())))
	mux.HandleFunc("GET /health", a.handleHealth)
	mux.HandleFunc("GET /healthz", a.handleHealth)
	mux.HandleFunc("GET /livez", a.handleLive)
	mux.HandleFunc("GET /readyz", a.handleHealth)
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.metrics.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/", a.handleUnknown)
	return unstalled(patient(a.observed(a.authenticated(strictRoutes(mux)))), a.cfg.StallTimeout, a.logger)
}

func (a *Agent) handleUnknown(w http.ResponseWriter, r *http.Request) {
	writeError(w, errs.New(errs.NotFound, "no route %s %s; docs/api.md lists the routes", r.Method, r.URL.Path))
}

// handleHealth answers 200 while the agent's lease holds: it may acknowledge what its slots take.
func (a *Agent) handleHealth(w http.ResponseWriter, r *http.Request) {
	n, err := a.owner()
	if err == nil {
		err = n.confirmLease(r.Context())
	}
	if err != nil {
		writeError(w, err)
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "incarnation": n.id, "agent_id": a.cfg.AgentID, "version": Version})
}

// handleLive answers 200 while the process runs at all.
func (a *Agent) handleLive(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"status": "alive", "version": Version})
}

// openPaths need no token: probes and metrics scrapers rarely have one.
var openPaths = map[string]bool{"/health": true, "/healthz": true, "/livez": true, "/readyz": true, "/metrics": true}

// authenticated checks the static bearer token, when one is configured.
func (a *Agent) authenticated(next http.Handler) http.Handler {
	if a.cfg.Token == "" {
		return next
	}
	want := []byte(a.cfg.Token)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if openPaths[r.URL.Path] {
			next.ServeHTTP(w, r)
			return
		}
		scheme, given, ok := strings.Cut(r.Header.Get("Authorization"), " ")
		ok = ok && strings.EqualFold(scheme, "Bearer")
		switch {
		case ok && subtle.ConstantTimeCompare([]byte(strings.TrimSpace(given)), want) == 1:
			next.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/iceberg"):
			lakehouse.WriteCatalogError(w, r, errs.New(errs.Unauthenticated, "a bearer token is needed"))
		case !ok:
			writeError(w, errs.New(errs.Unauthenticated, "a bearer token is needed: send Authorization: Bearer …"))
		default:
			writeError(w, errs.New(errs.Unauthenticated, "the bearer token is not the one that this agent was started with"))
		}
	})
}

// statusWriter remembers the status for the metrics.
type statusWriter struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusWriter) WriteHeader(status int) {
	if s.status == 0 {
		s.status = status
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController reach the connection.
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Flush implements http.Flusher, which connect-go asks for.
func (s *statusWriter) Flush() { _ = http.NewResponseController(s.ResponseWriter).Flush() }

// observed counts and logs requests.
func (a *Agent) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sw := &statusWriter{ResponseWriter: w}
		begun := time.Now()
		defer func() {
			if sw.status == 0 {
				sw.status = http.StatusOK
			}
			a.metrics.requests.WithLabelValues(routeOf(r), strconv.Itoa(sw.status)).Inc()
			level := slog.LevelDebug
			if sw.status >= http.StatusInternalServerError && sw.status != http.StatusServiceUnavailable {
				level = slog.LevelWarn
			}
			a.logger.Log(r.Context(), level, "request", "method", r.Method, "path", r.URL.Path, "status", sw.status, "took", time.Since(begun))
		}()
		next.ServeHTTP(sw, r)
	})
}

// routeOf names a request's route with a bounded number of values.
func routeOf(r *http.Request) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	if first, _, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); ok && (first == "iceberg" || strings.HasPrefix(first, "firn.v1.")) {
		return "/" + first
	}
	return "other"
}

// strictRoutes answers what no route serves in the error form of every other
// answer, and OPTIONS.
func strictRoutes(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/firn.v1.") && !procedures[r.URL.Path] {
			writeError(w, finerError{errs.New(errs.Unsupported, "no method %s in this version", r.URL.Path), http.StatusNotFound})
			return
		}
		if at := r.URL.EscapedPath(); r.Method != http.MethodConnect && at != tidy(at) {
			// ServeMux would redirect, and a redirected POST loses its body.
			refuseRoute(w, r, errs.New(errs.NotFound, "no route %s %s: did you mean %s?", r.Method, at, tidy(at)))
			return
		}
		if r.URL.Path == "/iceberg" { // the same
			refuseRoute(w, r, errs.New(errs.NotFound, "no route %s %s: the catalog's routes start with /iceberg/v1", r.Method, r.URL.Path))
			return
		}
		_, pattern := mux.Handler(r)
		if pattern != "/" {
			mux.ServeHTTP(w, r)
			return
		}
		allowed := allowedOnOther(mux, r)
		switch {
		case allowed == nil:
			mux.ServeHTTP(w, r)
		case r.Method == http.MethodOptions:
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			w.WriteHeader(http.StatusNoContent)
		default:
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			writeError(w, finerError{errs.New(errs.Unsupported, "method %s is not served here; use %s", r.Method, strings.Join(allowed, ", ")), http.StatusMethodNotAllowed})
		}
	})
}

// refuseRoute answers in the form of the route's side of the house.
func refuseRoute(w http.ResponseWriter, r *http.Request, err error) {
	if strings.HasPrefix(r.URL.Path, "/iceberg") {
		lakehouse.WriteCatalogError(w, r, err)
		return
	}
	writeError(w, err)
}

// tidy returns a path without empty and dot segments.
func tidy(p string) string {
	clean := path.Clean("/" + p)
	if strings.HasSuffix(p, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// allowedOnOther lists the methods under which a path has a route of its own.
func allowedOnOther(mux *http.ServeMux, r *http.Request) []string {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodDelete} {
		probe := r.Clone(r.Context())
		probe.Method = m
		if _, pattern := mux.Handler(probe); pattern != "/" && pattern != "" {
			allowed = append(allowed, m)
		}
	}
	if allowed == nil {
		return nil
	}
	return append(allowed, http.MethodOptions)
}
