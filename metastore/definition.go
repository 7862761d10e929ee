package metastore

import (
	"slices"
	"strings"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
	"github.com/firn-data/firn/segments/merge"
)

// checkDefinition is every rule that spans more than one column. NewTable and
// Alter both end here, so that a table never becomes what could not be created.
func checkDefinition(t *Table) error {
	for _, check := range []func(*Table) error{
		checkBuckets, checkBucketKey, checkPrimaryKey, checkKeyedColumns, checkPartition, checkProperties,
	} {
		if err := check(t); err != nil {
			return err
		}
	}
	return nil
}

func checkBuckets(t *Table) error {
	if t.Buckets < 1 || t.Buckets > MaxBuckets {
		return errs.New(errs.Invalid, "buckets is %d: a table has 1 to %d", t.Buckets, MaxBuckets)
	}
	return nil
}

// checkBucketKey allows what Iceberg's bucket transform hashes: the live side and
// the lake place rows by the same function.
func checkBucketKey(t *Table) error {
	for _, id := range t.BucketKey {
		f, _ := t.Current().FieldByID(id)
		switch f.Type.Kind {
		case segments.Boolean, segments.Float, segments.Double, segments.List, segments.Map, segments.Struct:
			return errs.New(errs.Invalid, "bucket_key: column %q is %s, which Iceberg's bucket function does not hash", f.Name, f.Type)
		}
	}
	if !t.Keyed() {
		return nil
	}
	if len(t.BucketKey) > len(t.PrimaryKey) || !slices.Equal(t.BucketKey, t.PrimaryKey[:len(t.BucketKey)]) {
		return errs.New(errs.Invalid, "bucket_key (%s) is not a prefix of primary_key (%s)",
			strings.Join(t.ColumnNames(t.BucketKey), ", "), strings.Join(t.ColumnNames(t.PrimaryKey), ", "))
	}
	return nil
}

func checkPrimaryKey(t *Table) error {
	for _, id := range t.PrimaryKey {
		f, _ := t.Current().FieldByID(id)
		switch {
		case f.Type.Kind == segments.Float || f.Type.Kind == segments.Double:
			return errs.New(errs.Invalid, "primary_key: column %q is %s; equality of floating-point numbers does not make a key", f.Name, f.Type)
		case f.Type.Kind.Nested():
			return errs.New(errs.Invalid, "primary_key: column %q is %s; a key column is not nested", f.Name, f.Type)
		case !f.Required:
			return errs.New(errs.Invalid, "primary_key: column %q is optional; a key column holds no NULL", f.Name)
		case f.Aggregate != "":
			return errs.New(errs.Invalid, "column %q: a key column is not aggregated", f.Name)
		}
	}
	return nil
}

// aggregates are the functions of the aggregation merge engine.
var aggregates = []string{
	"sum", "product", "min", "max", "last_value", "last_non_null", "first_value", "first_non_null",
	"string_agg", "bool_and", "bool_or", "rbm32", "rbm64", "count",
}

// checkKeyedColumns refuses column attributes that need a primary key.
func checkKeyedColumns(t *Table) error {
	for _, f := range t.Current().Fields {
		switch {
		case f.Aggregate != "" && !t.Keyed():
			return errs.New(errs.Invalid, "column %q: aggregate needs a primary key, and the table has none", f.Name)
		case f.AutoIncrement && !t.Keyed():
			return errs.New(errs.Invalid, "column %q: auto_increment needs a primary key, and the table has none", f.Name)
		case f.AutoIncrement:
			return errs.New(errs.Unsupported, "column %q: auto_increment is not served by this version", f.Name)
		}
		if f.Aggregate == "" {
			continue
		}
		name, _, call := strings.Cut(f.Aggregate, "(")
		if !slices.Contains(aggregates, name) || call && (name != "string_agg" || !strings.HasSuffix(f.Aggregate, ")")) {
			return errs.New(errs.Invalid, "column %q: aggregate %q is not one of %s", f.Name, f.Aggregate, strings.Join(aggregates, ", "))
		}
		if err := merge.CheckAggregate(f); err != nil {
			return err
		}
	}
	return nil
}
