package lakehouse

import (
	"fmt"
	"strings"

	"github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/table"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// wantedField is one partition field that a definition asks for.
type wantedField struct {
	source    int
	name      string
	transform iceberg.Transform
}

// wantedSpec returns the partition fields that a table's lake has: those the
// user asked for, then bucket[N](column) of a single-column bucket key, unless
// the user asked for it or Iceberg has no bucket transform for its type.
func wantedSpec(def *TableDef) ([]wantedField, error) {
	schema, err := def.Current()
	if err != nil {
		return nil, err
	}
	var out []wantedField
	add := func(source int32, name, transform string) error {
		f, ok := schema.FieldByID(source)
		if !ok {
			return errs.New(errs.Invalid, "partition field %s: table %s has no column with id %d", name, def, source)
		}
		t, err := iceberg.ParseTransform(transform)
		if err != nil {
			return errs.New(errs.Invalid, "partition field %s: %v", name, err)
		}
		if kind, ok := primitiveOf(f.Type); !ok || !t.CanTransform(kind) {
			return errs.New(errs.Invalid, "partition field %s: transform %s does not take a %s", name, transform, f.Type)
		}
		for _, w := range out {
			if w.source == int(source) && w.transform.String() == t.String() {
				return nil
			}
		}
		out = append(out, wantedField{source: int(source), name: name, transform: t})
		return nil
	}
	for _, p := range def.Partition {
		if err := add(p.SourceID, p.Name, p.Transform); err != nil {
			return nil, err
		}
	}
	if len(def.BucketKey) == 1 {
		if f, ok := schema.FieldByID(def.BucketKey[0]); ok {
			kind, primitive := primitiveOf(f.Type)
			t := iceberg.BucketTransform{NumBuckets: int(def.Buckets)}
			if primitive && t.CanTransform(kind) {
				if err := add(f.ID, f.Name+"_bucket", t.String()); err != nil {
					return nil, err
				}
			}
		}
	}
	return out, nil
}

func primitiveOf(t segments.Type) (iceberg.Type, bool) {
	if t.Kind.Nested() {
		return nil, false
	}
	p, err := schemaConverter{}.convert(t, true)
	return p, err == nil
}

// ensureSpec makes the wanted partition spec the default one, reusing an equal
// one of the table's history. Partition field ids and names are those that the
// same source and transform had before, because they must never change meaning.
func ensureSpec(b *table.MetadataBuilder, history []iceberg.PartitionSpec, last *int, wanted []wantedField, initial bool) error {
	for _, spec := range history {
		if sameSpec(spec, wanted) {
			return b.SetDefaultSpecID(spec.ID())
		}
	}
	next := iceberg.PartitionDataIDStart
	if last != nil {
		next = max(next, *last+1)
	}
	taken := map[string]bool{}
	fields := make([]iceberg.PartitionField, len(wanted))
	for i, w := range wanted {
		f, known := fieldInHistory(history, w)
		if !known || taken[f.Name] {
			f = iceberg.PartitionField{SourceIDs: []int{w.source}, FieldID: next, Transform: w.transform,
				Name: partitionName(b.CurrentSchema(), w, taken)}
			next++
		}
		taken[f.Name] = true
		fields[i] = f
	}
	spec := iceberg.NewPartitionSpec(fields...)
	if err := b.AddPartitionSpec(&spec, initial); err != nil {
		return err
	}
	return b.SetDefaultSpecID(-1)
}

func sameSpec(spec iceberg.PartitionSpec, wanted []wantedField) bool {
	if spec.NumFields() != len(wanted) {
		return false
	}
	for i, w := range wanted {
		if f := spec.Field(i); f.SourceID() != w.source || f.Transform.String() != w.transform.String() {
			return false
		}
	}
	return true
}

func fieldInHistory(history []iceberg.PartitionSpec, w wantedField) (iceberg.PartitionField, bool) {
	for _, spec := range history {
		for _, f := range spec.Fields() {
			if f.SourceID() == w.source && f.Transform.String() == w.transform.String() {
				return f, true
			}
		}
	}
	return iceberg.PartitionField{}, false
}

// partitionName makes a partition field's name that is an Avro name, unique, and
// no column's unless it is the identity of that column.
func partitionName(schema *iceberg.Schema, w wantedField, taken map[string]bool) string {
	name := avroName(w.name)
	for n := 1; ; n++ {
		candidate := name
		if n > 1 {
			candidate = fmt.Sprintf("%s_%d", name, n)
		}
		column, exists := schema.FindFieldByName(candidate)
		_, identity := w.transform.(iceberg.IdentityTransform)
		if !taken[candidate] && (!exists || identity && column.ID == w.source) {
			return candidate
		}
	}
}

// avroName replaces what Avro does not allow in a name, the way Iceberg's Java
// library does: "a-b" becomes "a_x2Db", "1x" becomes "_1x".
func avroName(name string) string {
	var b strings.Builder
	for i, r := range name {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_'
		digit := r >= '0' && r <= '9'
		switch {
		case letter, digit && i > 0:
			b.WriteRune(r)
		case digit:
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, "_x%X", r)
		}
	}
	return b.String()
}
