package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/internal/errs"
	"github.com/firn-data/firn/metastore"
)

// tableOf finds the table that a plain route names.
func (a *Agent) tableOf(r *http.Request) (*metastore.Table, error) {
	return a.table(r.Context(), r.PathValue("database"), r.PathValue("table"))
}

// table finds a table, looking once more into the metadata log before saying that there is none.
func (a *Agent) table(ctx context.Context, database, name string) (*metastore.Table, error) {
	t, err := a.meta.State().TableByName(database, name)
	if err == nil || !errs.Is(err, errs.NotFound) {
		return t, err
	}
	s, rerr := a.meta.Refresh(ctx)
	if rerr != nil {
		return nil, rerr
	}
	return s.TableByName(database, name)
}

func (a *Agent) listDatabases(ctx context.Context, _ *firnv1.ListDatabasesRequest) (*firnv1.ListDatabasesResponse, error) {
	s, err := a.meta.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	res := &firnv1.ListDatabasesResponse{}
	for _, d := range s.Databases() {
		res.Databases = append(res.Databases, &firnv1.Database{Name: d.Name})
	}
	return res, nil
}

func (a *Agent) createDatabase(ctx context.Context, req *firnv1.CreateDatabaseRequest) (*firnv1.Database, error) {
	_, err := a.meta.Append(ctx, metastore.DecideCreateDatabase(req.Name, "", req.IfNotExists))
	return &firnv1.Database{Name: req.Name}, err
}

