package main

import (
	"context"
	"os"

	"github.com/firn-data/firn/internal/objstore"
	"github.com/firn-data/firn/internal/objstore/filestore"
	"github.com/firn-data/firn/internal/objstore/open"
)

// openStore opens a store for the commands that look into one without an agent.
func openStore(ctx context.Context, url string) (objstore.Store, error) {
	return open.Open(ctx, url, open.Options{})
}

// openExisting is openStore for commands that only look: a folder that is not
// there is a mistyped one, and is not made.
func openExisting(ctx context.Context, url string) (objstore.Store, error) {
	if folder, err := filestore.ParseURL(url); err == nil {
		if _, err := os.Stat(folder); err != nil {
			return nil, usagef("open store %s: %v", url, err)
		}
	}
	return openStore(ctx, url)
}
