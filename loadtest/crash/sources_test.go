package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/firn-data/firn/client"
	"github.com/firn-data/firn/loadtest"
)

// sender is what every kind of writer shares: it posts rows over plain HTTP.
type sender struct {
	book   *book
	url    string // of the table's rows
	http   *http.Client
	gen    *loadtest.Generator
	writer int32
}

// answer is the body of a 200.
type answer struct {
	Rows      int64          `json:"rows"`
	Skipped   int64          `json:"skipped"`
	Duplicate bool           `json:"duplicate"`
	Buckets   []bucketAnswer `json:"buckets"`
}

// refused is an answer that will not change by a retry: a fault of the agent.
type refused struct{ status, body string }

func (r refused) Error() string { return "refused: " + r.status + " " + r.body }

const (
	requestLimit = 8 * time.Second
	retryPause   = 15 * time.Millisecond
)

// post sends rows [first, first+n) once.
func (s *sender) post(ctx context.Context, first, n int64, query, key string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+query, bytes.NewReader(s.body(first, n)))
	if err != nil {
		return answer{}, err
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := s.http.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	switch {
	case res.StatusCode == http.StatusOK:
		var a answer
		return a, json.Unmarshal(text, &a)
	case res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests || res.StatusCode == http.StatusConflict && bytes.Contains(text, []byte("fenced")):
		return answer{}, fmt.Errorf("%s: %s", res.Status, text)
	default:
		return answer{}, refused{res.Status, string(text)}
	}
}

// insist sends until there is an answer, through as many lives of the agent as
// it takes.
func (s *sender) insist(ctx context.Context, first, n int64, query, key string) (answer, error) {
	for {
		a, err := s.post(ctx, first, n, query, key)
		var final refused
		if err == nil || errors.As(err, &final) {
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, errGone
		case <-time.After(retryPause):
		}
	}
}

// body writes rows as NDJSON.
func (s *sender) body(first, n int64) []byte {
	rec := s.gen.Batch(s.writer, first, int(n))
	defer rec.Release()
	values := rec.Column(2).(*array.Int64)
	var b strings.Builder
	for i := range int(n) {
		fmt.Fprintf(&b, `{"writer":%d,"seq":%d,"value":%d}`+"\n", s.writer, first+int64(i), values.Value(i))
	}
	return []byte(b.String())
}

// producer numbers its rows, keeps several requests in flight that overtake each
// other and are repeated at random, and now and then starts again from an older
// position in other batch sizes.
type producer struct {
	sender
	id  string
	rng *rand.Rand

	mu   sync.Mutex
	next int64              // first row never sent
	done map[int64]struct{} // rows at or above low that are acknowledged, in this life of the source
	low  int64              // every row of this life below is acknowledged
}

const (
	producerInFlight = 8
	repeatChance     = 0.15 // of a request being sent a second time, at once
	lifeOfSource     = 1500 * time.Millisecond
	olderBy          = 600 // rows that a restarted source goes back at most
	maxBatch         = 60
)

// run lives several lives until ctx ends; drain lets the last requests through.
func (p *producer) run(ctx, drain context.Context) error {
	for ctx.Err() == nil {
		life, cancel := context.WithTimeout(ctx, time.Duration(float64(lifeOfSource)*(0.3+p.rng.Float64())))
		hard := ctx.Err() == nil && p.rng.IntN(2) == 0 // the source is killed as well: its requests are cut off
		err := p.life(life, drain, hard)
		cancel()
		if err != nil {
			return fmt.Errorf("producer %s: %w", p.id, err)
		}
		p.restart()
	}
	// The last life sends what was never acknowledged, to the end.
	return p.finish(drain)
}

// restart goes back to an older position, as a source does that lost its memory.
func (p *producer) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.low = max(0, p.low-p.rng.Int64N(olderBy))
	p.done = map[int64]struct{}{}
}

