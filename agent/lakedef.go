package agent

import (
	"strconv"

	"github.com/firn-data/firn/lakehouse"
	"github.com/firn-data/firn/metastore"
)

func (a *Agent) lakeDef(t *metastore.Table) lakehouse.TableDef { return LakeDef(t) }

// LakeDef gives a table's definition the form that the lake takes.
func LakeDef(t *metastore.Table) lakehouse.TableDef {
	d := lakehouse.TableDef{
		ID: t.ID, UUID: t.UUID, Version: t.Version, Database: t.Database, Name: t.Name, Prefix: t.LakePrefix(),
		Schemas: t.Schemas, CurrentSchema: t.CurrentSchema, LastFieldID: t.LastFieldID,
		Partition: t.Partition, Buckets: t.Buckets, BucketKey: t.BucketKey,
		Properties: map[string]string{
			lakehouse.PropFormatVersion:   strconv.Itoa(t.FormatVersion()),
			lakehouse.PropTargetFileBytes: strconv.FormatInt(t.TargetFileBytes(), 10),
			lakehouse.PropEncoding:        t.Encoding(),
			lakehouse.PropCompression:     t.Compression(),
			lakehouse.PropKeepSnapshots:   strconv.Itoa(t.SnapshotsKept()),
		},
	}
	if r := t.Retention(); r > 0 {
		d.Properties[lakehouse.PropRetention] = r.String()
	}
	return d
}
