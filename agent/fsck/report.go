package fsck

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/firn-data/firn/internal/objstore"
)

// Level says how bad a finding is.
type Level string

// The levels.
const (
	Missing Level = "missing"
	Corrupt Level = "corrupt"
	Garbage Level = "garbage"
)

// Finding is one object, or one place in a log, that is not as it should be.
type Finding struct {
	Level  Level  `json:"level"`
	Key    string `json:"key"`
	Reason string `json:"reason"` // who needs it, or what is wrong
	Bytes  int64  `json:"bytes,omitempty"`
	Young  bool   `json:"young,omitempty"` // garbage that may yet be an upload in progress
}

// Class sums up the objects below one root of the store.
type Class struct {
	Name         string `json:"name"` // meta, agents, wal, checkpoint, lake metadata, lake data, other
	Objects      int64  `json:"objects"`
	Bytes        int64  `json:"bytes"`
	Garbage      int64  `json:"garbage_objects"`
	GarbageBytes int64  `json:"garbage_bytes"`
}

// maxGarbageListed bounds the garbage that is listed by name; all is counted.
const maxGarbageListed = 1000

// Report is the result of a check.
type Report struct {
	Store       string    `json:"store"`
	ClusterID   string    `json:"cluster_id"`
	MetadataSeq uint64    `json:"metadata_sequence"`
	Tables      int       `json:"tables"`
	Buckets     int       `json:"live_buckets"`
	Rows        int64     `json:"lake_rows"`
	LiveRows    int64     `json:"live_rows"`
	Objects     int64     `json:"objects"`
	Bytes       int64     `json:"bytes"`
	LakeBytes   int64     `json:"lake_bytes"`
	Classes     []Class   `json:"classes"`
	Findings    []Finding `json:"findings"`
	Damaged     int64     `json:"damaged"` // missing and corrupt
	Garbage     int64     `json:"garbage_objects"`
	GarbageOld  int64     `json:"garbage_old_objects"` // older than the safe age
	Took        float64   `json:"seconds"`
}

// OK reports whether nothing that is needed is missing or corrupt.
func (r *Report) OK() bool { return r.Damaged == 0 }

func (r *Report) damage(level Level, key, reason string) {
	r.Damaged++
	r.Findings = append(r.Findings, Finding{Level: level, Key: key, Reason: reason})
}

// classOf names the class of a key.
func classOf(key string) string {
	root, rest, _ := strings.Cut(key, "/")
	switch root {
	case "meta", "agents", "wal", "checkpoint":
		return root
	case "lake":
		if strings.Contains(rest, "/metadata/") {
			return "lake metadata"
		}
		return "lake data"
	}
	return "other"
}

// add counts one object of the listing.
func (r *Report) add(info objstore.Info, needed bool, age, safeAge time.Duration) {
	name := classOf(info.Key)
	i := slices.IndexFunc(r.Classes, func(c Class) bool { return c.Name == name })
	if i < 0 {
		r.Classes = append(r.Classes, Class{Name: name})
		i = len(r.Classes) - 1
	}
	c := &r.Classes[i]
	c.Objects++
	c.Bytes += info.Size
	r.Objects++
	r.Bytes += info.Size
	if name == "lake data" && needed {
		r.LakeBytes += info.Size
	}
	if needed {
		return
	}
	c.Garbage++
	c.GarbageBytes += info.Size
	r.Garbage++
	young := age < safeAge
	if !young {
		r.GarbageOld++
	}
	if r.Garbage <= maxGarbageListed {
		r.Findings = append(r.Findings, Finding{Level: Garbage, Key: info.Key, Bytes: info.Size, Young: young, Reason: "nothing needs it"})
	}
}

// sort puts damage first, then orders by key.
func (r *Report) sort() {
	rank := map[Level]int{Missing: 0, Corrupt: 1, Garbage: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(rank[a.Level]-rank[b.Level], strings.Compare(a.Key, b.Key))
	})
	slices.SortFunc(r.Classes, func(a, b Class) int { return strings.Compare(a.Name, b.Name) })
}
