package lakehouse

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/firn-data/firn/internal/errs"
)

// randomRuns makes runs as folds make them: some long, some scattered.
func randomRuns(r *rand.Rand, n int) (runs []Run, rows int64) {
	offset, at := r.Int64N(1<<40), r.Int64N(1<<50)
	for range n {
		offset += r.Int64N(1 + r.Int64N(100))
		if r.IntN(10) == 0 {
			at += r.Int64N(1_000_000) - 100
		}
		count := 1 + r.Int64N(1+r.Int64N(50))
		runs = AppendRun(runs, offset, count, at)
		offset += count
		rows += count
	}
	return runs, rows
}

func TestRunsRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, seed))
		runs, rows := randomRuns(r, r.IntN(400))
		got, err := ParseRuns(EncodeRuns(runs), rows)
		if err != nil || !slices.Equal(got, runs) {
			t.Fatalf("seed %d: %d runs came back as %d: %v", seed, len(runs), len(got), err)
		}
	}
	extreme := []Run{{FirstOffset: math.MaxInt64 - 5, Count: 2, Timestamp: math.MinInt64}, {FirstRow: 2, FirstOffset: math.MaxInt64 - 2, Count: 1, Timestamp: math.MaxInt64}}
	if got, err := ParseRuns(EncodeRuns(extreme), 3); err != nil || !slices.Equal(got, extreme) {
		t.Fatalf("extreme runs: %v, %v", got, err)
	}
}

func TestConsecutiveRowsOfOneCommitAreOneRun(t *testing.T) {
	runs := AppendRun(nil, 10, 5, 1)
	runs = AppendRun(runs, 15, 5, 1)
	runs = AppendRun(runs, 20, 0, 9)
	runs = AppendRun(runs, 20, 5, 2)
	runs = AppendRun(runs, 30, 1, 2)
	want := []Run{{0, 10, 10, 1}, {10, 20, 5, 2}, {15, 30, 1, 2}}
	if !slices.Equal(runs, want) {
		t.Fatalf("%v", runs)
	}
}

func TestScatteredRunsTakeFewBytes(t *testing.T) {
	var runs []Run
	r := rand.New(rand.NewPCG(1, 1))
	var rows, offset int64
	for range 100_000 {
		offset += 1 + r.Int64N(16)
		runs = AppendRun(runs, offset, 1, 1_700_000_000_000_000+rows/1000)
		offset, rows = offset+1, rows+1
	}
	if n := len(EncodeRuns(runs)); n > 100_000 {
		t.Errorf("100,000 scattered rows take %d bytes", n)
	}
}

// goldenRuns are encodings of format version 1. They are read for ever.
type goldenRuns struct {
	Text string
	Rows int64
	Runs []Run
}

func TestGoldenRunsAreRead(t *testing.T) {
	body, err := os.ReadFile("testdata/runs-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden []goldenRuns
	if err := json.Unmarshal(body, &golden); err != nil {
		t.Fatal(err)
	}
	for i, g := range golden {
		got, err := ParseRuns(g.Text, g.Rows)
		if err != nil || !slices.Equal(got, g.Runs) {
			t.Errorf("golden %d: %v, %v", i, got, err)
		}
	}
}

func TestDamagedRunsAreCorrupt(t *testing.T) {
	runs, rows := randomRuns(rand.New(rand.NewPCG(3, 3)), 300)
	text := EncodeRuns(runs)
	for _, rows := range []int64{0, rows - 1, rows + 1} {
		if _, err := ParseRuns(text, rows); !errs.Is(err, errs.Corrupt) {
			t.Errorf("%d rows: %v", rows, err)
		}
	}
	for i := range text {
		b := []byte(text)
		b[i] ^= 1
		if got, err := ParseRuns(string(b), rows); err == nil && !slices.Equal(got, runs) {
			t.Fatalf("a changed character %d went unseen", i)
		}
		if got, err := ParseRuns(text[:i], rows); err == nil {
			t.Fatalf("cut at %d: %d runs", i, len(got))
		}
	}
}

func FuzzParseRuns(f *testing.F) {
	runs, rows := randomRuns(rand.New(rand.NewPCG(5, 5)), 20)
	f.Add(EncodeRuns(runs), rows)
	runs, rows = randomRuns(rand.New(rand.NewPCG(6, 6)), 900)
	f.Add(EncodeRuns(runs), rows)
	f.Fuzz(func(t *testing.T, text string, rows int64) {
		got, err := ParseRuns(text, rows)
		if err != nil {
			return
		}
		var sum int64
		for _, r := range got {
			sum += r.Count
		}
		if sum != rows {
			t.Fatalf("%d of %d rows", sum, rows)
		}
		again, err := ParseRuns(EncodeRuns(got), rows)
		if err != nil || !slices.Equal(got, again) {
			t.Fatal("runs do not round-trip")
		}
	})
}

func FuzzParseDataKey(f *testing.F) {
	f.Add("lake/db/t-1/data/" + dataName{bucket: 3, base: 5, end: 9}.String())
	f.Fuzz(func(t *testing.T, key string) {
		n, ok := parseDataKey(key)
		if again, ok2 := parseDataKey("x/" + n.String()); ok && (!ok2 || again != n) {
			t.Fatalf("%q: %+v", key, n)
		}
	})
}
