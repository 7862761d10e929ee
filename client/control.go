package client

import (
	"context"

	"connectrpc.com/connect"

	firnv1 "github.com/firn-data/firn/api/firn/v1"
)

// CreateDatabase makes an empty database; Exists when there is one.
func (c *Client) CreateDatabase(ctx context.Context, name string) (*firnv1.Database, error) {
	return call(ctx, c.catalog.CreateDatabase, &firnv1.CreateDatabaseRequest{Name: name})
}

// EnsureDatabase makes a database unless it exists.
func (c *Client) EnsureDatabase(ctx context.Context, name string) (*firnv1.Database, error) {
	return call(ctx, c.catalog.CreateDatabase, &firnv1.CreateDatabaseRequest{Name: name, IfNotExists: true})
}

// Databases returns all databases by name.
func (c *Client) Databases(ctx context.Context) ([]*firnv1.Database, error) {
	r, err := call(ctx, c.catalog.ListDatabases, &firnv1.ListDatabasesRequest{})
	return r.GetDatabases(), err
}

// DropDatabase removes a database; cascade drops its tables with it.
func (c *Client) DropDatabase(ctx context.Context, name string, cascade bool) error {
	_, err := call(ctx, c.catalog.DropDatabase, &firnv1.DropDatabaseRequest{Database: name, Cascade: cascade})
	return err
}

// Tables returns the tables of a database by name.
func (c *Client) Tables(ctx context.Context, database string) ([]*firnv1.Table, error) {
	r, err := call(ctx, c.catalog.ListTables, &firnv1.ListTablesRequest{Database: database})
	return r.GetTables(), err
}

// CreateTable makes a table as the definition says.
func (c *Client) CreateTable(ctx context.Context, def *firnv1.CreateTableRequest) (*firnv1.Table, error) {
	return call(ctx, c.catalog.CreateTable, def)
}

// Agents returns the agents of the store; all includes dead incarnations.
func (c *Client) Agents(ctx context.Context, all bool) ([]*firnv1.Agent, error) {
	r, err := call(ctx, c.cluster.ListAgents, &firnv1.ListAgentsRequest{All: all})
	return r.GetAgents(), err
}

// call makes one unary call.
func call[Req, Resp any](
	ctx context.Context, method func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error), req *Req,
) (*Resp, error) {
	r, err := method(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}