// life sends rows from low on until ctx ends. A soft end waits for the requests
// in flight, a hard one cuts them off.
func (p *producer) life(ctx, drain context.Context, hard bool) error {
	sending := drain
	if hard {
		var cancel context.CancelFunc
		sending, cancel = context.WithCancel(drain)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
	}
	slots := make(chan struct{}, producerInFlight)
	failed := make(chan error, producerInFlight+1)
	var wg sync.WaitGroup
	batch := 1 + p.rng.Int64N(maxBatch)
	at := p.position()
	for ctx.Err() == nil && len(failed) == 0 {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			continue
		}
		first, n := at, 1+p.rng.Int64N(batch)
		at += n
		p.note(at)
		lag := time.Duration(p.rng.Int64N(int64(12 * time.Millisecond)))
		twice := p.rng.Float64() < repeatChance
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.send(sending, first, n, lag, twice); err != nil && !errors.Is(err, errGone) {
				failed <- err
			}
		})
	}
	wg.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

func (p *producer) position() int64 { p.mu.Lock(); defer p.mu.Unlock(); return p.low }

func (p *producer) note(end int64) {
	p.mu.Lock()
	p.next = max(p.next, end)
	p.mu.Unlock()
	p.book.handOut(p.writer, end)
}

// send delivers one request; the lag lets later ones overtake it.
func (p *producer) send(ctx context.Context, first, n int64, lag time.Duration, twice bool) error {
	select {
	case <-time.After(lag):
	case <-ctx.Done():
		return errGone
	}
	query := fmt.Sprintf("?producer_id=%s&first_sequence=%d&acked_below=%d", p.id, first, min(p.position(), first))
	var wg sync.WaitGroup
	if twice {
		wg.Go(func() {
			if a, err := p.post(ctx, first, n, query, ""); err == nil {
				p.acked(first, n, a)
			}
		})
	}
	a, err := p.insist(ctx, first, n, query, "")
	if err == nil {
		if a.Rows+a.Skipped != n {
			err = fmt.Errorf("rows %d to %d: %d applied and %d skipped", first, first+n-1, a.Rows, a.Skipped)
		}
		p.acked(first, n, a)
	}
	wg.Wait()
	return err
}

func (p *producer) acked(first, n int64, a answer) {
	p.book.ack(p.writer, first, n, a.Skipped, a.Buckets)
	p.mu.Lock()
	defer p.mu.Unlock()
	for seq := max(first, p.low); seq < first+n; seq++ {
		p.done[seq] = struct{}{}
	}
	for {
		if _, ok := p.done[p.low]; !ok {
			return
		}
		delete(p.done, p.low)
		p.low++
	}
}

// finish sends from the position that the agent names to the last row ever sent.
func (p *producer) finish(ctx context.Context) error {
	state, err := p.book.table.Producer(ctx, p.id)
	if err != nil {
		return fmt.Errorf("producer %s: ask for the position: %w", p.id, err)
	}
	p.mu.Lock()
	p.low, p.done = state.Watermark, map[int64]struct{}{}
	at, end := p.low, p.next
	p.mu.Unlock()
	if at > end {
		return fmt.Errorf("producer %s: the watermark is %d, only %d rows were ever sent", p.id, at, end)
	}
	for at < end {
		n := min(end-at, 1+p.rng.Int64N(5*maxBatch))
		if err := p.send(ctx, at, n, 0, false); err != nil {
			return fmt.Errorf("producer %s: %w", p.id, err)
		}
		at += n
	}
	// Below the watermark everything was acknowledged as far as the source knew.
	p.book.ack(p.writer, 0, end, 1, nil)
	return nil
}

// keyed sends each request under an Idempotency-Key of its own and repeats some.
type keyed struct {
	sender
	rng *rand.Rand
}

