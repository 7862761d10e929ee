package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"time"
)

// place is where a row stands.
type place struct {
	bucket int32
	offset int64
}

// simSource is an exactly-once producer with several requests in flight. What is
// not answered is sent again, in other batches, to whichever agent serves then;
// now and then it replays rows that were acknowledged long ago.
type simSource struct {
	table    string
	id       string
	base     int64 // row ids are base + sequence
	rows     int64 // sequences are [0, rows)
	oneToOne bool  // all rows go to one bucket, so that answers tell each row's offset

	mu      sync.Mutex
	rng     *rand.Rand
	next    int64      // sequences below were sent once
	again   [][2]int64 // ranges sent whose outcome is not known
	flying  map[[2]int64]bool
	acked   []bool
	below   int64 // every sequence below is acknowledged
	places  map[int64]place
	problem error
}

func newSimSource(table, id string, base, rows int64, oneToOne bool, rng *rand.Rand) *simSource {
	return &simSource{table: table, id: id, base: base, rows: rows, oneToOne: oneToOne, rng: rng, acked: make([]bool, rows), places: map[int64]place{}, flying: map[[2]int64]bool{}}
}

// pick chooses what to send: an open range, new rows up to limit, or a replay.
func (s *simSource) pick(limit int64) (from, to, below int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.problem != nil {
		return 0, 0, 0, false
	}
	limit = min(limit, s.rows)
	n := 1 + s.rng.Int64N(25)
	switch {
	case len(s.again) > 0:
		i := s.rng.IntN(len(s.again))
		r := s.again[i]
		from, to = r[0], min(r[1], r[0]+n)
		if s.again = slices.Delete(s.again, i, i+1); to < r[1] {
			s.again = append(s.again, [2]int64{to, r[1]})
		}
	case s.next < limit:
		from, to = s.next, min(s.next+n, limit)
		s.next = to
	default:
		return 0, 0, 0, false
	}
	s.flying[[2]int64{from, to}] = true
	return from, to, s.below, true
}

// doubt makes what is in flight be sent again, without waiting for its outcome.
func (s *simSource) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for r := range s.flying {
		s.again = append(s.again, r)
	}
}

// replay chooses rows that were acknowledged, to be sent once more.
func (s *simSource) replay() (from, to, below int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.below == 0 || s.rng.IntN(8) != 0 {
		return 0, 0, 0, false
	}
	from = s.rng.Int64N(s.below)
	return from, min(s.below, from+1+s.rng.Int64N(40)), s.below, true
}

func (s *simSource) failed(from, to int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flying, [2]int64{from, to})
	s.again = append(s.again, [2]int64{from, to})
}

func (s *simSource) wrong(format string, args ...any) {
	if s.problem == nil {
		s.problem = fmt.Errorf("producer %s: "+format, append([]any{s.id}, args...)...)
	}
}

// done notes an acknowledgement.
func (s *simSource) done(from, to int64, a rowsAnswer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.flying, [2]int64{from, to})
	if a.Rows+a.Skipped != to-from {
		s.wrong("rows [%d, %d): %d applied and %d skipped", from, to, a.Rows, a.Skipped)
	}
	for seq := from; seq < to; seq++ {
		if s.oneToOne && a.Skipped == 0 {
			p := place{a.Buckets[0].Bucket, a.Buckets[0].BaseOffset + seq - from}
			if was, ok := s.places[seq]; ok {
				s.wrong("row %d was acknowledged at %v and applied again at %v", seq, was, p)
			}
			s.places[seq] = p
		}
		s.acked[seq] = true
	}
	for s.below < s.rows && s.acked[s.below] {
		s.below++
	}
}

func (s *simSource) finished(limit int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.problem != nil || s.below >= min(limit, s.rows)
}

const simWindow = 4 // requests of a producer in flight

// run sends rows up to limit until all are acknowledged or ctx ends.
func (s *simSource) run(ctx context.Context, url func() string, limit int64) {
	var wg sync.WaitGroup
	for range simWindow {
		wg.Go(func() {
			for ctx.Err() == nil && !s.finished(limit) {
				if from, to, below, ok := s.replay(); ok {
					if a, err := s.send(ctx, url(), from, to, below); err == nil && a.Rows > 0 {
						s.mu.Lock()
						s.wrong("rows [%d, %d) were acknowledged, and a replay applied %d of them", from, to, a.Rows)
						s.mu.Unlock()
					}
				}
				from, to, below, ok := s.pick(limit)
				if !ok {
					pause(ctx, time.Millisecond)
					continue
				}
				a, err := s.send(ctx, url(), from, to, below)
				if err != nil {
					s.failed(from, to)
					pause(ctx, 10*time.Millisecond)
					continue
				}
				s.done(from, to, a)
			}
		})
	}
	wg.Wait()
}

func (s *simSource) send(ctx context.Context, url string, from, to, below int64) (rowsAnswer, error) {
	path := fmt.Sprintf("%s%s%s/rows?producer_id=%s&first_sequence=%d&acked_below=%d", url, tableURL, s.table, s.id, from, below)
	return postRows(ctx, path, s.base+from, s.base+to)
}

// simLoose writes rows without a producer id and never retries: an acknowledged
// row must be there once, any other at most once.
type simLoose struct {
	table string
	mu    sync.Mutex
	next  int64
	acked map[int64]bool
}

const looseBase = 1 << 40

func (l *simLoose) run(ctx context.Context, url func() string) {
	for ctx.Err() == nil {
		l.mu.Lock()
		from := looseBase + l.next
		l.next += 3
		l.mu.Unlock()
		if _, err := postRows(ctx, url()+tableURL+l.table+"/rows", from, from+3); err == nil {
			l.mu.Lock()
			for id := from; id < from+3; id++ {
				l.acked[id] = true
			}
			l.mu.Unlock()
		}
		pause(ctx, 5*time.Millisecond)
	}
}

func postRows(ctx context.Context, url string, from, to int64) (rowsAnswer, error) {
	var a rowsAnswer
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader([]byte(rowsBody(int(from), int(to)))))
	if err != nil {
		return a, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return a, err
	}
	if res.StatusCode != http.StatusOK {
		return a, fmt.Errorf("status %d: %s", res.StatusCode, body)
	}
	return a, json.Unmarshal(body, &a)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
