package lakehouse

import "testing"

// Each scan once read 64 MiB ahead, however many there were.
func TestScansTogetherReadAheadWithinOneBound(t *testing.T) {
	var s scanShares
	var shares []int64
	var total int64
	for range 20 {
		shares = append(shares, s.take(defaultReadaheadBytes))
		total += shares[len(shares)-1]
	}
	if shares[0] != defaultReadaheadBytes {
		t.Errorf("a scan alone may read %d bytes ahead, want %d", shares[0], defaultReadaheadBytes)
	}
	if most := int64(maxScanBytes + 20*minScanBytes); total > most {
		t.Errorf("20 scans read %d bytes ahead, want at most %d", total, most)
	}
	for _, share := range shares {
		if share < minScanBytes {
			t.Errorf("a scan has %d bytes: too few to read at all", share)
		}
		s.give(share)
	}
	if s.taken != 0 {
		t.Errorf("%d bytes were not given back", s.taken)
	}
	if small := s.take(100); small != 100 {
		t.Errorf("a scan that wants 100 bytes gets %d", small)
	}
}
