package lakehouse

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// scanBytes scans a data file with the given bytes, as the manifest of the
// fixture's last file describes it.
func (x *scanFixture) scanBytes(body []byte) (rows int64, err error) {
	x.t.Helper()
	f := x.files[len(x.files)-1]
	if err := x.store.Put(context.Background(), f.Key, body); err != nil {
		x.t.Fatal(err)
	}
	x.lake.footers.remove(f.Key)
	for b, err := range x.snapshot().Scan(context.Background(), ScanOptions{Files: []DataFile{f}, WithOffsets: true, Parallel: 1}) {
		if err != nil {
			return rows, err
		}
		rows += b.Rows.NumRows()
	}
	return rows, nil
}

// checkScanned fails unless a scan of damaged bytes ended as it may: with all
// rows, or with Corrupt naming the file.
func (x *scanFixture) checkScanned(rows int64, err error, what string) {
	x.t.Helper()
	f := x.files[len(x.files)-1]
	switch {
	case err == nil && rows == f.Rows:
	case err == nil:
		x.t.Errorf("%s: %d of %d rows without an error", what, rows, f.Rows)
	case !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), f.Key):
		x.t.Errorf("%s: %v: %v, want corrupt naming the file", what, errs.ClassOf(err), err)
	}
}

func damagedFixture(t testing.TB) (*scanFixture, []byte) {
	s, rec := everyTypeRows(t, 200, 3)
	x := newScanFixture(t, s)
	x.write(0, s, rec, runsOf(span(0, 200)), 90)
	body, _, err := x.store.Get(context.Background(), x.files[0].Key)
	if err != nil {
		t.Fatal(err)
	}
	return x, body
}

func TestDamagedParquetIsCorruptAndNeverAPanic(t *testing.T) {
	x, body := damagedFixture(t)
	rng := rand.New(rand.NewSource(1))
	footer := len(body) - parquetTailBytes - int(binary.LittleEndian.Uint32(body[len(body)-parquetTailBytes:]))
	for i := range rounds(60) {
		damaged := append([]byte(nil), body...)
		at := rng.Intn(len(body))
		if i%2 == 0 {
			at = footer + rng.Intn(len(body)-footer)
		}
		damaged[at] ^= 1 << rng.Intn(8)
		rows, err := x.scanBytes(damaged)
		x.checkScanned(rows, err, fmt.Sprint("bit flipped in byte ", at))
	}
	for range rounds(15) {
		damaged := append([]byte(nil), body...)
		rng.Read(damaged[rng.Intn(len(body)):])
		copy(damaged[len(damaged)-4:], parquetMagic)
		rows, err := x.scanBytes(damaged)
		x.checkScanned(rows, err, "random tail")
	}
}

func TestTruncatedAndMissingDataFilesAreCorrupt(t *testing.T) {
	x, body := damagedFixture(t)
	for _, n := range []int{0, 3, 11, 12, len(body) / 2, len(body) - 1} {
		rows, err := x.scanBytes(body[:n])
		if err == nil {
			t.Errorf("%d of %d bytes: %d rows without an error", n, len(body), rows)
		}
		x.checkScanned(rows, err, fmt.Sprint(n, " bytes"))
	}
	if _, err := x.scanBytes(append(body, body...)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("a file longer than the manifest says: %v", err)
	}
	if err := x.store.Delete(context.Background(), x.files[0].Key); err != nil {
		t.Fatal(err)
	}
	x.lake.footers.remove(x.files[0].Key)
	for _, err := range x.snapshot().Scan(context.Background(), ScanOptions{Files: x.files}) {
		if !errs.Is(err, errs.Corrupt) || !strings.Contains(err.Error(), "fsck") {
			t.Errorf("missing file: %v", err)
		}
	}
}

func TestFileThatDisagreesWithItsManifestIsCorrupt(t *testing.T) {
	x, body := damagedFixture(t)
	x.files[0].Rows++
	if _, err := x.scanBytes(body); !errs.Is(err, errs.Corrupt) {
		t.Errorf("row count: %v", err)
	}
	s := simpleSchema(t)
	y := newScanFixture(t, s)
	y.write(0, s, simpleRows(t, s, span(0, 10)), runsOf(span(0, 10)), 64)
	if _, err := y.scanBytes(encodeParquet(t, s, simpleRows(t, s, span(0, 10)), nil, 64)); !errs.Is(err, errs.Corrupt) {
		t.Errorf("no runs: %v", err)
	}
}

// rangeLedger counts range reads.
type rangeLedger struct {
	objstore.Store
	calls, bytes int64
}

func (l *rangeLedger) GetRange(ctx context.Context, key string, start, n int64) ([]byte, objstore.Info, error) {
	l.calls++
	l.bytes += n
	return l.Store.GetRange(ctx, key, start, n)
}

func TestScanReadsOnlyTheFooterAndTheWantedColumns(t *testing.T) {
	s, rec := everyTypeRows(t, 4000, 1)
	x := newScanFixture(t, s)
	x.write(0, s, rec, runsOf(span(0, 4000)), 4000)
	ledger := &rangeLedger{Store: x.store}
	x.lake = Open(ledger, Options{Location: "mem://lake"})
	one, err := s.Select([]string{"c1"})
	if err != nil {
		t.Fatal(err)
	}
	opts := ScanOptions{Files: x.files, Columns: one, Parallel: 1}
	if rows := countRows(collect(t, x.snapshot(), opts)); rows != 4000 {
		t.Fatal(rows)
	}
	if size := x.files[0].Size; ledger.calls != 2 || ledger.bytes-footerGuessBytes > size/10 {
		t.Errorf("%d reads of %d bytes for one of 20 columns in a file of %d", ledger.calls, ledger.bytes, size)
	}
	ledger.calls, ledger.bytes = 0, 0
	if rows := countRows(collect(t, x.snapshot(), opts)); rows != 4000 || ledger.calls != 1 {
		t.Errorf("second scan: %d reads, the footer is cached", ledger.calls)
	}
}

func TestCoalesceJoinsRangesAcrossSmallGaps(t *testing.T) {
	got := coalesce([]byteRange{{100, 10}, {0, 50}, {55, 10}, {300, 1}, {105, 3}}, 40)
	if want := []byteRange{{0, 110}, {300, 1}}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func FuzzParquetFile(f *testing.F) {
	s := simpleSchema(f)
	x := newScanFixture(f, s)
	x.write(0, s, simpleRows(f, s, span(0, 20)), runsOf(span(0, 20)), 12)
	body, _, err := x.store.Get(context.Background(), x.files[0].Key)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(body)
	f.Fuzz(func(t *testing.T, data []byte) {
		x.t = t
		x.files[0].Size = int64(len(data))
		rows, err := x.scanBytes(data)
		x.checkScanned(rows, err, "fuzzed")
	})
}