func (a *Agent) dropDatabase(ctx context.Context, req *firnv1.DropDatabaseRequest) (*firnv1.DropDatabaseResponse, error) {
	var tables []*metastore.Table
	decide := metastore.DecideDropDatabase(req.Database, req.Cascade)
	_, err := a.meta.Append(ctx, func(s *metastore.State) (metastore.Command, error) {
		tables = s.Tables(req.Database)
		return decide(s)
	})
	if errs.Is(err, errs.NotFound) && req.IfExists {
		return &firnv1.DropDatabaseResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	for _, t := range tables {
		a.tableDropped(t)
	}
	return &firnv1.DropDatabaseResponse{}, nil
}

func (a *Agent) listTables(ctx context.Context, req *firnv1.ListTablesRequest) (*firnv1.ListTablesResponse, error) {
	s, err := a.meta.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := s.Database(req.Database); err != nil {
		return nil, err
	}
	res := &firnv1.ListTablesResponse{}
	for _, t := range s.Tables(req.Database) {
		res.Tables = append(res.Tables, tableMessage(t))
	}
	return res, nil
}

func (a *Agent) createTable(ctx context.Context, req *firnv1.CreateTableRequest) (*firnv1.Table, error) {
	spec, err := tableSpec(req)
	if err != nil {
		return nil, err
	}
	state, err := a.meta.createTable(ctx, req.Database, spec, req.IfNotExists)
	if err != nil {
		return nil, err
	}
	t, err := state.TableByName(req.Database, req.Name)
	if err != nil {
		return nil, err
	}
	// The Iceberg table is born with the table; should this fail, the first fold or load makes it.
	if err := a.lake.CreateTable(ctx, a.lakeDef(t)); err != nil {
		a.logger.Warn("iceberg table not made yet; the first fold makes it", "table", t.String(), "error", err)
	}
	return tableMessage(t), nil
}

func (a *Agent) getTable(ctx context.Context, req *firnv1.GetTableRequest) (*firnv1.Table, error) {
	if _, err := a.meta.Refresh(ctx); err != nil {
		return nil, err
	}
	t, err := a.table(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	return tableMessage(t), nil
}

func (a *Agent) alterTable(ctx context.Context, req *firnv1.AlterTableRequest) (*firnv1.Table, error) {
	changes, err := tableChanges(req)
	if err != nil {
		return nil, err
	}
	state, err := a.meta.Append(ctx, metastore.DecideAlterTable(req.Database, req.Table, changes))
	if err != nil {
		return nil, err
	}
	t, err := state.TableByName(req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	if err := a.lake.SyncSchema(ctx, a.lakeDef(t)); err != nil {
		a.logger.Warn("iceberg schema not changed yet; the next fold does it", "table", t.String(), "error", err)
	}
	return tableMessage(t), nil
}

func (a *Agent) dropTable(ctx context.Context, req *firnv1.DropTableRequest) (*firnv1.DropTableResponse, error) {
	var dropped *metastore.Table
	decide := metastore.DecideDropTable(req.Database, req.Table, req.IfExists)
	_, err := a.meta.Append(ctx, func(s *metastore.State) (metastore.Command, error) {
		dropped, _ = s.TableByName(req.Database, req.Table)
		return decide(s)
	})
	if err != nil {
		return nil, err
	}
	a.tableDropped(dropped)
	return &firnv1.DropTableResponse{}, nil
}

// tableDropped forgets a dropped table's live rows; its lake directory is left to the sweep.
func (a *Agent) tableDropped(t *metastore.Table) {
	if n := a.current.Load(); n != nil && t != nil {
		n.dropTable(t.ID)
		n.collector.wake()
	}
}

// tableSpec converts a create-table request.
func tableSpec(req *firnv1.CreateTableRequest) (*metastore.TableSpec, error) {
	spec := &metastore.TableSpec{
		Name: req.Name, Comment: req.Comment, PrimaryKey: req.PrimaryKey, Buckets: req.Buckets,
		BucketKey: req.BucketKey, PartitionBy: req.PartitionBy, Properties: req.Properties,
	}
	for _, c := range req.Columns {
		def, err := defaultJSON(c.Name, c.Default)
		if err != nil {
			return nil, err
		}
		spec.Columns = append(spec.Columns, metastore.ColumnSpec{
			Name: c.Name, Type: c.Type, Required: c.Required, Default: def, Doc: c.Doc, Aggregate: c.Aggregate, AutoIncrement: c.AutoIncrement,
		})
	}
	return spec, nil
}

func defaultJSON(column string, v *structpb.Value) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	raw, err := v.MarshalJSON()
	if err != nil {
		return nil, errs.New(errs.Invalid, "column %q: the default is no JSON value: %v", column, err)
	}
	return raw, nil
}

// tableChanges converts an alter-table request.
func tableChanges(req *firnv1.AlterTableRequest) ([]metastore.Change, error) {
	if len(req.Changes) == 0 {
		return nil, errs.New(errs.Invalid, "changes is empty: give at least one change")
	}
	out := make([]metastore.Change, len(req.Changes))
	for i, c := range req.Changes {
		var err error
		if out[i], err = tableChange(c); err != nil {
			return nil, errs.In(fmt.Sprintf("change %d", i), err)
		}
	}
	return out, nil
}

func tableChange(c *firnv1.TableChange) (out metastore.Change, err error) {
	if f := c.AddColumn; f != nil {
		def, err := defaultJSON(f.Name, f.Default)
		if err != nil {
			return out, err
		}
		out.AddColumn = &metastore.AddColumn{After: f.After, First: f.First, ColumnSpec: metastore.ColumnSpec{
			Name: f.Name, Type: f.Type, Required: f.Required, Default: def, Doc: f.Doc, Aggregate: f.Aggregate,
		}}
	}
	if f := c.RenameColumn; f != nil {
		out.RenameColumn = &metastore.RenameColumn{From: f.From, To: f.To}
	}
	if f := c.DropColumn; f != nil {
		out.DropColumn = &metastore.DropColumn{Name: f.Name}
	}
	if f := c.WidenColumn; f != nil {
		out.WidenColumn = &metastore.WidenColumn{Name: f.Name, Type: f.Type}
	}
	if f := c.MakeOptional; f != nil {
		out.MakeOptional = &metastore.MakeOptional{Name: f.Name}
	}
	if f := c.MoveColumn; f != nil {
		out.MoveColumn = &metastore.MoveColumn{Name: f.Name, After: f.After, First: f.First}
	}
	if f := c.SetColumnDoc; f != nil {
		out.SetColumnDoc = &metastore.SetColumnDoc{Name: f.Name, Doc: f.Doc}
	}
	if len(c.SetProperties) > 0 {
		out.SetProperties = c.SetProperties
	}
	if len(c.UnsetProperties) > 0 {
		out.UnsetProperties = c.UnsetProperties
	}
	if c.SetPartitionBy != nil {
		by := []string{}
		for _, v := range c.SetPartitionBy.Values {
			text, ok := v.Kind.(*structpb.Value_StringValue)
			if !ok {
				return out, errs.New(errs.Invalid, "set_partition_by is a list of strings, as in [\"day(ts)\"]")
			}
			by = append(by, text.StringValue)
		}
		out.SetPartitionBy = &by
	}
	out.SetComment = c.SetComment
	return out, nil
}

// tableMessage is a table as the API shows it.
func tableMessage(t *metastore.Table) *firnv1.Table {
	m := &firnv1.Table{
		Database: t.Database, Name: t.Name, Id: int64(t.ID), Uuid: t.UUID, //nolint:gosec // ids count from 1
		PrimaryKey: t.ColumnNames(t.PrimaryKey), Buckets: t.Buckets, BucketKey: t.ColumnNames(t.BucketKey), PartitionBy: t.PartitionBy(),
		Properties: t.Properties, Comment: t.Comment, SchemaId: t.CurrentSchema, CreatedAt: timestamp(t.CreatedAt), Location: t.LakePrefix(),
	}
	for _, f := range t.Current().Fields {
		c := &firnv1.Column{Id: f.ID, Name: f.Name, Type: f.Type.String(), Required: f.Required, Doc: f.Doc, Aggregate: f.Aggregate, AutoIncrement: f.AutoIncrement}
		if f.Default != nil {
			c.Default = protoValue(f.Default)
		}
		m.Columns = append(m.Columns, c)
	}
	return m
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}
