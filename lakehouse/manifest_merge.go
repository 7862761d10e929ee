package lakehouse

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/apache/iceberg-go"

	"github.com/firn-data/firn/internal/errs"
)

const (
	// mergeManifestsAbove is how many small data manifests of one partition spec
	// a snapshot may list before new entries are merged into them. A reader
	// fetches each of them.
	mergeManifestsAbove = 8
	// maxManifestBytes is where a manifest is no longer rewritten by a merge.
	maxManifestBytes = 8 << 20
)

// manifests returns the manifests of the new snapshot: new ones for the files
// that are added, rewritten ones where files are removed, and the parent's others.
func (s *snapshotBuilder) manifests(ctx context.Context) ([]iceberg.ManifestFile, error) {
	var inherited, deletes []iceberg.ManifestFile
	if s.parent != nil {
		list, err := s.lake.manifestList(ctx, s.parent.ManifestList)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			// One that holds only deleted entries has been seen by one snapshot: enough.
			switch {
			case m.AddedDataFiles()+m.ExistingDataFiles() == 0:
			case m.ManifestContent() == iceberg.ManifestContentDeletes:
				deletes = append(deletes, m)
			default:
				inherited = append(inherited, m)
			}
		}
	}
	kept, rewritten, err := s.rewriteRemoved(ctx, inherited)
	if err != nil {
		return nil, err
	}
	added, kept, err := s.writeAdded(ctx, kept)
	if err != nil {
		return nil, err
	}
	if deletes, err = s.deleteManifests(ctx, deletes); err != nil {
		return nil, err
	}
	return slices.Concat(added, rewritten, kept, deletes), nil
}

