package agent

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// brokenStore fails the calls that its rule says.
type brokenStore struct {
	objstore.Store
	rule atomic.Pointer[func(op, key string) error]
}

func newBrokenStore() *brokenStore { return &brokenStore{Store: objstore.NewMem()} }

// breaks sets the rule; nil heals the store.
func (s *brokenStore) breaks(rule func(op, key string) error) { s.rule.Store(&rule) }

func (s *brokenStore) check(op, key string) error {
	if rule := s.rule.Load(); rule != nil && *rule != nil {
		return (*rule)(op, key)
	}
	return nil
}

// Get implements objstore.Store.
func (s *brokenStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if err := s.check("get", key); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.Get(ctx, key)
}

// GetRange implements objstore.Store.
func (s *brokenStore) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	if err := s.check("get", key); err != nil {
		return nil, objstore.Info{}, err
	}
	return s.Store.GetRange(ctx, key, start, n)
}

// Put implements objstore.Store.
func (s *brokenStore) Put(ctx context.Context, key string, body []byte) error {
	if err := s.check("put", key); err != nil {
		return err
	}
	return s.Store.Put(ctx, key, body)
}

// PutIfAbsent implements objstore.Store.
func (s *brokenStore) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	if err := s.check("put", key); err != nil {
		return objstore.Unknown, err
	}
	return s.Store.PutIfAbsent(ctx, key, body)
}

func TestAnErrorOfTheStoreIsNotTheCallersFault(t *testing.T) {
	store := newBrokenStore()
	h := start(t, store)
	h.createTable("o", 1)
	h.must("POST", tableURL+"o/rows", rowsBody(0, 10))
	h.must("POST", tableURL+"o/fold", "")
	h.stop()
	for class, want := range map[errs.Class]string{
		errs.NotFound: "500 data_loss", errs.PermissionDenied: "503 unavailable", errs.Unauthenticated: "503 unavailable", errs.Unavailable: "503 unavailable", errs.Corrupt: "500 data_loss",
	} {
		store.breaks(nil)
		h = start(t, store)
		store.breaks(func(_, key string) error {
			if strings.HasSuffix(key, ".parquet") {
				return errs.New(class, "the store says no")
			}
			return nil
		})
		h.wantError("GET", tableURL+"o/rows", "", want)
		h.wantError("GET", tableURL+"o/changes", "", want)
		store.breaks(nil)
		h.stop()
	}
}

func TestAStoreThatTakesNoWritesGivesARetryableErrorAndARepetitionIsAppliedOnce(t *testing.T) {
	for _, class := range []errs.Class{errs.Exhausted, errs.PermissionDenied} {
		store := newBrokenStore()
		h := start(t, store, func(c *Config) { c.AckTimeout = 200 * time.Millisecond })
		h.createTable("o", 1)
		h.must("POST", tableURL+"o/rows", rowsBody(0, 10))
		store.breaks(func(op, key string) error {
			if op == "put" && strings.HasPrefix(key, "wal/") {
				return errs.New(class, "the store takes nothing")
			}
			return nil
		})
		post := func() (*http.Response, string) {
			req, _ := http.NewRequest("POST", h.url+tableURL+"o/rows?producer_id=p&first_sequence=0", strings.NewReader(rowsBody(10, 20)))
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			return res, string(text)
		}
		for range 2 { // the repetition waits for the rows of the first
			res, text := post()
			if res.StatusCode != 503 || res.Header.Get("Retry-After") == "" || !strings.Contains(text, `"code":"unavailable"`) {
				t.Errorf("%s: %d %s", class, res.StatusCode, text)
			}
		}
		if class == errs.Exhausted { // the other one ends the incarnation
			if n := h.count("o", ""); n != 10 {
				t.Errorf("%d rows before they are durable", n)
			}
		}
		store.breaks(nil)
		h.eventually(func() bool { res, _ := post(); return res.StatusCode == 200 })
		h.eventually(func() bool { status, _ := h.do("GET", tableURL+"o/count", ""); return status == 200 })
		if n := h.count("o", ""); n != 20 {
			t.Errorf("%s: %d rows", class, n)
		}
		h.stop()
	}
}

// gate holds the first write of a kind until it is opened.
func gate(match func(key string) bool) (rule func(op, key string) error, held <-chan struct{}, open func()) {
	reached, opened := make(chan struct{}), make(chan struct{})
	var once, openOnce sync.Once
	return func(op, key string) error {
			if op == "put" && match(key) {
				once.Do(func() { close(reached) })
				<-opened
			}
			return nil
		}, reached, func() {
			openOnce.Do(func() { close(opened) })
		}
}

