package faultstore

import (
	"encoding/binary"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/internal/objstore"
)

// Fault is one way to break a call.
type Fault uint8

// The faults. Where one makes no sense for an operation it does not fire.
const (
	// Fail answers an error and passes nothing on. Its class is Rule.Class, or
	// Unavailable for reads and Unknown for writes.
	Fail Fault = iota
	// FailAfter passes a write on and loses the answer (class Unknown); it ends a
	// read or a listing with an error after it was done, or begun.
	FailAfter
	// Conflict is S3's 409: an unknown outcome, nothing applied. Writes only.
	Conflict
	// Delay waits Rule.Delay before the call is passed on.
	Delay
	// DelayAnswer passes the call on and waits Rule.Delay before it answers.
	DelayAnswer
	// LateApply answers Unknown and applies the write later. Writes only.
	LateApply
	// Duplicate passes a write on twice and gives the second answer, so that a
	// conditional put meets its own object. Writes only.
	Duplicate
	// Truncate cuts a body that is read, and says nothing. Reads only.
	Truncate
	// FlipBit changes one bit of a body that is read, and says nothing. Reads only.
	FlipBit
	// Stuck waits until the context ends or Release is called, then fails.
	Stuck
	// PagesOfOne makes a listing ask the store anew for each object. Lists only.
	PagesOfOne
)

var faultNames = []string{"fail", "fail after", "conflict", "delay", "delay answer", "late apply", "duplicate",
	"truncate", "flip bit", "stuck", "pages of one"}

// String returns the fault in words.
func (f Fault) String() string { return faultNames[f] }

// fits reports whether the fault makes sense for an operation.
func (f Fault) fits(op objstore.Op) bool {
	switch f {
	case Conflict, LateApply, Duplicate:
		return op.Writes()
	case Truncate, FlipBit:
		return op == objstore.OpGet || op == objstore.OpGetRange
	case PagesOfOne:
		return op == objstore.OpList
	default:
		return true
	}
}

// delays reports whether the call goes on after the fault.
func (f Fault) delays() bool { return f == Delay || f == DelayAnswer || f == PagesOfOne }

// Rule says which calls meet which fault. The zero value of a selector selects
// everything.
type Rule struct {
	Fault Fault
	Ops   []objstore.Op
	Key   string // pattern for the key or list prefix; * stands for anything, slashes too

	After  int     // let so many matching calls pass first
	Times  int     // then fire so often; zero is for ever
	Chance float64 // fire with this probability; zero is always

	Delay time.Duration // of Delay, DelayAnswer and LateApply (zero there: only by Release)
	Class errs.Class    // of Fail's error; Internal (zero) is the default by operation
}

// Burst is so many 503s in a row, after so many calls: surely not applied.
func Burst(after, times int, ops ...objstore.Op) Rule {
	return Rule{Fault: Fail, Ops: ops, After: after, Times: times, Class: errs.Unavailable}
}

type rule struct {
	Rule
	matched, fired int
}

// call identifies one call for the seeded choices.
type call struct {
	op  objstore.Op
	key string
	nth uint64 // calls of op on key before this one
}

// fires decides and counts. It is called under the store's lock, in order of
// arrival.
func (r *rule) fires(seed int64, index int, c call) bool {
	if !r.Fault.fits(c.op) || len(r.Ops) > 0 && !slices.Contains(r.Ops, c.op) || !matches(r.Key, c.key) {
		return false
	}
	r.matched++
	if r.matched <= r.After || r.Times > 0 && r.fired >= r.Times {
		return false
	}
	if r.Chance > 0 && unit(seed, index, c) >= r.Chance {
		return false
	}
	r.fired++
	return true
}

// draw is a number that depends on nothing but the seed, the rule and the call.
func draw(seed int64, index int, c call) uint64 {
	h := fnv.New64a()
	var b [25]byte
	binary.LittleEndian.PutUint64(b[0:], uint64(seed))
	binary.LittleEndian.PutUint64(b[8:], uint64(index))
	binary.LittleEndian.PutUint64(b[16:], c.nth)
	b[24] = byte(c.op)
	_, _ = h.Write(b[:])
	_, _ = h.Write([]byte(c.key))
	x := h.Sum64() // FNV's high bits are weak: finish as splitmix64 does
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func unit(seed int64, index int, c call) float64 {
	return float64(draw(seed, index, c)>>11) / (1 << 53)
}

// matches reports whether a pattern with stars covers the whole of s. The empty
// pattern covers everything.
func matches(pattern, s string) bool {
	if pattern == "" {
		return true
	}
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return s == pattern
	}
	if !strings.HasPrefix(s, parts[0]) {
		return false
	}
	s = s[len(parts[0]):]
	last := parts[len(parts)-1]
	for _, part := range parts[1 : len(parts)-1] {
		at := strings.Index(s, part)
		if at < 0 {
			return false
		}
		s = s[at+len(part):]
	}
	return strings.HasSuffix(s, last)
}
