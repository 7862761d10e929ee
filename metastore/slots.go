package metastore

import "cmp"

// SlotOf returns the slot of a bucket, in [0, SlotCount): a fixed function of
// table and bucket (docs/format/metadata.md), the same in every version of Firn.
func (s *State) SlotOf(table uint64, bucket int32) int {
	return int(mix64(mix64(table)+uint64(uint32(bucket))) % uint64(s.SlotCount))
}

// HomeSlot returns the slot whose owner gathers a table's fold commits: the slot
// of its first bucket.
func (s *State) HomeSlot(table uint64) int { return s.SlotOf(table, 0) }

// WantedOwner returns which of the agents should own a slot: the one with the
// highest rendezvous score, or nil when there is none. The score hashes the
// agent's id, not its incarnation, so that a restart moves nothing.
func WantedOwner(slot int, agents []*Agent) *Agent {
	var best *Agent
	var bestScore uint64
	for _, a := range agents {
		score := mix64(fnv64(a.AgentID) + mix64(uint64(slot)))
		if best == nil || cmp.Or(cmp.Compare(score, bestScore), cmp.Compare(a.AgentID, best.AgentID)) > 0 {
			best, bestScore = a, score
		}
	}
	return best
}

// mix64 is the finalizer of SplitMix64 (Steele, Lea, Flood 2014) after one step
// of its sequence, so that zero does not map to zero.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fnv64 is FNV-1a, 64 bits.
func fnv64(s string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return h
}
