package lakehouse

import (
	"encoding/binary"

	"github.com/apache/arrow-go/v18/parquet"

	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/filter"
)

// PruneFiles returns the files that may hold rows which the filter keeps, by
// the statistics and partition values of the Iceberg manifests alone.
func (s *Snapshot) PruneFiles(files []DataFile, f *filter.Expr) ([]DataFile, error) {
	if f == nil {
		return files, nil
	}
	plan, err := s.planScan(nil, f)
	if err != nil {
		return nil, err
	}
	return plan.prune(files), nil
}

func (p *scanPlan) prune(files []DataFile) []DataFile {
	if p.filter == nil {
		return files
	}
	kept := make([]DataFile, 0, len(files))
	for i := range files {
		if p.verdict(&files[i]) != filter.None {
			kept = append(kept, files[i])
		}
	}
	return kept
}

// verdict says what the filter makes of a whole data file. Whether a column
// without metrics is absent cannot be told here; the footer tells.
func (p *scanPlan) verdict(data *DataFile) filter.Verdict {
	if p.filter == nil {
		return filter.All
	}
	if p.partition.excludes(data) {
		return filter.None
	}
	return p.filter.Prune(func(id int32) (segments.ColumnStats, int64, bool) {
		m, ok := data.Column(id)
		if !ok || m.Nulls < 0 || p.floats(id) && m.NaNs < 0 {
			return segments.ColumnStats{}, data.Rows, false
		}
		return segments.ColumnStats{Valid: true, Nulls: m.Nulls, NaNs: max(m.NaNs, 0), Min: m.Lower, Max: m.Upper}, data.Rows, true
	})
}

func (p *scanPlan) floats(id int32) bool {
	kind := p.absent[id].typ.Kind
	return kind == segments.Float || kind == segments.Double
}

// groupVerdict says what the filter makes of one row group.
func (p *scanPlan) groupVerdict(f *fileScan, group int) filter.Verdict {
	if p.filter == nil {
		return filter.All
	}
	rows := f.pq.groups[group].rows
	return p.filter.Prune(func(id int32) (segments.ColumnStats, int64, bool) {
		column := f.pq.schema.IndexOfID(id)
		if column < 0 {
			return p.defaultStats(id, rows)
		}
		stats := f.pq.groupStats(group, column)
		if stats.Valid && p.floats(id) {
			// Parquet does not count NaN. Only a file without any has known bounds.
			m, ok := f.data.Column(id)
			stats.Valid = ok && m.NaNs == 0
		}
		return stats, rows, stats.Valid
	})
}

// defaultStats are the statistics of a column that a file lacks.
func (p *scanPlan) defaultStats(id int32, rows int64) (segments.ColumnStats, int64, bool) {
	d, ok := p.absent[id]
	switch {
	case !ok || p.floats(id) && d.value != nil: // a default may be NaN
		return segments.ColumnStats{}, rows, false
	case d.value == nil:
		return segments.ColumnStats{Valid: true, Nulls: rows}, rows, true
	}
	return segments.ColumnStats{Valid: true, Min: d.value, Max: d.value}, rows, true
}

// groupStats returns a row group's statistics of one column in Iceberg's form;
// not valid for nested columns and where the file has none that can be trusted.
func (f *parquetFile) groupStats(group, column int) segments.ColumnStats {
	field := f.schema.Fields[column]
	if field.Type.Kind.Nested() || len(f.leaves[column]) != 1 {
		return segments.ColumnStats{}
	}
	chunk := f.meta.RowGroups[group].Columns[f.leaves[column][0]].MetaData
	s := chunk.Statistics
	if s == nil {
		return segments.ColumnStats{}
	}
	stats := segments.ColumnStats{Valid: true}
	switch {
	case s.NullCount != nil && *s.NullCount >= 0 && *s.NullCount <= f.groups[group].rows:
		stats.Nulls = *s.NullCount
	case field.Required:
	default:
		return segments.ColumnStats{}
	}
	physical := parquet.Type(chunk.Type)
	stats.Min = icebergBound(field.Type, physical, s.MinValue)
	stats.Max = icebergBound(field.Type, physical, s.MaxValue)
	if s.MinValue == nil || s.MaxValue == nil {
		stats.Min, stats.Max = nil, nil
	}
	return stats
}

// icebergBound turns a plain-encoded Parquet statistic into an Iceberg single-value
// binary; nil when it is missing or malformed. The deprecated min and max of old
// writers, whose order is undefined for many types, are never used.
func icebergBound(t segments.Type, physical parquet.Type, b []byte) []byte {
	if b == nil {
		return nil
	}
	switch t.Kind {
	case segments.Decimal:
		return decimalBound(physical, b)
	case segments.String, segments.Binary:
		return b
	}
	if _, err := segments.FromIcebergValue(b, t); err != nil {
		return nil
	}
	return b // the same little-endian or raw bytes
}

// decimalBound turns a decimal statistic (little-endian integer, or big-endian
// bytes of fixed length) into the big-endian form of at most 16 bytes.
func decimalBound(physical parquet.Type, b []byte) []byte {
	switch {
	case physical == parquet.Types.Int32 && len(b) == 4:
		return binary.BigEndian.AppendUint32(nil, binary.LittleEndian.Uint32(b))
	case physical == parquet.Types.Int64 && len(b) == 8:
		return binary.BigEndian.AppendUint64(nil, binary.LittleEndian.Uint64(b))
	case physical == parquet.Types.FixedLenByteArray && len(b) >= 1 && len(b) <= 16:
		return b
	}
	return nil
}
