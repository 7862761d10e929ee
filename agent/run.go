package agent

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/firn-data/firn/internal/objstore/open"
)

// leaveTimeout bounds an orderly end: finish requests, flush, release, leave.
const leaveTimeout = 30 * time.Second

// Run opens the store that the configuration names, serves until ctx ends or
// the agent cannot go on, and leaves the cluster in order.
func Run(ctx context.Context, cfg Config, logger *slog.Logger) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	store, err := open.Open(ctx, cfg.Store, open.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	a, err := New(cfg, store, logger)
	if err != nil {
		return err
	}
	if err := a.Open(ctx); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		a.logger.Info("leaving")
	case <-a.Failed():
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	return errors.Join(a.Err(), a.Close(leaving))
}
