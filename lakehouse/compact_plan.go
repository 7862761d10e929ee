package lakehouse

import (
	"cmp"
	"slices"
	"strconv"
)

// planCompaction chooses groups of files to join. Each group is of one bucket and
// partition tuple, in offset order, without overlap.
func planCompaction(files []DataFile, target int64, o CompactOptions) [][]DataFile {
	if o.MinFiles < 2 {
		o.MinFiles = compactMinFiles
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = compactMaxBytes
	}
	var out [][]DataFile
	budget := o.MaxBytes
	for _, lane := range lanesOf(files, o.Buckets) {
		for _, run := range smallRuns(lane, target/2) {
			group := chooseGroup(run, target, o)
			var bytes int64
			for _, f := range group {
				bytes += f.Size
			}
			if len(group) == 0 || bytes > budget && len(out) > 0 {
				continue
			}
			budget -= bytes
			out = append(out, group)
		}
	}
	return out
}

// lanesOf sorts the files of each bucket and partition tuple by offset. Lanes come
// in a fixed order, so that equal tables give equal plans.
func lanesOf(files []DataFile, buckets []int32) [][]DataFile {
	byLane := map[string][]DataFile{}
	for _, f := range files {
		if f.Bucket < 0 || buckets != nil && !slices.Contains(buckets, f.Bucket) {
			continue
		}
		key := strconv.Itoa(int(f.Bucket)) + "/" + tupleKey(f.SpecID, f.Partition)
		byLane[key] = append(byLane[key], f)
	}
	out := make([][]DataFile, 0, len(byLane))
	for _, lane := range byLane {
		slices.SortFunc(lane, func(a, b DataFile) int {
			return cmp.Or(cmp.Compare(a.BaseOffset, b.BaseOffset), cmp.Compare(a.EndOffset, b.EndOffset))
		})
		out = append(out, lane)
	}
	slices.SortFunc(out, func(a, b []DataFile) int {
		return cmp.Or(cmp.Compare(a[0].Bucket, b[0].Bucket), cmp.Compare(a[0].BaseOffset, b[0].BaseOffset), cmp.Compare(a[0].Key, b[0].Key))
	})
	return out
}

// smallRuns cuts a lane into runs of small files whose ranges do not overlap.
func smallRuns(lane []DataFile, small int64) [][]DataFile {
	var out [][]DataFile
	start := 0
	for i := 0; i <= len(lane); i++ {
		ends := i == len(lane) || lane[i].Size >= small
		if ends || i > start && lane[i].BaseOffset < lane[i-1].EndOffset {
			if i-start >= 2 {
				out = append(out, lane[start:i])
			}
			start = i
			if ends {
				start = i + 1
			}
		}
	}
	return out
}

// chooseGroup takes the newest files of a run, and each older one as long as it is
// at most twice of what was taken (or tiny), up to one file of the target size.
func chooseGroup(run []DataFile, target int64, o CompactOptions) []DataFile {
	first := len(run)
	var bytes int64
	for i := len(run) - 1; i >= 0; i-- {
		f := run[i]
		if bytes > 0 && (bytes+f.Size > target || !o.All && f.Size > max(2*bytes, compactFloor)) {
			break
		}
		first, bytes = i, bytes+f.Size
	}
	group := run[first:]
	enough := len(group) >= o.MinFiles || o.All && len(group) >= 2 || bytes >= target/2 && len(group) >= 2
	if !enough {
		if first > 0 && !o.All { // an older stretch may be ready
			return chooseGroup(run[:first], target, o)
		}
		return nil
	}
	return group
}
