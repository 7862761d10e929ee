package lakehouse

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
)

// built is a snapshot ready to be installed: its metadata version's bytes, and
// the keys of the manifests and the manifest list that were written for it.
type built struct {
	body []byte
	keys []string
}

// snapshotBuilder writes the Iceberg manifests of one commit attempt.
type snapshotBuilder struct {
	lake   *Lake
	def    *TableDef
	base   *version
	change change
	meta   *table.MetadataBuilder
	parent *table.Snapshot
	id     int64
	seq    int64
	keys   []string
	named  int
	gone   map[string]DeleteFile // by URI: the delete files that this commit removes
}

// buildSnapshot writes everything that a change needs on top of base, except the
// metadata version itself. The result's keys are set also on error.
func (l *Lake) buildSnapshot(ctx context.Context, def *TableDef, base *version, c change, next lakeState) (built, error) {
	b, err := table.MetadataBuilderFromBase(base.meta, l.uri(base.key))
	if err != nil {
		return built{}, errs.Wrap(errs.Internal, "build metadata", err)
	}
	if err := applyDefinition(b, base.meta, def); err != nil {
		return built{}, err
	}
	attempt := l.opts.NewID()
	s := &snapshotBuilder{
		lake: l, def: def, base: base, change: c, meta: b, parent: base.meta.CurrentSnapshot(),
		id:  int64(binary.BigEndian.Uint64(attempt[:8])>>1) | 1,
		seq: base.meta.LastSequenceNumber() + 1,
	}
	manifests, err := s.manifests(ctx)
	if err != nil {
		return built{keys: s.keys}, err
	}
	snap, err := s.snapshot(ctx, manifests, next)
	if err != nil {
		return built{keys: s.keys}, err
	}
	err = firstError(
		func() error { return table.NewAddSnapshotUpdate(snap).Apply(b) },
		func() error { return b.SetSnapshotRef(table.MainBranch, snap.SnapshotID, table.BranchRef) },
	)
	if err != nil {
		return built{keys: s.keys}, errs.Wrap(errs.Internal, "add snapshot", err)
	}
	meta, err := b.Build()
	if err != nil {
		return built{keys: s.keys}, errs.Wrap(errs.Internal, "build metadata", err)
	}
	body, err := encodeMetadata(meta)
	return built{body: body, keys: s.keys}, err
}

// write puts one metadata object of this attempt and returns its URI.
func (s *snapshotBuilder) write(ctx context.Context, name string, body []byte) (string, error) {
	key := s.def.metadataPrefix() + name
	s.keys = append(s.keys, key)
	if err := s.lake.put(ctx, key, body); err != nil {
		return "", errs.In("write iceberg manifest", err)
	}
	return s.lake.uri(key), nil
}

// snapshot writes the manifest list and returns the snapshot with its exact totals.
func (s *snapshotBuilder) snapshot(ctx context.Context, manifests []iceberg.ManifestFile, next lakeState) (*table.Snapshot, error) {
	snap := &table.Snapshot{
		SnapshotID:     s.id,
		SequenceNumber: s.seq,
		// Never before the parent's: engines refuse metadata whose time runs back.
		TimestampMs: max(s.lake.opts.Now().UnixMilli(), s.base.meta.LastUpdatedMillis()),
	}
	schemaID := s.meta.CurrentSchema().ID
	snap.SchemaID = &schemaID
	if s.parent != nil {
		snap.ParentSnapshotID = &s.parent.SnapshotID
	}
	body, err := s.encodeList(manifests, snap)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode manifest list", err)
	}
	name := fmt.Sprintf("snap-%d-%s.avro", s.id, s.lake.opts.NewID())
	if snap.ManifestList, err = s.write(ctx, name, body); err != nil {
		return nil, err
	}
	props, err := s.summary(ctx, manifests, next)
	if err != nil {
		return nil, err
	}
	snap.Summary = &table.Summary{Operation: s.change.operation, Properties: props}
	return snap, nil
}

func (s *snapshotBuilder) encodeList(manifests []iceberg.ManifestFile, snap *table.Snapshot) ([]byte, error) {
	var out bytes.Buffer
	if s.base.meta.Version() < 3 {
		err := iceberg.WriteManifestList(2, &out, s.id, snap.ParentSnapshotID, &s.seq, 0, manifests)
		return out.Bytes(), err
	}
	first := s.base.meta.NextRowID()
	w, err := iceberg.NewManifestListWriterV3(&out, s.id, s.seq, first, snap.ParentSnapshotID)
	if err != nil {
		return nil, err
	}
	if err := w.AddManifests(manifests); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	rows := *w.NextRowID() - first
	snap.FirstRowID, snap.AddedRows = &first, &rows
	return out.Bytes(), nil
}