func TestATableDroppedAndMadeAnewInMidFoldHoldsNoForeignRows(t *testing.T) {
	for name, match := range map[string]func(key string) bool{
		"data":     func(key string) bool { return strings.HasSuffix(key, ".parquet") },
		"metadata": func(key string) bool { return strings.Contains(key, "/metadata/") && strings.HasSuffix(key, ".json") },
	} {
		store := newBrokenStore()
		h := start(t, store)
		h.createTable("o", 1)
		h.must("POST", tableURL+"o/rows", rowsBody(0, 10))
		rule, held, open := gate(match)
		store.breaks(rule)
		t.Cleanup(open)
		done := make(chan string)
		go func() {
			status, body := h.do("POST", tableURL+"o/fold", "")
			done <- fmt.Sprint(status, " ", body)
		}()
		<-held
		h.must("DELETE", tableURL+"o", "")
		remade := make(chan struct{})
		go func() { // making the Iceberg table may meet the gate too
			defer close(remade)
			h.createTable("o", 1)
		}()
		open()
		<-remade
		store.breaks(nil)
		if got := <-done; !strings.HasPrefix(got, "200 ") && !strings.HasPrefix(got, "404 ") && !strings.HasPrefix(got, "409 ") {
			t.Errorf("%s: the fold of the dropped table: %s", name, got)
		}
		h.must("POST", tableURL+"o/rows", rowsBody(20, 23))
		if f := h.must("POST", tableURL+"o/fold", ""); f["rows"] != 3.0 {
			t.Errorf("%s: %v", name, f)
		}
		for _, layer := range []string{"union", "lake"} {
			if n := h.count("o", layer); n != 3 {
				t.Errorf("%s: %d rows in %s", name, n, layer)
			}
		}
		h.stop()
	}
}

func TestWritersBeyondTheLimitsAreToldToSlowDown(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the back-pressure timeout of 5 s")
	}
	t.Parallel()
	store := newBrokenStore()
	h := start(t, store, func(c *Config) { c.MaxRequestBytes, c.MaxPendingBytes = 64<<10, 64<<10 })
	h.createTable("o", 1)
	rule, held, open := gate(func(key string) bool { return strings.HasPrefix(key, "wal/") })
	store.breaks(rule)
	defer open()
	var wg sync.WaitGroup
	var ok, slow atomic.Int32
	body := rowsBody(0, 1500)
	for range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			res, err := http.Post(h.url+tableURL+"o/rows", "application/x-ndjson", strings.NewReader(body))
			if err != nil {
				t.Error(err)
				return
			}
			text, _ := io.ReadAll(res.Body)
			_ = res.Body.Close()
			switch {
			case res.StatusCode == http.StatusOK:
				ok.Add(1)
			case res.StatusCode == http.StatusTooManyRequests && res.Header.Get("Retry-After") != "" && strings.Contains(string(text), "max_pending_bytes"):
				slow.Add(1)
			default:
				t.Errorf("%d %s", res.StatusCode, text)
			}
		}()
	}
	<-held
	h.eventually(func() bool { return slow.Load() > 0 })
	open()
	wg.Wait()
	if n := h.count("o", ""); n != 1500*int(ok.Load()) {
		t.Errorf("%d rows of %d accepted requests", n, ok.Load())
	}
}

// silentStore takes metadata reads and does not answer from when it is told to until it heals.
type silentStore struct {
	objstore.Store
	silent atomic.Bool
	healed chan struct{}
}

// Get implements objstore.Store.
func (s *silentStore) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if s.silent.Load() && strings.HasPrefix(key, "meta/") {
		select {
		case <-ctx.Done():
			return nil, objstore.Info{}, errs.Wrap(errs.Canceled, "read "+key, ctx.Err())
		case <-s.healed: // a driver's own time-out
			return nil, objstore.Info{}, errs.New(errs.Unavailable, "no answer")
		}
	}
	return s.Store.Get(ctx, key)
}

func TestAStoreThatNeverAnswersHoldsAControlMethodForABoundedTime(t *testing.T) {
	store := &silentStore{Store: objstore.NewMem(), healed: make(chan struct{})}
	h := start(t, store, func(c *Config) { c.ControlTimeout = 200 * time.Millisecond })
	h.createTable("o", 1)
	store.silent.Store(true)
	for _, c := range [][]string{
		{"GET", "/v1/databases", "", "unavailable"}, {"GET", tableURL + "o", "", "unavailable"}, {"GET", "/v1/agents", "", "unavailable"},
		{"POST", "/v1/databases", `{"name":"x"}`, ""}, {"DELETE", tableURL + "nope", "", ""},
		{"POST", "/firn.v1.CatalogService/ListDatabases", "{}", ""},
	} {
		begun := time.Now()
		status, text := h.do(c[0], c[1], c[2], "Content-Type", "application/json")
		if time.Since(begun) > 10*time.Second {
			t.Errorf("%s %s took %s", c[0], c[1], time.Since(begun))
		}
		if status == http.StatusOK && c[3] == "" {
			continue // it did not have to read
		}
		if status != http.StatusServiceUnavailable || !strings.Contains(text, `"code":"unavailable"`) || !strings.Contains(text, "control_timeout") || !strings.Contains(text, c[3]) {
			t.Errorf("%s %s: %d %s", c[0], c[1], status, text)
		}
	}
	store.silent.Store(false)
	close(store.healed)
	h.eventually(func() bool { status, _ := h.do("GET", "/v1/databases", ""); return status == http.StatusOK })
}
