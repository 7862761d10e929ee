package lakehouse

import (
	"context"
	"maps"
	"slices"

	"github.com/apache/iceberg-go"

	"github.com/firn-data/firn/internal/errs"
)

// deleteManifests returns the delete manifests of the new snapshot. The entries of
// superseded delete files, and of those whose data file goes, become DELETED; what
// else stood in their manifests becomes EXISTING beside the new entries, so that one
// manifest a partition spec is written. The others are kept.
func (s *snapshotBuilder) deleteManifests(ctx context.Context, inherited []iceberg.ManifestFile) ([]iceberg.ManifestFile, error) {
	if len(inherited) == 0 && len(s.change.deletes) == 0 {
		return nil, nil
	}
	byData := make(map[string]*newDelete, len(s.change.deletes))
	adding := map[int32][]iceberg.DataFile{}
	for i := range s.change.deletes {
		d := &s.change.deletes[i]
		if byData[d.dataURI] != nil {
			return nil, errs.New(errs.Internal, "a commit has two delete files for %s", d.dataURI)
		}
		byData[d.dataURI] = d
		adding[d.entry.SpecID()] = append(adding[d.entry.SpecID()], d.entry)
	}
	touched, kept, err := s.sortDeletes(ctx, inherited, byData)
	if err != nil {
		return nil, err
	}
	if err := s.checkTargets(ctx, byData); err != nil {
		return nil, err
	}
	var out []iceberg.ManifestFile
	specs := slices.Collect(maps.Keys(adding))
	for spec := range touched {
		if adding[spec] == nil {
			specs = append(specs, spec)
		}
	}
	slices.Sort(specs)
	for _, spec := range specs {
		var merge []iceberg.ManifestFile
		merge, kept = mergeSet(kept, spec, len(adding[spec]), iceberg.ManifestContentDeletes)
		m, err := s.newManifest(ctx, int(spec), iceberg.ManifestContentDeletes, func(w *iceberg.ManifestWriter) error {
			for _, f := range adding[spec] {
				if err := w.Add(iceberg.NewManifestEntry(iceberg.EntryStatusADDED, &s.id, nil, nil, f)); err != nil {
					return err
				}
			}
			if err := s.rewriteDeletes(ctx, w, touched[spec]); err != nil {
				return err
			}
			return s.copyLive(ctx, w, merge)
		})
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return append(out, kept...), nil
}

// sortDeletes looks through the parent's live delete files: it notes those that go,
// and tells the manifests that name one from the others. What a new delete file
// replaces must be exactly what its data file has. INVARIANT(key-2).
func (s *snapshotBuilder) sortDeletes(ctx context.Context, inherited []iceberg.ManifestFile, byData map[string]*newDelete) (touched map[int32][]iceberg.ManifestFile, kept []iceberg.ManifestFile, err error) {
	touched = map[int32][]iceberg.ManifestFile{}
	s.gone = map[string]DeleteFile{}
	have := map[string]string{}
	for _, m := range inherited {
		if len(s.change.deletes) == 0 && len(s.change.remove) == 0 {
			kept = append(kept, m)
			continue
		}
		files, err := s.lake.liveDeletes(ctx, m)
		if err != nil {
			return nil, nil, err
		}
		before := len(s.gone)
		for _, f := range files {
			if other := have[f.DataURI]; other != "" {
				return nil, nil, errs.New(errs.Corrupt, "data file %s has two delete files: %s and %s", f.DataURI, other, f.URI)
			}
			have[f.DataURI] = f.URI
			if byData[f.DataURI] != nil || s.change.remove[f.DataURI] {
				s.gone[f.URI] = f
			}
		}
		if len(s.gone) > before {
			touched[m.PartitionSpecID()] = append(touched[m.PartitionSpecID()], m)
		} else {
			kept = append(kept, m)
		}
	}
	for uri, d := range byData {
		if have[uri] != d.replaces {
			return nil, nil, errs.New(errs.Conflict, "data file %s has the delete file %q and not %q: another commit replaced it", uri, have[uri], d.replaces)
		}
	}
	return touched, kept, nil
}

// checkTargets makes sure that every new delete file is of a data file which stays.
func (s *snapshotBuilder) checkTargets(ctx context.Context, byData map[string]*newDelete) error {
	if len(byData) == 0 {
		return nil
	}
	live, err := s.parentFiles(ctx)
	if err != nil {
		return err
	}
	found := 0
	for i := range live {
		d := byData[live[i].URI]
		if d == nil || s.change.remove[live[i].URI] {
			continue
		}
		found++
		if n := d.entry.Count(); n < 1 || n >= live[i].Rows || n < live[i].Rows-live[i].LiveRows() {
			return errs.New(errs.Internal, "%d of the %d rows of data file %s would be deleted, after %d", n, live[i].Rows, live[i].URI, live[i].Rows-live[i].LiveRows())
		}
	}
	if found != len(byData) {
		return errs.New(errs.Conflict, "%d of %d data files with rows to delete are no longer in the table: another commit replaced them", len(byData)-found, len(byData))
	}
	return nil
}

func (s *snapshotBuilder) rewriteDeletes(ctx context.Context, w *iceberg.ManifestWriter, from []iceberg.ManifestFile) error {
	for _, m := range from {
		entries, err := s.lake.entries(ctx, m)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if e.Status() == iceberg.EntryStatusDELETED {
				continue
			}
			write := w.Existing
			if _, gone := s.gone[e.DataFile().FilePath()]; gone {
				write = w.Delete
			}
			if err := write(e); err != nil {
				return err
			}
		}
	}
	return nil
}

// deleteSummary adds what a snapshot's summary says of delete files, and returns the
// bytes of those that came and of those that went.
func (s *snapshotBuilder) deleteSummary(p iceberg.Properties) (addedBytes, removedBytes int64) {
	var added, addedRows, vectors, removedRows, removedVectors int64
	for _, d := range s.change.deletes {
		added++
		addedRows += d.entry.Count()
		addedBytes += d.entry.FileSizeBytes()
		if d.entry.FileFormat() == iceberg.PuffinFile {
			vectors++
		}
	}
	for _, f := range s.gone {
		removedRows += f.Rows
		removedBytes += f.Size
		if f.Vector {
			removedVectors++
		}
	}
	removed := int64(len(s.gone))
	for key, count := range map[string]int64{
		"added-delete-files": added, "added-position-delete-files": added - vectors, "added-dvs": vectors, "added-position-deletes": addedRows,
		"removed-delete-files": removed, "removed-position-delete-files": removed - removedVectors, "removed-dvs": removedVectors, "removed-position-deletes": removedRows,
	} {
		if count > 0 {
			p[key] = itoa(count)
		}
	}
	return addedBytes, removedBytes
}
