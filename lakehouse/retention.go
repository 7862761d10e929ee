package lakehouse

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// Retention returns the age after which rows may be dropped; 0 keeps them for ever.
func (d *TableDef) Retention() (time.Duration, error) {
	text := d.Properties[PropRetention]
	if text == "" {
		return 0, nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 16)
		if err == nil && n > 0 {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	} else if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return age, nil
	}
	return 0, errs.New(errs.Invalid, "property %s is %q: must be a positive duration such as 12h or 7d", PropRetention, text)
}

// RetainResult says what a retention pass dropped.
type RetainResult struct {
	SnapshotID int64 // 0: nothing was dropped
	Files      int
	Rows       int64
	Bytes      int64
	// Earliest is the first offset that is still in the lake, for the buckets
	// that lost files.
	Earliest map[int32]int64
}

// Retain drops the data files of the given buckets (nil: all) whose newest row
// was committed before the cutoff. It drops from the start of a bucket only, so
// that the log keeps no holes: a file stays while an older offset is in a file
// that stays. The rows remain readable through older snapshots until those expire.
func (l *Lake) Retain(ctx context.Context, def TableDef, buckets []int32, before time.Time) (RetainResult, error) {
	op := "apply retention to " + def.String()
	snap, err := l.Load(ctx, def)
	if err != nil {
		return RetainResult{}, errs.In(op, err)
	}
	files, err := snap.Files(ctx)
	if err != nil {
		return RetainResult{}, errs.In(op, err)
	}
	byBucket := map[int32][]DataFile{}
	for _, f := range files {
		if f.Bucket >= 0 && (buckets == nil || slices.Contains(buckets, f.Bucket)) {
			byBucket[f.Bucket] = append(byBucket[f.Bucket], f)
		}
	}
	r := RetainResult{Earliest: map[int32]int64{}}
	c := change{id: l.opts.NewID(), operation: table.OpDelete, remove: map[string]bool{}}
	touched := map[int32]bool{}
	for bucket, of := range byBucket {
		dropped, cut, err := l.expiredPrefix(ctx, of, before.UnixMicro(), snap.Offset(bucket))
		if err != nil {
			return RetainResult{}, errs.In(op, err)
		}
		for _, f := range dropped {
			c.remove[f.URI], touched[bucket] = true, true
			r.Earliest[bucket] = cut
			r.Files++
			r.Rows += f.Rows
			r.Bytes += f.Size
		}
	}
	if r.Files == 0 {
		return RetainResult{}, nil
	}
	c.moves = standing(snap, touched)
	committed, err := l.commit(ctx, &def, c)
	if err != nil {
		return RetainResult{}, errs.In(op, err)
	}
	r.SnapshotID = committed.ID
	return r, nil
}

// expiredPrefix returns the files of one bucket that end before the first offset
// that must stay, and that offset. Footers are read from the oldest file on, up to
// the first one that must stay.
func (l *Lake) expiredPrefix(ctx context.Context, files []DataFile, before, end int64) ([]DataFile, int64, error) {
	slices.SortFunc(files, func(a, b DataFile) int {
		return cmp.Or(cmp.Compare(a.EndOffset, b.EndOffset), cmp.Compare(a.BaseOffset, b.BaseOffset))
	})
	old := 0
	for ; old < len(files); old++ {
		runs, err := l.fileRuns(ctx, &files[old])
		if err != nil {
			return nil, 0, err
		}
		if slices.ContainsFunc(runs, func(r Run) bool { return r.Timestamp >= before }) {
			break
		}
	}
	cut := end
	for _, f := range files[old:] {
		cut = min(cut, f.BaseOffset)
	}
	n := 0
	for n < old && files[n].EndOffset <= cut {
		n++
	}
	return files[:n], cut, nil
}

// Earliest returns the first offset of each bucket that is in the lake. A bucket
// that has none there is at its lake offset.
func (s *Snapshot) Earliest(ctx context.Context) (map[int32]int64, error) {
	files, err := s.Files(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[int32]int64, len(s.Offsets))
	for b, offset := range s.Offsets {
		out[b] = offset
	}
	for _, f := range files {
		if at, ok := out[f.Bucket]; ok && f.BaseOffset < at {
			out[f.Bucket] = f.BaseOffset
		}
	}
	return out, nil
}
