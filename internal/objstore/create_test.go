package objstore_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// scripted answers conditional puts from a script; what the script does not
// cover goes to the store below.
type scripted struct {
	objstore.Store
	puts   []func(key string, body []byte) (objstore.Outcome, error)
	gets   []func(key string) ([]byte, objstore.Info, error)
	sent   int
	bodies []string
}

func (s *scripted) PutIfAbsent(ctx context.Context, key string, body []byte) (objstore.Outcome, error) {
	s.sent++
	s.bodies = append(s.bodies, string(body))
	if len(s.puts) == 0 {
		return s.Store.PutIfAbsent(ctx, key, body)
	}
	next := s.puts[0]
	s.puts = s.puts[1:]
	return next(key, body)
}

func (s *scripted) Get(ctx context.Context, key string) ([]byte, objstore.Info, error) {
	if len(s.gets) == 0 {
		return s.Store.Get(ctx, key)
	}
	next := s.gets[0]
	s.gets = s.gets[1:]
	return next(key)
}

func fail(c errs.Class) func(string, []byte) (objstore.Outcome, error) {
	return func(string, []byte) (objstore.Outcome, error) { return objstore.Unknown, errs.New(c, "scripted") }
}

func (s *scripted) applyAndFail(key string, body []byte) (objstore.Outcome, error) {
	if outcome, err := s.Store.PutIfAbsent(context.Background(), key, body); outcome == objstore.Unknown {
		return outcome, err
	}
	return objstore.Unknown, errs.New(errs.Unknown, "answer lost")
}

func exists(string, []byte) (objstore.Outcome, error) { return objstore.Exists, nil }

// quick is a policy that waits for nothing and remembers its pauses.
func quick(pauses *[]time.Duration) objstore.CreatePolicy {
	return objstore.CreatePolicy{
		Rand: func() float64 { return 1 },
		Sleep: func(ctx context.Context, d time.Duration) error {
			if pauses != nil {
				*pauses = append(*pauses, d)
			}
			return ctx.Err()
		},
	}
}

func TestLostAnswerToAConditionalPutIsOurOwnSuccess(t *testing.T) {
	s := &scripted{Store: objstore.NewMem()}
	s.puts = append(s.puts, s.applyAndFail)
	c, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(nil))
	if err != nil || !c.Created || c.Attempts != 2 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestExistsIsBelievedOnlyAfterReadingBack(t *testing.T) {
	s := &scripted{Store: objstore.NewMem()}
	if err := s.Put(t.Context(), "k", []byte("theirs")); err != nil {
		t.Fatal(err)
	}
	c, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(nil))
	if err != nil || c.Created || string(c.Existing) != "theirs" || c.Info.Size != 6 {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestConflictsAndUnknownsAreRetriedWithTheSameBytes(t *testing.T) {
	s := &scripted{Store: objstore.NewMem()}
	s.puts = append(s.puts, fail(errs.Unknown), fail(errs.Unavailable), fail(errs.Unknown), fail(errs.Internal), fail(errs.Exhausted))
	var pauses []time.Duration
	c, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(&pauses))
	if err != nil || !c.Created || c.Attempts != 6 {
		t.Fatalf("%+v, %v", c, err)
	}
	if slices.ContainsFunc(s.bodies, func(b string) bool { return b != "mine" }) {
		t.Errorf("bodies %q", s.bodies)
	}
	want := []time.Duration{50, 100, 200, 400, 800}
	for i := range want {
		if pauses[i] != want[i]*time.Millisecond {
			t.Errorf("pauses %v", pauses)
			break
		}
	}
}

