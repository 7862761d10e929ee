package probe

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Level grades a finding.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // works, but someone should look
	Fail Level = "fail" // Firn must not use this store
)

// Finding is the result of one check.
type Finding struct {
	Check string `json:"check"`
	Level Level  `json:"level"`
	Text  string `json:"text"`
}

// Failed reports whether any finding forbids the store.
func Failed(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.Level == Fail })
}

// Options tune an examination. The zero value is ready to use.
type Options struct {
	Racers  int              // writers in a race; zero is 32
	Races   int              // keys raced for; zero is 8
	Samples int              // requests for each latency; zero is 40
	Now     func() time.Time // the local clock; nil is time.Now
}

// Doctor examines a store with the default options.
func Doctor(ctx context.Context, s objstore.Store) []Finding { return Examine(ctx, s, Options{}) }

// Examine runs every check, whatever the others found, and removes what it
// wrote. The findings come in a fixed order.
func Examine(ctx context.Context, s objstore.Store, o Options) []Finding {
	if o.Racers <= 0 {
		o.Racers = 32
	}
	if o.Races <= 0 {
		o.Races = 8
	}
	if o.Samples <= 0 {
		o.Samples = 40
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	e := &examination{store: s, options: o, folder: Folder + "doctor-" + rand.Text() + "/"}
	defer e.cleanUp(ctx)
	for _, check := range []struct {
		name string
		run  func(context.Context) (Level, string, error)
	}{
		{"reach", e.reach},
		{"conditional put", e.conditionalPut},
		{"race", e.race},
		{"read after write", e.readAfterWrite},
		{"list after write", e.listAfterWrite},
		{"list order", e.listOrder},
		{"ranges", e.ranges},
		{"delete", e.delete},
		{"clock", e.clock},
	} {
		level, text, err := check.run(ctx)
		if err != nil {
			level, text = Fail, "the check could not be finished: "+err.Error()
		}
		e.findings = append(e.findings, Finding{check.name, level, text})
		if check.name == "reach" && level == Fail {
			return e.findings // nothing else can be asked
		}
	}
	e.findings = append(e.findings, e.latencies(ctx)...)
	return e.findings
}

type examination struct {
	store    objstore.Store
	options  Options
	folder   string
	findings []Finding

	mu   sync.Mutex
	keys []string // written, to be removed
}

// key names an object of this examination and remembers it.
func (e *examination) key(format string, args ...any) string {
	key := e.folder + fmt.Sprintf(format, args...)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.keys = append(e.keys, key)
	return key
}

func (e *examination) cleanUp(ctx context.Context) { remove(ctx, e.store, e.keys...) }

func (e *examination) put(ctx context.Context, key string, body []byte) error {
	return e.store.Put(ctx, key, body)
}

// patience retries what passes with time, a few times.
func patience(ctx context.Context, run func() error) error {
	for try := 0; ; try++ {
		err := run()
		c := errs.ClassOf(err)
		if err == nil || try == 5 || c != errs.Unavailable && c != errs.Unknown && c != errs.Exhausted {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond << try):
		}
	}
}

func (e *examination) reach(ctx context.Context) (Level, string, error) {
	if err := patience(ctx, func() error { return e.put(ctx, e.key("reach"), []byte("x")) }); err != nil {
		return Fail, "", err
	}
	return OK, e.store.URL() + " answers and takes writes", nil
}

func (e *examination) conditionalPut(ctx context.Context) (Level, string, error) {
	err := StartupProbe(ctx, e.store)
	if errs.Is(err, errs.Unsupported) {
		return Fail, err.Error(), nil
	}
	return OK, "a second conditional put to the same key is refused", err
}

// race lets many writers create one key at once, several times over.
func (e *examination) race(ctx context.Context) (Level, string, error) {
	for round := range e.options.Races {
		key := e.key("race-%d", round)
		winners, err := e.raceFor(ctx, key)
		if err != nil {
			return Fail, "", err
		}
		if len(winners) != 1 {
			return Fail, fmt.Sprintf("%d writers raced for one new key and %d of them were told that they created it (round %d). "+
				"Two agents would both believe that they own a table, and rows would be lost: do not use this store", e.options.Racers, len(winners), round+1), nil
		}
		got, _, err := e.store.Get(ctx, key)
		if err != nil {
			return Fail, "", err
		}
		if string(got) != winners[0] {
			return Fail, "the body that stands at a raced key is not the one whose writer was told that it won", nil
		}
	}
	return OK, fmt.Sprintf("%d races of %d writers had one winner each", e.options.Races, e.options.Racers), nil
}

