package lakehouse

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/parquet/compress"

	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/segments"
)

// TableDef is what the lake knows of a table's definition: a plain copy of the
// metastore's state. The lake's own metadata follows it (see [Lake.SyncSchema])
// and is never read back into it.
type TableDef struct {
	ID   uint64 // never reused
	UUID string // canonical text form; the Iceberg table uuid
	// Version orders the definitions of one table: the metastore sequence that
	// this one was read at. The lake never follows an older one back. 0 is unknown
	// and older than every other.
	Version  uint64
	Database string
	Name     string
	// Prefix is the table's directory in the store, "lake/<db>/<table>-<id>".
	// It stays when the table is renamed.
	Prefix string

	Schemas       []*segments.Schema // every version, ascending by ID
	CurrentSchema int32
	LastFieldID   int32

	Partition []segments.PartitionField
	Buckets   int32
	BucketKey []int32 // top-level field ids; empty for keyless tables

	Properties map[string]string
}

// Properties of a table that the lake obeys.
const (
	// PropFormatVersion is the Iceberg format version: 2 (default) or 3.
	PropFormatVersion = "iceberg.format_version"
	// PropTargetFileBytes bounds one data file; a few row groups may overshoot.
	PropTargetFileBytes = "lake.target_file_bytes"
	// PropEncoding is "plain" (default: PLAIN and dictionary pages, which every
	// engine reads fast) or "delta" (DELTA_BINARY_PACKED for integers).
	PropEncoding = "lake.encoding"
	// PropCompression is the codec of Parquet pages: "zstd" (default), "snappy",
	// "gzip" or "none".
	PropCompression = "lake.compression"
	// PropKeepSnapshots is how many Iceberg snapshots expiry keeps (default 100).
	PropKeepSnapshots = "lake.keep_snapshots"
	// PropRetention drops files whose newest row is older ("7d", "12h"; "" keeps all).
	PropRetention = "retention"
)

// Schema returns the schema with that id.
func (d *TableDef) Schema(id int32) (*segments.Schema, error) {
	for _, s := range d.Schemas {
		if s.ID == id {
			return s, nil
		}
	}
	return nil, errs.New(errs.Internal, "table %s.%s has no schema %d", d.Database, d.Name, id)
}

// Current returns the current schema.
func (d *TableDef) Current() (*segments.Schema, error) { return d.Schema(d.CurrentSchema) }

// FormatVersion returns the Iceberg format version that the definition asks for.
func (d *TableDef) FormatVersion() (int, error) {
	v, ok := d.Properties[PropFormatVersion]
	switch {
	case !ok || v == "" || v == "2":
		return 2, nil
	case v == "3":
		return 3, nil
	}
	return 0, errs.New(errs.Invalid, "property %s is %q: must be 2 or 3", PropFormatVersion, v)
}

// intProperty returns a positive integer property, or fallback when it is unset.
func (d *TableDef) intProperty(name string, fallback int64) (int64, error) {
	text, ok := d.Properties[name]
	if !ok || text == "" {
		return fallback, nil
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v <= 0 {
		return 0, errs.New(errs.Invalid, "property %s is %q: must be a positive whole number", name, text)
	}
	return v, nil
}

// CheckProperties refuses lake properties that could not work later.
func (d *TableDef) CheckProperties() error {
	if _, err := d.FormatVersion(); err != nil {
		return err
	}
	if _, err := d.intProperty(PropTargetFileBytes, 1); err != nil {
		return err
	}
	if _, err := d.intProperty(PropKeepSnapshots, 1); err != nil {
		return err
	}
	switch e := d.Properties[PropEncoding]; e {
	case "", "plain", "delta":
	default:
		return errs.New(errs.Invalid, "property %s is %q: must be plain or delta", PropEncoding, e)
	}
	if _, err := d.compression(); err != nil {
		return err
	}
	_, err := d.Retention()
	return err
}

// compression returns the Parquet codec that the definition asks for.
func (d *TableDef) compression() (compress.Compression, error) {
	switch c := d.Properties[PropCompression]; c {
	case "", "zstd":
		return compress.Codecs.Zstd, nil
	case "snappy":
		return compress.Codecs.Snappy, nil
	case "gzip":
		return compress.Codecs.Gzip, nil
	case "none":
		return compress.Codecs.Uncompressed, nil
	default:
		return 0, errs.New(errs.Invalid, "property %s is %q: must be zstd, snappy, gzip or none", PropCompression, c)
	}
}

// String names the table for messages.
func (d *TableDef) String() string { return fmt.Sprintf("%s.%s", d.Database, d.Name) }

// Keys of the table's objects.
func (d *TableDef) metadataPrefix() string { return d.Prefix + "/metadata/" }
func (d *TableDef) dataPrefix() string     { return d.Prefix + "/data/" }
func (d *TableDef) hintKey() string        { return d.metadataPrefix() + "version-hint.text" }
func (d *TableDef) versionKey(v int64) string {
	return d.metadataPrefix() + "v" + strconv.FormatInt(v, 10) + ".metadata.json"
}

// parseVersionKey returns the N of a key that ends in "/metadata/vN.metadata.json".
func parseVersionKey(key string) (int64, bool) {
	name := key[strings.LastIndexByte(key, '/')+1:]
	digits, ok := strings.CutPrefix(name, "v")
	if !ok {
		return 0, false
	}
	if digits, ok = strings.CutSuffix(digits, ".metadata.json"); !ok {
		return 0, false
	}
	v, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || v < 1 || strconv.FormatInt(v, 10) != digits {
		return 0, false
	}
	return v, true
}
