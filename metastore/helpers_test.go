package metastore

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// epoch is the time at which tests begin.
var epoch = time.Date(2026, 11, 30, 10, 15, 30, 123_000_000, time.UTC)

// seeded is a reader of pseudo-random bytes.
type seeded struct{ *rand.ChaCha8 }

func newSeeded(seed uint64) io.Reader {
	var key [32]byte
	for i := range 8 {
		key[i] = byte(seed >> (8 * i))
	}
	return seeded{rand.NewChaCha8(key)}
}

// incarnation returns the nth incarnation id of tests.
func incarnation(n int) string {
	return fmt.Sprintf("20261130T1015%05dZ-%012x", n, n)
}

// machine applies commands to a state without a store.
type machine struct {
	t   testing.TB
	s   *State
	now time.Time
	n   int
}

func newMachine(t testing.TB) *machine {
	m := &machine{t: t, s: &State{}, now: epoch}
	m.must(&Init{ClusterID: "c0ffee", SlotCount: 8})
	return m
}

func (m *machine) entry(c Command) *Entry {
	m.n++
	e := &Entry{
		Format: EntryFormat, Seq: m.s.Seq + 1, Prev: m.s.Sum, Writer: incarnation(0), Nonce: fmt.Sprintf("%024x", m.n),
		Time: m.now, Command: c,
	}
	body, err := e.Encode()
	require.NoError(m.t, err)
	decoded, err := DecodeEntry(body)
	require.NoError(m.t, err)
	require.Equal(m.t, e.Sum, decoded.Sum)
	return decoded
}

// try applies a command and keeps the state as it was when it is refused.
func (m *machine) try(c Command) error {
	next, err := step(m.s, m.entry(c))
	if err == nil {
		m.s = next
	}
	return err
}

func (m *machine) must(c Command) {
	m.t.Helper()
	require.NoError(m.t, m.try(c))
}

// decide runs a decision and applies what it says.
func (m *machine) decide(d Decision) error {
	c, err := d(m.s)
	if err != nil || c == nil {
		return err
	}
	return m.try(c)
}

func (m *machine) join(n int, agentID string) string {
	m.t.Helper()
	m.must(&Join{Incarnation: incarnation(n), AgentID: agentID, Address: agentID + ":7070"})
	return incarnation(n)
}

func (m *machine) createTable(database string, spec *TableSpec) *Table {
	m.t.Helper()
	t, err := NewTable(database, spec, TableIDs{ID: m.s.NextTableID, UUID: fmt.Sprintf("uuid-%d", m.s.NextTableID)}, m.now)
	require.NoError(m.t, err)
	m.must(&CreateTable{Table: t})
	got, err := m.s.TableByName(database, spec.Name)
	require.NoError(m.t, err)
	return got
}

// ordersSpec is a definition with something of everything.
func ordersSpec() *TableSpec {
	return &TableSpec{
		Name: "orders",
		Columns: []ColumnSpec{
			{Name: "order_id", Type: "bigint", Required: true, Doc: "the order"},
			{Name: "ts", Type: "timestamptz"},
			{Name: "amount", Type: "decimal(10,2)"},
			{Name: "qty", Type: "int"},
			{Name: "tags", Type: "list<string>"},
			{Name: "address", Type: "struct<zip:string,city:string>"},
		},
		Buckets: 4, BucketKey: []string{"order_id"}, PartitionBy: []string{"day(ts)"},
		Properties: map[string]string{"fold_interval": "10s"},
	}
}

func requireClass(t testing.TB, err error, class errs.Class, contains ...string) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, class, errs.ClassOf(err), "%v", err)
	for _, c := range contains {
		require.ErrorContains(t, err, c)
	}
}

// openLog opens a Log without goroutines.
func openLog(t testing.TB, store objstore.Store, n int, change ...func(*Options)) *Log {
	t.Helper()
	o := Options{
		Writer: incarnation(n), Manual: true, SlotCount: 8, Rand: newSeeded(uint64(n)),
		Now:    func() time.Time { return epoch },
		Create: objstore.CreatePolicy{Sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }, Rand: func() float64 { return 0 }},
	}
	for _, c := range change {
		c(&o)
	}
	l, err := Open(t.Context(), store, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, l.Close(context.Background())) })
	return l
}

func createDatabase(t testing.TB, l *Log, name string) *State {
	t.Helper()
	s, err := l.Append(t.Context(), DecideCreateDatabase(name, "", false))
	require.NoError(t, err)
	return s
}
