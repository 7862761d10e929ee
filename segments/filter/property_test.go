package filter_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/require"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
	"github.com/firn-data/firn/segments/rows/literal"
	"github.com/firn-data/firn/segments/segtest"
)

// truth is SQL's: +1 true, -1 false, 0 unknown.
type truth int

// sample is a predicate as text and as a function of one row, made together.
type sample struct {
	sql  string
	eval func(row int) truth
}

// maker makes random predicates over a batch; its literals are often values of the batch.
type maker struct {
	r   *rand.Rand
	s   *segments.Schema
	rec arrow.RecordBatch
}

func of(b bool) truth {
	if b {
		return 1
	}
	return -1
}

func (m *maker) predicate(depth int) sample {
	if depth > 0 {
		switch m.r.IntN(5) {
		case 0:
			a, b := m.predicate(depth-1), m.predicate(depth-1)
			return sample{"(" + a.sql + " AND " + b.sql + ")", func(row int) truth { return min(a.eval(row), b.eval(row)) }}
		case 1:
			a, b := m.predicate(depth-1), m.predicate(depth-1)
			return sample{"(" + a.sql + " or " + b.sql + ")", func(row int) truth { return max(a.eval(row), b.eval(row)) }}
		case 2:
			a := m.predicate(depth - 1)
			return sample{"NOT (" + a.sql + ")", func(row int) truth { return -a.eval(row) }}
		}
	}
	col := m.r.IntN(len(m.s.Fields))
	f := m.s.Fields[col]
	name := `"` + f.Name + `"`
	if m.r.IntN(8) == 0 {
		return m.isNull(name, col)
	}
	if f.Type.Kind == segments.Boolean {
		want := m.r.IntN(2) == 0
		return sample{name + " = " + strconv.FormatBool(want), func(row int) truth {
			v, ok := m.value(col, row)
			if !ok {
				return 0
			}
			return of(v.(bool) == want)
		}}
	}
	switch m.r.IntN(6) {
	case 0:
		return m.in(name, col)
	case 1:
		return m.between(name, col)
	case 2:
		if f.Type.Kind == segments.String {
			return m.like(name, col)
		}
	case 3:
		if other, ok := m.same(col); ok {
			return m.columns(col, other)
		}
	}
	text, lit := m.literal(col)
	op := ops[m.r.IntN(len(ops))]
	if m.r.IntN(3) == 0 {
		return sample{text + " " + flipped[op] + " " + name, func(row int) truth { return m.compare(op, col, row, lit) }}
	}
	return sample{name + " " + op + " " + text, func(row int) truth { return m.compare(op, col, row, lit) }}
}

