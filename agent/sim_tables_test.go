package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"time"
)

// simAged writes to a table whose rows live for two hours, by a clock that jumps.
type simAged struct {
	mu    sync.Mutex
	next  int64
	rows  map[int64]*agedRow
	start int64 // first offset that was seen; the log's start never goes back
}

type agedRow struct {
	sent  time.Time // before the request: no commit timestamp is earlier
	acked bool
}

const agedRetention = 2 * time.Hour

func (a *simAged) run(ctx context.Context, w *simWorld) {
	for ctx.Err() == nil {
		a.mu.Lock()
		from, sent := a.next, w.now()
		a.next += 2
		rows := []*agedRow{{sent: sent}, {sent: sent}}
		a.rows[from], a.rows[from+1] = rows[0], rows[1]
		a.mu.Unlock()
		if _, err := postRows(ctx, w.url()+tableURL+"aged/rows", from, from+2); err == nil {
			a.mu.Lock()
			rows[0].acked, rows[1].acked = true, true
			a.mu.Unlock()
		}
		pause(ctx, 8*time.Millisecond)
	}
}

// audit: a row is missing only when its time is over, and then all before it are.
func (a *simAged) audit(w *simWorld, url string) error {
	if _, err := fetch("POST", url+tableURL+"aged/fold"); err != nil {
		return err
	}
	log, err := w.readSettled(url, "aged")
	if err != nil {
		return err
	}
	over := w.now().Add(-agedRetention)
	a.mu.Lock()
	defer a.mu.Unlock()
	start, there := int64(0), map[int64]bool{}
	for p, id := range log {
		if there[id] = true; a.rows[id] == nil {
			return fmt.Errorf("table aged: row %d was never sent", id)
		}
		if len(there) == 1 || p.offset < start {
			start = p.offset
		}
	}
	for id, row := range a.rows {
		if row.acked && !there[id] && !row.sent.Before(over) {
			return fmt.Errorf("table aged: row %d was acknowledged and dropped %s too early", id, row.sent.Sub(over))
		}
	}
	if len(log) > 0 {
		if start < a.start {
			return fmt.Errorf("table aged: the log starts at %d, after it started at %d", start, a.start)
		}
		a.start = start
	}
	return nil
}

// readSettled reads a log whose start may move meanwhile.
func (w *simWorld) readSettled(url, table string) (log map[place]int64, err error) {
	for range 5 {
		if log, err = readLogFrom(url, table, false); err == nil {
			return log, nil
		}
		var status *statusError
		if !errors.As(err, &status) || status.status != 410 {
			return nil, err
		}
	}
	return nil, err
}

// allGone: days later, every row is dropped.
func (a *simAged) allGone(w *simWorld) error {
	log, err := w.readSettled(w.url(), "aged")
	if err == nil && len(log) > 0 {
		err = fmt.Errorf("table aged: %d rows outlived their retention", len(log))
	}
	return err
}

// simAltered writes to a table whose columns come, change their names and go. A
// column's number is never used twice: x7 is renamed to y7, and dropped.
type simAltered struct {
	mu   sync.Mutex
	next int64
	last int            // number of the newest column
	live map[int]string // columns that the janitor knows of
	rows map[int64]*alteredRow
}

type alteredRow struct {
	column int // the one that it has a value for; 0 = none
	acked  bool
}

func alteredValue(id int64, column int) int64 { return id*1000 + int64(column) }

func (a *simAltered) run(ctx context.Context, url func() string) {
	for ctx.Err() == nil {
		a.mu.Lock()
		var batch strings.Builder
		row, id := &alteredRow{}, a.next
		a.next++
		a.rows[id] = row
		name := ""
		for k, n := range a.live { // any; Go's order is as good as another
			row.column, name = k, n
			break
		}
		a.mu.Unlock()
		fmt.Fprintf(&batch, `{"id":%d,"name":"row"`, id)
		if name != "" {
			fmt.Fprintf(&batch, `,%q:%d`, name, alteredValue(id, row.column))
		}
		if _, err := call(ctx, "POST", url()+tableURL+"altered/rows", batch.String()+"}\n"); err == nil {
			a.mu.Lock()
			row.acked = true
			a.mu.Unlock()
		}
		pause(ctx, 8*time.Millisecond)
	}
}

// alter changes one column, and then asks what the columns are.
func (a *simAltered) alter(ctx context.Context, url string, rng *rand.Rand) {
	a.mu.Lock()
	a.last++
	change := fmt.Sprintf(`{"add_column":{"name":"x%d","type":"long"}}`, a.last)
	for k, name := range a.live {
		switch rng.IntN(4) {
		case 0:
			change = fmt.Sprintf(`{"drop_column":{"name":%q}}`, name)
		case 1:
			change = fmt.Sprintf(`{"rename_column":{"from":%q,"to":"y%d"}}`, name, k)
		}
		break
	}
	a.mu.Unlock()
	_, _ = call(ctx, "PATCH", url+tableURL+"altered", `{"changes":[`+change+`]}`)
	if live, err := a.columns(ctx, url); err == nil {
		a.mu.Lock()
		a.live = live
		a.mu.Unlock()
	}
}

// columns asks for the numbered columns of the table.
func (a *simAltered) columns(ctx context.Context, url string) (map[int]string, error) {
	body, err := fetchWith(ctx, "GET", url+tableURL+"altered")
	if err != nil {
		return nil, err
	}
	var def struct {
		Columns []struct {
			Name string `json:"name"`
		} `json:"columns"`
	}
	if err := json.Unmarshal(body, &def); err != nil {
		return nil, err
	}
	live := map[int]string{}
	for _, c := range def.Columns {
		if k, err := strconv.Atoi(c.Name[1:]); err == nil {
			live[k] = c.Name
		}
	}
	return live, nil
}

