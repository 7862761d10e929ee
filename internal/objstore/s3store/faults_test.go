package s3store

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/testkit/faultproxy"
	"github.com/firn-data/firn/internal/testkit/s3test"
)

var impatient = objstore.CreatePolicy{MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond}

// broken opens a store on a fake server behind a proxy with rules.
func broken(t *testing.T, change func(*Options), rules ...faultproxy.Rule) (*Store, *faultproxy.Proxy) {
	t.Helper()
	p := faultproxy.Start(t, fake(t, "bucket"), 1, rules...)
	return openAt(t, p.URL, "bucket", "", change), p
}

const conflictXML = `<Error><Code>ConditionalRequestConflict</Code><Message>A conflicting operation is in progress.</Message></Error>`

// 409 was taken for "exists" (arrow-rs-object-store #852, opendal #6741).
func TestConflictIsRetriedAndNeverExists(t *testing.T) {
	s, p := broken(t, nil, faultproxy.Rule{Kind: faultproxy.Answer, Method: "PUT", Times: 5, Status: 409, Body: conflictXML})
	outcome, err := s.PutIfAbsent(t.Context(), "k", []byte("mine"))
	if outcome != objstore.Unknown || !errs.Is(err, errs.Unknown) {
		t.Fatalf("outcome %d, %v", outcome, err)
	}
	c, err := objstore.Create(t.Context(), s, "k", []byte("mine"), impatient)
	if err != nil || !c.Created || p.Count("PUT") != 6 {
		t.Errorf("%+v, %v after %d puts", c, err, p.Count("PUT"))
	}
}

// A lost answer to a conditional put that worked looked like a lost race
// (slatedb #1164, delta #7345).
func TestLostAnswersToConditionalPutsAreOurOwnSuccess(t *testing.T) {
	server := s3test.Start(t)
	lost := map[string]faultproxy.Rule{
		"reset after the work":      {Kind: faultproxy.LoseAnswer},
		"500 after the work":        {Kind: faultproxy.AnswerLate, Status: 500, Body: "<Error><Code>InternalError</Code></Error>"},
		"503 after the work":        {Kind: faultproxy.AnswerLate, Status: 503},
		"cut off after the work":    {Kind: faultproxy.Truncate},
		"502 in a proxy's own HTML": {Kind: faultproxy.AnswerLate, Status: 502, Body: "<html><body>Bad gateway</body></html>"},
		"garbage after the work":    {Kind: faultproxy.AnswerLate, Status: 500, Body: "\x00<Error><Code>"},
		"reset before the work":     {Kind: faultproxy.Reset},
		"503 before the work":       {Kind: faultproxy.Answer, Status: 503, Body: "<Error><Code>SlowDown</Code></Error>"},
	}
	n := 0
	for name, rule := range lost {
		n++
		rule.Method, rule.Times = "PUT", 2
		key := fmt.Sprintf("lost/%d", n)
		p := faultproxy.Start(t, server.Endpoint, 1, rule)
		s := openAt(t, p.URL, server.Bucket, "", nil)
		c, err := objstore.Create(t.Context(), s, key, []byte("mine "+name), impatient)
		if err != nil || !c.Created {
			t.Errorf("%s: %+v, %v", name, c, err)
			continue
		}
		c, err = objstore.Create(t.Context(), s, key, []byte("theirs"), impatient)
		if err != nil || c.Created || string(c.Existing) != "mine "+name {
			t.Errorf("%s: the second writer got %+v, %v", name, c, err)
		}
	}
}

