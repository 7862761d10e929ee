package agent

import (
	"context"
	"time"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
	"github.com/firn-data/firn/wal/producers"
)

// tableAndOwner finds a table and the incarnation that owns it.
func (a *Agent) tableAndOwner(ctx context.Context, database, name string) (*metastore.Table, *incarnation, error) {
	def, err := a.table(ctx, database, name)
	if err != nil {
		return nil, nil, err
	}
	n, err := a.owner()
	return def, n, err
}

func (a *Agent) getOffsets(ctx context.Context, req *firnv1.GetOffsetsRequest) (*firnv1.GetOffsetsResponse, error) {
	def, n, err := a.tableAndOwner(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	if err := n.confirmLease(ctx); err != nil {
		return nil, err
	}
	p, err := n.plan(ctx, def)
	if err != nil {
		return nil, err
	}
	defer p.close()
	res := &firnv1.GetOffsetsResponse{}
	for _, b := range p.buckets {
		res.Buckets = append(res.Buckets, &firnv1.BucketOffsets{Bucket: b.bucket, Earliest: b.earliest, Lake: b.from, End: b.to})
	}
	return res, nil
}

func (a *Agent) listSnapshots(ctx context.Context, req *firnv1.ListSnapshotsRequest) (*firnv1.ListSnapshotsResponse, error) {
	def, err := a.table(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	now, err := a.loadLake(ctx, a.lakeDef(def))
	if err != nil {
		return nil, err
	}
	history, err := now.History()
	if err != nil {
		return nil, err
	}
	res := &firnv1.ListSnapshotsResponse{}
	for _, s := range history {
		meta := s.Metadata.SnapshotByID(s.ID)
		m := &firnv1.LakeSnapshot{
			SnapshotId: s.ID, SequenceNumber: meta.SequenceNumber, CommittedAt: timestamp(s.CommittedAt),
			Rows: s.Rows, Files: s.FileCount, Bytes: s.Bytes, Offsets: allOffsets(def, s.Offsets), Current: s.ID == now.ID,
		}
		if meta.ParentSnapshotID != nil {
			m.ParentSnapshotId = *meta.ParentSnapshotID
		}
		if meta.Summary != nil {
			m.Operation = string(meta.Summary.Operation)
		}
		res.Snapshots = append(res.Snapshots, m)
	}
	return res, nil
}

func (a *Agent) foldTable(ctx context.Context, req *firnv1.FoldTableRequest) (*firnv1.FoldTableResponse, error) {
	def, n, err := a.tableAndOwner(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	r, err := n.fold(ctx, def)
	if err != nil {
		return nil, err
	}
	now, err := a.loadLake(ctx, a.lakeDef(def))
	if err != nil {
		return nil, err
	}
	return &firnv1.FoldTableResponse{SnapshotId: r.SnapshotID, Rows: r.Rows, Files: int64(r.Files), Bytes: r.Bytes, Offsets: allOffsets(def, now.Offsets)}, nil
}

// allOffsets completes a snapshot's offsets by the buckets that it holds nothing of.
func allOffsets(def *metastore.Table, known map[int32]int64) map[int32]int64 {
	out := make(map[int32]int64, def.Buckets)
	for b := range def.Buckets {
		out[b] = known[b]
	}
	return out
}

func (a *Agent) compactTable(ctx context.Context, req *firnv1.CompactTableRequest) (*firnv1.CompactTableResponse, error) {
	def, n, err := a.tableAndOwner(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	if req.TargetFileBytes < 0 {
		return nil, errs.New(errs.Invalid, "target_file_bytes is %d: must be a whole number from 0 (0: the table's own)", req.TargetFileBytes)
	}
	r, err := n.compact(ctx, def, true, req.TargetFileBytes)
	if err != nil {
		return nil, err
	}
	if r.SnapshotID == 0 { // nothing to do: name the snapshot that stands
		now, err := a.loadLake(ctx, a.lakeDef(def))
		if err != nil {
			return nil, err
		}
		r.SnapshotID = now.ID
	}
	return &firnv1.CompactTableResponse{SnapshotId: r.SnapshotID, Rows: r.Rows, Files: int64(r.FilesAfter), Bytes: r.BytesAfter, ReplacedFiles: int64(r.FilesBefore)}, nil
}

func (a *Agent) expireSnapshots(ctx context.Context, req *firnv1.ExpireSnapshotsRequest) (*firnv1.ExpireSnapshotsResponse, error) {
	def, n, err := a.tableAndOwner(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	if req.KeepLast < 0 {
		return nil, errs.New(errs.Invalid, "keep_last is %d: must be at least 0", req.KeepLast)
	}
	var age time.Duration
	if req.KeepLast > 0 {
		age = -1 // who names a number means it, also for young snapshots; those being read stay
	}
	if req.OlderThan != "" {
		if age, err = metastore.ParseDuration(req.OlderThan); err != nil {
			return nil, errs.New(errs.Invalid, "older_than is %q: %v", req.OlderThan, err)
		}
		if age == 0 { // stated, and not the default
			age = -1
		}
	}
	r, err := n.expire(ctx, def, int(req.KeepLast), age)
	if err != nil {
		return nil, err
	}
	now, err := a.loadLake(ctx, a.lakeDef(def))
	if err != nil {
		return nil, err
	}
	return &firnv1.ExpireSnapshotsResponse{SnapshotId: now.ID, Snapshots: int64(r.Snapshots), Files: int64(r.DataFiles)}, nil
}

func (a *Agent) getProducer(ctx context.Context, req *firnv1.GetProducerRequest) (*firnv1.Producer, error) {
	def, n, err := a.tableAndOwner(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	if err := n.confirmLease(ctx); err != nil {
		return nil, err
	}
	t, err := n.tableFor(def)
	if err != nil {
		return nil, err
	}
	res := &firnv1.Producer{ProducerId: req.ProducerId, Watermark: -1}
	for _, b := range t.buckets {
		b.mu.Lock()
		st, ok := b.durable.Get(req.ProducerId, false)
		b.mu.Unlock()
		if !ok {
			continue
		}
		m := &firnv1.ProducerBucket{Bucket: b.id.Bucket, Watermark: resumeAt(st, len(def.BucketKey) == 0 || len(t.buckets) == 1)}
		for _, r := range st.Ranges {
			m.Ranges = append(m.Ranges, &firnv1.SequenceRange{Start: r.First, End: r.End})
		}
		res.Buckets = append(res.Buckets, m)
		if res.Watermark < 0 || m.Watermark < res.Watermark {
			res.Watermark = m.Watermark
		}
	}
	if res.Watermark < 0 {
		return nil, errs.New(errs.NotFound, "producer %q has written nothing to table %s", req.ProducerId, def)
	}
	return res, nil
}

// resumeAt is the first sequence of a bucket that is not surely done. Where every
// row of a producer meets this one bucket, the applied range at the watermark
// counts too; with a bucket key, a request without rows for this bucket left no
// trace in it, so only what the producer said to be done does.
func resumeAt(st producers.State, wholeProducer bool) int64 {
	if wholeProducer && len(st.Ranges) > 0 && st.Ranges[0].First <= st.Watermark {
		return max(st.Watermark, st.Ranges[0].End)
	}
	return st.Watermark
}
