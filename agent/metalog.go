package agent

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/metastore"
)

// metaLog is the metadata log as the current incarnation writes it. A new
// incarnation opens it anew, because entries carry their writer's name.
type metaLog struct {
	log atomic.Pointer[metastore.Log]
	now func() time.Time // time of entries; nil = time.Now
}

func (m *metaLog) open(ctx context.Context, store objstore.Store, writer string, logger *slog.Logger) error {
	log, err := metastore.Open(ctx, store, metastore.Options{Writer: writer, Now: m.now, Logger: logger})
	if err != nil {
		return err
	}
	if former := m.log.Swap(log); former != nil {
		return former.Close(ctx)
	}
	return nil
}

// State returns the newest view; it never waits.
func (m *metaLog) State() *metastore.State { return m.log.Load().State() }

// Watch returns the newest view and a channel that is closed at the next one.
func (m *metaLog) Watch() (*metastore.State, <-chan struct{}) { return m.log.Load().Watch() }

// Refresh returns a view that holds every entry written before the call.
func (m *metaLog) Refresh(ctx context.Context) (*metastore.State, error) {
	return m.log.Load().Refresh(ctx)
}

// Append writes the command that decide makes of the newest state.
func (m *metaLog) Append(ctx context.Context, decide func(*metastore.State) (metastore.Command, error)) (*metastore.State, error) {
	return m.log.Load().Append(ctx, decide)
}

func (m *metaLog) createTable(ctx context.Context, database string, spec *metastore.TableSpec, ifNotExists bool) (*metastore.State, error) {
	log := m.log.Load()
	return log.Append(ctx, log.DecideCreateTable(database, spec, ifNotExists))
}

// Maintain writes due snapshots and trims what stands behind them.
func (m *metaLog) Maintain(ctx context.Context) error { return m.log.Load().Maintain(ctx) }

// Close stops following the log.
func (m *metaLog) Close(ctx context.Context) error {
	if log := m.log.Load(); log != nil {
		return log.Close(ctx)
	}
	return nil
}
