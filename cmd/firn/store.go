package main

import (
	"context"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/open"
)

// openStore opens a store for the commands that look into one without an agent.
func openStore(ctx context.Context, url string) (objstore.Store, error) {
	return open.Open(ctx, url, open.Options{})
}
