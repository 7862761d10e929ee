package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"
)

func readAll(t *testing.T, s *Changes, n int) (got []int64, err error) {
	t.Helper()
	for n == 0 || len(got) < n {
		rec, err := s.Next()
		if err != nil {
			return got, err
		}
		got = append(got, rec.Column(0).(*array.Int64).Int64Values()...)
		rec.Release()
	}
	return got, nil
}

func TestChangesResumeAtTheExactRowAfterEveryBreak(t *testing.T) {
	p, c := newPeer(t, 1, nil)
	p.log, p.tornAt = sequence(0, 100), 2
	s := c.Table("d", "t").Changes(t.Context(), ChangesOptions{})
	got, err := readAll(t, s, 0)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, sequence(0, 100), got)
	require.Equal(t, map[int32]int64{0: 100}, s.Cursor())
	require.NoError(t, s.Close())
}

func TestProgressAdvancesWhereAFilterDropsEveryRow(t *testing.T) {
	p, c := newPeer(t, 1, nil)
	p.log = []int64{1, 3, 5, 7, 9, 11, 13, 15}
	var last map[int32]int64
	s := c.Table("d", "t").Changes(t.Context(), ChangesOptions{Where: "v % 2 = 0", OnProgress: func(m map[int32]int64) { last = m }})
	got, err := readAll(t, s, 0)
	require.ErrorIs(t, err, io.EOF)
	require.Empty(t, got)
	require.Equal(t, map[int32]int64{0: 8}, last)
}

func TestAFollowerSeesNewRowsAndEndsWithItsContext(t *testing.T) {
	p, c := newPeer(t, 1, nil)
	ctx, cancel := context.WithCancel(t.Context())
	s := c.Table("d", "t").Changes(ctx, ChangesOptions{Follow: true})
	go func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.log = append(p.log, 1, 2)
	}()
	got, err := readAll(t, s, 2)
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, got)
	cancel()
	_, err = s.Next()
	require.ErrorIs(t, err, context.Canceled)
}

func TestAnOffsetOutsideTheLogIsFinal(t *testing.T) {
	_, c := newPeer(t, 1, nil)
	s := c.Table("d", "t").Changes(t.Context(), ChangesOptions{Start: From(map[int32]int64{0: 1000000})})
	_, err := s.Next()
	require.Equal(t, OutOfRange, ClassOf(err))
	_, again := s.Next()
	require.Equal(t, err, again)
}

func TestOffsetsSurviveTheirTextForm(t *testing.T) {
	m := map[int32]int64{0: 12, 1: 1 << 40, 10: 0}
	require.Equal(t, "0=12,1=1099511627776,10=0", FormatOffsets(m))
	back, err := ParseOffsets(FormatOffsets(m))
	require.NoError(t, err)
	require.Equal(t, m, back)
	for _, bad := range []string{"", "0", "0=", "=1", "0=-1", "x=1", "0=1;1=2"} {
		_, err := ParseOffsets(bad)
		require.Equal(t, Invalid, ClassOf(err), bad)
	}
}

// answering returns a client of a server that gives one answer to everything.
func answering(t *testing.T, h http.HandlerFunc) *Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := New(srv.URL, WithToken("secret"), WithRetry(RetryPolicy{Attempts: 3, MinPause: time.Millisecond, MaxPause: time.Millisecond}))
	require.NoError(t, err)
	return c
}

func TestErrorsOfPlainRoutesKeepCodeDetailsAndHint(t *testing.T) {
	calls := 0
	status, body := 400, `{"code":"invalid_argument","message":"row 3: no","details":[{"row":3}]}`
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		calls++
		require.Equal(t, "Bearer secret", r.Header.Get("Authorization"))
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
	_, err := c.Table("d", "t").Append(t.Context(), []byte("{}"), AppendOptions{})
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, Invalid, e.Class)
	require.Equal(t, []any{map[string]any{"row": 3.0}}, e.Details)
	require.Equal(t, 1, calls, "a refusal is not retried")
	for st, want := range map[int]Class{401: Unauthenticated, 403: PermissionDenied, 404: NotFound, 410: OutOfRange, 413: TooLarge, 415: Unsupported, 429: Exhausted, 503: Unavailable, 502: Unknown, 500: Internal} {
		status, body = st, "<html>no Firn here</html>"
		_, err := c.Table("d", "t").Append(t.Context(), []byte("{}"), AppendOptions{})
		require.Equal(t, want, ClassOf(err), st)
		require.ErrorAs(t, err, &e)
		require.Equal(t, 7*time.Second, e.RetryAfter)
		require.NotContains(t, err.Error(), "secret")
	}
}

