package agent

import (
	"encoding/binary"
	"fmt"
	"hash"
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments/rows"
	"github.com/firn-data/firn/wal/producers"
)

// A request under an Idempotency-Key is a producer of one request. Its first
// sequence is a fingerprint of the request, so that what the WAL and the
// checkpoints keep of every producer tells another request under the same key.

// fingerprint is a hash of what makes a request: its rows as they came,
// decompressed, and how they are to be read.
func fingerprint(o rows.DecodeOptions, m *rowsMode) hash.Hash {
	h := xxh3.New()                                                                                  // nobody gains by making two of his own requests look alike
	_, _ = fmt.Fprintf(h, "append %s skip=%t ignore=%t\n", o.Format, o.SkipBadRows, o.IgnoreUnknown) // a hash takes everything
	if m.op != "append" {
		_, _ = fmt.Fprintf(h, "op=%s columns=%v debezium=%t\n", m.op, m.columns, m.debezium)
	}
	return h
}

// fingerprintBits leaves room above the largest fingerprint for a body's rows.
const fingerprintBits = 62

// sequenceOf is a fingerprint as a first sequence, never 0: with 0 begin the
// requests of versions that did not keep one.
func sequenceOf(h hash.Hash) int64 {
	sum := h.Sum(nil)
	return int64(binary.BigEndian.Uint64(sum)>>(64-fingerprintBits) | 1) //nolint:gosec // cut to 62 bits
}

// sameRequest reports whether a bucket's state under a key is this request's.
func sameRequest(st producers.State, p *Producer, bodyRows int64) bool {
	if len(st.Ranges) == 0 {
		return true
	}
	r := st.Ranges[0]
	return r.Len() == bodyRows && (r.First == p.FirstSequence || r.First == 0)
}

// requestKeys are the Idempotency-Keys of a table whose requests are between
// the first look at the buckets and the last bucket's admission. Two different
// requests may share no bucket; here they meet.
type requestKeys struct {
	mu     sync.Mutex
	flying map[string]*flyingKey
}

type flyingKey struct {
	fingerprint int64
	requests    int
}

// claimKey refuses a request whose key belongs to another one. The caller calls
// done once the request's buckets know the key.
func (t *table) claimKey(p *Producer, bodyRows int64) (done func(), err error) {
	if p == nil || !p.Idempotency {
		return func() {}, nil
	}
	k := &t.keys
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.flying[p.ID]
	taken := f != nil && f.fingerprint != p.FirstSequence
	for _, b := range t.buckets {
		taken = taken || b.keyTaken(p, bodyRows)
	}
	if taken {
		return nil, errs.New(errs.Exists, "Idempotency-Key %q came with another request before: a key belongs to one request "+
			"(the same rows and parameters) for 24 h; send this one under a new key", p.ID)
	}
	if f == nil {
		if k.flying == nil {
			k.flying = map[string]*flyingKey{}
		}
		f = &flyingKey{fingerprint: p.FirstSequence}
		k.flying[p.ID] = f
	}
	f.requests++
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if f.requests--; f.requests == 0 {
			delete(k.flying, p.ID)
		}
	}, nil
}

func (b *bucket) keyTaken(p *Producer, bodyRows int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	st, ok := b.admitted.Get(p.ID, true)
	return ok && !sameRequest(st, p, bodyRows)
}

// maxPlaces bounds the requests whose place a bucket remembers, so that their
// repetition hears it again. Nothing depends on it.
const maxPlaces = 256

// keyPlace is where the rows of a request lie in one bucket.
type keyPlace struct{ base, count int64 }

// keyPlaces are the newest requests under an Idempotency-Key. The bucket is locked.
type keyPlaces struct {
	byKey map[string]keyPlace
	order []string
}

func (p *keyPlaces) remember(key string, at keyPlace) {
	if p.byKey == nil {
		p.byKey = map[string]keyPlace{}
	}
	if _, ok := p.byKey[key]; !ok {
		if len(p.order) == maxPlaces {
			delete(p.byKey, p.order[0])
			p.order = p.order[1:]
		}
		p.order = append(p.order, key)
	}
	p.byKey[key] = at
}

// notePlace keeps where a share's rows lie, or finds it for a repetition. The bucket is locked.
func (s *share) notePlace(p *Producer) {
	switch {
	case p == nil || !p.Idempotency:
	case s.applied > 0:
		s.bucket.places.remember(p.ID, keyPlace{s.base, s.applied})
	default:
		if at, ok := s.bucket.places.byKey[p.ID]; ok && at.count == s.skipped {
			s.base, s.recalled = at.base, at.count
		}
	}
}
