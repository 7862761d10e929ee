package lakehouse

import "sync"

const (
	// maxScanBytes bounds the encoded bytes that all scans of a Lake together read
	// ahead, but for the least that each one needs.
	maxScanBytes = 128 << 20
	// minScanBytes is what a scan may read ahead however many others there are:
	// enough for ranges that are worth a request each.
	minScanBytes = 8 << 20
	// batchShare is which part of what it reads ahead a scan's decoded batches have.
	batchShare = 16
)

// scanShares divides maxScanBytes among scans: each gets up to half of what is
// left when it begins, for as long as it runs. Nobody waits, so a reader that
// stalls keeps nobody out. The zero value is ready.
type scanShares struct {
	mu    sync.Mutex
	taken int64
}

// take returns how many bytes of want a scan may have.
func (s *scanShares) take(want int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := min(want, max((maxScanBytes-s.taken)/2, minScanBytes))
	s.taken += share
	return share
}

func (s *scanShares) give(share int64) {
	s.mu.Lock()
	s.taken -= share
	s.mu.Unlock()
}

// share cuts a scan's bounds to what it may have beside the scans that run now;
// done gives that back.
func (l *Lake) share(o ScanOptions) (_ ScanOptions, done func()) {
	share := l.scans.take(o.ReadaheadBytes)
	o.ReadaheadBytes = share
	o.BatchBytes = min(o.BatchBytes, max(share/batchShare, minWindowBytes))
	return o, func() { l.scans.give(share) }
}
