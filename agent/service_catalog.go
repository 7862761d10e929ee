package agent

import (
	"context"
	"time"

	"connectrpc.com/connect"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
	"github.com/firn-data/firn/api/firn/v1/firnv1connect"
	"github.com/firn-data/firn/internal/errs"
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

// What a control method that the store keeps waiting leaves behind.
const (
	reading = errs.Unavailable // nothing
	writing = errs.Unknown     // perhaps what was asked for
)

// within bounds the time of a control method. A store that takes requests and
// never answers would keep its caller for minutes: each of the driver's attempts
// waits for its own time-out.
func within[Req, Res any](a *Agent, left errs.Class, f func(context.Context, *Req) (*Res, error)) func(context.Context, *Req) (*Res, error) {
	return func(ctx context.Context, req *Req) (*Res, error) {
		limited, cancel := context.WithTimeout(ctx, a.cfg.ControlTimeout)
		defer cancel()
		res, err := f(limited, req)
		if err == nil || limited.Err() == nil || ctx.Err() != nil || !errs.Is(err, errs.Canceled) {
			return res, err
		}
		e := errs.New(left, "the object store did not answer within control_timeout (%s): %v", a.cfg.ControlTimeout, err)
		e.RetryAfter = 5 * time.Second
		return nil, e
	}
}

// catalogMethods are the control methods by name, for the REST routes.
func (a *Agent) catalogMethods() map[string]method {
	return map[string]method{
		"ListDatabases":   unary(within(a, reading, a.listDatabases)),
		"CreateDatabase":  unary(within(a, writing, a.createDatabase)),
		"DropDatabase":    unary(within(a, writing, a.dropDatabase)),
		"ListTables":      unary(within(a, reading, a.listTables)),
		"CreateTable":     unary(within(a, writing, a.createTable)),
		"GetTable":        unary(within(a, reading, a.getTable)),
		"AlterTable":      unary(within(a, writing, a.alterTable)),
		"DropTable":       unary(within(a, writing, a.dropTable)),
		"GetOffsets":      unary(within(a, reading, a.getOffsets)),
		"ListSnapshots":   unary(within(a, reading, a.listSnapshots)),
		"FoldTable":       unary(a.foldTable),
		"CompactTable":    unary(a.compactTable),
		"ExpireSnapshots": unary(a.expireSnapshots),
		"GetProducer":     unary(within(a, reading, a.getProducer)),
	}
}

// ListDatabases implements the service.
func (s catalogService) ListDatabases(ctx context.Context, req *connect.Request[firnv1.ListDatabasesRequest]) (*connect.Response[firnv1.ListDatabasesResponse], error) {
	return answer(ctx, req, within(s.a, reading, s.a.listDatabases))
}

// CreateDatabase implements the service.
func (s catalogService) CreateDatabase(ctx context.Context, req *connect.Request[firnv1.CreateDatabaseRequest]) (*connect.Response[firnv1.Database], error) {
	return answer(ctx, req, within(s.a, writing, s.a.createDatabase))
}

// DropDatabase implements the service.
func (s catalogService) DropDatabase(ctx context.Context, req *connect.Request[firnv1.DropDatabaseRequest]) (*connect.Response[firnv1.DropDatabaseResponse], error) {
	return answer(ctx, req, within(s.a, writing, s.a.dropDatabase))
}

// ListTables implements the service.
func (s catalogService) ListTables(ctx context.Context, req *connect.Request[firnv1.ListTablesRequest]) (*connect.Response[firnv1.ListTablesResponse], error) {
	return answer(ctx, req, within(s.a, reading, s.a.listTables))
}

// CreateTable implements the service.
func (s catalogService) CreateTable(ctx context.Context, req *connect.Request[firnv1.CreateTableRequest]) (*connect.Response[firnv1.Table], error) {
	return answer(ctx, req, within(s.a, writing, s.a.createTable))
}

// GetTable implements the service.
func (s catalogService) GetTable(ctx context.Context, req *connect.Request[firnv1.GetTableRequest]) (*connect.Response[firnv1.Table], error) {
	return answer(ctx, req, within(s.a, reading, s.a.getTable))
}

// AlterTable implements the service.
func (s catalogService) AlterTable(ctx context.Context, req *connect.Request[firnv1.AlterTableRequest]) (*connect.Response[firnv1.Table], error) {
	return answer(ctx, req, within(s.a, writing, s.a.alterTable))
}

// DropTable implements the service.
func (s catalogService) DropTable(ctx context.Context, req *connect.Request[firnv1.DropTableRequest]) (*connect.Response[firnv1.DropTableResponse], error) {
	return answer(ctx, req, within(s.a, writing, s.a.dropTable))
}

// GetOffsets implements the service.
func (s catalogService) GetOffsets(ctx context.Context, req *connect.Request[firnv1.GetOffsetsRequest]) (*connect.Response[firnv1.GetOffsetsResponse], error) {
	return answer(ctx, req, within(s.a, reading, s.a.getOffsets))
}

// ListSnapshots implements the service.
func (s catalogService) ListSnapshots(ctx context.Context, req *connect.Request[firnv1.ListSnapshotsRequest]) (*connect.Response[firnv1.ListSnapshotsResponse], error) {
	return answer(ctx, req, within(s.a, reading, s.a.listSnapshots))
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
	return answer(ctx, req, within(s.a, reading, s.a.getProducer))
}