// audit: a row has the value that it was written with in every column that still
// exists, whatever its name is now, and none in the others.
func (a *simAltered) audit(url string) error {
	live, err := a.columns(context.Background(), url)
	if err != nil {
		return err
	}
	body, err := fetch("GET", url+tableURL+"altered/changes?start=earliest")
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.live = live
	there := map[int64]bool{}
	for line := range strings.Lines(string(body)) {
		var row map[string]any
		dec := json.NewDecoder(strings.NewReader(line))
		dec.UseNumber()
		if err := dec.Decode(&row); err != nil {
			return fmt.Errorf("%w in %s", err, line)
		}
		id, _ := strconv.ParseInt(fmt.Sprint(row["id"]), 10, 64)
		there[id] = true
		sent := a.rows[id]
		if sent == nil {
			return fmt.Errorf("table altered: row %d was never sent", id)
		}
		for k, name := range live {
			want := "<nil>"
			if k == sent.column {
				want = fmt.Sprint(alteredValue(id, k))
			}
			if got := fmt.Sprint(row[name]); got != want {
				return fmt.Errorf("table altered: row %d has %s=%s, and not %s", id, name, got, want)
			}
		}
	}
	for id, row := range a.rows {
		if row.acked && !there[id] {
			return fmt.Errorf("table altered: row %d was acknowledged and is lost", id)
		}
	}
	return nil
}

const briefDefinition = `{"name":"brief","if_not_exists":true,"columns":[{"name":"id","type":"long"},{"name":"name","type":"string"}],"bucket_key":["id"],"buckets":2,"properties":{"fold_interval":"100ms"}}`

// simBrief writes to a table that is dropped and created again under its name.
type simBrief struct {
	op sync.Mutex // one drop at a time

	mu    sync.Mutex
	tick  int64 // orders requests and answers
	next  int64
	rows  map[int64]*briefRow
	drops []briefDrop // since the last audit
}

type briefRow struct {
	sent, acked int64 // ticks; 0 = not yet
	fate        rune  // what an audit found: 'p' present, 'g' gone
}

// briefDrop is a drop that took place between two ticks. Without an answer it may
// take place at any time, or never.
type briefDrop struct{ begun, ended int64 }

func (b *simBrief) ticks() int64 { b.tick++; return b.tick }

func (b *simBrief) run(ctx context.Context, w *simWorld) {
	for ctx.Err() == nil {
		b.mu.Lock()
		id, row := b.next, &briefRow{sent: b.ticks()}
		b.next++
		b.rows[id] = row
		b.mu.Unlock()
		if _, err := postRows(ctx, w.url()+tableURL+"brief/rows", id, id+1); err == nil {
			b.mu.Lock()
			row.acked = b.ticks()
			b.mu.Unlock()
		}
		pause(ctx, 5*time.Millisecond)
	}
}

// recreate drops the table and creates it again.
func (b *simBrief) recreate(ctx context.Context, w *simWorld) {
	b.op.Lock()
	defer b.op.Unlock()
	b.mu.Lock()
	drop := briefDrop{begun: b.ticks()}
	i := len(b.drops)
	b.drops = append(b.drops, drop)
	b.mu.Unlock()
	_, err := call(ctx, "DELETE", w.url()+tableURL+"brief", "")
	b.mu.Lock()
	if err == nil {
		b.drops[i].ended = b.ticks()
	}
	b.mu.Unlock()
	for ctx.Err() == nil {
		if _, err := call(ctx, "POST", w.url()+"/v1/databases/shop/tables", briefDefinition); err == nil {
			return
		}
		pause(ctx, 10*time.Millisecond)
	}
}

// must says what a row's being there must be: 'p', 'g', or 0 when it may be either.
func (b *simBrief) must(r *briefRow) rune {
	if r.fate == 'g' {
		return 'g'
	}
	must := rune(0)
	if r.acked > 0 || r.fate == 'p' {
		must = 'p'
	}
	for _, d := range b.drops {
		before := r.fate == 'p' || r.acked > 0 && r.acked < d.begun
		after := r.fate == 0 && d.ended > 0 && r.sent > d.ended
		switch {
		case d.ended > 0 && before:
			return 'g'
		case !after:
			must = 0
		}
	}
	return must
}

// audit reads the table, which may have to be created first, and settles every row's fate.
func (b *simBrief) audit(url string) error {
	if _, err := call(context.Background(), "POST", url+"/v1/databases/shop/tables", briefDefinition); err != nil {
		return err
	}
	log, err := readLog(url, "brief")
	if err != nil {
		return err
	}
	if err := counts(url, "brief", log); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	there := map[int64]bool{}
	for _, id := range log {
		if there[id] = true; b.rows[id] == nil {
			return fmt.Errorf("table brief: row %d was never sent", id)
		}
	}
	for id, row := range b.rows {
		must := b.must(row)
		switch {
		case must == 'p' && !there[id]:
			return fmt.Errorf("table brief: row %d was acknowledged and is lost: %+v, drops %v", id, *row, b.drops)
		case must == 'g' && there[id]:
			return fmt.Errorf("table brief: row %d was dropped with its table and is back: %+v, drops %v", id, *row, b.drops)
		}
		if row.fate = 'g'; there[id] {
			row.fate = 'p'
		}
	}
	b.drops = nil
	return nil
}