// With 2 % 503 and 2 % lost answers the SDK's own retries left keys without any
// recognised winner.
func TestEveryRacedKeyHasOneRecognisedWinnerUnderFaults(t *testing.T) {
	server := s3test.Start(t)
	p := faultproxy.Start(t, server.Endpoint, 42,
		faultproxy.Rule{Kind: faultproxy.LoseAnswer, Method: "PUT", Chance: 0.1},
		faultproxy.Rule{Kind: faultproxy.AnswerLate, Method: "PUT", Chance: 0.1, Status: 503},
		faultproxy.Rule{Kind: faultproxy.Answer, Method: "PUT", Chance: 0.1, Status: 409, Body: conflictXML},
		faultproxy.Rule{Kind: faultproxy.Reset, Chance: 0.1},
		faultproxy.Rule{Kind: faultproxy.Truncate, Method: "GET", Chance: 0.1})
	s := openAt(t, p.URL, server.Bucket, "", func(o *Options) { o.MaxAttempts = 20 })
	const keys, writers = 15, 6
	var winners [keys]atomic.Int32
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for k := range keys {
				body := fmt.Appendf(nil, "writer %d", w)
				c, err := objstore.Create(t.Context(), s, fmt.Sprintf("raced/%d", k), body, impatient)
				if err != nil {
					t.Errorf("key %d writer %d: %v", k, w, err)
				}
				if c.Created {
					winners[k].Add(1)
				}
			}
		})
	}
	all.Wait()
	for k := range winners {
		if n := winners[k].Load(); n != 1 {
			t.Errorf("key %d has %d winners", k, n)
		}
	}
}

