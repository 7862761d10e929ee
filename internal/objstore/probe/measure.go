package probe

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// Skews at which the clock check speaks up. S3 refuses requests at 15 minutes.
const (
	skewWarn = time.Minute
	skewFail = 10 * time.Minute
)

// clock compares the store's clock with this machine's, from one put's time
// stamp, which some stores cut to a second.
func (e *examination) clock(ctx context.Context) (Level, string, error) {
	key := e.key("clock")
	before := e.options.Now()
	if err := patience(ctx, func() error { return e.put(ctx, key, []byte("x")) }); err != nil {
		return Fail, "", err
	}
	after := e.options.Now()
	info, err := e.store.Head(ctx, key)
	if err != nil {
		return Fail, "", err
	}
	if info.ModTime.IsZero() {
		return Fail, "the store gives objects no time of writing; without it garbage cannot be told from fresh objects", nil
	}
	skew := time.Duration(0)
	switch {
	case info.ModTime.Before(before.Add(-time.Second)):
		skew = info.ModTime.Sub(before)
	case info.ModTime.After(after.Add(time.Second)):
		skew = info.ModTime.Sub(after)
	}
	where := "behind"
	if skew > 0 {
		where = "ahead of"
	}
	text := fmt.Sprintf("the store's clock is %v %s this machine's", skew.Abs().Round(time.Second), where)
	switch {
	case skew.Abs() > skewFail:
		return Fail, text + ": clock skew this large makes S3 refuse requests (RequestTimeTooSkewed); set the clocks (NTP)", nil
	case skew.Abs() > skewWarn:
		return Warn, text + ": set the clocks (NTP); at 15 minutes of skew S3 refuses requests", nil
	}
	return OK, "the clocks agree to within a minute", nil
}

// latencies measures each operation one request at a time.
func (e *examination) latencies(ctx context.Context) []Finding {
	small, large := make([]byte, 1<<10), make([]byte, 1<<20)
	plain, big := e.key("latency"), e.key("latency-1m")
	n := 0
	for _, seed := range []string{plain, big} {
		body := small
		if seed == big {
			body = large
		}
		if err := e.put(ctx, seed, body); err != nil {
			return []Finding{{"latency", Fail, "the check could not be finished: " + err.Error()}}
		}
	}
	var findings []Finding
	for _, m := range []struct {
		name string
		run  func() error
	}{
		{"put-if-absent 1 KiB", func() error {
			n++
			_, err := objstore.Create(ctx, e.store, e.key("latency-%d", n), small, objstore.CreatePolicy{})
			return err
		}},
		{"put 1 MiB", func() error { return e.put(ctx, big, large) }},
		{"get 1 KiB", func() error { _, _, err := e.store.Get(ctx, plain); return err }},
		{"get 1 MiB", func() error { _, _, err := e.store.Get(ctx, big); return err }},
		{"range 64 KiB", func() error { _, _, err := e.store.GetRange(ctx, big, 1<<19, 1<<16); return err }},
		{"head", func() error { _, err := e.store.Head(ctx, plain); return err }},
		{"list", func() error { _, err := e.list(ctx, "listed/", ""); return err }},
		{"delete", func() error { return e.store.Delete(ctx, e.folder+"never-written") }},
	} {
		findings = append(findings, e.measure(m.name, m.run))
	}
	return findings
}

func (e *examination) measure(name string, run func() error) Finding {
	took := make([]time.Duration, 0, e.options.Samples)
	for range e.options.Samples {
		begun := time.Now()
		if err := run(); err != nil {
			return Finding{"latency " + name, Warn, "a request failed: " + err.Error()}
		}
		took = append(took, time.Since(begun))
	}
	slices.Sort(took)
	quantile := func(q float64) time.Duration {
		return took[min(len(took)-1, int(q*float64(len(took))))].Round(10 * time.Microsecond)
	}
	return Finding{"latency " + name, OK, fmt.Sprintf("p50 %v, p99 %v", quantile(0.5), quantile(0.99))}
}