var (
	ops     = []string{"=", "<>", "!=", "<", "<=", ">", ">="}
	flipped = map[string]string{"=": "=", "<>": "<>", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
)

func (m *maker) isNull(name string, col int) sample {
	if m.r.IntN(2) == 0 {
		return sample{name + " IS NULL", func(row int) truth { return of(m.rec.Column(col).IsNull(row)) }}
	}
	return sample{name + " IS NOT NULL", func(row int) truth { return of(!m.rec.Column(col).IsNull(row)) }}
}

func (m *maker) in(name string, col int) sample {
	n := 1 + m.r.IntN(7)
	texts, lits := make([]string, n), make([]any, n)
	for i := range n {
		texts[i], lits[i] = m.literal(col)
	}
	null := m.r.IntN(5) == 0
	if null {
		texts = append(texts, "NULL")
	}
	not := m.r.IntN(2) == 0
	sql := name + " IN (" + strings.Join(texts, ", ") + ")"
	if not {
		sql = name + " NOT IN (" + strings.Join(texts, ",") + ")"
	}
	return sample{sql, func(row int) truth {
		out := truth(-1)
		for _, lit := range lits {
			out = max(out, m.compare("=", col, row, lit))
		}
		if null {
			out = max(out, 0)
		}
		if not {
			return -out
		}
		return out
	}}
}

func (m *maker) between(name string, col int) sample {
	a, low := m.literal(col)
	b, high := m.literal(col)
	not := m.r.IntN(2) == 0
	sql := fmt.Sprintf("%s BETWEEN %s AND %s", name, a, b)
	if not {
		sql = fmt.Sprintf("%s NOT BETWEEN %s AND %s", name, a, b)
	}
	return sample{sql, func(row int) truth {
		out := min(m.compare(">=", col, row, low), m.compare("<=", col, row, high))
		if not {
			return -out
		}
		return out
	}}
}

// like makes patterns of the characters of a value, and matches by recursion.
func (m *maker) like(name string, col int) sample {
	v, _ := m.value(col, m.r.IntN(int(m.rec.NumRows())))
	s, _ := v.(string)
	var pattern strings.Builder
	for _, r := range s {
		switch m.r.IntN(6) {
		case 0:
			pattern.WriteByte('%')
		case 1:
			pattern.WriteByte('_')
		case 2:
			if m.r.IntN(3) == 0 {
				pattern.WriteString("%")
			}
			fallthrough
		default:
			if strings.ContainsRune(`%_\`, r) {
				pattern.WriteByte('\\')
			}
			pattern.WriteRune(r)
		}
	}
	if m.r.IntN(3) == 0 {
		pattern.WriteByte('%')
	}
	p := []rune(pattern.String())
	sql := name + " LIKE " + quote(pattern.String())
	return sample{sql, func(row int) truth {
		v, ok := m.value(col, row)
		if !ok {
			return 0
		}
		return of(matches(p, []rune(v.(string))))
	}}
}

func matches(p, s []rune) bool {
	switch {
	case len(p) == 0:
		return len(s) == 0
	case p[0] == '%':
		for i := range len(s) + 1 {
			if matches(p[1:], s[i:]) {
				return true
			}
		}
		return false
	case len(s) == 0:
		return false
	case p[0] == '_':
		return matches(p[1:], s[1:])
	case p[0] == '\\':
		return p[1] == s[0] && matches(p[2:], s[1:])
	}
	return p[0] == s[0] && matches(p[1:], s[1:])
}

func (m *maker) same(col int) (int, bool) {
	other := m.r.IntN(len(m.s.Fields))
	a, b := m.s.Fields[col].Type, m.s.Fields[other].Type
	exact := func(k segments.Kind) bool {
		return k == segments.Int || k == segments.Long || k == segments.Decimal
	}
	float := func(k segments.Kind) bool { return k == segments.Float || k == segments.Double }
	return other, a.Kind == b.Kind || exact(a.Kind) && exact(b.Kind) || float(a.Kind) && float(b.Kind)
}

func (m *maker) columns(l, r int) sample {
	op := ops[m.r.IntN(len(ops))]
	return sample{fmt.Sprintf("`%s` %s \"%s\"", m.s.Fields[l].Name, op, m.s.Fields[r].Name), func(row int) truth {
		v, ok := m.value(r, row)
		if !ok {
			return 0
		}
		return m.compare(op, l, row, v)
	}}
}

// value returns a value in a form that compares with literals: integers and
// decimals are rationals.
func (m *maker) value(col, row int) (any, bool) {
	t := m.s.Fields[col].Type
	raw, null := segments.IcebergValue(m.rec.Column(col), row, t)
	if null {
		return nil, false
	}
	v, err := segments.FromIcebergValue(raw, t)
	if err != nil {
		panic(err)
	}
	switch v := v.(type) {
	case int32:
		return new(big.Rat).SetInt64(int64(v)), true
	case int64:
		return new(big.Rat).SetInt64(v), true
	case float32:
		return float64(v), true
	}
	if d, ok := m.rec.Column(col).(*array.Decimal128); ok {
		scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil)
		return new(big.Rat).SetFrac(d.Value(row).BigInt(), scale), true
	}
	return v, true
}

func (m *maker) compare(op string, col, row int, lit any) truth {
	v, ok := m.value(col, row)
	if !ok {
		return 0
	}
	c := 0
	switch v := v.(type) {
	case *big.Rat:
		c = v.Cmp(lit.(*big.Rat))
	case string:
		c = strings.Compare(v, lit.(string))
	case []byte:
		c = bytes.Compare(v, lit.([]byte))
	case bool:
		b := lit.(bool)
		switch {
		case v == b:
		case v:
			c = 1
		default:
			c = -1
		}
	case float64:
		w := lit.(float64)
		if math.IsNaN(v) || math.IsNaN(w) {
			return of(op == "<>" || op == "!=")
		}
		c = int(of(v > w))
		if v == w {
			c = 0
		}
	}
	switch op {
	case "=":
		return of(c == 0)
	case "<":
		return of(c < 0)
	case "<=":
		return of(c <= 0)
	case ">":
		return of(c > 0)
	case ">=":
		return of(c >= 0)
	}
	return of(c != 0)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// literal returns a literal for a column, as SQL and as value.
func (m *maker) literal(col int) (string, any) {
	t := m.s.Fields[col].Type
	arr := m.rec.Column(col)
	row := m.r.IntN(arr.Len())
	v, ok := m.value(col, row)
	if !ok {
		return m.literalOf(t)
	}
	switch a := arr.(type) {
	case *array.Date32:
		return quote(string(literal.AppendDate(nil, int32(a.Value(row))))), v
	case *array.Time64:
		return "TIME " + quote(string(literal.AppendTime(nil, int64(a.Value(row))))), v
	case *array.Timestamp:
		us := int64(a.Value(row))
		if us < -62_167_219_200_000_000 || us > 253_402_300_799_999_999 {
			return strconv.FormatInt(us, 10), v
		}
		text := string(literal.AppendTimestamp(nil, us, t.Kind == segments.TimestampTZ))
		return [...]string{"", "TIMESTAMP "}[m.r.IntN(2)] + quote(text), v
	}
	switch v := v.(type) {
	case *big.Rat:
		if m.r.IntN(4) == 0 { // between two values, or beyond them
			v = new(big.Rat).Add(v, big.NewRat(int64(m.r.IntN(3)-1), 1000))
		}
		return v.FloatString(40), v
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return m.literalOf(t)
		}
		if t.Kind == segments.Float {
			return strconv.FormatFloat(v, 'e', -1, 32), v
		}
		return strconv.FormatFloat(v, 'g', -1, 64), v
	case string:
		return quote(v), v
	case []byte:
		if t.Kind == segments.UUID {
			return quote(string(literal.AppendUUID(nil, v))), v
		}
		return fmt.Sprintf("x'%x'", v), v
	}
	return m.literalOf(t)
}

// literalOf returns one literal of each type.
func (m *maker) literalOf(t segments.Type) (string, any) {
	switch t.Kind {
	case segments.Float, segments.Double:
		return "0.5", 0.5
	case segments.Date:
		return "DATE '1970-01-03'", big.NewRat(2, 1)
	case segments.Time:
		return "'00:00:01'", big.NewRat(1_000_000, 1)
	case segments.Timestamp:
		return "'1970-01-01 00:00:01'", big.NewRat(1_000_000, 1)
	case segments.TimestampTZ:
		return "'1970-01-01T01:00:01+01:00'", big.NewRat(1_000_000, 1)
	case segments.String:
		return "'it''s \\%'", `it's \%`
	case segments.UUID:
		return "'00000000-0000-0000-0000-000000000001'", append(make([]byte, 15), 1)
	case segments.Fixed:
		return "x'" + strings.Repeat("7F", t.Length) + "'", bytes.Repeat([]byte{0x7f}, t.Length)
	case segments.Binary:
		return "X''", []byte{}
	}
	return "-1.5e0", big.NewRat(-3, 2)
}

// TestFilterEqualsRowByRowEvaluation compares Mask, Rows, Apply and Prune with
// a naive evaluator, on whole batches and on slices of them.
func TestFilterEqualsRowByRowEvaluation(t *testing.T) {
	seeds := 800
	if testing.Short() {
		seeds = 150
	}
	s := primitives()
	pruned := map[filter.Verdict]int{}
	for seed := range seeds {
		r := segtest.NewRand(uint64(seed))
		rec := segtest.Batch(r, s, 1+r.IntN(150), segtest.Options{NullPercent: r.IntN(3) * 20, Extreme: r.IntN(2) == 0})
		if r.IntN(2) == 0 {
			from := r.Int64N(rec.NumRows())
			rec = rec.NewSlice(from, from+r.Int64N(rec.NumRows()-from)+1)
		}
		if r.IntN(4) == 0 { // few rows have narrow statistics
			rec = rec.NewSlice(0, 1+r.Int64N(min(3, rec.NumRows())))
		}
		m := &maker{r: r, s: s, rec: rec}
		p := m.predicate(r.IntN(4))
		e, err := filter.Parse(p.sql, s)
		require.NoError(t, err, "seed %d: %s", seed, p.sql)
		mask, err := e.Mask(rec)
		require.NoError(t, err, "seed %d: %s", seed, p.sql)
		var want []int32
		for row := range mask {
			if p.eval(row) == 1 {
				want = append(want, int32(row))
			}
			require.Equal(t, p.eval(row) == 1, mask[row], "seed %d, row %d: %s", seed, row, p.sql)
		}
		kept, err := e.Apply(context.Background(), rec)
		require.NoError(t, err)
		expected, err := segments.Take(rec, want)
		require.NoError(t, err)
		require.Empty(t, segtest.Equal(expected, kept), "seed %d: %s", seed, p.sql)

		verdict := e.Prune(statistics(s, rec))
		pruned[verdict]++
		switch verdict {
		case filter.None:
			require.Empty(t, want, "seed %d: pruned although rows match: %s", seed, p.sql)
		case filter.All:
			require.Len(t, want, int(rec.NumRows()), "seed %d: taken whole although rows do not match: %s", seed, p.sql)
		}
	}
	require.Greater(t, pruned[filter.None], seeds/50)
	require.Greater(t, pruned[filter.All], seeds/50)
}

// primitives is a schema with every primitive type, some of them twice.
func primitives() *segments.Schema {
	return segtest.Schema("b boolean", "i int", "l long", "f float", "d double", "dec decimal(9,2)", "wide decimal(38,10)",
		"day date", "t time", "ts timestamp", "tz timestamptz", "s string", "u uuid", "fx fixed(7)", "bin binary",
		"s2 string", "d2 double", "ts2 timestamp", "bin2 binary", "i2 int required")
}

func statistics(s *segments.Schema, rec arrow.RecordBatch) func(int32) (segments.ColumnStats, int64, bool) {
	return func(id int32) (segments.ColumnStats, int64, bool) {
		at := s.IndexOfID(id)
		return segments.ComputeStats(rec.Column(at), s.Fields[at].Type), rec.NumRows(), true
	}
}