func TestBackoffIsBoundedJitteredAndHeedsTheStore(t *testing.T) {
	s := &scripted{Store: objstore.NewMem()}
	for range 40 {
		s.puts = append(s.puts, fail(errs.Unavailable))
	}
	s.puts = append(s.puts, func(string, []byte) (objstore.Outcome, error) {
		return objstore.Unknown, &errs.Error{Class: errs.Unavailable, RetryAfter: time.Minute}
	})
	var pauses []time.Duration
	p := quick(&pauses)
	p.MinBackoff, p.MaxBackoff = time.Second, 4*time.Second
	p.Rand = func() float64 { return 0 }
	if _, err := objstore.Create(t.Context(), s, "k", []byte("mine"), p); err != nil {
		t.Fatal(err)
	}
	if pauses[0] != time.Second/2 || pauses[39] != 2*time.Second || pauses[40] != time.Minute {
		t.Errorf("pauses %v", pauses)
	}
}

func TestRefusalIsToldAtOnceUnlessAnAttemptIsOpen(t *testing.T) {
	for _, class := range []errs.Class{errs.PermissionDenied, errs.Unauthenticated, errs.Invalid, errs.TooLarge, errs.Unsupported, errs.NotFound} {
		s := &scripted{Store: objstore.NewMem(), puts: []func(string, []byte) (objstore.Outcome, error){fail(class)}}
		if _, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(nil)); !errs.Is(err, class) || s.sent != 1 {
			t.Errorf("%v: %v after %d puts", class, err, s.sent)
		}
		s = &scripted{Store: objstore.NewMem()}
		s.puts = append(s.puts, fail(errs.Unknown), fail(class))
		if c, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(nil)); err != nil || !c.Created {
			t.Errorf("%v after an unknown outcome: %+v, %v", class, c, err)
		}
	}
}

func TestEndedContextSaysWhatIsKnown(t *testing.T) {
	for _, c := range []struct {
		attempt errs.Class
		want    errs.Class
	}{{errs.Unknown, errs.Unknown}, {errs.Canceled, errs.Unknown}, {errs.Exhausted, errs.Exhausted}, {errs.Unavailable, errs.Unavailable}} {
		ctx, cancel := context.WithCancel(t.Context())
		s := &scripted{Store: objstore.NewMem()}
		s.puts = append(s.puts, func(string, []byte) (objstore.Outcome, error) {
			cancel()
			return objstore.Unknown, errs.New(c.attempt, "scripted")
		})
		_, err := objstore.Create(ctx, s, "k", []byte("mine"), quick(nil))
		if !errs.Is(err, c.want) {
			t.Errorf("after %v: %v of class %v", c.attempt, err, errs.ClassOf(err))
		}
	}
}

func TestVanishedObjectIsNeverPutAgain(t *testing.T) {
	s := &scripted{Store: objstore.NewMem()}
	s.puts = append(s.puts, exists)
	_, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(nil))
	if !errs.Is(err, errs.Unknown) || s.sent != 1 {
		t.Errorf("%v after %d puts", err, s.sent)
	}
	if _, err := s.Head(t.Context(), "k"); !errs.Is(err, errs.NotFound) {
		t.Errorf("the freed key was taken again: %v", err)
	}
}

func TestFailedReadBackIsRetried(t *testing.T) {
	s := &scripted{Store: objstore.NewMem()}
	s.puts = append(s.puts, s.applyAndFail)
	for _, err := range []error{errs.New(errs.Unavailable, "503"), errs.New(errs.NotFound, "stale"), errors.New("odd")} {
		s.gets = append(s.gets, func(string) ([]byte, objstore.Info, error) { return nil, objstore.Info{}, err })
	}
	c, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(nil))
	if err != nil || !c.Created {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestStoreThatResetsInsteadOfRefusingIsSettledByReading(t *testing.T) {
	s := &scripted{Store: objstore.NewMem()}
	if err := s.Put(t.Context(), "k", []byte("theirs")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s.puts = append(s.puts, fail(errs.Unknown))
	}
	c, err := objstore.Create(t.Context(), s, "k", []byte("mine"), quick(nil))
	if err != nil || c.Created || string(c.Existing) != "theirs" || s.sent != 2 {
		t.Errorf("%+v, %v after %d puts", c, err, s.sent)
	}
}