func (e *examination) raceFor(ctx context.Context, key string) (winners []string, failed error) {
	var ready, done sync.WaitGroup
	var mu sync.Mutex
	ready.Add(e.options.Racers)
	for i := range e.options.Racers {
		done.Go(func() {
			body := fmt.Sprintf("racer %d %s", i, rand.Text())
			ready.Done()
			ready.Wait()
			c, err := objstore.Create(ctx, e.store, key, []byte(body), objstore.CreatePolicy{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed = err
			} else if c.Created {
				winners = append(winners, body)
			}
		})
	}
	done.Wait()
	return winners, failed
}

// rounds is how often the consistency checks repeat.
const rounds = 12

func (e *examination) readAfterWrite(ctx context.Context) (Level, string, error) {
	key := e.key("read")
	for i := range rounds {
		body := fmt.Sprintf("version %d", i)
		if err := patience(ctx, func() error { return e.put(ctx, key, []byte(body)) }); err != nil {
			return Fail, "", err
		}
		got, _, err := e.store.Get(ctx, key)
		if errs.Is(err, errs.NotFound) {
			return Fail, "an object was not found right after it was written; the store is only eventually consistent, or a cache stands before it", nil
		}
		if err != nil {
			return Fail, "", err
		}
		if string(got) != body {
			return Fail, "an older version was read right after an object was replaced; the store is only eventually consistent, or a cache stands before it", nil
		}
		info, err := e.store.Head(ctx, key)
		if err != nil {
			return Fail, "", err
		}
		if info.Size != int64(len(body)) {
			return Fail, fmt.Sprintf("HEAD says %d bytes for an object of %d", info.Size, len(body)), nil
		}
	}
	return OK, "what is written is read at once", nil
}

func (e *examination) list(ctx context.Context, prefix, startAfter string) (keys []string, err error) {
	err = patience(ctx, func() error {
		keys = nil
		for info, err := range e.store.List(ctx, e.folder+prefix, startAfter) {
			if err != nil {
				return err
			}
			keys = append(keys, strings.TrimPrefix(info.Key, e.folder))
		}
		return nil
	})
	return keys, err
}

func (e *examination) listAfterWrite(ctx context.Context) (Level, string, error) {
	for i := range rounds {
		if err := e.put(ctx, e.key("listed/%03d", i), []byte("x")); err != nil {
			return Fail, "", err
		}
		keys, err := e.list(ctx, "listed/", "")
		if err != nil {
			return Fail, "", err
		}
		if len(keys) != i+1 {
			return Fail, fmt.Sprintf("a listing right after a write showed %d of %d objects; collection of garbage and recovery need listings that are current", len(keys), i+1), nil
		}
	}
	return OK, "a listing shows what was just written", nil
}

func (e *examination) listOrder(ctx context.Context) (Level, string, error) {
	names := []string{"order/a/1", "order/a-b", "order/a.b", "order/a/10", "order/a/2", "order/b", "order/B", "order/é"}
	for _, name := range names {
		if err := e.put(ctx, e.key("%s", name), []byte("x")); err != nil {
			return Fail, "", err
		}
	}
	slices.Sort(names)
	keys, err := e.list(ctx, "order/", "")
	if err != nil {
		return Fail, "", err
	}
	if !slices.Equal(keys, names) {
		return Fail, fmt.Sprintf("a listing is not in the order of the keys' bytes: %v", keys), nil
	}
	after, err := e.list(ctx, "order/", e.folder+names[2])
	if err != nil {
		return Fail, "", err
	}
	if !slices.Equal(after, names[3:]) {
		return Fail, fmt.Sprintf("a listing that should start after %s gave %v", names[2], after), nil
	}
	return OK, "listings are in order and start where they are asked to", nil
}

func (e *examination) ranges(ctx context.Context) (Level, string, error) {
	key := e.key("ranges")
	const body = "0123456789"
	if err := e.put(ctx, key, []byte(body)); err != nil {
		return Fail, "", err
	}
	for _, c := range []struct {
		start, n int64
		want     string
	}{{2, 3, "234"}, {8, 10, "89"}, {10, 5, ""}, {-1, 4, "6789"}} {
		got, info, err := e.store.GetRange(ctx, key, c.start, c.n)
		if err != nil {
			return Fail, "", err
		}
		if string(got) != c.want || info.Size != int64(len(body)) {
			return Fail, fmt.Sprintf("a range read of %d bytes from %d gave %q of an object of %d bytes, not %q; "+
				"a proxy that drops the Range header does this", c.n, c.start, got, info.Size, c.want), nil
		}
	}
	return OK, "ranges and suffixes are exact", nil
}

func (e *examination) delete(ctx context.Context) (Level, string, error) {
	key := e.key("delete")
	if err := e.put(ctx, key, []byte("x")); err != nil {
		return Fail, "", err
	}
	for range 2 {
		if err := patience(ctx, func() error { return e.store.Delete(ctx, key) }); err != nil {
			return Fail, "objects cannot be deleted, so garbage would grow without bound: " + err.Error(), nil
		}
	}
	if _, _, err := e.store.Get(ctx, key); !errs.Is(err, errs.NotFound) {
		if err != nil {
			return Fail, "", err
		}
		return Fail, "an object can still be read after it was deleted; the store is only eventually consistent, or a cache stands before it", nil
	}
	return OK, "deletes work, and may be repeated", nil
}