// summary returns the snapshot's properties. Totals are recounted from the
// manifest list, because engines answer count(*) from them.
func (s *snapshotBuilder) summary(ctx context.Context, manifests []iceberg.ManifestFile, next lakeState) (iceberg.Properties, error) {
	var files, rows, deleteFiles, deletedRows, equality int64
	for _, m := range manifests {
		live := int64(m.AddedDataFiles()) + int64(m.ExistingDataFiles())
		if m.ManifestContent() == iceberg.ManifestContentDeletes {
			deleteFiles += live
			deletedRows += m.AddedRows() + m.ExistingRows()
			continue
		}
		files += live
		rows += m.AddedRows() + m.ExistingRows()
	}
	offsets, err := json.Marshal(next.offsets)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode offsets", err)
	}
	generations, err := json.Marshal(next.generations)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "encode generations", err)
	}
	p := iceberg.Properties{
		sumOffsets: string(offsets), sumGenerations: string(generations), sumCommit: s.change.id.String(),
		"total-data-files": itoa(files), "total-records": itoa(rows), "total-delete-files": itoa(deleteFiles),
	}
	if deleteFiles > 0 && s.parent != nil && s.parent.Summary != nil { // another writer's, as its snapshot stated them
		equality = summaryInt(s.parent, "total-equality-deletes")
	}
	p["total-position-deletes"], p["total-equality-deletes"] = itoa(deletedRows-equality), itoa(equality)
	if len(next.indexes) > 0 {
		indexes, err := json.Marshal(next.indexes)
		if err != nil {
			return nil, errs.Wrap(errs.Internal, "encode index names", err)
		}
		p[sumIndexes] = string(indexes)
	}
	removed, err := s.removedFiles(ctx)
	if err != nil {
		return nil, err
	}
	size, err := s.parentBytes(ctx)
	if err != nil {
		return nil, err
	}
	partitions := map[string]bool{}
	var addedRows, removedRows int64
	addedBytes, removedBytes := s.deleteSummary(p)
	for _, d := range s.change.deletes {
		partitions[fmt.Sprint(d.entry.SpecID(), d.entry.Partition())] = true
	}
	for _, f := range s.change.add {
		addedRows += f.Count()
		addedBytes += f.FileSizeBytes()
		partitions[fmt.Sprint(f.SpecID(), f.Partition())] = true
	}
	for _, f := range removed {
		removedRows += f.Rows
		removedBytes += f.Size
		partitions[fmt.Sprint(f.SpecID, f.Partition)] = true
	}
	p["total-files-size"] = itoa(size + addedBytes - removedBytes)
	p["changed-partition-count"] = itoa(int64(len(partitions)))
	for _, c := range []struct {
		key   string
		count int64
	}{
		{"added-data-files", int64(len(s.change.add))}, {"added-records", addedRows}, {"added-files-size", addedBytes},
		{"deleted-data-files", int64(len(removed))}, {"deleted-records", removedRows}, {"removed-files-size", removedBytes},
	} {
		if c.count > 0 {
			p[c.key] = itoa(c.count)
		}
	}
	return p, nil
}

func itoa(v int64) string { return strconv.FormatInt(v, 10) }

// removedFiles returns what the parent says of the files that the change removes.
func (s *snapshotBuilder) removedFiles(ctx context.Context) ([]DataFile, error) {
	if len(s.change.remove) == 0 {
		return nil, nil
	}
	live, err := s.parentFiles(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]DataFile, 0, len(s.change.remove))
	for _, f := range live {
		if s.change.remove[f.URI] {
			out = append(out, f)
		}
	}
	return out, nil
}

func (s *snapshotBuilder) parentFiles(ctx context.Context) ([]DataFile, error) {
	parent, err := s.lake.snapshotOf(*s.def, s.base, s.parent)
	if err != nil {
		return nil, err
	}
	return parent.Files(ctx)
}

// parentBytes returns the bytes of the parent's data files, from its summary when
// Firn wrote it.
func (s *snapshotBuilder) parentBytes(ctx context.Context) (int64, error) {
	if s.parent == nil {
		return 0, nil
	}
	if s.parent.Summary != nil && s.parent.Summary.Properties[sumCommit] != "" {
		return summaryInt(s.parent, "total-files-size"), nil
	}
	files, err := s.parentFiles(ctx)
	if err != nil {
		return 0, err
	}
	var size int64
	for _, f := range files {
		if size > math.MaxInt64-f.Size {
			return 0, errs.New(errs.Corrupt, "data file sizes overflow")
		}
		size += f.Size
		if f.Deletes != nil {
			size += f.Deletes.Size
		}
	}
	return size, nil
}