func TestTheClassThatAnAgentTellsDecidesAboutARetry(t *testing.T) {
	calls := 0
	var class string
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.WriteHeader(503)
		_, _ = io.WriteString(w, `{"code":"unavailable","message":"m","details":[{"class":"`+class+`","retry_after_ms":1},{"x":1}]}`)
	})
	table := c.Table("d", "t")
	for _, class = range []string{"unavailable", "unknown outcome"} {
		calls = 0
		_, err := table.Append(t.Context(), []byte("{}"), AppendOptions{}) // has a key of its own
		var e *Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, Class(class), e.Class)
		require.Equal(t, []any{map[string]any{"x": 1.0}}, e.Details)
		require.Equal(t, time.Millisecond, e.RetryAfter)
		require.Greater(t, calls, 1)
		calls = 0
		_, err = table.AppendReader(t.Context(), strings.NewReader("{}"), AppendOptions{})
		require.Equal(t, Class(class), ClassOf(err))
		require.Equal(t, 1, calls)
	}
}

func TestARetriedAppendKeepsItsKey(t *testing.T) {
	var keys []string
	c := answering(t, func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) < 3 {
			hangUp(w)
			return
		}
		_, _ = io.WriteString(w, `{"rows":1,"skipped":0,"rejected":0,"errors":[],"buckets":[],"duplicate":true,"a_new_field":1}`)
	})
	res, err := c.Table("d", "t").AppendRows(t.Context(), map[string]any{"v": 1})
	require.NoError(t, err)
	require.True(t, res.Duplicate)
	require.Len(t, keys, 3)
	require.NotEmpty(t, keys[0])
	require.Equal(t, keys[0], keys[1])
	require.Equal(t, keys[0], keys[2])
}

func TestAScanThatBreaksOffIsAnErrorNotAnEnd(t *testing.T) {
	body, err := encodeArrow([]arrow.RecordBatch{values(sequence(0, 1000)...)})
	require.NoError(t, err)
	cut := len(body)
	c := answering(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100000")
		_, _ = w.Write(body[:cut])
	})
	for _, cut = range []int{len(body), len(body) - 8, len(body) - 100, 10} {
		r, err := c.Table("d", "t").Scan(t.Context(), ScanOptions{})
		for err == nil {
			_, err = r.Next()
		}
		require.False(t, errors.Is(err, io.EOF), "cut at %d", cut)
		require.Equal(t, Unavailable, ClassOf(err), "cut at %d: %v", cut, err)
	}
}

func TestServerURLsAreChecked(t *testing.T) {
	for _, bad := range []string{"localhost:7070", "ftp://x", "http://", "http://u:p@x", "http://x?y=1", "http://x y"} {
		_, err := New(bad)
		require.Equal(t, Invalid, ClassOf(err), bad)
		require.NotContains(t, err.Error(), "u:p")
	}
	c, err := New("")
	require.NoError(t, err)
	require.Equal(t, DefaultURL, c.URL())
}

func TestPausesGrowAndFollowTheAgentsHint(t *testing.T) {
	p := RetryPolicy{Attempts: 9, MinPause: 100 * time.Millisecond, MaxPause: 3 * time.Second}
	for failures := 1; failures < 70; failures++ {
		d := p.pause(failures, errors.New("x"))
		want := min(100*time.Millisecond<<min(failures-1, 20), p.MaxPause)
		require.GreaterOrEqual(t, d, want/2)
		require.LessOrEqual(t, d, want+1)
	}
	require.Equal(t, 2*time.Second, p.pause(1, &Error{RetryAfter: 2 * time.Second}))
	require.Equal(t, p.MaxPause, p.pause(1, &Error{RetryAfter: time.Hour}))
}

func TestTableNamesAreSplitStrictly(t *testing.T) {
	db, table, err := ParseTable("shop.orders")
	require.NoError(t, err)
	require.Equal(t, "shop/orders", db+"/"+table)
	for _, bad := range []string{"", "orders", ".orders", "shop.", "a.b.c", "a/b.c"} {
		_, _, err := ParseTable(bad)
		require.Equal(t, Invalid, ClassOf(err), bad)
	}
	require.True(t, strings.Contains(values(1).Schema().String(), "v"))
}
