package client

import (
	"context"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// Table is a handle on one table. It holds no state of the agent.
type Table struct {
	c        *Client
	database string
	name     string
}

// Name returns "database.table".
func (t *Table) Name() string { return t.database + "." + t.name }

// Describe returns the table's definition.
func (t *Table) Describe(ctx context.Context) (*firnv1.Table, error) {
	return call(ctx, t.c.catalog.GetTable, &firnv1.GetTableRequest{Database: t.database, Table: t.name})
}

// Alter applies changes in one step, or none of them.
func (t *Table) Alter(ctx context.Context, changes ...*firnv1.TableChange) (*firnv1.Table, error) {
	return call(ctx, t.c.catalog.AlterTable, &firnv1.AlterTableRequest{Database: t.database, Table: t.name, Changes: changes})
}

// Drop removes the table.
func (t *Table) Drop(ctx context.Context) error {
	_, err := call(ctx, t.c.catalog.DropTable, &firnv1.DropTableRequest{Database: t.database, Table: t.name})
	return err
}

// Offsets returns where each bucket's log begins and ends.
func (t *Table) Offsets(ctx context.Context) ([]*firnv1.BucketOffsets, error) {
	r, err := call(ctx, t.c.catalog.GetOffsets, &firnv1.GetOffsetsRequest{Database: t.database, Table: t.name})
	return r.GetBuckets(), err
}

// Snapshots returns the lake's Iceberg snapshots, oldest first.
func (t *Table) Snapshots(ctx context.Context) ([]*firnv1.LakeSnapshot, error) {
	r, err := call(ctx, t.c.catalog.ListSnapshots, &firnv1.ListSnapshotsRequest{Database: t.database, Table: t.name})
	return r.GetSnapshots(), err
}

// Fold moves the durable live rows into the lake and waits for the commit.
func (t *Table) Fold(ctx context.Context) (*firnv1.FoldTableResponse, error) {
	return call(ctx, t.c.catalog.FoldTable, &firnv1.FoldTableRequest{Database: t.database, Table: t.name})
}

// Compact joins small lake files; targetFileBytes 0 means the table's own size.
func (t *Table) Compact(ctx context.Context, targetFileBytes int64) (*firnv1.CompactTableResponse, error) {
	return call(ctx, t.c.catalog.CompactTable, &firnv1.CompactTableRequest{
		Database: t.database, Table: t.name, TargetFileBytes: targetFileBytes,
	})
}

// Expire removes old snapshots. keepLast 0 and olderThan "" mean the table's own
// settings.
func (t *Table) Expire(ctx context.Context, keepLast int32, olderThan string) (*firnv1.ExpireSnapshotsResponse, error) {
	return call(ctx, t.c.catalog.ExpireSnapshots, &firnv1.ExpireSnapshotsRequest{
		Database: t.database, Table: t.name, KeepLast: keepLast, OlderThan: olderThan,
	})
}

// Producer returns what a producer's rows have reached. Its Watermark is the
// sequence that a source resumes from: 0 for a producer that wrote nothing yet.
func (t *Table) Producer(ctx context.Context, id string) (*firnv1.Producer, error) {
	p, err := call(ctx, t.c.catalog.GetProducer, &firnv1.GetProducerRequest{Database: t.database, Table: t.name, ProducerId: id})
	if ClassOf(err) != NotFound {
		return p, err
	}
	if _, err := t.Describe(ctx); err != nil { // it is the table that does not exist
		return nil, err
	}
	return &firnv1.Producer{ProducerId: id}, nil
}

// CountOptions narrows what is counted.
type CountOptions struct {
	Layer    Layer
	Where    string
	Snapshot int64  // 0 means none
	AsOf     string // RFC 3339
}

// Count returns the exact number of rows.
func (t *Table) Count(ctx context.Context, o CountOptions) (int64, error) {
	req := &firnv1.CountRequest{Database: t.database, Table: t.name, Layer: string(o.Layer), Where: o.Where, AsOf: o.AsOf}
	if o.Snapshot != 0 {
		req.Snapshot = &o.Snapshot
	}
	r, err := call(ctx, t.c.data.Count, req)
	return r.GetCount(), err
}
