package metastore

import (
	"fmt"
	"slices"
	"strings"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// setPartition replaces the partition spec by the fields of partition_by and the
// bucket field. A field that stays (same source, same transform) keeps its id;
// the others get fresh ones.
func (t *Table) setPartition(by []string) error {
	var fields []segments.PartitionField
	for _, text := range by {
		p, err := segments.ParsePartitionField(text, t.Current())
		if err != nil {
			return err
		}
		fields = append(fields, p)
	}
	if b, ok := t.bucketField(); ok && !slices.ContainsFunc(fields, func(p segments.PartitionField) bool { return samePlace(p, b) }) {
		fields = append(fields, b)
	}
	for i := range fields {
		fields[i].FieldID = 0
		for _, old := range t.Partition {
			if samePlace(old, fields[i]) {
				fields[i].FieldID, fields[i].Name = old.FieldID, old.Name
			}
		}
		if fields[i].FieldID == 0 {
			t.LastPartitionID++
			fields[i].FieldID = t.LastPartitionID
		}
		if at, known := slices.BinarySearch(t.PartitionedBy, fields[i].SourceID); !known {
			t.PartitionedBy = slices.Insert(t.PartitionedBy, at, fields[i].SourceID)
		}
	}
	t.Partition = fields
	return nil
}

func samePlace(a, b segments.PartitionField) bool {
	return a.SourceID == b.SourceID && a.Transform == b.Transform
}

// bucketField is the partition field that says to every engine how rows are
// bucketed. Only a bucket key of one column is an Iceberg transform, and one
// bucket needs no field.
func (t *Table) bucketField() (segments.PartitionField, bool) {
	if len(t.BucketKey) != 1 || t.Buckets < 2 {
		return segments.PartitionField{}, false
	}
	f, ok := t.Current().FieldByID(t.BucketKey[0])
	if !ok {
		return segments.PartitionField{}, false
	}
	return segments.PartitionField{SourceID: f.ID, Name: f.Name + "_bucket", Transform: fmt.Sprintf("bucket[%d]", t.Buckets)}, true
}

func (t *Table) isBucketField(p segments.PartitionField) bool {
	b, ok := t.bucketField()
	return ok && samePlace(p, b)
}

// checkPartition refuses specs that Iceberg's own builders refuse.
func checkPartition(t *Table) error {
	if len(t.Partition) > maxPartitionFields {
		return errs.New(errs.Invalid, "partition_by has %d fields; a table has at most %d", len(t.Partition), maxPartitionFields)
	}
	names := map[string]bool{}
	placed := map[string]string{}
	for _, p := range t.Partition {
		source, ok := t.Current().FieldByID(p.SourceID)
		if !ok {
			return errs.New(errs.Invalid, "partition field %q: its column does not exist", p.Name)
		}
		if names[strings.ToLower(p.Name)] {
			return errs.New(errs.Invalid, "partition_by: two partition fields are named %q", p.Name)
		}
		names[strings.ToLower(p.Name)] = true
		for _, f := range t.Current().Fields {
			if strings.EqualFold(f.Name, p.Name) && (p.Transform != "identity" || f.ID != p.SourceID) {
				return errs.New(errs.Invalid, "column %q: the partition field %s has the same name; rename the column",
					f.Name, partitionText(p.Transform, source.Name))
			}
		}
		place := fmt.Sprint(p.SourceID, " ", partitionFamily(p.Transform))
		if other, dup := placed[place]; dup {
			return errs.New(errs.Invalid, "partition_by: %s and %s say the same of column %q; keep the finer one",
				other, partitionText(p.Transform, source.Name), source.Name)
		}
		placed[place] = partitionText(p.Transform, source.Name)
	}
	return nil
}

// partitionFamily joins the time transforms, of which a column may have one.
func partitionFamily(transform string) string {
	switch transform {
	case "year", "month", "day", "hour":
		return "time"
	}
	return transform
}
