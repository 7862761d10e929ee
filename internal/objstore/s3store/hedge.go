package s3store

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/s3"
)

// Bounds of hedging.
const (
	hedgeMaxBytes  = 1 << 20                // a larger range is not asked for twice
	hedgeSamples   = 128                    // answers that the delay is learned from
	hedgeLearn     = 16                     // answers before anything is learned
	hedgeMinDelay  = 10 * time.Millisecond  // never hedge earlier
	hedgeMaxDelay  = 2 * time.Second        // never wait longer
	hedgeStart     = 300 * time.Millisecond // until something is learned
	hedgeShare     = 0.05                   // second requests per request
	hedgeMaxTokens = 10                     // second requests saved up
)

// hedger decides when a second request is worth it. The zero value is ready.
type hedger struct {
	mu      sync.Mutex
	samples [hedgeSamples]time.Duration
	count   int // answers noted
	delay   time.Duration
	tokens  float64
}

// wait returns how long to wait for the first answer, and earns the budget.
func (h *hedger) wait() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tokens = min(hedgeMaxTokens, h.tokens+hedgeShare)
	if h.delay == 0 {
		return hedgeStart
	}
	return h.delay
}

// spend takes one second request from the budget, if there is one.
func (h *hedger) spend() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tokens < 1 {
		return false
	}
	h.tokens--
	return true
}

// note learns from an answer: the delay is the 95th percentile of the last ones.
func (h *hedger) note(took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.samples[h.count%hedgeSamples] = took
	h.count++
	if h.count%hedgeLearn != 0 {
		return
	}
	sorted := slices.Clone(h.samples[:min(h.count, hedgeSamples)])
	slices.Sort(sorted)
	h.delay = min(hedgeMaxDelay, max(hedgeMinDelay, sorted[len(sorted)*95/100]))
}

// answer is a GET whose headers have arrived, or its error.
type answer struct {
	out    *s3.GetObjectOutput
	err    error
	cancel context.CancelFunc
}

func (a answer) drop() {
	a.cancel()
	if a.out != nil {
		_ = a.out.Body.Close()
	}
}

// open sends a GET and returns when the answer begins. The caller closes the
// body and then calls the returned cancel.
func (s *Store) open(ctx context.Context, in *s3.GetObjectInput, hedge bool) (*s3.GetObjectOutput, context.CancelFunc, error) {
	send := func() answer {
		ctx, cancel := context.WithCancel(ctx)
		begun := time.Now()
		out, err := s.client.GetObject(ctx, in)
		if err == nil {
			s.hedger.note(time.Since(begun))
		} else {
			out = nil
		}
		return answer{out, err, cancel}
	}
	if !hedge || s.options.DisableHedging {
		a := send()
		return a.out, a.cancel, a.err
	}
	a := s.race(send)
	return a.out, a.cancel, a.err
}

// race runs send once, and a second time when it is slow, and returns the first
// success, or the last failure.
func (s *Store) race(send func() answer) answer {
	answers := make(chan answer, 2)
	go func() { answers <- send() }()
	timer := time.NewTimer(s.hedger.wait())
	defer timer.Stop()
	for running := 1; ; {
		select {
		case <-timer.C:
			if s.hedger.spend() {
				running++
				go func() { answers <- send() }()
			}
		case a := <-answers:
			if running--; a.err != nil && running > 0 {
				a.drop()
				continue
			}
			if running > 0 {
				go func() { (<-answers).drop() }()
			}
			return a
		}
	}
}