// rewriteRemoved rewrites the manifests that name a removed file: it becomes
// DELETED, the others EXISTING.
func (s *snapshotBuilder) rewriteRemoved(ctx context.Context, in []iceberg.ManifestFile) (kept, rewritten []iceberg.ManifestFile, err error) {
	if len(s.change.remove) == 0 {
		return in, nil, nil
	}
	found := 0
	for _, m := range in {
		files, err := s.lake.liveFiles(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		if !slices.ContainsFunc(files, func(f DataFile) bool { return s.change.remove[f.URI] }) {
			kept = append(kept, m)
			continue
		}
		entries, err := s.lake.entries(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		out, err := s.newManifest(ctx, int(m.PartitionSpecID()), iceberg.ManifestContentData, func(w *iceberg.ManifestWriter) error {
			for _, e := range entries {
				var err error
				switch {
				case e.Status() == iceberg.EntryStatusDELETED:
				case s.change.remove[e.DataFile().FilePath()]:
					found++
					err = w.Delete(e)
				default:
					err = w.Existing(e)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
		rewritten = append(rewritten, out)
	}
	if found != len(s.change.remove) {
		return nil, nil, errs.New(errs.Conflict, "%d of %d files to replace are no longer in the table: another commit replaced them",
			len(s.change.remove)-found, len(s.change.remove))
	}
	return kept, rewritten, nil
}

// writeAdded writes one manifest a partition spec for the added files, merged
// with small manifests of the same spec when there are many.
func (s *snapshotBuilder) writeAdded(ctx context.Context, kept []iceberg.ManifestFile) (added, rest []iceberg.ManifestFile, err error) {
	bySpec := map[int][]iceberg.DataFile{}
	var specs []int
	for _, f := range s.change.add {
		id := int(f.SpecID())
		if bySpec[id] == nil {
			specs = append(specs, id)
		}
		bySpec[id] = append(bySpec[id], f)
	}
	rest = kept
	for _, spec := range specs {
		var merge []iceberg.ManifestFile
		merge, rest = mergeSet(rest, int32(spec), len(bySpec[spec]), iceberg.ManifestContentData)
		out, err := s.newManifest(ctx, spec, iceberg.ManifestContentData, func(w *iceberg.ManifestWriter) error {
			for _, f := range bySpec[spec] {
				if err := w.Add(iceberg.NewManifestEntry(iceberg.EntryStatusADDED, &s.id, nil, nil, f)); err != nil {
					return err
				}
			}
			return s.copyLive(ctx, w, merge)
		})
		if err != nil {
			return nil, nil, err
		}
		added = append(added, out)
	}
	return added, rest, nil
}

func (s *snapshotBuilder) copyLive(ctx context.Context, w *iceberg.ManifestWriter, from []iceberg.ManifestFile) error {
	for _, m := range from {
		entries, err := s.lake.entries(ctx, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Status() == iceberg.EntryStatusDELETED {
				continue
			}
			if err := w.Existing(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// mergeSet chooses the manifests to merge with a new one of n entries: none while
// there are few; else the newest ones, as long as each is no larger than what is
// merged already (so that an entry is copied a logarithmic number of times), and
// then some more until half of the bound is left. Manifests come newest first.
func mergeSet(all []iceberg.ManifestFile, spec int32, n int, content iceberg.ManifestContent) (merge, rest []iceberg.ManifestFile) {
	var small int
	candidate := func(m iceberg.ManifestFile) bool {
		return m.PartitionSpecID() == spec && m.ManifestContent() == content && m.Length() < maxManifestBytes
	}
	for _, m := range all {
		if candidate(m) {
			small++
		}
	}
	if small < mergeManifestsAbove {
		return nil, all
	}
	entries, open := int64(n), true
	for _, m := range all {
		live := int64(m.AddedDataFiles()) + int64(m.ExistingDataFiles())
		if open && candidate(m) {
			if live <= entries || small > mergeManifestsAbove/2 {
				merge = append(merge, m)
				entries += live
				small--
				continue
			}
			open = false
		}
		rest = append(rest, m)
	}
	return merge, rest
}

// newManifest writes one manifest.
func (s *snapshotBuilder) newManifest(ctx context.Context, specID int, content iceberg.ManifestContent, fill func(*iceberg.ManifestWriter) error) (iceberg.ManifestFile, error) {
	spec, err := s.meta.GetSpecByID(specID)
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "write iceberg manifest", err)
	}
	var out bytes.Buffer
	w, err := iceberg.NewManifestWriter(max(2, s.base.meta.Version()), &out, *spec, s.schemaFor(*spec), s.id, iceberg.WithManifestWriterContent(content))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "write iceberg manifest", err)
	}
	if err := fill(w); err != nil {
		return nil, errs.In("write iceberg manifest", err)
	}
	if err := w.Close(); err != nil {
		return nil, errs.Wrap(errs.Internal, "write iceberg manifest", err)
	}
	s.named++
	uri, err := s.write(ctx, fmt.Sprintf("%s-m%d.avro", s.lake.opts.NewID(), s.named), out.Bytes())
	if err != nil {
		return nil, err
	}
	m, err := w.ToManifestFile(uri, int64(out.Len()))
	if err != nil {
		return nil, errs.Wrap(errs.Internal, "write iceberg manifest", err)
	}
	return withEmptyBounds(m), nil
}

// withEmptyBounds repairs a new manifest's partition summary: iceberg-go gives the
// bound "" as a nil slice, which Avro would write as null, and a null lower bound
// means to every engine that there are no values, so that it skips the manifest.
func withEmptyBounds(m iceberg.ManifestFile) iceberg.ManifestFile {
	parts, repaired := m.Partitions(), false
	for i := range parts {
		for _, b := range []*[]byte{parts[i].LowerBound, parts[i].UpperBound} {
			if b != nil && *b == nil {
				*b, repaired = []byte{}, true
			}
		}
	}
	if !repaired {
		return m
	}
	return iceberg.NewManifestFile(m.Version(), m.FilePath(), m.Length(), m.PartitionSpecID(), m.SnapshotID()).
		SequenceNum(m.SequenceNum(), m.MinSequenceNum()).Content(m.ManifestContent()).
		AddedFiles(m.AddedDataFiles()).ExistingFiles(m.ExistingDataFiles()).DeletedFiles(m.DeletedDataFiles()).
		AddedRows(m.AddedRows()).ExistingRows(m.ExistingRows()).DeletedRows(m.DeletedRows()).
		Partitions(parts).Build()
}

// schemaFor returns the newest schema that has all sources of a spec: the current
// one, unless a source column of an old spec was dropped since.
func (s *snapshotBuilder) schemaFor(spec iceberg.PartitionSpec) *iceberg.Schema {
	has := func(schema *iceberg.Schema) bool {
		for _, f := range spec.Fields() {
			if _, ok := schema.FindFieldByID(f.SourceID()); !ok {
				return false
			}
		}
		return true
	}
	current := s.meta.CurrentSchema()
	if has(current) {
		return current
	}
	schemas := s.base.meta.Schemas()
	for _, schema := range slices.Backward(schemas) {
		if has(schema) {
			return schema
		}
	}
	return current
}