func TestReadsSurviveFaults(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789"), 10_000)
	for name, rule := range map[string]faultproxy.Rule{
		"503":       {Kind: faultproxy.Answer, Status: 503},
		"500":       {Kind: faultproxy.AnswerLate, Status: 500, Body: "not XML"},
		"429":       {Kind: faultproxy.Answer, Status: 429},
		"reset":     {Kind: faultproxy.Reset},
		"lost":      {Kind: faultproxy.LoseAnswer},
		"truncated": {Kind: faultproxy.Truncate},
	} {
		s, p := broken(t, func(o *Options) { o.DisableHedging = true })
		if err := s.Put(t.Context(), "k", body); err != nil {
			t.Fatal(err)
		}
		rule.Times = 3
		p.Add(rule)
		if got, _, err := s.Get(t.Context(), "k"); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: get %d bytes, %v", name, len(got), err)
		}
		p.Clear()
		p.Add(rule)
		if got, _, err := s.GetRange(t.Context(), "k", -1, 10); err != nil || string(got) != "0123456789" {
			t.Errorf("%s: suffix %q, %v", name, got, err)
		}
		p.Clear()
		p.Add(rule)
		n := 0
		for _, err := range s.List(t.Context(), "", "") {
			if n++; err != nil {
				t.Errorf("%s: list: %v", name, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: listed %d", name, n)
		}
		p.Clear()
		p.Add(rule)
		if err := s.Delete(t.Context(), "k"); err != nil {
			t.Errorf("%s: delete: %v", name, err)
		}
	}
}

func TestRetriesOfReadsAreBounded(t *testing.T) {
	s, p := broken(t, func(o *Options) { o.MaxAttempts, o.DisableHedging = 4, true }, faultproxy.Rule{Kind: faultproxy.Answer, Status: 503})
	if _, _, err := s.Get(t.Context(), "k"); !errs.Is(err, errs.Unavailable) || p.Count("") != 4 {
		t.Errorf("%v after %d requests", err, p.Count(""))
	}
	if err := s.Put(t.Context(), "k", nil); !errs.Is(err, errs.Unknown) || p.Count("PUT") != 4 {
		t.Errorf("%v after %d puts", err, p.Count("PUT"))
	}
	if _, err := s.PutIfAbsent(t.Context(), "k", nil); !errs.Is(err, errs.Unknown) || p.Count("PUT") != 5 {
		t.Errorf("%v; a conditional put was sent %d times", err, p.Count("PUT")-4)
	}
}

func TestStuckRequestsEndWithTheirLimit(t *testing.T) {
	s, p := broken(t, func(o *Options) { o.RequestTimeout, o.MaxAttempts = 50*time.Millisecond, 2 }, faultproxy.Rule{Kind: faultproxy.Hang})
	outcome, err := s.PutIfAbsent(t.Context(), "k", []byte("x"))
	if outcome != objstore.Unknown || !errs.Is(err, errs.Unknown) || !strings.Contains(err.Error(), "in time") {
		t.Errorf("put-if-absent: %d, %v", outcome, err)
	}
	if _, _, err := s.Get(t.Context(), "k"); !errs.Is(err, errs.Unavailable) {
		t.Errorf("get: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Head(ctx, "k"); !errs.Is(err, errs.Canceled) {
		t.Errorf("head: %v", err)
	}
	if outcome, err = s.PutIfAbsent(ctx, "k", []byte("x")); outcome != objstore.Unknown {
		t.Errorf("put-if-absent: %d, %v", outcome, err)
	}
	if p.Count("PUT") != 1 {
		t.Errorf("%d puts; one after the context's end", p.Count("PUT"))
	}
}

func TestUnreachableStoreIsSaidSoAndNothingIsInDoubt(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := "http://" + l.Addr().String()
	_ = l.Close()
	s := openAt(t, address, "bucket", "", nil)
	for range 2 {
		outcome, err := s.PutIfAbsent(t.Context(), "k", []byte("x"))
		if outcome != objstore.Unknown || !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "reached") {
			t.Errorf("%d, %v", outcome, err)
		}
	}
	if _, _, err := s.Get(t.Context(), "k"); !errs.Is(err, errs.Unavailable) {
		t.Error(err)
	}
}

func TestSlowFirstAnswerIsHedged(t *testing.T) {
	s, p := broken(t, nil)
	if err := s.Put(t.Context(), "k", []byte("value")); err != nil {
		t.Fatal(err)
	}
	s.hedger.delay, s.hedger.tokens = hedgeMinDelay, 1
	p.Clear()
	p.Add(faultproxy.Rule{Kind: faultproxy.Hang, Times: 1})
	begun := time.Now()
	got, _, err := s.GetRange(t.Context(), "k", 0, 5)
	if err != nil || string(got) != "value" || p.Count("GET") != 2 || time.Since(begun) > 5*time.Second {
		t.Errorf("%q, %v after %v and %d requests", got, err, time.Since(begun), p.Count("GET"))
	}
}

func TestHedgesStayWithinTheirShare(t *testing.T) {
	var h hedger
	spent := 0
	for range 1000 {
		h.wait()
		if h.spend() {
			spent++
		}
	}
	if spent < 45 || spent > 1000*hedgeShare {
		t.Errorf("%d of 1000 requests were sent twice", spent)
	}
	for range hedgeLearn {
		h.note(time.Hour)
	}
	if h.wait() != hedgeMaxDelay {
		t.Errorf("delay %v", h.wait())
	}
}

// Clock skew gave endless 403 and a busy loop (ramen #1141).
func TestClockSkewIsNamedAndRecoveredFrom(t *testing.T) {
	for _, skew := range []time.Duration{20 * time.Minute, -20 * time.Minute} {
		refused := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			now := time.Now().Add(skew)
			w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
			at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
			if err != nil || at.Sub(now).Abs() > 15*time.Minute {
				refused++
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprint(w, `<Error><Code>RequestTimeTooSkewed</Code><Message>The difference between the request time and the current time is too large.</Message></Error>`)
				return
			}
			w.Header().Set("Content-Length", "0")
		}))
		s := openAt(t, server.URL, "bucket", "", nil)
		outcome, err := s.PutIfAbsent(t.Context(), "k", []byte("x"))
		if outcome != objstore.Unknown || !errs.Is(err, errs.Unavailable) || !strings.Contains(err.Error(), "clock skew") {
			t.Errorf("skew %v: %d, %v", skew, outcome, err)
		}
		if c, err := objstore.Create(t.Context(), s, "k", []byte("x"), impatient); err != nil || !c.Created || refused > 2 {
			t.Errorf("skew %v: no recovery: %+v, %v, %d refused", skew, c, err, refused)
		}
		server.Close()
	}
}

func TestKilledServerLosesNothingAcknowledged(t *testing.T) {
	server := s3test.Start(t)
	s := openAt(t, server.Endpoint, server.Bucket, "", nil)
	var acknowledged []string
	for round := range 3 {
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			time.Sleep(40 * time.Millisecond)
			server.Kill()
			server.Restart()
		}()
		for i := 0; ; i++ {
			key := fmt.Sprintf("kill/%d/%05d", round, i)
			c, err := objstore.Create(t.Context(), s, key, []byte(key), impatient)
			if err != nil || !c.Created {
				t.Fatalf("%s: %+v, %v", key, c, err)
			}
			acknowledged = append(acknowledged, key)
			select {
			case <-stop:
			default:
				continue
			}
			break
		}
	}
	for _, key := range acknowledged {
		if got, _, err := s.Get(t.Context(), key); err != nil || string(got) != key {
			t.Errorf("%s: %q, %v", key, got, err)
		}
	}
}