func (k *keyed) run(ctx, drain context.Context) error {
	type sentKey struct {
		first, n int64
		key      string
	}
	var old []sentKey
	for next := int64(0); ctx.Err() == nil; {
		s := sentKey{next, 1 + k.rng.Int64N(maxBatch), fmt.Sprintf("key-%d-%d", k.writer, next)}
		again := false
		if len(old) > 0 && k.rng.IntN(4) == 0 {
			s, again = old[k.rng.IntN(len(old))], true
		} else {
			next += s.n
			k.book.handOut(k.writer, next)
		}
		a, err := k.insist(drain, s.first, s.n, "", s.key)
		if err != nil {
			return fmt.Errorf("key %s: %w", s.key, err)
		}
		if again && (!a.Duplicate || a.Rows != 0) {
			return fmt.Errorf("key %s was acknowledged before, and its repeat was answered %+v", s.key, a)
		}
		skipped := a.Skipped
		if a.Duplicate {
			skipped = max(skipped, 1)
		}
		k.book.ack(k.writer, s.first, s.n, skipped, a.Buckets)
		if !again {
			old = append(old, s)
		}
	}
	return nil
}

// plain sends each request once and never again.
type plain struct {
	sender
	rng *rand.Rand
}

func (p *plain) run(ctx, _ context.Context) error {
	for next := int64(0); ctx.Err() == nil; {
		r := request{first: next, rows: 1 + p.rng.Int64N(maxBatch)}
		next += r.rows
		p.book.handOut(p.writer, next)
		a, err := p.post(context.Background(), r.first, r.rows, "", "")
		var final refused
		if errors.As(err, &final) {
			return err
		}
		if r.acked = err == nil; r.acked {
			p.book.ack(p.writer, r.first, r.rows, a.Skipped, a.Buckets)
		} else {
			time.Sleep(retryPause)
		}
		p.book.mu.Lock()
		p.book.plain[p.writer] = append(p.book.plain[p.writer], r)
		p.book.mu.Unlock()
	}
	return nil
}

// sdk writes through the Go SDK, which hides the agent's deaths.
type sdk struct {
	sender
	id  string
	rng *rand.Rand
}

func (s *sdk) run(ctx, drain context.Context) error {
	acked, end := int64(0), int64(0)
	for life := 0; ctx.Err() == nil || end > acked; life++ {
		first := max(0, acked-s.rng.Int64N(olderBy))
		w, err := s.book.table.NewWriter(client.WriterOptions{
			ProducerID: s.id, FirstSequence: first, BatchRows: 1 + s.rng.Int64N(2*maxBatch), Linger: time.Millisecond, Unordered: life%2 == 1,
			OnResult: func(r client.BatchResult) {
				if r.Err != nil {
					return
				}
				s.book.ack(s.writer, r.First, r.Rows, r.Answer.Skipped, places(r))
			},
		})
		if err != nil {
			return err
		}
		over := time.Now().Add(lifeOfSource)
		at := first
		for (ctx.Err() == nil && time.Now().Before(over)) || at < end {
			n := 1 + s.rng.Int64N(maxBatch)
			s.book.handOut(s.writer, at+n)
			rec := s.gen.Batch(s.writer, at, int(n))
			err := w.Write(drain, rec)
			rec.Release()
			if err != nil {
				return fmt.Errorf("SDK writer %s: %w", s.id, err)
			}
			at += n
			end = max(end, at)
			time.Sleep(time.Millisecond)
		}
		if err := w.Close(drain); err != nil {
			return fmt.Errorf("SDK writer %s: %w", s.id, err)
		}
		if w.Acked() != at {
			return fmt.Errorf("SDK writer %s: closed at row %d, acknowledged below %d", s.id, at, w.Acked())
		}
		acked = max(acked, at)
	}
	return nil
}

func places(r client.BatchResult) []bucketAnswer {
	var out []bucketAnswer
	for _, b := range r.Answer.Buckets {
		out = append(out, bucketAnswer{b.Bucket, b.BaseOffset, b.Count, b.EndOffset})
	}
	return out
}
