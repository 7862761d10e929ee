package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/firn-data/firn/internal/objstore"
)

// StoreCheck is what a walk of the whole store found.
type StoreCheck struct {
	Damage           []string
	Garbage          []string
	Bytes, LakeBytes int64
}

// CheckStore walks the whole store; package agent_test sets it.
var CheckStore func(context.Context, objstore.Store) (StoreCheck, error)

// readLog reads a table's whole log: the id of each row, by place.
func readLog(url, table string) (map[place]int64, error) { return readLogFrom(url, table, true) }

// readLogFrom reads a log that begins at offset 0 (whole), or somewhere.
func readLogFrom(url, table string, whole bool) (map[place]int64, error) {
	body, err := fetch("GET", url+tableURL+table+"/changes?start=earliest")
	if err != nil {
		return nil, err
	}
	log := map[place]int64{}
	next := map[int32]int64{}
	ids := map[int64]place{}
	sc := bufio.NewScanner(bytes.NewReader(body))
	for sc.Scan() {
		var row struct {
			ID     int64 `json:"id"`
			Bucket int32 `json:"_bucket"`
			Offset int64 `json:"_offset"`
		}
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%w in %s", err, sc.Text())
		}
		p := place{row.Bucket, row.Offset}
		if _, begun := next[p.bucket]; !begun && !whole {
			next[p.bucket] = p.offset
		}
		if next[p.bucket] != p.offset {
			return nil, fmt.Errorf("table %s: bucket %d has offset %d where %d is next", table, p.bucket, p.offset, next[p.bucket])
		}
		next[p.bucket]++
		if was, ok := ids[row.ID]; ok {
			return nil, fmt.Errorf("table %s: row %d stands at %v and at %v", table, row.ID, was, p)
		}
		ids[row.ID], log[p] = p, row.ID
	}
	return log, sc.Err()
}

func fetch(method, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), simPatience)
	defer cancel()
	return fetchWith(ctx, method, url)
}

func fetchWith(ctx context.Context, method, url string) ([]byte, error) {
	return call(ctx, method, url, "")
}

// call sends a request and returns the body of a good answer.
func call(ctx context.Context, method, url, body string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = &statusError{res.StatusCode, method + " " + url + ": " + strings.TrimSpace(string(answer))}
	}
	return answer, err
}

type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("status %d: %s", e.status, e.text) }

func countOf(url, table, layer string) (int, error) {
	body, err := fetch("GET", url+tableURL+table+"/count?layer="+layer)
	if err != nil {
		return 0, err
	}
	var a struct {
		Count int `json:"count"`
	}
	return a.Count, json.Unmarshal(body, &a)
}

// audit holds what is known for certain against what a healthy agent serves:
// no writer runs meanwhile.
func (w *simWorld) audit(url string) error {
	for _, table := range []string{"one", "keyed", "altered"} {
		if err := w.auditTable(url, table); err != nil {
			return err
		}
	}
	if err := w.altered.audit(url); err != nil {
		return err
	}
	if err := w.aged.audit(w, url); err != nil {
		return err
	}
	if err := w.brief.audit(url); err != nil {
		return err
	}
	check, err := CheckStore(context.Background(), w.store)
	if err == nil && len(check.Damage) > 0 {
		err = fmt.Errorf("the store is damaged: %s", strings.Join(check.Damage, "\n"))
	}
	return err
}

func (w *simWorld) auditTable(url, table string) error {
	log, err := readLog(url, table)
	if err != nil {
		return err
	}
	if err := w.compare(table, log); err != nil {
		return err
	}
	return counts(url, table, log)
}

// counts folds a table: the rows are the same ones before and after.
func counts(url, table string, log map[place]int64) error {
	if n, err := countOf(url, table, "union"); err != nil || n != len(log) {
		return fmt.Errorf("table %s: count is %d, the stream has %d rows (%w)", table, n, len(log), err)
	}
	if _, err := fetch("POST", url+tableURL+table+"/fold"); err != nil {
		return err
	}
	if n, err := countOf(url, table, "lake"); err != nil || n != len(log) {
		return fmt.Errorf("table %s: the lake holds %d rows, the stream %d (%w)", table, n, len(log), err)
	}
	again, err := readLog(url, table)
	if err != nil {
		return err
	}
	if !maps.Equal(log, again) {
		return fmt.Errorf("table %s: the log changed by a fold: %d rows, then %d", table, len(log), len(again))
	}
	return nil
}

// remember merges what a reader saw: a row that was read once stays where it was.
// A whole log must hold everything that was read before.
func (w *simWorld) remember(table string, log map[place]int64, whole bool) error {
	w.seenMu.Lock()
	defer w.seenMu.Unlock()
	seen := w.seen[table]
	for p, id := range seen {
		now, ok := log[p]
		if ok && now != id || !ok && whole {
			return fmt.Errorf("table %s: row %d was read at %v, where %d stands now (%v)", table, id, p, now, ok)
		}
	}
	if seen == nil {
		seen = map[place]int64{}
		w.seen[table] = seen
	}
	maps.Copy(seen, log)
	return nil
}

// compare checks a table's log against acknowledgements and earlier audits.
func (w *simWorld) compare(table string, log map[place]int64) error {
	ids := make(map[int64]place, len(log))
	for p, id := range log {
		ids[id] = p
	}
	if err := w.remember(table, log, true); err != nil {
		return err
	}
	for _, s := range w.sources {
		if s.table != table {
			continue
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.problem != nil {
			return s.problem
		}
		for seq, acked := range s.acked {
			p, there := ids[s.base+int64(seq)]
			want, known := s.places[int64(seq)]
			switch {
			case acked && !there:
				return fmt.Errorf("table %s: row %d was acknowledged and is lost", table, s.base+int64(seq))
			case known && want != p:
				return fmt.Errorf("table %s: row %d was acknowledged at %v and stands at %v", table, s.base+int64(seq), want, p)
			case there && int64(seq) >= s.next:
				return fmt.Errorf("table %s: row %d was never sent", table, s.base+int64(seq))
			}
		}
	}
	if w.loose.table == table {
		w.loose.mu.Lock()
		defer w.loose.mu.Unlock()
		for id := range w.loose.acked {
			if _, there := ids[id]; !there {
				return fmt.Errorf("table %s: row %d was acknowledged and is lost", table, id)
			}
		}
	}
	return nil
}
