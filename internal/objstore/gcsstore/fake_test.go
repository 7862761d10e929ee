package gcsstore

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake answers the requests of the JSON API that the driver sends, as Google
// documents them.
type fake struct {
	page int // objects a listing page

	mu      sync.Mutex
	objects map[string]fakeObject
	refuse  func(*http.Request) int // a status, or 0; nil refuses nothing
	seen    []string                // "METHOD path?query range", in order
}

type fakeObject struct {
	body    []byte
	updated time.Time
}

const fakeBucket = "bucket"

// newFake returns a server and the URL of its bucket.
func newFake(t *testing.T) (*fake, string) {
	f := &fake{page: 100, objects: map[string]fakeObject{}}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	return f, "gs://" + fakeBucket + "/pre/fix?anonymous=true&endpoint=" + url.QueryEscape(server.URL)
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, strings.TrimSpace(r.Method+" "+r.URL.EscapedPath()+" "+r.Header.Get("Range")))
	if f.refuse != nil {
		if status := f.refuse(r); status != 0 {
			fail(w, status, "refused")
			return
		}
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/upload")
	rest, ok := strings.CutPrefix(path, "/storage/v1/b/"+fakeBucket+"/o")
	key, err := url.PathUnescape(strings.TrimPrefix(rest, "/"))
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "The specified bucket does not exist.")
	case err != nil:
		fail(w, http.StatusBadRequest, err.Error())
	case r.Method == http.MethodPost:
		f.insert(w, r, body)
	case r.Method == http.MethodGet && key == "":
		f.list(w, r.URL.Query())
	default:
		f.object(w, r, key)
	}
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, `{"error":{"code":%d,"message":%q}}`, status, message)
}

func (f *fake) insert(w http.ResponseWriter, r *http.Request, body []byte) {
	_, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	parts := multipart.NewReader(strings.NewReader(string(body)), params["boundary"])
	var meta struct{ Name string }
	first, err := parts.NextPart()
	if err == nil {
		err = json.NewDecoder(first).Decode(&meta)
	}
	var media []byte
	if err == nil {
		var second *multipart.Part
		if second, err = parts.NextPart(); err == nil {
			media, err = io.ReadAll(second)
		}
	}
	if err != nil || r.URL.Query().Get("uploadType") != "multipart" {
		fail(w, http.StatusBadRequest, fmt.Sprint("not a multipart upload: ", err))
		return
	}
	if _, taken := f.objects[meta.Name]; taken && r.URL.Query().Get("ifGenerationMatch") == "0" {
		fail(w, http.StatusPreconditionFailed, "At least one of the pre-conditions you specified did not hold.")
		return
	}
	f.objects[meta.Name] = fakeObject{media, time.Now()}
	_ = json.NewEncoder(w).Encode(map[string]any{"name": meta.Name})
}

func (f *fake) object(w http.ResponseWriter, r *http.Request, key string) {
	o, ok := f.objects[key]
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "No such object: "+key)
	case r.Method == http.MethodDelete:
		delete(f.objects, key)
		w.WriteHeader(http.StatusNoContent)
	case r.URL.Query().Get("alt") == "media":
		http.ServeContent(w, r, "", o.updated, strings.NewReader(string(o.body)))
	default:
		_ = json.NewEncoder(w).Encode(describe(key, o))
	}
}

func describe(key string, o fakeObject) map[string]any {
	return map[string]any{"name": key, "size": fmt.Sprint(len(o.body)), "updated": o.updated.UTC().Format(time.RFC3339Nano)}
}

func (f *fake) list(w http.ResponseWriter, q url.Values) {
	var keys []string
	for key := range f.objects {
		if strings.HasPrefix(key, q.Get("prefix")) && key >= q.Get("startOffset") && key >= q.Get("pageToken") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	answer := map[string]any{}
	if len(keys) > f.page {
		answer["nextPageToken"] = keys[f.page]
		keys = keys[:f.page]
	}
	var items []any
	for _, key := range keys {
		items = append(items, describe(key, f.objects[key]))
	}
	answer["items"] = items
	_ = json.NewEncoder(w).Encode(answer)
}
