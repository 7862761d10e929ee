package agent

import (
	"context"

	"connectrpc.com/connect"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
)

// catalogService is the Connect, gRPC and gRPC-Web face of the control methods.
// The same functions answer at the REST routes (see methods).
type catalogService struct{ a *Agent }

var _ firnv1connect.CatalogServiceHandler = catalogService{}

// answer runs a control method for a Connect request.
func answer[Req, Res any](ctx context.Context, req *connect.Request[Req], f func(context.Context, *Req) (*Res, error)) (*connect.Response[Res], error) {
	res, err := f(ctx, req.Msg)
	if err != nil {
		return nil, connectError(err)
	}
	return connect.NewResponse(res), nil
}

// catalogMethods are the control methods by name, for the REST routes.
func (a *Agent) catalogMethods() map[string]method {
	return map[string]method{
		"ListDatabases":   unary(a.listDatabases),
		"CreateDatabase":  unary(a.createDatabase),
		"DropDatabase":    unary(a.dropDatabase),
		"ListTables":      unary(a.listTables),
		"CreateTable":     unary(a.createTable),
		"GetTable":        unary(a.getTable),
		"AlterTable":      unary(a.alterTable),
		"DropTable":       unary(a.dropTable),
		"GetOffsets":      unary(a.getOffsets),
		"ListSnapshots":   unary(a.listSnapshots),
		"FoldTable":       unary(a.foldTable),
		"CompactTable":    unary(a.compactTable),
		"ExpireSnapshots": unary(a.expireSnapshots),
		"GetProducer":     unary(a.getProducer),
	}
}

// ListDatabases implements the service.
func (s catalogService) ListDatabases(ctx context.Context, req *connect.Request[firnv1.ListDatabasesRequest]) (*connect.Response[firnv1.ListDatabasesResponse], error) {
	return answer(ctx, req, s.a.listDatabases)
}

// CreateDatabase implements the service.
func (s catalogService) CreateDatabase(ctx context.Context, req *connect.Request[firnv1.CreateDatabaseRequest]) (*connect.Response[firnv1.Database], error) {
	return answer(ctx, req, s.a.createDatabase)
}

// DropDatabase implements the service.
func (s catalogService) DropDatabase(ctx context.Context, req *connect.Request[firnv1.DropDatabaseRequest]) (*connect.Response[firnv1.DropDatabaseResponse], error) {
	return answer(ctx, req, s.a.dropDatabase)
}

// ListTables implements the service.
func (s catalogService) ListTables(ctx context.Context, req *connect.Request[firnv1.ListTablesRequest]) (*connect.Response[firnv1.ListTablesResponse], error) {
	return answer(ctx, req, s.a.listTables)
}

// CreateTable implements the service.
func (s catalogService) CreateTable(ctx context.Context, req *connect.Request[firnv1.CreateTableRequest]) (*connect.Response[firnv1.Table], error) {
	return answer(ctx, req, s.a.createTable)
}

// GetTable implements the service.
func (s catalogService) GetTable(ctx context.Context, req *connect.Request[firnv1.GetTableRequest]) (*connect.Response[firnv1.Table], error) {
	return answer(ctx, req, s.a.getTable)
}

// AlterTable implements the service.
func (s catalogService) AlterTable(ctx context.Context, req *connect.Request[firnv1.AlterTableRequest]) (*connect.Response[firnv1.Table], error) {
	return answer(ctx, req, s.a.alterTable)
}

// DropTable implements the service.
func (s catalogService) DropTable(ctx context.Context, req *connect.Request[firnv1.DropTableRequest]) (*connect.Response[firnv1.DropTableResponse], error) {
	return answer(ctx, req, s.a.dropTable)
}

// GetOffsets implements the service.
func (s catalogService) GetOffsets(ctx context.Context, req *connect.Request[firnv1.GetOffsetsRequest]) (*connect.Response[firnv1.GetOffsetsResponse], error) {
	return answer(ctx, req, s.a.getOffsets)
}

// ListSnapshots implements the service.
func (s catalogService) ListSnapshots(ctx context.Context, req *connect.Request[firnv1.ListSnapshotsRequest]) (*connect.Response[firnv1.ListSnapshotsResponse], error) {
	return answer(ctx, req, s.a.listSnapshots)
}

// FoldTable implements the service.
func (s catalogService) FoldTable(ctx context.Context, req *connect.Request[firnv1.FoldTableRequest]) (*connect.Response[firnv1.FoldTableResponse], error) {
	return answer(ctx, req, s.a.foldTable)
}

// CompactTable implements the service.
func (s catalogService) CompactTable(ctx context.Context, req *connect.Request[firnv1.CompactTableRequest]) (*connect.Response[firnv1.CompactTableResponse], error) {
	return answer(ctx, req, s.a.compactTable)
}

// ExpireSnapshots implements the service.
func (s catalogService) ExpireSnapshots(ctx context.Context, req *connect.Request[firnv1.ExpireSnapshotsRequest]) (*connect.Response[firnv1.ExpireSnapshotsResponse], error) {
	return answer(ctx, req, s.a.expireSnapshots)
}

// GetProducer implements the service.
func (s catalogService) GetProducer(ctx context.Context, req *connect.Request[firnv1.GetProducerRequest]) (*connect.Response[firnv1.Producer], error) {
	return answer(ctx, req, s.a.getProducer)
}
